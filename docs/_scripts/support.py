"""Write the tables of docs/support.md: python docs/_scripts/support.py

Versions come from pyproject.toml and constraints.txt. A feature is listed for an integration only if a test of that
integration shows it: the table here names the test, and tests/test_generated_pages.py looks for it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "support.md"
START = "<!-- support: made by docs/_scripts/support.py -->\n"
END = "<!-- end of support -->"

# Package of filet.integrations: its name in prose, the extra, and the distributions whose versions matter.
INTEGRATIONS = {
    "torch": ("PyTorch", "torch", ["torch"]),
    "opacus": ("Opacus", "opacus", ["opacus", "torch"]),
    "lightning": ("Lightning", "lightning", ["lightning", "opacus"]),
    "huggingface": ("Hugging Face", "huggingface", ["transformers", "peft", "accelerate"]),
    "jax": ("JAX", "jax", ["jax"]),
    "jax_privacy": ("JAX Privacy", "jax-privacy", ["jax-privacy"]),
    "keras": ("Keras", "keras", ["keras", "jax-privacy"]),
    "grain": ("grain", "grain", ["grain"]),
    "beam": ("Apache Beam", "beam", ["apache-beam"]),
    "spark": ("Apache Spark", "spark", ["pyspark"]),
    "ray": ("Ray", "ray", ["ray"]),
    "flower": ("Flower", "flower", ["flwr"]),
    "dp_accounting": ("dp_accounting", "dp-accounting", ["dp-accounting"]),
}
# Without a framework of their own: files of batches are the other half of Beam's and Spark's, trackers take any run.
WITHOUT = {"batch_files", "tracking"}

# Feature: the test that shows it, for each integration that has it.
FEATURES = {
    "batches of one shape, padding masked": {
        "torch": "test_structure_shapes_and_types_never_change",
        "opacus": "test_ghost_clipping_masks_padding_exactly",
        "huggingface": "test_hugging_face_noiseless_step_is_the_clipped_sum_by_hand",
        "jax": "test_padding_is_zeros_of_the_arrays_own_type",
        "jax_privacy": "test_batches_have_one_shape_and_are_the_samplers",
        "keras": "test_keras_takes_the_accounted_step_on_masked_batches",
        "grain": "test_grain_shards_share_each_batch_evenly",
        "beam": "test_empty_batches_are_batches_of_padding",
        "spark": "test_every_step_has_the_samplers_rows_in_their_order",
        "ray": "test_both_policies_and_cycles_have_the_bytes_of_the_in_memory_sampler",
    },
    "one compilation": {
        "torch": "test_a_compiled_step_compiles_once_and_more_often_with_plain_poisson",
        "jax": "test_one_compilation_over_fifty_steps_on_the_device_and_from_the_host",
        "jax_privacy": "test_padding_adds_exactly_nothing_to_clipped_gradients_in_one_compilation",
        "keras": "test_keras_trains_in_one_compilation_and_costs_what_filet_says",
    },
    "the run's epsilon from the framework's own objects": {
        "opacus": "test_the_engines_epsilon_is_filets_for_these_batches",
        "lightning": "test_noise_is_calibrated_to_a_target",
        "huggingface": "test_hugging_face_lora_with_ghost_clipping_costs_what_filet_says_and_equals_hooks",
        "flower": "test_epsilon_is_that_of_the_cohorts_that_the_method_means",
        "jax_privacy": "test_account_banded_noise_convention_is_named_and_agrees_with_the_plans_event",
        "keras": "test_keras_trains_in_one_compilation_and_costs_what_filet_says",
        "dp_accounting": "test_calibration_by_dp_accounting_meets_the_target",
    },
    "noise from the run's key": {
        "opacus": "test_noise_is_the_same_in_all_modes_and_another_for_another_key",
        "flower": "test_noise_is_that_of_the_key_and_the_round",
        "jax_privacy": "test_noise_of_a_plan_comes_from_its_key_and_from_nothing_else",
        "keras": "test_keras_draws_noise_from_the_runs_key_and_from_nothing_else",
    },
    "stop and go on, at the same batches": {
        "torch": "test_a_run_resumes_exactly_in_the_middle_of_an_epoch",
        "opacus": "test_resume_goes_on_with_the_same_batches_noise_and_epsilon",
        "lightning": "test_ckpt_path_resumes_to_the_same_weights",
        "huggingface": "test_hugging_face_run_resumes_to_identical_weights",
        "flower": "test_killed_at_any_round_and_resumed_ends_with_the_same_model",
        "spark": "test_a_driver_that_is_killed_and_run_again_over_its_own_output",
        "ray": "test_batches_stream_in_order_from_any_step",
        "jax": "test_host_batches_resume_at_any_step",
        "jax_privacy": "test_users_rows_go_round_and_resume_at_any_step",
        "keras": "test_keras_resumes_to_identical_weights",
        "grain": "test_grain_iterators_resume_at_any_step_without_a_replay",
        "beam": "test_a_job_that_is_killed_and_run_again_over_its_own_output",
    },
    "several processes share each batch": {
        "torch": "test_two_ranks_share_each_global_batch",
        "opacus": "test_two_ranks_train_as_one_and_ranks_without_ddp_are_refused",
        "lightning": "test_two_ranks_train_as_one_and_resume_to_the_same_weights",
        "huggingface": "test_two_ranks_train_as_one_and_resume_to_the_same_weights",
        "grain": "test_grain_shards_share_each_batch_evenly",
        "beam": "test_files_do_not_depend_on_the_number_of_workers",
    },
    "a batch in several parts (less memory)": {
        "torch": "test_virtual_batches_are_the_batches_in_equal_parts_with_an_exact_length",
        "opacus": "test_virtual_batches_add_one_noise_and_count_one_step",
        "lightning": "test_batches_in_parts_take_one_accounted_step_each",
    },
    "ghost clipping": {
        "opacus": "test_ghost_clipping_equals_hooks_to_rounding",
        "huggingface": "test_hugging_face_lora_with_ghost_clipping_costs_what_filet_says_and_equals_hooks",
    },
    "fully sharded models (FSDP2)": {"opacus": "test_fsdp_trains_as_one_rank"},
    "batches of users": {
        "torch": "test_loaders_hand_out_each_users_rows_one_after_the_other",
        "opacus": "test_a_users_gradient_is_clipped_once_as_in_a_hand_made_loop",
        "huggingface": "test_hugging_faces_trainer_clips_users",
        "jax_privacy": "test_user_level_selection_with_padding_is_right_and_the_wrong_combination_an_error",
    },
    "a secret number of records": {
        "torch": "test_torch_batches_are_those_of_the_true_number_and_lengths_those_of_the_planned_one",
        "opacus": "test_opacus_trains_on_a_secret_number_and_no_checkpoint_tells_it",
        "huggingface": "test_transformers_logs_and_saves_the_planned_number",
        "jax": "test_jax_draws_the_exact_law_of_a_secret_number_on_the_device",
        "jax_privacy": "test_jax_privacy_selects_examples_and_users_of_a_secret_number",
        "keras": "test_keras_trains_on_a_secret_number_and_saves_the_planned_one",
        "grain": "test_grain_reads_batches_of_a_secret_number",
        "beam": "test_a_secret_number_is_in_nothing_that_a_job_leaves_behind",
        "spark": "test_a_secret_number_is_in_no_plan_and_in_nothing_that_is_written",
        "ray": "test_a_secret_number_is_in_no_argument_and_in_nothing_that_is_written",
    },
    "correlated noise (BandMF)": {"jax_privacy": "test_banded_noise_trains_on_cyclic_batches"},
}  # fmt: skip


def pinned() -> dict[str, str]:
    """The versions with which all tests pass."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" ")[0].split("==") for line in lines if "==" in line)
    found = {name.lower().replace("_", "-"): version for name, version in pairs}
    return known() | found


def known() -> dict[str, str]:
    """Versions that the code knows: of frameworks that have an environment of their own too."""
    text = (ROOT / "src/filet/integrations/_frameworks.py").read_text(encoding="utf-8")
    return {name.replace("_", "-"): version for name, version in re.findall(r'"(\w+)": \("[^"]*", "([\w.]+)"\)', text)}


def lowest(extra: str) -> dict[str, str]:
    """The lowest versions that an extra of the package allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = (re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\w.]+)", one) for one in project["optional-dependencies"][extra])
    return {match[1]: match[2] for match in found if match}


def versions() -> list[str]:
    lines = ["| framework | extra | tested with | allowed |", "| --- | --- | --- | --- |"]
    tested = pinned()
    for package, (title, extra, names) in INTEGRATIONS.items():
        least = lowest(extra)
        used = ", ".join(f"{name} {tested[name]}" for name in names)
        allowed = ", ".join(f"{name} {least[name]} and later" for name in names)
        page = f"integrations/{package}.md"
        name = f"[{title}]({page})" if (ROOT / "docs" / page).exists() else title
        lines.append(f"| {name} | `{extra}` | {used} | {allowed} |")
    return lines


def features() -> list[str]:
    lines = ["| | " + " | ".join(title for title, _, _ in INTEGRATIONS.values()) + " |"]
    lines.append("| --- |" + " --- |" * len(INTEGRATIONS))
    for feature, tests in FEATURES.items():
        lines.append(f"| {feature} | " + " | ".join("yes" if name in tests else "-" for name in INTEGRATIONS) + " |")
    return lines


def generated() -> str:
    """The page as it should be."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    text = "\n".join(["## Versions", "", *versions(), "", "## Features", "", *features(), ""])
    return f"{before}{START}{text}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(generated(), encoding="utf-8")

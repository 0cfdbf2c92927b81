"""Run files: what they mean, and that every mistake in one is named."""

import json

import pytest
from click.testing import CliRunner

import filet
from filet.cli.commands.answers import main
from filet.errors import InvalidArgumentError
from filet.planning.run_file import make_scheme, make_steps, parse_run, parse_settings, read_run

GOOD = """
adjacency = "zero-out"
delta = 1e-5
max_epsilon = 4.0
dataset_size = 60_000
max_batch_size = 300

[[phases]]
poisson_batch_size = 128
noise_multiplier = 1.2
steps = 1_000

[[phases]]
sampling_probability = 0.004
overflow = "reject"
noise_multiplier = 1.0
epochs = 10

[[gaussian]]
noise_multiplier = 8.0
count = 2
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(GOOD)
    return file


def test_a_file_composes_all_its_phases_and_releases(path):
    accountant = filet.Accountant("zero-out")
    accountant.compose(filet.CappedPoisson(60_000, 128 / 60_000, 300), 1.2, 1_000)
    accountant.compose(filet.CappedPoisson(60_000, 0.004, 300, overflow="reject"), 1.0, 2_500)
    accountant.compose_gaussian(8.0, 2)
    run = read_run(path)
    assert run.accountant.state_dict() == accountant.state_dict()
    assert (run.delta, run.max_epsilon) == (1e-5, 4.0)
    answer = json.loads(CliRunner().invoke(main, ["epsilon", "--config", str(path), "--json"]).stdout)
    assert answer["result"]["epsilon"] == accountant.epsilon(1e-5)
    assert answer["result"]["target_met"] is True


def test_a_guard_in_the_file_or_on_the_command_line_gives_code_3(path):
    assert CliRunner().invoke(main, ["epsilon", "--config", str(path)]).exit_code == 0
    assert CliRunner().invoke(main, ["epsilon", "--config", str(path), "--max-epsilon", "1"]).exit_code == 3
    path.write_text(GOOD.replace("max_epsilon = 4.0", "max_epsilon = 1"))
    assert CliRunner().invoke(main, ["epsilon", "--config", str(path)]).exit_code == 3


def test_a_file_without_phases_is_one_phase():
    run = parse_run({"adjacency": "zero-out", "dataset_size": 100, "sampling_probability": 0.1, "max_batch_size": 20,
                     "noise_multiplier": 1.0, "steps": 5})  # fmt: skip
    assert len(run.accountant.phases) == 1
    assert run.delta is None


def test_a_phase_displaces_the_shared_alternative():
    shared = {"adjacency": "zero-out", "dataset_size": 100, "max_batch_size": 20, "noise_multiplier": 1.0}
    phases = [{"steps": 5}, {"epochs": 1, "sampling_probability": 0.2}]
    run = parse_run({**shared, "poisson_batch_size": 10, "phases": phases})
    assert [(p.steps, p.scheme.sampling_probability) for p in run.accountant.phases] == [(5, 0.1), (5, 0.2)]


@pytest.mark.parametrize("key", ["steps", "epochs"])
@pytest.mark.parametrize("question", ["epsilon", "explain", "calibrate noise-multiplier"])
def test_a_phase_appended_to_a_run_of_one_phase_drops_no_steps(path, key, question):
    one = f"""adjacency = "zero-out"
delta = 1e-5
max_epsilon = 9.0
dataset_size = 60_000
poisson_batch_size = 256
max_batch_size = 300
noise_multiplier = 0.7
{key} = 60
"""
    path.write_text(one)
    assert CliRunner().invoke(main, [*question.split(), "--config", str(path)]).exit_code == 0
    path.write_text(one + "[[phases]]\nnoise_multiplier = 2.0\nsteps = 10\n")
    outcome = CliRunner().invoke(main, [*question.split(), "--config", str(path)])
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert f"{key} stands above [[phases]]; write {key} into each of them" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("delta = 1e-5", "delta = 2", "delta=2.0 is not in (0, 1)"),
        ("delta = 1e-5", 'delta = "1e-5"', "delta='1e-5' is not a number"),
        ("delta = 1e-5", "delta = [1e-5]", "delta=[1e-05] is not a number"),
        ("delta = 1e-5", "dleta = 1e-5", "unknown key 'dleta'"),
        ("max_epsilon = 4.0", "max_epsilon = -1", "not in [0, inf)"),
        ('adjacency = "zero-out"', "", "adjacency is missing in the run"),
        ('adjacency = "zero-out"', 'adjacency = "swap"', "adjacency='swap' is unknown"),
        ("noise_multiplier = 1.2", "", "noise_multiplier is missing in phase 1"),
        ("noise_multiplier = 1.2", "noise = 1.2", "phase 1 has the unknown key 'noise'"),
        ("poisson_batch_size = 128", "", "sampling_probability is missing in phase 1"),
        ("poisson_batch_size = 128", "poisson_batch_size = 1e9", "phase 1: poisson_batch_size=1000000000.0"),
        ("poisson_batch_size = 128", "sampling_probability = 256", "phase 1: sampling_probability=256.0 is not"),
        ("epochs = 10", "epochs = 10\nsteps = 3", "steps and epochs are both given in phase 2"),
        ("epochs = 10", "", "steps is missing in phase 2"),
        ("epochs = 10", "epochs = inf", "phase 2: epochs=inf is not in"),
        ("count = 2", "count = -2", "count=-2 is below 0"),
        ("count = 2", "times = 2", "gaussian release 1 has the unknown key 'times'"),
        ("[[gaussian]]", "[gaussian]", "write each one as [[gaussian]]"),
        ("steps = 1_000", "steps = = 3", "not valid TOML"),
        ("steps = 1_000", "steps = " + "[" * 3000, "not valid TOML (maximum recursion depth"),
        ("steps = 1_000", "steps = " + "9" * 5000, "not valid TOML (Exceeds the limit"),
        ("steps = 1_000", "steps = 0x" + "f" * 5000, "phase 1: steps=<int too long to show> is above 2**63 - 1"),
        ("epochs = 10", "epochs = 1e308", "phase 2: epochs=1e+308 take inf steps, above 2**63 - 1"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_line_that_names_the_file_and_the_key(path, old, new, words):
    path.write_text(GOOD.replace(old, new, 1))
    outcome = CliRunner().invoke(main, ["epsilon", "--config", str(path)])
    assert outcome.exit_code == 2
    assert words in outcome.stderr
    assert outcome.stderr.startswith(f"filet: {path}: ")
    assert outcome.stderr.count("\n") == 1


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(InvalidArgumentError, match="No such file"):
        read_run(tmp_path / "none.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgumentError, match="not valid TOML"):
        read_run(tmp_path / "binary")


@pytest.mark.parametrize("probability", [0.3, 0.1, 0.7, 1e-6, 1.0])
def test_whole_numbers_of_epochs_give_no_extra_step(probability):
    scheme = make_scheme({"dataset_size": 10**7, "sampling_probability": probability, "max_batch_size": 10**7})
    assert make_steps({"epochs": 7 * probability}, scheme) == 7


def test_cyclic_epochs_and_batch_sizes_count_the_group():
    scheme = make_scheme({"dataset_size": 1000, "poisson_batch_size": 25, "max_batch_size": 50, "cycle_length": 4})
    assert scheme.sampling_probability == 0.1
    assert make_steps({"epochs": 2}, scheme) == 80


def test_no_cap_stands_for_a_cap():
    given = {"dataset_size": 1000, "sampling_probability": 0.1}
    assert make_scheme({**given, "no_cap": True}) == filet.CappedPoisson.uncapped(1000, 0.1)
    assert make_scheme({**given, "no_cap": False, "max_batch_size": 9}).max_batch_size == 9
    for change, words in (({"no_cap": True, "max_batch_size": 9}, "both given"), ({"no_cap": "yes"}, "is not true or false"),
                          ({"no_cap": True, "overflow": "truncate"}, "nothing overflows, drop overflow"),
                          ({"no_cap": False}, "max_batch_size is missing"), ({}, "pass it, or no_cap")):  # fmt: skip
        with pytest.raises(InvalidArgumentError, match=words):
            make_scheme({**given, **change})


def test_a_phase_without_a_cap_displaces_the_shared_one():
    run = parse_run({"adjacency": "zero-out", "dataset_size": 1000, "max_batch_size": 60, "sampling_probability": 0.05,
                     "noise_multiplier": 2.0, "overflow": "reject",
                     "phases": [{"steps": 3}, {"steps": 4, "no_cap": True}]})  # fmt: skip
    assert [phase.scheme.overflow.value for phase in run.accountant.phases] == ["reject", "truncate"]
    assert [phase.scheme.max_batch_size for phase in run.accountant.phases] == [60, 1000]


def test_settings_are_those_of_one_phase():
    assert parse_settings({"delta": 1e-5, "phases": [{"epochs": 2}]}) == {"delta": 1e-5, "epochs": 2}
    for data in ({"phases": [{"steps": 1}, {"steps": 2}]}, {"steps": 1, "gaussian": [{"noise_multiplier": 2.0}]}):
        with pytest.raises(InvalidArgumentError, match="about one phase alone"):
            parse_settings(data)
    with pytest.raises(InvalidArgumentError, match="unknown key 'noise'; did you mean noise_multiplier\\?"):
        parse_settings({"phases": [{"noise": 1}]})


def test_a_run_is_read_from_standard_input(monkeypatch):
    import io

    text = 'adjacency = "zero-out"\n[[gaussian]]\nnoise_multiplier = 2.0\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_run("-").accountant.curve().releases == ((2.0, 1),)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InvalidArgumentError, match="standard input is closed"):
        read_run("-")

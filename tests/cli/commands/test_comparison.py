"""Comparison: every policy and analysis of a run, also of several phases, and what has no place in it."""

import json

from tests.cli.invoke import RUN, SCHEME, curve, one_line, run

import filet


def test_compare_shows_every_policy_and_analysis():
    rows = json.loads(run("compare", *RUN, "--delta", "1e-5", "--adjacency", "all", "--json").stdout)["result"]
    table = {(row["policy"], row["analysis"]): row["epsilon"] for row in rows}
    assert table["truncate", "refined"]["replace-one"] == curve("replace-one").epsilon(1e-5)
    assert table["reject", "refined"]["zero-out"] <= table["no cap", "refined"]["zero-out"] * 1.001
    assert table["truncate", "union"]["add-remove"] == "inf"
    text = run("compare", *RUN, "--delta", "1e-5", "--adjacency", "zero-out").stdout.splitlines()
    assert text[0].split() == ["rows", "zero-"]
    assert text[1].split() == ["policy", "analysis", "used", "out"]
    assert len(text) == 10
    assert table["truncate", "refined"]["zero-out"] < table["truncate", "swap"]["zero-out"]
    for policy in ("truncate", "reject"):  # lower bounds stay below, and reject's are close
        for adjacency in ("add-remove", "zero-out", "replace-one"):
            assert 0.0 < table[policy, "attack"][adjacency] <= table[policy, "refined"][adjacency]
    assert table["reject", "attack"]["zero-out"] > 0.98 * table["reject", "refined"]["zero-out"]


def test_compare_leaves_impossible_policies_out_instead_of_failing():
    outcome = run("compare", "--dataset-size", 100, "--sampling-probability", 1, "--max-batch-size", 10,
                  "--noise-multiplier", 5, "--steps", 2, "--delta", 1e-3, "--adjacency", "zero-out")  # fmt: skip
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[-1].split()[-1] == "-"
    assert "no batch to accept" in outcome.stderr


def test_what_compare_decides_itself_is_refused():
    asked = ["--delta", "1e-5", "--adjacency", "zero-out"]
    assert "shows both policies" in one_line(run("compare", *RUN, *asked, "--overflow", "reject"), 2)
    assert "has a row for it" in one_line(run("compare", *SCHEME[:4], *RUN[6:], *asked, "--no-cap"), 2)
    assert "No such option" in one_line(run("compare", *RUN, *asked, "--analysis", "note"), 2)


def test_missing_options_are_named_together():
    message = one_line(run("compare", *SCHEME), 2)
    assert "noise_multiplier, steps, adjacency and delta are missing" in message
    assert "--steps or --epochs" in message


def test_a_run_file_of_several_phases_is_compared_as_a_whole(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'adjacency = "zero-out"\ndelta = 1e-5\ndataset_size = 1_000\nmax_batch_size = 60\npoisson_batch_size = 50\n'
        '[[phases]]\nnoise_multiplier = 2.0\nsteps = 10\noverflow = "reject"\n'
        "[[phases]]\nnoise_multiplier = 3.0\nsteps = 20\n[[gaussian]]\nnoise_multiplier = 20.0\n"
    )
    outcome = run("compare", "--config", path, "--adjacency", "zero-out", "--adjacency", "replace-one", "--json")
    answer = json.loads(outcome.stdout)
    table = {(row["policy"], row["analysis"]): row["epsilon"] for row in answer["result"]}
    for policy in ("truncate", "reject"):
        accountant = filet.Accountant("replace-one")
        scheme = filet.CappedPoisson(1_000, 0.05, 60, policy)
        accountant.compose(scheme, 2.0, 10)
        accountant.compose(scheme, 3.0, 20)
        accountant.compose_gaussian(20.0)
        assert table[policy, "refined"]["replace-one"] == accountant.epsilon(1e-5)
        assert table[policy, "attack"] == {"zero-out": None, "replace-one": None}
    assert [phase["steps"] for phase in answer["inputs"]["phases"]] == [10, 20]
    assert "attacks are not computed" in outcome.stderr
    assert list(json.loads(run("compare", "--config", path, "--json").stdout)["inputs"]["adjacency"]) == ["zero-out"]


def test_an_attack_that_shows_nothing_says_so():
    options = ["--dataset-size", 1000, "--sampling-probability", 1e-6, "--max-batch-size", 5, "--noise-multiplier", 50, "--steps", 1,
               "--delta", 1e-3, "--adjacency", "zero-out"]  # fmt: skip
    lines = run("compare", *options).stdout.splitlines()
    assert [line.split()[-2:] for line in lines if " attack " in line] == [["none", "found"]] * 2

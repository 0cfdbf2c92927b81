"""Views: parts add up to the answer, the answer has the command line's shape, and one bad point does not spoil a picture."""

import asyncio
import json

import pytest
from tests.cli.invoke import run
from tests.exploring.served import RUN

from filet.errors import FiletError
from filet.exploring import tasks, views
from filet.exploring.pool import TaskError

pytestmark = pytest.mark.long
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in RUN.items()]
TARGET = {**{name: value for name, value in RUN.items() if name != "noise_multiplier"}, "epsilon": 3.0}


async def ask(lane, task, *arguments, report=None):
    """The answer of a worker, computed in this process."""
    progress = {} if report is None else {"progress": report}
    try:
        return json.loads(json.dumps(getattr(tasks, task)(*arguments, **progress)))
    except FiletError as error:
        raise TaskError(str(error), "invalid") from None


def collected(name, given, asked=ask):
    async def main():
        return [part async for part in views.QUESTIONS[name].view(asked, given)]

    *parts, answer = asyncio.run(main())
    assert all(set(part) == {"part"} for part in parts)
    assert set(answer) == {"schema", "version", "inputs", "result"}
    json.dumps([parts, answer], allow_nan=False)
    return [part["part"] for part in parts], answer


def test_epsilon_is_the_commands_answer():
    parts, answer = collected("epsilon", RUN)
    assert answer == json.loads(run("epsilon", *OPTIONS, "--json").stdout)
    assert parts[0]["epsilon"] == answer["result"]["epsilon"]


def test_compare_is_the_commands_answer():
    parts, answer = collected("compare", RUN)
    assert answer == json.loads(run("compare", *OPTIONS, "--json").stdout)
    assert [row["analysis"] == "attack" for row in parts] == [False] * 6 + [True] * 2
    rows = [None] * len(parts)
    for part in parts:
        rows[part.pop("row")] = part
    assert rows == answer["result"]


def test_calibrate_is_the_commands_answer():
    options = [f"--{name.replace('_', '-')}={value}" for name, value in TARGET.items()]
    _, answer = collected("calibrate", TARGET)
    assert answer == json.loads(run("calibrate", "noise-multiplier", *options, "--json").stdout)


def test_plan_is_the_commands_answer():
    names = ("dataset_size", "max_batch_size", "steps", "delta", "adjacency", "epsilon")
    given = {name: TARGET[name] for name in names}
    parts, answer = collected("plan", given)
    printed = json.loads(run("plan", *(f"--{n.replace('_', '-')}={v}" for n, v in given.items()), "--json").stdout)
    assert answer["result"] == printed["result"]
    assert answer["inputs"].keys() == printed["inputs"].keys()
    assert [part["share"] for part in parts] == sorted(part["share"] for part in parts)
    assert parts[-1]["label"] == "done"


@pytest.mark.parametrize(
    ("name", "key"), [("epsilon-cap", "max_batch_size"), ("utilization", "max_batch_size"), ("delta-epsilon", "delta")]
)
def test_parts_add_up_to_the_columns(name, key, monkeypatch):
    monkeypatch.setattr(views, "_CAPS", 4)
    monkeypatch.setattr(views, "_ATTACKED_CAPS", 1)
    monkeypatch.setattr(views, "_HARDWARE", 2)
    monkeypatch.setattr(views, "_DELTAS", 3)
    parts, answer = collected(name, TARGET if name == "utilization" else RUN)
    rows = {}
    for part in parts:
        if key in part:
            rows.setdefault(part[key], {}).update(part)
    columns = answer["result"]["columns"]
    assert columns[key] == sorted(rows)
    for column, values in columns.items():
        assert values == [rows[x].get(column) for x in sorted(rows)], column


@pytest.mark.parametrize(("name", "key", "announced"), [
    ("epsilon-cap", "max_batch_size", "caps"), ("delta-epsilon", "delta", "deltas"),
])  # fmt: skip
def test_a_curve_says_first_which_points_are_to_come(name, key, announced, monkeypatch):
    monkeypatch.setattr(views, "_CAPS", 3)
    monkeypatch.setattr(views, "_ATTACKED_CAPS", 0)
    monkeypatch.setattr(views, "_DELTAS", 3)
    parts, answer = collected(name, RUN)
    assert parts[0] == {announced: answer["result"]["columns"][key]}


def test_the_risk_view_is_the_commands_answer_and_beliefs():
    _, answer = collected("risk", RUN)
    assert answer["result"]["risk"] == json.loads(run("risk", *OPTIONS, "--json").stdout)["result"]
    columns = answer["result"]["columns"]
    assert 0.5 in columns["prior"]
    assert all(prior < belief < 1.0 for prior, belief in zip(columns["prior"], columns["belief"], strict=True))
    assert columns["belief"] == sorted(columns["belief"])


def test_bounds_lie_above_attacks_at_every_cap(monkeypatch):
    monkeypatch.setattr(views, "_CAPS", 3)
    monkeypatch.setattr(views, "_ATTACKED_CAPS", 4)
    columns = collected("epsilon-cap", RUN)[1]["result"]["columns"]
    for policy in ("truncate", "reject"):
        pairs = zip(columns[f"epsilon_{policy}_attack"], columns[f"epsilon_{policy}_refined"], strict=True)
        assert all(attack <= upper for attack, upper in pairs)


def test_a_point_without_an_answer_leaves_a_gap(monkeypatch):
    monkeypatch.setattr(views, "_DELTAS", 4)

    async def refusing(lane, task, given, *arguments, **options):
        if task == "profile" and arguments[0] > 0.05:
            raise TaskError("only known to lie in [0, 1]", "unanswered")
        return await ask(lane, task, given, *arguments, **options)

    columns = collected("delta-epsilon", RUN, refusing)[1]["result"]["columns"]
    assert max(columns["delta"]) < 0.05
    assert 1e-5 in columns["delta"]


def test_a_lost_worker_is_not_a_gap(monkeypatch):
    async def losing(lane, task, given, *arguments, **options):
        if task == "profile":
            raise TaskError("lost", "lost")
        return await ask(lane, task, given, *arguments, **options)

    with pytest.raises(TaskError, match="lost"):
        collected("delta-epsilon", RUN, losing)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 26])
def test_coarse_to_fine_is_the_same_values(count):
    values = list(range(count))
    assert sorted(views.coarse_to_fine(values)) == values
    assert views.coarse_to_fine(values)[:2] == (values[:1] + values[-1:] if count > 1 else values)

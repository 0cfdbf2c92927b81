"""Questions of the page: streams of parts that end with the command line's answer.

A view is a function of an `Ask` and the JSON object of the request. It yields parts as they are
computed: dictionaries that the page merges into its picture. The last one is the answer, which
holds everything: `{"schema": ..., "version": ..., "inputs": ..., "result": ...}`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..accounting.terms import Adjacency
from ..planning.comparison import ATTACK, NO_CAP, kinds
from ..planning.run_file import PHASE_KEYS, RUN_KEYS
from ..scheme import Overflow, Size
from ..showing.answers import as_answer, jsonable
from .pool import PLAN, QUICK, SLOW, TaskError

Given = Mapping[str, Any]
Part = dict[str, Any]
Ask = Callable[..., Awaitable[Any]]  # `Pool.ask`
View = Callable[[Ask, Given], AsyncIterator[Part]]
_CAPS, _ATTACKED_CAPS, _DELTAS, _RATES, _HARDWARE = 25, 6, 17, 49, 9  # points of the pictures
_PRIORS = 40  # beliefs before the run
CHOICES = {"size": [*Size], "overflow": [*Overflow], "adjacency": [*Adjacency]}  # words that the page offers


async def epsilon(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet epsilon`: the certified epsilon first, then the attack."""
    found = await ask(QUICK, "epsilon", given)
    holds_for = found["inputs"]["guarantee"]["holds_for"]
    yield {"part": jsonable({**found["result"], "holds_for": holds_for})}
    found["result"]["attack_epsilon"] = await ask(SLOW, "attack", given)
    yield as_answer("epsilon", found["inputs"], found["result"])


async def compare(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet compare`: one row after another, the attacks last."""
    found = await ask(QUICK, "comparison", given)
    adjacencies = found["inputs"]["adjacency"]
    numbered = list(enumerate(found["rows"]))
    for number, row in sorted(numbered, key=lambda one: one[1]["analysis"] == ATTACK):
        for adjacency in adjacencies:
            asked = (given, row["policy"], row["analysis"], adjacency)
            row["epsilon"][adjacency] = await ask(_lane(row["analysis"]), "entry", *asked)
        yield {"part": jsonable({"row": number, **row})}
    yield as_answer("compare", found["inputs"], found["rows"])


async def calibrate(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet calibrate`."""
    found = await ask(SLOW, "calibrated", given)
    yield as_answer("calibrate", found["inputs"], found["result"])


async def plan(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet plan`, with its progress."""
    reports: asyncio.Queue[Part | None] = asyncio.Queue()

    def report(share: float, label: str) -> None:
        reports.put_nowait({"part": {"share": share, "label": label}})

    asked = asyncio.ensure_future(ask(PLAN, "planned", given, report=report))
    asked.add_done_callback(lambda _: reports.put_nowait(None))
    try:
        while (part := await reports.get()) is not None:
            yield part
        found = await asked
    finally:
        asked.cancel()
    yield as_answer("plan", found["inputs"], found["result"])


async def batch_sizes(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """The law of batch sizes, with the cap and without it."""
    found = await ask(QUICK, "sizes", given)
    yield as_answer("batch-sizes", found["inputs"], {"columns": found["columns"], "marks": found["marks"]})


async def epsilon_cap(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """Epsilon of every policy and analysis against the cap: the given one, then coarse to fine."""
    found = await ask(QUICK, "caps", given, _CAPS)
    adjacency, caps = found["inputs"]["adjacency"][0], found["caps"]
    order = [found["cap"], *(cap for cap in coarse_to_fine(caps) if cap != found["cap"])]
    table: dict[float, Part] = {cap: {"max_batch_size": cap} for cap in caps}
    capped = [kind for kind in kinds() if kind[0] != NO_CAP]
    tries = [(cap, *kind) for cap in order for kind in capped if kind[1] != ATTACK]
    # The attacks take ten times as long, and change little from cap to cap.
    attacked = order[:_ATTACKED_CAPS]
    tries += [(cap, *kind) for cap in attacked for kind in capped if kind[1] == ATTACK]
    yield {"part": {"caps": caps}}
    free = await ask(QUICK, "entry", given, NO_CAP, "refined", adjacency)
    yield {"part": jsonable({"no_cap": free})}
    for cap, policy, analysis in tries:
        changed = {**given, "max_batch_size": cap}
        value = await ask(_lane(analysis), "entry", changed, policy, analysis, adjacency)
        name = f"epsilon_{policy}_{analysis}"
        table[cap][name] = value
        yield {"part": jsonable({"max_batch_size": cap, name: value})}
    names = ["max_batch_size", *(f"epsilon_{policy}_{analysis}" for policy, analysis in capped)]
    result = {"columns": _columns(table, names), "marks": {"no_cap": free}}
    yield as_answer("epsilon-cap", found["inputs"], result)


def _lane(analysis: str) -> int:
    return SLOW if analysis == ATTACK else QUICK


async def utilization(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """Rows in use and the noise that the target takes, against the cap.

    And the planner's choice.
    """
    found = await ask(QUICK, "hardware", given, _HARDWARE)
    caps = found["caps"]
    table: dict[float, Part] = {}
    for cap, used in zip(caps, found["used"], strict=True):
        shares = {f"utilization_{policy}": value for policy, value in used.items()}
        table[cap] = {"max_batch_size": cap, **shares}
        yield {"part": jsonable(table[cap])}
    best: dict[str, Part | None] = {}
    for policy in ("reject", "truncate"):
        name = f"effective_noise_{policy}"
        for cap in coarse_to_fine(caps):
            noise = await _or_none(ask(SLOW, "noise", given, cap, policy))
            table[cap][name] = None if noise is None else noise["effective_noise"]
            yield {"part": {"max_batch_size": cap, name: table[cap][name]}}
        best[policy] = await ask(SLOW, "option", given, policy)
        yield {"part": jsonable({"best": policy, "option": best[policy]})}
    measures = ("utilization", "effective_noise")
    names = ["max_batch_size", *(f"{kind}_{policy}" for kind in measures for policy in best)]
    result = {"columns": _columns(table, names), "best": best}
    yield as_answer("utilization", found["inputs"], result)


async def _or_none(asked: Awaitable[Any]) -> Any:
    """The answer; None where this one point has none."""
    try:
        return await asked
    except TaskError as error:
        if error.kind in ("invalid", "unanswered"):
            return None
        raise


async def delta_epsilon(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """The privacy profile, coarse to fine: deltas from 0.1 to a thousandth of the given one."""
    inputs = await ask(QUICK, "described", given)
    high, low = math.log(0.1), math.log(max(inputs["delta"] * 1e-3, 1e-30))
    grid = [math.exp(high + (low - high) * i / (_DELTAS - 1)) for i in range(_DELTAS)]
    deltas = sorted({*grid, inputs["delta"]})
    yield {"part": {"deltas": deltas}}
    table: dict[float, Part] = {}
    for delta in coarse_to_fine(deltas):
        point = await _or_none(ask(QUICK, "profile", given, delta))
        if point is not None:
            table[delta] = point
            yield {"part": jsonable(point)}
    names = ["delta", "epsilon_upper", "epsilon_lower", "epsilon_attack"]
    yield as_answer("delta-epsilon", inputs, {"columns": _columns(table, names)})


async def trade_off(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """The power of membership attacks at every false positive rate."""
    inputs = await ask(QUICK, "described", given)
    found = await ask(SLOW, "power", given, _RATES)
    yield as_answer("trade-off", inputs, {"columns": found})


async def risk(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet risk`, and an attacker's belief after the run for many beliefs before it."""
    inputs = await ask(QUICK, "described", given)
    found = await ask(SLOW, "risk", given, _PRIORS)
    yield as_answer("risk-view", inputs, found)


def coarse_to_fine(values: list[Any]) -> list[Any]:
    """The same values, both ends first, then the middles of the gaps.

    >>> coarse_to_fine([1, 2, 3, 4, 5])
    [1, 5, 3, 2, 4]
    """
    order = list(values[:1]) + list(values[-1:]) if len(values) > 1 else list(values)
    gaps = [(0, len(values) - 1)]
    for low, high in gaps:  # which grows: gaps of one size come before the smaller ones
        if high - low > 1:
            middle = (low + high) // 2
            order.append(values[middle])
            gaps += [(low, middle), (middle, high)]
    return order


def _columns(table: Mapping[float, Part], names: list[str]) -> dict[str, list[Any]]:
    """Rows as columns, in the order of their keys; None where there is no value."""
    return {name: [table[key].get(name) for key in sorted(table)] for name in names}


@dataclass(frozen=True)
class Question:
    """A question of the API: its view, its keys, and the number of it that may be open at once."""

    view: View
    keys: tuple[str, ...]
    most: int = 16


_RUN = (*PHASE_KEYS, "adjacency", "delta")
_BOTH = tuple(key for key in _RUN if key not in ("overflow", "analysis", "no_cap"))
_HARDWARE_KEYS = ("dataset_size", "max_batch_size", "steps", "hardware_epochs", "cycle_length")
_PLAN = (*_HARDWARE_KEYS, "epsilon", "delta", "adjacency")
QUESTIONS: dict[str, Question] = {
    "epsilon": Question(epsilon, (*RUN_KEYS, *PHASE_KEYS), 64),
    "compare": Question(compare, _BOTH),
    "calibrate": Question(calibrate, (*_RUN, "unknown", "epsilon")),
    "plan": Question(plan, _PLAN, 4),
    "batch-sizes": Question(batch_sizes, _RUN, 64),
    "epsilon-cap": Question(epsilon_cap, _BOTH),
    "utilization": Question(utilization, (*_RUN, "epsilon")),
    "delta-epsilon": Question(delta_epsilon, _RUN),
    "trade-off": Question(trade_off, _RUN),
    "risk": Question(risk, _RUN),
}

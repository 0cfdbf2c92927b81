"""The page's questions: each is a stream of small parts, as they are computed, and ends with an answer in the command line's shape.

A view is a function of an `Ask` and the JSON object of the request, and yields parts: dictionaries that the page merges into its
picture. The last one is the answer, which holds everything: `{"schema": ..., "version": ..., "inputs": ..., "result": ...}`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..cli.commands.comparison import kinds as compared_kinds
from ..cli.output import as_answer, jsonable
from ..cli.run_file import PHASE_KEYS, RUN_KEYS
from .pool import CURVE, NOISE, PLAN, POINT, ROW, SLOW, TaskError

Given = Mapping[str, Any]
Part = dict[str, Any]
View = Callable[["Ask", Given], AsyncIterator[Part]]
_CAPS, _ATTACKED_CAPS, _DELTAS, _RATES, _HARDWARE = 25, 6, 17, 49, 9


class Ask(Protocol):
    """How a view asks for a task; see `Pool.ask`."""

    def __call__(self, task: str, *arguments: Any, urgency: int = ...,
                 report: Callable[[float, str], None] | None = ...) -> Awaitable[Any]: ...  # fmt: skip


async def epsilon(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet epsilon`: the certified epsilon first, then the attack."""
    found = await ask("epsilon", given, urgency=POINT)
    yield {"part": jsonable(found["result"])}
    found["result"]["attack_epsilon"] = await ask("attack", given, urgency=SLOW)
    yield as_answer("epsilon", found["inputs"], found["result"])


async def compare(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet compare`: one row after another, the attacks last."""
    found = await ask("comparison", given, urgency=ROW)
    adjacencies = found["inputs"]["adjacency"]
    for number in sorted(range(len(found["rows"])), key=lambda one: found["rows"][one]["analysis"] == "attack"):
        row = found["rows"][number]
        for adjacency in adjacencies:
            asked = (given, row["policy"], row["analysis"], adjacency)
            row["epsilon"][adjacency] = await ask("entry", *asked, urgency=_urgency(row["analysis"], ROW))
        yield {"part": jsonable({"row": number, **row})}
    yield as_answer("compare", found["inputs"], found["rows"])


async def calibrate(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet calibrate`."""
    found = await ask("calibrated", given, urgency=NOISE)
    yield as_answer("calibrate", found["inputs"], found["result"])


async def plan(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """`filet plan`, with its progress."""
    reports: asyncio.Queue[Part | None] = asyncio.Queue()

    def report(share: float, label: str) -> None:
        reports.put_nowait({"part": {"share": share, "label": label}})

    asked = asyncio.ensure_future(ask("planned", given, urgency=PLAN, report=report))
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
    found = await ask("sizes", given, urgency=POINT)
    yield as_answer("batch-sizes", found["inputs"], {"columns": found["columns"], "marks": found["marks"]})


async def epsilon_cap(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """Epsilon of every policy and analysis against the cap, the given cap first, then from coarse to fine."""
    found = await ask("caps", given, _CAPS, urgency=ROW)
    adjacency, caps = found["inputs"]["adjacency"][0], found["caps"]
    order = [found["cap"], *(cap for cap in coarse_to_fine(caps) if cap != found["cap"])]
    table: dict[float, Part] = {cap: {"max_batch_size": cap} for cap in caps}
    kinds = [kind for kind in compared_kinds() if kind[0] != "no cap"]
    tries = [(cap, *kind) for cap in order for kind in kinds if kind[1] != "attack"]
    # The attacks take ten times as long, and change little from cap to cap.
    tries += [(cap, *kind) for cap in order[:_ATTACKED_CAPS] for kind in kinds if kind[1] == "attack"]
    free = await ask("entry", given, "no cap", "refined", adjacency, urgency=ROW)
    yield {"part": jsonable({"no_cap": free})}
    for cap, policy, analysis in tries:
        changed = {**given, "max_batch_size": cap}
        value = await ask("entry", changed, policy, analysis, adjacency, urgency=_urgency(analysis, CURVE))
        table[cap][f"epsilon_{policy}_{analysis}"] = value
        yield {"part": jsonable({"max_batch_size": cap, f"epsilon_{policy}_{analysis}": value})}
    names = ["max_batch_size", *(f"epsilon_{policy}_{analysis}" for policy, analysis in kinds)]
    yield as_answer("epsilon-cap", found["inputs"], {"columns": _columns(table, names), "marks": {"no_cap": free}})


def _urgency(analysis: str, otherwise: int) -> int:
    return SLOW if analysis == "attack" else otherwise


async def utilization(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """Rows in use and the noise that the target takes, against the cap; and what the planner would do at the given cap."""
    found = await ask("hardware", given, _HARDWARE, urgency=ROW)
    caps = found["caps"]
    table = {
        cap: {"max_batch_size": cap, **{f"utilization_{policy}": value for policy, value in used.items()}}
        for cap, used in zip(caps, found["used"], strict=True)
    }
    for row in table.values():
        yield {"part": jsonable(row)}
    best: dict[str, Part | None] = {}
    wanted: list[tuple[str, int | None]] = [("reject", cap) for cap in coarse_to_fine(caps)] + [("reject", None)]
    wanted += [("truncate", cap) for cap in coarse_to_fine(caps)] + [("truncate", None)]
    for policy, cap in wanted:
        if cap is None:
            best[policy] = await ask("option", given, policy, urgency=SLOW)
            yield {"part": jsonable({"best": policy, "option": best[policy]})}
            continue
        noise = await _or_none(ask("noise", given, cap, policy, urgency=SLOW))
        table[cap][f"effective_noise_{policy}"] = None if noise is None else noise["effective_noise"]
        yield {"part": {"max_batch_size": cap, f"effective_noise_{policy}": table[cap][f"effective_noise_{policy}"]}}
    names = ["max_batch_size", *(f"{kind}_{policy}" for kind in ("utilization", "effective_noise") for policy in best)]
    yield as_answer("utilization", found["inputs"], {"columns": _columns(table, names), "best": best})


async def _or_none(asked: Awaitable[Any]) -> Any:
    """The answer; None where this one point has none."""
    try:
        return await asked
    except TaskError as error:
        if error.kind in ("invalid", "unanswered"):
            return None
        raise


async def delta_epsilon(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """The privacy profile: epsilon at deltas from 0.1 down to a thousandth of the given one, from coarse to fine."""
    inputs = await ask("described", given, urgency=ROW)
    lowest = max(inputs["delta"] * 1e-3, 1e-30)
    steps = [math.log(0.1) + (math.log(lowest) - math.log(0.1)) * i / (_DELTAS - 1) for i in range(_DELTAS)]
    deltas = sorted({*map(math.exp, steps), inputs["delta"]})
    table: dict[float, Part] = {}
    for delta in coarse_to_fine(deltas):
        point = await _or_none(ask("profile", given, delta, urgency=CURVE))
        if point is not None:
            table[delta] = point
            yield {"part": jsonable(point)}
    names = ["delta", "epsilon_upper", "epsilon_lower", "epsilon_attack"]
    yield as_answer("delta-epsilon", inputs, {"columns": _columns(table, names)})


async def trade_off(ask: Ask, given: Given) -> AsyncIterator[Part]:
    """The power of membership attacks at every false positive rate."""
    inputs = await ask("described", given, urgency=ROW)
    found = await ask("power", given, _RATES, urgency=SLOW)
    yield as_answer("trade-off", inputs, {"columns": found})


def coarse_to_fine(values: list[Any]) -> list[Any]:
    """The same values, both ends first, then middles of what is left, so that a part of them already shows the shape.

    >>> coarse_to_fine([1, 2, 3, 4, 5])
    [1, 5, 3, 2, 4]
    """
    if len(values) < 3:
        return list(values)
    order, gaps = [0, len(values) - 1], [(0, len(values) - 1)]
    while gaps:
        gaps = [
            half
            for low, high in gaps
            for half in ((low, (low + high) // 2), ((low + high) // 2, high))
            if high - low > 1
        ]
        order += [high for place, (_, high) in enumerate(gaps) if place % 2 == 0]
    return [values[place] for place in order]


def _columns(table: Mapping[float, Part], names: list[str]) -> dict[str, list[Any]]:
    """Rows as columns, in the order of their keys; None where there is no value."""
    return {name: [table[key].get(name) for key in sorted(table)] for name in names}


@dataclass(frozen=True)
class Question:
    """A question of the API: its view, the keys that it takes, and how many of it may be open at once."""

    view: View
    keys: tuple[str, ...]
    most: int = 16


_RUN = (*PHASE_KEYS, "adjacency", "delta")
_BOTH = tuple(key for key in _RUN if key not in ("overflow", "analysis", "no_cap"))
_PLAN = ("dataset_size", "max_batch_size", "steps", "hardware_epochs", "cycle_length", "epsilon", "delta", "adjacency")
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
}

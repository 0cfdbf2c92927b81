"""The pool: urgent tasks first, nothing is computed that nobody waits for, and a lost process is replaced."""

import asyncio
import os
import signal
import time

import pytest
from tests.exploring.served import RUN

from filet.exploring.pool import CURVE, PLAN, POINT, SLOW, Pool, TaskError

pytestmark = pytest.mark.long
LONG = {"dataset_size": 60_000, "steps": 14_000, "delta": 1e-5, "adjacency": "zero-out", "epsilon": 3.0,
        "max_batch_size": list(range(200, 400))}  # fmt: skip

ALONE = [(POINT, CURVE, SLOW, PLAN)]  # one process that takes everything


def running(scenario, **options):
    async def main():
        pool = Pool(**options)
        pool.start()
        try:
            return await asyncio.wait_for(scenario(pool), 60)
        finally:
            await pool.close()

    return asyncio.run(main())


def test_a_point_does_not_wait_for_a_plan():
    async def scenario(pool):
        await pool.ask("epsilon", RUN, urgency=POINT)
        begun = asyncio.Event()
        plan = asyncio.ensure_future(pool.ask("planned", LONG, urgency=PLAN, report=lambda *_: begun.set()))
        await begun.wait()
        await pool.ask("epsilon", RUN, urgency=POINT)
        assert not plan.done()
        plan.cancel()

    running(scenario)


def test_what_takes_long_stands_back_for_what_is_quick():
    async def scenario(pool):
        for urgency in (POINT, SLOW, PLAN):  # each by a process of its own
            await pool.ask("epsilon", RUN, urgency=urgency)
        return [os.getpriority(os.PRIO_PROCESS, number) for number in pool.process_ids]

    first, second, third = running(scenario, duties=((POINT,), (SLOW,), (PLAN,)))
    assert first == os.getpriority(os.PRIO_PROCESS, 0)
    assert first < second < third or third == 19  # 19: as nice as can be


def test_a_task_that_is_given_up_frees_its_process_within_seconds():
    async def scenario(pool):
        reports = []
        begun = asyncio.Event()

        def report(share, label):
            reports.append(label)
            begun.set()

        plan = asyncio.ensure_future(pool.ask("planned", LONG, urgency=PLAN, report=report))
        await begun.wait()
        plan.cancel()
        while pool.running:
            await asyncio.sleep(0.02)
        count = len(reports)
        assert (await pool.ask("epsilon", RUN))["result"]["epsilon"] > 2.8
        assert len(reports) == count

    running(scenario, duties=ALONE)


def test_a_task_that_nobody_waits_for_is_not_started():
    async def scenario(pool):
        begun = asyncio.Event()
        plan = asyncio.ensure_future(pool.ask("planned", LONG, urgency=PLAN, report=lambda *_: begun.set()))
        await begun.wait()
        waiting = [asyncio.ensure_future(pool.ask("attack", RUN, urgency=SLOW)) for _ in range(50)]
        await asyncio.sleep(0.05)
        assert pool.waiting == 50
        for one in waiting:
            one.cancel()
        await asyncio.sleep(0)
        assert pool.waiting == 0
        plan.cancel()
        answered = time.monotonic()
        await pool.ask("epsilon", RUN)
        assert time.monotonic() - answered < 5  # fifty attacks would take longer

    running(scenario, duties=ALONE)


def test_urgent_tasks_come_first():
    async def scenario(pool):
        order = []

        async def ask(name, urgency):
            await pool.ask("sizes", RUN, urgency=urgency)
            order.append(name)

        await asyncio.gather(ask("slow", SLOW), ask("curve", CURVE), ask("point", POINT))
        assert order == ["point", "curve", "slow"]

    running(scenario, duties=ALONE)


def test_what_takes_too_long_is_ended_and_the_pool_goes_on():
    async def scenario(pool):
        await pool.ask("sizes", RUN)
        with pytest.raises(TaskError, match=r"more than 2 seconds") as caught:
            await pool.ask("planned", LONG, urgency=PLAN)
        assert caught.value.kind == "unanswered"
        assert (await pool.ask("sizes", RUN))["marks"]["steps"] == 14_000

    running(scenario, duties=ALONE, seconds=2.0)


def test_a_lost_process_is_replaced():
    async def scenario(pool):
        begun = asyncio.Event()
        plan = asyncio.ensure_future(pool.ask("planned", LONG, urgency=PLAN, report=lambda *_: begun.set()))
        await begun.wait()
        [pid] = pool.process_ids
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TaskError, match="lost"):
            await plan
        assert (await pool.ask("sizes", RUN))["marks"]["steps"] == 14_000
        assert pool.process_ids != [pid]

    running(scenario, duties=ALONE)


def test_errors_keep_their_kind():
    async def scenario(pool):
        with pytest.raises(TaskError, match="max_batch_size=0 is below 1") as caught:
            await pool.ask("epsilon", {**RUN, "max_batch_size": 0})
        assert caught.value.kind == "invalid"

    running(scenario, duties=ALONE)


def test_closing_leaves_no_process_and_nobody_waiting():
    async def main():
        pool = Pool()
        pool.start()
        begun = asyncio.Event()
        asked = [
            asyncio.ensure_future(pool.ask("planned", LONG, urgency=PLAN, report=lambda *_: begun.set()))
            for _ in range(4)
        ]
        await begun.wait()
        pids = pool.process_ids
        await pool.close()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TaskError}
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    asyncio.run(main())

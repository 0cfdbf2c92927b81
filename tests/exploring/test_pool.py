"""The pool: quick tasks do not wait for slow ones, given-up tasks leave nothing, lost processes are replaced."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
from tests.exploring.served import ENVIRONMENT, HANGS, LONG, RUN, gone

from filet.errors import InvalidArgumentError, NoSolutionError
from filet.exploring import pool as module
from filet.exploring import tasks
from filet.exploring.pool import PLAN, QUICK, SLOW, Pool, TaskError, described


def running(scenario, **options):
    async def main():
        pool = Pool(**options)
        pool.start()
        try:
            return await asyncio.wait_for(scenario(pool), HANGS)
        finally:
            pool.stop()

    return asyncio.run(main())


async def begun_plan(pool, report=lambda *_: None):
    """A long plan whose computation has begun."""
    begun = asyncio.Event()

    def heard(share, label):
        report(share, label)
        begun.set()

    plan = asyncio.create_task(pool.ask(PLAN, "planned", LONG, report=heard))
    await begun.wait()
    return plan


@pytest.mark.long
def test_a_point_does_not_wait_for_plans():
    async def scenario(pool):
        plans = [await begun_plan(pool), asyncio.create_task(pool.ask(PLAN, "planned", LONG, report=lambda *_: None))]
        point = await pool.ask(QUICK, "epsilon", RUN)
        assert point == tasks.epsilon(RUN)
        assert not any(plan.done() for plan in plans)
        for plan in plans:
            plan.cancel()

    running(scenario)


@pytest.mark.long
def test_slow_tasks_stand_back_for_quick_ones():
    async def scenario(pool):
        for lane in (QUICK, SLOW, PLAN):
            await pool.ask(lane, "sizes", RUN)
        return [os.getpriority(os.PRIO_PROCESS, number) for number in pool.processes]

    first, second, third = running(scenario)
    assert first == os.getpriority(os.PRIO_PROCESS, 0)
    assert first < second < third or third == 19  # 19: as nice as can be


@pytest.mark.long
def test_a_task_that_is_given_up_ends_and_frees_its_lane():
    async def scenario(pool):
        reports = []
        before = pool.processes
        plan = await begun_plan(pool, lambda *told: reports.append(told))
        plan.cancel()
        with pytest.raises(asyncio.CancelledError):
            await plan
        assert await asyncio.to_thread(gone, before[PLAN])  # it did not end by itself
        assert pool.processes[:PLAN] == before[:PLAN]
        count = len(reports)
        assert (await pool.ask(PLAN, "epsilon", RUN))["result"]["epsilon"] > 2.8
        assert len(reports) == count

    running(scenario)


@pytest.mark.long
def test_a_short_task_that_is_given_up_does_not_cost_its_process(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", HANGS)

    async def scenario(pool):
        await pool.ask(QUICK, "sizes", RUN)
        before = pool.processes
        asked = asyncio.create_task(pool.ask(QUICK, "epsilon", RUN))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await pool.ask(QUICK, "sizes", RUN))["marks"]["steps"] == 14_000
        assert pool.processes == before

    running(scenario)


@pytest.mark.long
def test_a_task_that_nobody_waits_for_is_not_started(monkeypatch):
    sent, talk = [], module._talk

    def recorded(connection, task, *rest):
        sent.append(task)
        return talk(connection, task, *rest)

    monkeypatch.setattr(module, "_talk", recorded)

    async def scenario(pool):
        plan = await begun_plan(pool)
        waiting = [asyncio.create_task(pool.ask(PLAN, "attack", RUN)) for _ in range(50)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        plan.cancel()
        await pool.ask(PLAN, "epsilon", RUN)

    running(scenario)
    assert sent == ["planned", "epsilon"]


@pytest.mark.long
def test_a_task_that_takes_too_long_is_ended_and_the_lane_goes_on(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.0)  # it is ended at once

    async def scenario(pool):
        before = pool.processes
        with pytest.raises(TaskError, match=r"more than 0\.01 seconds") as caught:
            await pool.ask(PLAN, "planned", LONG, report=lambda *_: None)
        assert caught.value.kind == "unanswered"
        assert await asyncio.to_thread(gone, before[PLAN])
        pool.seconds = HANGS
        assert (await pool.ask(PLAN, "sizes", RUN))["marks"]["steps"] == 14_000

    running(scenario, seconds=0.01)


@pytest.mark.long
def test_a_lost_process_is_replaced():
    async def scenario(pool):
        plan = await begun_plan(pool)
        before = pool.processes
        os.kill(before[PLAN], signal.SIGKILL)
        with pytest.raises(TaskError, match="lost") as caught:
            await plan
        assert caught.value.kind == "lost"
        assert (await pool.ask(PLAN, "sizes", RUN))["marks"]["steps"] == 14_000
        assert pool.processes[PLAN] != before[PLAN]

    running(scenario)


@pytest.mark.long
def test_errors_come_back_in_the_librarys_words():
    async def scenario(pool):
        with pytest.raises(TaskError, match="max_batch_size=0 is below 1") as caught:
            await pool.ask(QUICK, "epsilon", {**RUN, "max_batch_size": 0})
        assert caught.value.kind == "invalid"
        assert (await pool.ask(QUICK, "sizes", RUN))["marks"]["steps"] == 14_000

    running(scenario)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (InvalidArgumentError("steps=0 is\n below 1"), "invalid", "steps=0 is below 1"),
        (NoSolutionError("cannot be met"), "unanswered", "cannot be met"),
        (OverflowError("too large"), "unanswered", "out of range (too large)"),
        (MemoryError(), "unanswered", "not enough memory"),
        (TypeError("a bug"), "failed", "epsilon failed; the terminal"),
    ],
)
def test_every_error_is_one_line_and_a_bug_shows_in_the_terminal(error, kind, words, capsys):
    text, found = described("epsilon", error)
    assert found == kind
    assert words in text
    assert ("a bug" in capsys.readouterr().err) == (kind == "failed")


@pytest.mark.long
def test_stopping_leaves_no_process_and_nobody_waiting():
    async def main():
        pool = Pool()
        pool.start()
        asked = [await begun_plan(pool)]
        asked += [asyncio.create_task(pool.ask(PLAN, "planned", LONG, report=lambda *_: None)) for _ in range(3)]
        before = pool.processes
        pool.stop()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {TaskError}
        assert pool.processes == before
        assert all(gone(number) for number in before)

    asyncio.run(main())


def test_a_pool_that_was_not_started_can_be_stopped():
    Pool().stop()


ABANDONED = """
import asyncio, json, os, signal, sys
from filet.exploring.pool import PLAN, Pool

async def main():
    pool = Pool()
    pool.start()
    begun = asyncio.Event()
    plan = asyncio.create_task(pool.ask(PLAN, "planned", json.loads(sys.argv[1]), report=lambda *_: begun.set()))
    await begun.wait()
    print(json.dumps(pool.processes), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.long
def test_the_processes_end_with_a_server_that_is_killed_while_they_compute(tmp_path):
    path = tmp_path / "abandoned.py"
    path.write_text(ABANDONED)
    command = [sys.executable, str(path), json.dumps(LONG)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=HANGS)
    assert done.returncode == -signal.SIGKILL
    workers = json.loads(done.stdout)
    assert len(workers) == 3
    assert all(gone(number) for number in workers)

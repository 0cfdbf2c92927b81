"""The limiter: bounded, and only the newest request of a slot."""

import asyncio

import pytest

from filet.exploring.limiter import BusyError, RequestLimiter


def scenario(steps):
    """Run steps with a limiter and a maker of work that never ends by itself."""

    async def main():
        made = []

        def work():
            made.append(asyncio.create_task(asyncio.Event().wait()))
            return made[-1]

        limiter = RequestLimiter()
        await steps(limiter, work)
        for one in made:
            one.cancel()
        await asyncio.wait(made)
        assert limiter.open == 0

    asyncio.run(main())


def test_places_are_bounded_and_come_back():
    async def steps(limiter, work):
        first = work()
        limiter.admit("plan", 2, None, first)
        limiter.admit("plan", 2, None, work())
        with pytest.raises(BusyError, match="2 questions of this kind"):
            limiter.admit("plan", 2, None, work())
        first.cancel()
        await asyncio.wait({first})
        limiter.admit("plan", 2, None, work())
        assert limiter.open == 2

    scenario(steps)


def test_newer_work_takes_the_place_of_older_work_of_its_slot_at_once():
    async def steps(limiter, work):
        older, newer = work(), work()
        limiter.admit("plan", 1, "page.view", older)
        limiter.admit("plan", 1, "page.view", newer)
        assert limiter.open == 1
        await asyncio.wait({older})
        assert older.cancelled()
        assert not newer.done()
        assert limiter.open == 1  # the end of the older one frees nothing of the newer one's

    scenario(steps)


def test_slots_of_others_are_left_alone():
    async def steps(limiter, work):
        first = work()
        limiter.admit("plan", 2, "one", first)
        limiter.admit("plan", 2, "two", work())
        await asyncio.sleep(0)
        assert not first.done()
        assert limiter.open == 2

    scenario(steps)


def test_many_of_one_kind_do_not_keep_out_another():
    async def steps(limiter, work):
        limiter.admit("plan", 1, None, work())
        limiter.admit("epsilon", 1, None, work())
        assert limiter.open == 2

    scenario(steps)

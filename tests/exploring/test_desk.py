"""The desk: bounded, and only the newest question of a slot."""

import asyncio
import contextlib

import pytest

from filet.exploring.desk import BusyError, Desk


def test_places_are_bounded_and_come_back():
    async def main():
        desk = Desk()
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(desk.question("plan", 2))
            with pytest.raises(BusyError, match="2 questions of this kind"), desk.question("plan", 2):
                pass
            assert desk.open == 2
        assert desk.open == 0

    asyncio.run(main())


def test_a_newer_question_takes_the_place_of_the_older_one_of_its_slot():
    async def main():
        desk = Desk()
        with desk.question("plan", 1, "page.view") as first:
            assert not first.done()
            with desk.question("plan", 1, "page.view") as second:  # there is room, as the first is done for
                assert first.done()
                assert not second.done()
                assert desk.open == 1
        assert desk.open == 0

    asyncio.run(main())


def test_slots_of_others_are_left_alone():
    async def main():
        desk = Desk()
        with desk.question("plan", 2, "one") as first, desk.question("plan", 2, "two"):
            assert not first.done()
            assert desk.open == 2

    asyncio.run(main())


def test_many_of_one_kind_do_not_keep_out_another():
    async def main():
        desk = Desk()
        with desk.question("plan", 1), desk.question("epsilon", 1):
            assert desk.open == 2

    asyncio.run(main())

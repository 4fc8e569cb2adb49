"""How many calls may be in flight."""

import asyncio

import pytest

from services.submitter.slots import Slots


def slots(most: int = 3) -> Slots:
    """Slots of a process that nobody stops."""
    return Slots(most, asyncio.Event())


def test_no_more_are_taken_than_there_are() -> None:
    some = slots()
    assert [some.take(2), some.take(2), some.take(1)] == [2, 1, 0]
    some.give_back(2)
    assert some.free == 2


def test_none_is_handed_out_after_a_stop() -> None:
    stopping = asyncio.Event()
    some = Slots(3, stopping)
    assert some.take(1) == 1
    stopping.set()
    assert (some.free, some.take(1)) == (0, 0)
    assert not some.all_back.is_set()
    some.give_back(1)
    assert some.all_back.is_set()


def test_only_who_asked_for_more_is_woken_and_once() -> None:
    some = slots()
    some.take(3)
    some.give_back(1)
    assert not some.freed.is_set()
    some.want_more()
    some.give_back(0)
    assert not some.freed.is_set()
    some.give_back(1)
    assert some.freed.is_set()
    some.freed.clear()
    some.give_back(1)
    assert not some.freed.is_set()


@pytest.mark.parametrize("count", [-1, 2])
def test_what_was_not_taken_cannot_be_given_back(count: int) -> None:
    some = slots()
    some.take(1)
    with pytest.raises(ValueError, match="given back"):
        some.give_back(count)

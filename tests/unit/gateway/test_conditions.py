"""Tags and ranges as callers send them."""

import pytest

from services.gateway.conditions import Slice, Unsatisfiable, Whole, asked_part, is_known


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ([], False),
        (['"7"'], True),
        (['W/"7"'], True),
        (['"6"', '"7"'], True),
        (['"6","7"'], True),
        (["*"], True),
        (["7"], False),
        (['"77"'], False),
        (['"' * 10_001], False),
        (['W/"' * 10_000], False),
    ],
)
def test_a_held_version(given: list[str], known: bool) -> None:
    assert is_known(given, '"7"') is known


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-0", Slice(0, 0)),
        ("bytes= 1-2 ", Slice(1, 2)),
        ("bytes=9-", Slice(9, 9)),
        ("bytes=-3", Slice(7, 9)),
        ("bytes=-999", Slice(0, 9)),
        ("bytes=0-999999999999999999", Slice(0, 9)),
        ("bytes=10-", Unsatisfiable()),
        ("bytes=10-11", Unsatisfiable()),
        ("bytes=-0", Unsatisfiable()),
        ("bytes=2-1", Whole()),
        ("bytes=0-1,3-4", Whole()),
        ("bytes=-", Whole()),
        ("bytes=+1-2", Whole()),
        ("bytes=1--2", Whole()),
        ("bytes=٣-٤", Whole()),
        ("bytes=" + "9" * 21 + "-", Unsatisfiable()),
        ("bytes=0-" + "9" * 21, Slice(0, 9)),
        ("bytes=" + "9" * 41 + "-", Whole()),
        ("items=0-1", Whole()),
        ("", Whole()),
    ],
)
def test_a_part(asked: str, part: Slice | Whole | Unsatisfiable) -> None:
    assert asked_part([asked], [], size=10, etag='"t"') == part


def test_a_part_counts_once_and_only_of_the_same_content() -> None:
    first = ["bytes=0-0"]
    assert asked_part(first, ['"t"'], size=10, etag='"t"') == Slice(0, 0)
    for if_range in (['"u"'], ['W/"t"'], ['"t"', '"t"'], ["Tue, 03 Nov 2026 10:00:00 GMT"]):
        assert asked_part(first, if_range, size=10, etag='"t"') == Whole()
    assert asked_part([*first, *first], [], size=10, etag='"t"') == Whole()
    assert asked_part([], [], size=10, etag='"t"') == Whole()

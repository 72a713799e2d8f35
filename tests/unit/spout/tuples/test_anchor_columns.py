"""Columns of anchors that stay valid: which anchors the row of a join has, computed without Spark."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.types import DataType, LongType, StringType

from acker.errors import UsageError
from spout.tuples import anchor_columns
from spout.tuples.anchor_columns import (
    ANCHORS,
    HELD,
    anchor_types_of,
    join_anchors,
    joined_anchors,
    with_one_anchor_column,
)
from spout.tuples.columns import ANCHOR
from tests.support.computed_columns import (
    ANCHORS_TYPE,
    COMPUTED_FUNCTIONS,
    HELD_TYPE,
    Computed,
    Frame,
    Row,
    frame,
)


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's functions build nothing without a session."""
    monkeypatch.setattr(anchor_columns, "sql", COMPUTED_FUNCTIONS)


def anchor(position: int) -> tuple[int, int, int]:
    """Make an anchor, which nothing looks into."""
    return 65_537, position, 7 * position


A, B, C, D = map(anchor, range(4))


def test_the_types_of_anchors_are_those_that_spark_shows() -> None:
    assert (HELD_TYPE.simpleString(), ANCHORS_TYPE.simpleString()) == (HELD, ANCHORS)
    assert anchor_types_of(frame()) == []
    assert anchor_types_of(frame(HELD_TYPE, LongType(), ANCHORS_TYPE)) == [HELD, "bigint", ANCHORS]


@pytest.mark.parametrize(
    ("values", "joined"),
    [
        ((A, [B, C], D), [A, B, C, D]),
        ((None, [B, C], D), [B, C, D]),
        ((A, None, D), [A, D]),
        ((A, [], None), [A]),
        ((None, None, None), []),
    ],
)
def test_a_joined_row_has_the_anchors_of_all_sides_and_a_side_without_a_row_adds_none(
    values: tuple[Any, ...], joined: list[Any]
) -> None:
    """Sides of both forms; an outer join leaves a side empty."""
    sides = [frame(HELD_TYPE), frame(ANCHORS_TYPE), frame(HELD_TYPE)]
    row = cast("Row", {id(side): value for side, value in zip(sides, values, strict=True)})
    for column in (
        join_anchors(*sides),
        joined_anchors(
            [side[ANCHOR] for side in sides], [kind for side in sides for kind in anchor_types_of(side)]
        ),
    ):
        computed = cast("Computed", column)
        assert computed.name == ANCHOR
        assert computed.read(row) == joined


@pytest.mark.parametrize(
    ("kinds", "row", "expected"),
    [
        ((HELD_TYPE,), ["a", A, 1], ["a", 1, [A]]),
        ((HELD_TYPE,), ["a", None, 1], ["a", 1, []]),
        ((HELD_TYPE, HELD_TYPE), ["a", A, 1, B, 2], ["a", 1, 2, [A, B]]),
        ((HELD_TYPE, ANCHORS_TYPE), ["a", A, 1, [B, C], 2], ["a", 1, 2, [A, B, C]]),
        ((ANCHORS_TYPE, HELD_TYPE), ["a", None, 1, B, 2], ["a", 1, 2, [B]]),
        ((ANCHORS_TYPE, ANCHORS_TYPE), ["a", [A], 1, [B], 2], ["a", 1, 2, [A, B]]),
        ((HELD_TYPE, ANCHORS_TYPE, HELD_TYPE), ["a", A, 1, None, 2, D, 3], ["a", 1, 2, 3, [A, D]]),
    ],
)
def test_several_columns_of_anchors_become_one_and_the_others_keep_their_order(
    kinds: tuple[DataType, ...], row: Row, expected: Row
) -> None:
    """Behind a join, whose columns of anchors differ only by their places."""
    found = cast("Frame", with_one_anchor_column(frame(*kinds, rows=[row, row]), "ack_anchors"))
    assert found.columns == ["line", *(f"n{number}" for number in range(len(kinds))), ANCHOR]
    assert found.rows == [expected, expected]


def test_a_single_array_of_anchors_stays_as_it_is() -> None:
    rows = frame(ANCHORS_TYPE)
    assert with_one_anchor_column(rows, "ack_anchors") is rows


@pytest.mark.parametrize(
    "kinds", [(), (LongType(),), (HELD_TYPE, LongType()), (LongType(), ANCHORS_TYPE), (StringType(),)]
)
def test_rows_whose_anchors_spark_may_not_keep_are_refused(kinds: tuple[DataType, ...]) -> None:
    """An anchor of one batch means nothing in another; one such column among good ones is enough."""
    with pytest.raises(UsageError, match="'ack': the rows carry no anchors that Spark's state may keep"):
        with_one_anchor_column(frame(*kinds), "ack")


def test_a_join_of_no_sides_is_refused() -> None:
    with pytest.raises(UsageError, match="join_anchors needs the DataFrames that were joined"):
        join_anchors()


@pytest.mark.parametrize("good", [HELD_TYPE, ANCHORS_TYPE])
@pytest.mark.parametrize(
    ("kinds", "cure"),
    [
        ((), "the side with the columns line is not held"),
        ((LongType(),), "the side with the columns line, _windhover, n0 is not held"),
        ((HELD_TYPE, HELD_TYPE), "a side has several columns of anchors"),
        ((ANCHORS_TYPE, HELD_TYPE, HELD_TYPE), "a side has several columns of anchors"),
    ],
)
def test_each_side_of_a_join_has_just_one_column_of_held_anchors(
    kinds: tuple[DataType, ...], cure: str, good: DataType
) -> None:
    """Whichever of the sides it is."""
    for sides in ((frame(*kinds), frame(good)), (frame(good), frame(*kinds))):
        with pytest.raises(UsageError, match=cure):
            join_anchors(*sides)

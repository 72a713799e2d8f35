"""Groupings on DataFrames: what is refused when one is made."""

from __future__ import annotations

from typing import Any

import pytest

from acker.errors import UsageError
from spout.bolts.groupings import Grouping, fields, shuffle


@pytest.mark.parametrize("names", [(["word"],), (("word", "line"),), (7,), ("",)])
def test_fields_are_named_one_by_one(names: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match=r"fields\(\) takes the names one by one: .*fields\(\*names\)"):
        fields(*names)


@pytest.mark.parametrize("partitions", [0, -1, 2.5, "2", True])
def test_a_grouping_has_a_whole_number_of_partitions(partitions: Any) -> None:
    for make in (
        lambda: fields("word", partitions=partitions), lambda: shuffle(partitions),
        lambda: Grouping((), partitions),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=rf"a grouping over {partitions!r} partitions: a whole number"):
            make()


def test_a_grouping_says_what_it_was_given() -> None:
    assert fields("word", "line", partitions=4) == Grouping(("word", "line"), 4)
    assert shuffle() == Grouping((), None)

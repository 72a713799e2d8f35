"""Items whose roots are lost while a client has them open: the others go on, and each loss counts once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from confluent_kafka import Message

from acker.config.topics import parse
from acker.errors import TupleError
from acker.identity import source_of
from acker.wire.events import Lost, pack_positions
from acker.wire.verdict import Verdict
from spout.standalone.items import Item, Items, Part
from spout.standalone.queues import ClientLimits, QueueCollection
from spout.tuples.failures import Cause
from tests.support.worlds.kestrel_world import YAML

A: Final = source_of(1, 0)
CLIENT: Final = ClientLimits("worker", max_open=100)
COUNT: Final = 5
SPLIT: Final = 2
"""The item that is split, where one is."""
WHY: Final = Cause("worker", "", "busy")

LOST = {
    "none": [],
    "the first": [0],
    "the one that was split": [SPLIT],
    "the last": [COUNT - 1],
    "that and another": [1, SPLIT],
    "all but that": [0, 1, 3, 4],
    "all": list(range(COUNT)),
}
"""Which items are lost."""

PARTS = ("whole", "split", "split, and a part is done")
"""Whether an item was split before."""


class Opened:
    """A client that has five items open, of which some were lost."""

    def __init__(self, parts: str, lost: Sequence[int]) -> None:
        inputs = [parse(YAML, file="topics.yaml", environ={}).input("sentences")]
        self.queues = QueueCollection(inputs)
        self.queue = self.queues.queue("sentences")
        self.queues.put(A, [Message() for _ in range(COUNT)], np.arange(COUNT))
        self.items: Items = self.queues.open(CLIENT, self.queue, COUNT, now_ms=0)
        self.parts: list[Part] = []
        if parts != "whole":
            self.parts = self.queues.split(CLIENT.client, self.items[SPLIT], 2)
        if parts.endswith("done"):
            assert self.queues.confirm(CLIENT.client, self.parts[0]) == 0
        self.lose(lost)
        self.lost = lost
        self.is_split = bool(self.parts) and SPLIT not in lost

    def lose(self, lost: Sequence[int]) -> None:
        """Let the roots of items time out."""
        if lost:
            at = pack_positions(np.array(lost, np.int64))
            lost_roots = Lost(Verdict.TIMED_OUT, "g", "sentences", "", "", "", "", 5, 5, 9, A, at)
            assert self.queues.remove_lost(lost_roots)

    @property
    def open_count(self) -> int:
        """How many items the client has open."""
        return self.queue.store.open_count_of(CLIENT.client)

    @property
    def confirmed(self) -> list[int]:
        """The items whose confirmation is published, ascending."""
        of_runs = [serial for run in self.queues.publication.confirmed_runs for serial in range(*run)]
        return sorted([*of_runs, *self.queues.publication.confirmed_serials])

    def single(self) -> list[Item | Part]:
        """Return the items one by one, and for one that was split its parts."""
        listed: list[Item | Part] = []
        for number, item in enumerate(self.items):
            listed += self.parts if self.parts and number == SPLIT else [item]
        return listed


grid = [
    pytest.mark.parametrize("lost", LOST.values(), ids=LOST),
    pytest.mark.parametrize("parts", PARTS),
]


def of_each_kind(test: object) -> object:
    """Run a test for each kind of loss, with and without parts."""
    for mark in grid:
        test = mark(test)  # type: ignore[arg-type]
    return test


@of_each_kind
def test_all_of_an_open_is_confirmed_but_for_what_was_lost(parts: str, lost: Sequence[int]) -> None:
    """S157: parts of what was lost hold up nothing; each loss counts as late, once."""
    opened = Opened(parts, lost)
    if opened.is_split:
        with pytest.raises(TupleError, match="parts are open"):
            opened.queues.confirm(CLIENT.client, opened.items)
        assert opened.open_count == COUNT - len(lost)
        left = opened.parts[1:] if parts.endswith("done") else opened.parts
        assert sum(opened.queues.confirm(CLIENT.client, part) for part in left) == 1
    kept = [number for number in range(COUNT) if number not in lost]
    assert opened.queues.confirm(CLIENT.client, opened.items) == len(kept) - opened.is_split
    assert opened.confirmed == kept
    assert opened.open_count == 0
    assert opened.queues.late_count == len(lost)
    assert opened.queues.confirm(CLIENT.client, opened.items) == 0
    assert opened.queues.late_count == len(lost)


@of_each_kind
def test_all_of_an_open_is_failed_but_for_what_was_lost(parts: str, lost: Sequence[int]) -> None:
    opened = Opened(parts, lost)
    kept = [number for number in range(COUNT) if number not in lost]
    for expected in (len(kept), 0):
        assert opened.queues.fail(CLIENT.client, opened.items, WHY) == expected
        assert opened.queues.late_count == len(lost)
    assert opened.open_count == 0
    assert opened.confirmed == []


@of_each_kind
@pytest.mark.parametrize("how", ["confirm", "confirm as a list", "fail", "fail as a list"])
def test_items_are_settled_one_by_one_but_for_what_was_lost(
    parts: str, lost: Sequence[int], how: str
) -> None:
    """An item in parts counts as late once, whichever of its parts says so."""
    opened = Opened(parts, lost)
    queues, settled = opened.queues, 0
    kept = [number for number in range(COUNT) if number not in lost]
    listed = opened.single()
    if how == "confirm as a list":
        settled = queues.confirm(CLIENT.client, listed)
    elif how == "fail as a list":
        settled = queues.fail(CLIENT.client, listed, WHY)
    else:
        for one in listed:
            is_confirm = how == "confirm"
            settled += (
                queues.confirm(CLIENT.client, one) if is_confirm else queues.fail(CLIENT.client, one, WHY)
            )
    assert settled == len(kept)
    assert opened.confirmed == (kept if how.startswith("confirm") else [])
    assert opened.open_count == 0
    assert queues.late_count == len(lost)
    assert queues.confirm(CLIENT.client, opened.items) == 0
    assert queues.late_count == len(lost)


@of_each_kind
@pytest.mark.parametrize("how", ["abort", "leave", "oldest"])
def test_what_is_put_back_or_confirmed_by_its_age_is_what_is_left(
    parts: str, lost: Sequence[int], how: str
) -> None:
    """What comes again has no parts: whoever opens it next confirms it whole."""
    opened = Opened(parts, lost)
    kept = [number for number in range(COUNT) if number not in lost]
    queues, store = opened.queues, opened.queue.store
    if how == "oldest":
        if opened.is_split:
            with pytest.raises(TupleError, match="parts are open"):
                queues.confirm_oldest(CLIENT.client, opened.queue, len(kept))
            return
        assert queues.confirm_oldest(CLIENT.client, opened.queue, len(kept) + 1) == 0
        assert queues.confirm_oldest(CLIENT.client, opened.queue, len(kept)) == len(kept)
        assert opened.confirmed == kept
        return
    returned = (
        queues.abort(CLIENT.client, opened.items)
        if how == "abort"
        else queues.put_back_of_client(CLIENT.client)
    )
    assert returned == store.waiting_count == len(kept)
    again = queues.open(CLIENT, opened.queue, COUNT, now_ms=1)
    assert len(again) == len(kept)
    assert queues.confirm(CLIENT.client, again) == len(kept)
    assert opened.confirmed == kept
    assert queues.late_count == 0


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_lost_after_a_part_of_an_open_was_confirmed_counts_too(times: int) -> None:
    """Some are confirmed, some are lost, again and again; the whole is confirmed in the end."""
    opened = Opened("whole", [])
    for number in range(times):
        assert opened.queues.confirm(CLIENT.client, opened.items[number]) == 1
        opened.lose([COUNT - 1 - number])
    assert opened.queues.confirm(CLIENT.client, opened.items) == COUNT - 2 * times
    assert opened.queues.late_count == times

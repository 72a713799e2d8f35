"""Logs are compared source by source: what one answers says nothing of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any, Final

import pytest

from acker.config.topics import parse
from acker.errors import Disagreement
from acker.identity import position_at, source_of
from acker.kafka.port import NO_EPOCH, ReadTo, TopicPartition
from spout.group.sources import SourceSpec
from spout.planning.intake import SourceCursor
from spout.planning_process.continuity import OLDER_LEADER_MS_MAX, Continuity, Cut
from tests.support.worlds.planning import YAML

READ_TO: Final = 150
CUT_AT: Final = 100

STATES = {
    "whole": READ_TO,
    "cut": CUT_AT,
    "unknown": None,
    "the same leader": READ_TO,
    "silent": READ_TO,
    "never compared": READ_TO,
}
"""States of a source: up to which offset its new leader has what was read; None: not yet known."""

INPUT = parse(YAML, file="topics.yaml", environ={}).input("sentences")


@dataclass
class Leaders:
    """Answers how far logs are whole, and keeps of which it was asked."""

    intact: Mapping[TopicPartition, int]
    asked: Mapping[TopicPartition, ReadTo]

    def intact_to(self, places: Mapping[TopicPartition, ReadTo]) -> Mapping[TopicPartition, int]:
        """Answer for those that are known."""
        self.asked = places
        return {place: self.intact[place] for place in places if place in self.intact}


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000], ids=["right", "set back", "set ahead"])
def test_a_leader_with_an_older_epoch_is_given_a_minute_by_a_clock_that_is_set(step_ms: int) -> None:
    """D413: a clock that was set ahead by an hour ended the query; of a jump half of the minute counts."""
    source, place = source_of(1, 0), TopicPartition("sentences", 0)
    session: Any = SimpleNamespace(cursors={source: SourceCursor(0, position_at(0, READ_TO), None, 3)})
    log: Any = Leaders({}, {})
    continuity = Continuity(log, {source: SourceSpec(source, place, "id", INPUT)}, session)
    now_ms = 10_000_000
    assert continuity.compare({place: 2}, now_ms).unknown == {source}
    now_ms += step_ms
    # the look after a step ahead counts for half of the minute, and the one after a step back for nothing
    minute = OLDER_LEADER_MS_MAX // 1_000
    left = minute // 2 if step_ms > 0 else minute
    for _ in range(left):
        assert continuity.compare({place: 2}, now_ms).unknown == {source}
        now_ms += 1_000
    with pytest.raises(Disagreement):
        continuity.compare({place: 2}, now_ms)


@pytest.mark.parametrize("states", list(product(STATES, repeat=2)), ids=" and ".join)
def test_each_source_is_judged_by_its_own_leader(states: tuple[str, str]) -> None:
    """O606, O608: two that were cut are both found; one that is whole, or unknown, hides neither."""
    places = {source_of(1, number): TopicPartition("sentences", number) for number in range(2)}
    state_of = dict(zip(places, states, strict=True))
    specs = {source: SourceSpec(source, place, "id", INPUT) for source, place in places.items()}
    cursors = {
        source: SourceCursor(
            position_at(0, 0), position_at(0, READ_TO), None, NO_EPOCH if state == "never compared" else 3
        )
        for source, state in state_of.items()
    }
    epochs = {
        places[source]: 3 if state == "the same leader" else 4
        for source, state in state_of.items()
        if state != "silent"
    }
    intact = {places[source]: to for source, state in state_of.items() if (to := STATES[state]) is not None}
    leaders = Leaders(intact, {})
    log: Any = leaders
    session: Any = SimpleNamespace(cursors=cursors)

    compared = Continuity(log, specs, session).compare(epochs, now_ms=5)

    cut = [source for source, state in state_of.items() if state == "cut"]
    assert compared.cuts == tuple(
        Cut(source, position_at(0, CUT_AT), position_at(0, READ_TO)) for source in cut
    )
    assert sorted(compared.unknown) == [source for source, state in state_of.items() if state == "unknown"]
    kept = {"whole": 4, "never compared": 4}
    assert {source: cursor.leader_epoch for source, cursor in cursors.items()} == {
        source: kept.get(state, 3) for source, state in state_of.items()
    }
    to_compare = [places[s] for s, state in state_of.items() if state in ("whole", "cut", "unknown")]
    assert leaders.asked == dict.fromkeys(to_compare, ReadTo(READ_TO, 3))

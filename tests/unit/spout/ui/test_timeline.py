"""The lines of a record: what happened when, and where it stands in the line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.identity import Root, position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.view import OpenRange
from acker.wire.verdict import Verdict
from replay.records.due import Loss
from replay.records.headers import Lineage
from spout.inspect.story import Evidence, TracedEmission, attempts_of
from spout.inspect.trail import EvidenceReader
from spout.ui.timeline import SCALE, AttemptLine, EventKind, Timeline, timeline_of
from tests.support.odd_times import ODD_TIMES_MS
from tests.support.worlds.order_world import OrderWorld
from tests.support.worlds.planning import COPIES, World, batch, emit_ten, yaml_of

YAML = yaml_of(timeout="4s", retry="{attempts: 2, initial: 1s, jitter: 0}", dead_letter="{max_ratio: 1}")


def timeline(world: World, place: str = "sentences/0@3") -> Timeline:
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at(place)
    return timeline_of(trail.read_evidence(here), world.now_ms)


def kinds(line: AttemptLine) -> list[EventKind]:
    return [each.kind for each in line.events]


def test_an_open_record_has_its_deadline_ahead() -> None:
    world = World(YAML)
    emit_ten(world, skip=(3,), then_ms=500)
    (line,) = timeline(world).lines
    assert kinds(line) == [EventKind.WRITTEN, EventKind.EMITTED, EventKind.DEADLINE, EventKind.NOW]
    at = {each.kind: each.x for each in line.events}
    assert at[EventKind.WRITTEN] == 0
    assert at[EventKind.DEADLINE] == SCALE
    assert at[EventKind.EMITTED] == line.begin_x
    assert at[EventKind.NOW] == line.end_x


def test_a_record_that_dies_has_a_lane_for_each_attempt_with_bolt_and_cause() -> None:
    world = World(YAML)
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,), then_ms=500)
    (first,) = timeline(world).lines
    assert kinds(first)[-1] is EventKind.DUE
    assert first.events[-1].text == "is due as attempt 2"
    world.run(2_500)
    following = batch(planner, end, world)
    world.publish(end, following, fail=(0,), of=COPIES)
    world.run(2_000)
    found = timeline(world)
    assert [(line.attempt, line.state) for line in found.lines] == [(1, "FAILED"), (2, "FAILED")]
    texts = [event.text for _, event in found.events()]
    assert texts.count("failed at split by ValueError: boom") == 2
    assert texts[-1].startswith("dead letter ")
    times = [event.at_ms for _, event in found.events()]
    assert times == sorted(times)
    for line in found.lines:
        assert all(0 <= each.x <= SCALE for each in line.events)


def test_a_second_life_comes_behind_the_first_although_its_attempts_begin_at_1_again() -> None:
    world = World(YAML)
    emit_ten(world, skip=(3,), then_ms=500)
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at("sentences/0@3")
    evidence = trail.read_evidence(here)
    lost = [(2, 5_000), (1, 20_000), (2, 30_000)]
    losses = [
        Loss(
            attempt,
            Verdict.FAILED,
            "split",
            "E",
            "",
            world.now_ms + at_ms,
            0,
            f"sentences.g.replay/0@{at_ms}",
        )
        for attempt, at_ms in lost
    ]
    found = timeline_of(replace(evidence, history=tuple(losses)), world.now_ms)
    assert [line.attempt for line in found.lines] == [1, 2, 1, 2]


def test_of_more_attempts_than_are_drawn_the_table_has_all() -> None:
    world = World(YAML)
    emit_ten(world, skip=(3,), then_ms=500)
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at("sentences/0@3")
    losses = [
        Loss(n, Verdict.FAILED, "split", "E", "", world.now_ms + n, 0, f"sentences.g.replay/0@{n}")
        for n in range(2, 26)
    ]
    found = timeline_of(replace(trail.read_evidence(here), history=tuple(losses)), world.now_ms)
    assert [line.attempt for line in found.drawn] == list(range(6, 26))
    assert {attempt for attempt, _ in found.events()} == set(range(1, 26))


def test_a_timeout_is_a_deadline_behind() -> None:
    world = World(YAML)
    emit_ten(world, skip=(3,), then_ms=500)
    world.run(6_000)
    (line,) = timeline(world).lines
    assert [each.text for each in line.events if each.kind is EventKind.DEADLINE] == ["timed out"]


def test_of_an_acked_record_nobody_knows_when_it_was_emitted() -> None:
    """Its verdict has no time of emission: the line has no bar, and no invented event."""
    world = World(YAML)
    emit_ten(world, then_ms=500)
    (line,) = timeline(world).lines
    assert kinds(line) == [EventKind.WRITTEN, EventKind.VERDICT]
    assert (line.begin_x, line.end_x) == (None, None)


def test_of_emissions_that_one_record_blocked_the_first_and_the_last_have_a_lane() -> None:
    """There is another one in every `hold`; the same are left out where the command leaves them out."""
    world = OrderWorld("key")
    world.produce(3, keys=(b"a",))
    world.bolt = lambda _record, _partition, origin: "" if origin else "ValueError"
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at("sentences/0@2")
    for _ in range(8):
        world.plan()
        world.execute()
        world.run(1_000)
    evidence = trail.read_evidence(here)
    rows = attempts_of(evidence, world.now_ms)
    lines = [line.root for line in timeline_of(evidence, world.now_ms).lines]
    assert lines == [row["root"] for row in rows if not row["repeats"]]
    blocked = [row["root"] for row in rows if row["error"] == "HELD"]
    assert len(blocked) > 4
    assert [root for root in lines if root in blocked] == [blocked[0], blocked[-1]]


@pytest.mark.parametrize("time_ms", ODD_TIMES_MS)
def test_a_time_behind_the_first_emission_is_no_event(time_ms: int) -> None:
    """O1005: it would stretch the lines over millennia; the record's facts show it."""
    world = World(YAML)
    place = TopicPartition("sentences", 0)
    world.cluster.partition(place).append(Outgoing(*place, b"odd", timestamp_ms=time_ms), world.now_ms)
    emit_ten(world, skip=(3,), then_ms=500)
    found = timeline(world, "sentences/0@0")
    is_drawn = 0 < time_ms < world.now_ms
    assert (EventKind.WRITTEN in kinds(found.lines[0])) == is_drawn
    assert found.end_ms < world.now_ms + 60_000


OFFSET = 7
PLACE = f"words/0@{OFFSET}"


def loss_at(emitted_ms: int, root: str = PLACE) -> Loss:
    return Loss(1, Verdict.FAILED, "split", "ValueError", "boom", emitted_ms, 500, root)


def emission_in(generation: int, **facts: Any) -> TracedEmission:
    root = Root(source_of(1, 0), position_at(generation, OFFSET))
    return TracedEmission(root, PLACE, PLACE, Lineage(PLACE), copy=False, **facts)


def open_since(emitted_ms: int) -> OpenRange:
    at = np.array([0])
    return OpenRange(
        source_of(1, 0), position_at(1, OFFSET), at, "g", "s", 1, emitted_ms, 0, False, 9_000, None
    )


PRESENT: dict[str, dict[str, Any]] = {
    "pending": {"open": open_since(50_000)},
    "announced": {"announced": True},
    "settled": {"watermark": position_at(1, OFFSET + 1)},
    "unknown": {},
}


@pytest.mark.parametrize("kind", PRESENT)
@pytest.mark.parametrize("generation", [0, 1])
def test_what_was_lost_before_a_rewind_has_a_lane_of_its_own(kind: str, generation: int) -> None:
    """Its place is the same; only of the first generation it may be how this emission was lost."""
    emission = emission_in(generation, **PRESENT[kind])
    evidence = Evidence(PLACE, "words", "g", None, True, [emission], history=(loss_at(10_000),))
    drawn = timeline_of(evidence, 60_000)
    is_one = generation == 0 and kind in ("settled", "unknown")
    assert len(drawn.lines) == len(attempts_of(evidence, 60_000)) == (1 if is_one else 2)
    [line_of_loss] = [line for line in drawn.lines if EventKind.FAILED in kinds(line)]
    assert kinds(line_of_loss) == [EventKind.EMITTED, EventKind.FAILED]
    if kind == "pending":
        assert line_of_loss is drawn.lines[0]
        assert kinds(drawn.lines[1]) == [EventKind.EMITTED, EventKind.DEADLINE, EventKind.NOW]


def test_losses_of_two_generations_at_one_place_have_a_lane_each() -> None:
    evidence = Evidence(PLACE, "words", "g", None, True, [], history=(loss_at(10_000), loss_at(20_000)))
    drawn = timeline_of(evidence, 60_000)
    assert [line.events[0].at_ms for line in drawn.lines] == [10_000, 20_000]

"""The lines of a record: what happened when, and where it stands in the line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acker.identity import Root, position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.verdict import Verdict
from replay.records.due import Loss
from replay.records.headers import Lineage
from spout.inspect.story import Evidence, OpenRange, TracedEmission, attempts_of
from spout.inspect.trail import EvidenceReader
from spout.ui.timeline import SCALE, AttemptLine, EventKind, Timeline, timeline_of
from tests.support.odd_times import ODD_TIMES_MS
from tests.support.worlds.order_world import OrderWorld
from tests.support.worlds.planning import COPIES, World, batch, emit_ten, yaml_of

YAML = yaml_of(timeout="4s", retry="{attempts: 2, initial: 1s, jitter: 0}", dead_letter="{max_ratio: 1}")

PLACE = "words/0@7"


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


PENDING_RANGE = OpenRange(
    source_of(1, 0), position_at(1, 7), np.array([0]), "g", "session", 1, 50_000, 0,
    carried=False, deadline_ms=80_000, left_ms=20_000,
)  # fmt: skip


def emission_after_rewind(open_range: OpenRange | None, *, is_announced: bool = False) -> TracedEmission:
    """Return the emission of `words/0@7` after a rewind, without a verdict."""
    root = Root(source_of(1, 0), position_at(1, 7))
    return TracedEmission(
        root, "words/0@7 (generation 1)", PLACE, Lineage(PLACE), copy=False, watermark=position_at(1, 5),
        open=open_range, announced=is_announced,
    )  # fmt: skip


@pytest.mark.parametrize(
    "emission",
    [
        emission_after_rewind(PENDING_RANGE),
        emission_after_rewind(None, is_announced=True),
        emission_after_rewind(None),
    ],
    ids=["pending", "announced", "not emitted"],
)
def test_a_loss_before_a_rewind_is_not_that_of_the_emission_behind_it(emission: TracedEmission) -> None:
    loss = Loss(1, Verdict.FAILED, "split", "ValueError", "boom", 10_000, age_ms=500, root=PLACE)
    evidence = Evidence(PLACE, "words", "g", None, written=True, emissions=[emission], history=[loss])
    drawn = timeline_of(evidence, 60_000)
    assert [(line.root, line.state) for line in drawn.lines if line.root == PLACE] == [(PLACE, "FAILED")]
    (present,) = [line for line in drawn.lines if line.root != PLACE]
    assert present.state == emission.state
    assert EventKind.FAILED not in kinds(present)
    rows = attempts_of(evidence, 60_000)
    assert sorted(row["state"] for row in rows) == sorted(line.state for line in drawn.lines)

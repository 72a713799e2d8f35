"""Records that compaction took from a topic that is no longer compacted: nothing is lost without a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acker.identity import copies_source
from acker.wire.verdict import Verdict
from replay.records.due import BATCH_SKIPPED, Due, Loss, was_a_record
from spout.publishing.publish import BATCH_SKIPPED as SKIPPED
from tests.support.worlds.replay_world import COPIES, TOPIC, Emission, World, header


def once_compacted(world: World, topic: str) -> list[Emission]:
    """Let compaction take two of three records, and then change the topic to one that is not compacted."""
    world.cluster.delete_topic(topic)
    world.cluster.create_topic(topic, 2, compacted=True)
    roots = [world.emit(b"%d" % number, key=b"same", topic=topic) for number in range(3)]
    world.cluster.compact(topic)
    settings: Any = world.cluster.topic(topic).info.settings
    settings["cleanup.policy"] = "delete"
    return roots


@pytest.mark.parametrize("topic", [TOPIC, COPIES])
def test_a_record_that_a_bolt_failed_is_buried_though_the_log_shows_a_hole(topic: str) -> None:
    """Rule 5: the present cleanup.policy says nothing of what was compacted away before it was changed."""
    world = World()
    roots = once_compacted(world, topic)
    worker = world.worker()
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies() if header(copy, "windhover.origin")] == [b"2"]
    letters = world.letters()
    assert [header(letter, "windhover.origin") for letter in letters] == [f"{topic}/0@0", f"{topic}/0@1"]
    assert {header(letter, "windhover.dead") for letter in letters} == {"GONE"}
    assert worker.status().absent == 0


def test_what_may_never_have_been_read_is_no_loss() -> None:
    """A marker has verdicts too: it was announced with its neighbours, and lost with its session."""
    world = World()
    roots = once_compacted(world, TOPIC)
    worker = world.worker()
    world.lose(roots[0], reason=Verdict.ABANDONED)
    world.lose(roots[1], operator="sink", error="BATCH_SKIPPED")
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert (world.copies(), world.letters(), worker.status().absent) == ([], [], 2)


LOSS = Loss(1, Verdict.FAILED, "split", "ValueError", "bad", 1_000, 20, "sentences/0@7")
DUE = Due(65_536, 7, 9_000, "", "g", "sentences", "id", "sentences/0@7", 1, 0, 1_000, (LOSS,))
UNREAD = LOSS._replace(reason=Verdict.TIMED_OUT, operator="", error="", message="")


@pytest.mark.parametrize(
    ("due", "proven"),
    [
        (DUE, True),
        (replace(DUE, history=(LOSS._replace(error="HELD"),)), True),
        (replace(DUE, history=(UNREAD,)), False),
        (replace(DUE, history=(UNREAD._replace(reason=Verdict.ABANDONED),)), False),
        (replace(DUE, history=(LOSS._replace(operator="", error="NONDETERMINISTIC"),)), False),
        (replace(DUE, history=(LOSS._replace(operator="sink", error=SKIPPED),)), False),
        (replace(DUE, history=()), False),
        (replace(DUE, history=(UNREAD,), attempt=2), True),
        (replace(DUE, history=(UNREAD, UNREAD)), True),
        (replace(DUE, history=(UNREAD,), source=copies_source(DUE.source)), True),
    ],
)
def test_what_proves_that_there_was_a_record(due: Due, proven: bool) -> None:
    assert was_a_record(due) is proven


def test_the_cause_of_a_skipped_batch_is_called_as_the_spout_calls_it() -> None:
    assert BATCH_SKIPPED[1] == SKIPPED

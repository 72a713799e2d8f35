"""Why offsets cannot be read: everything that is shown says what is true of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import KafkaError

from acker.errors import TOO_LARGE, Damaged, UnreadableKind, unreadable_kind
from acker.kafka.client import DAMAGE
from acker.kafka.partition_troubles import TroubleKind, kind_of_run
from acker.kafka.port import DamagedRun
from acker.wire.causes import UNREADABLE_CAUSES
from replay.policy.damage import held_up_cure
from replay.policy.disposition import DeadReason
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import Due
from replay.worker.fetch import Absence, absence_by_damage
from spout.planning_process.sink_watch import damage_cure
from tests.support.memory.partition import DAMAGE_TEXT

WHYS: Mapping[UnreadableKind, str] = {
    UnreadableKind.DAMAGED: DAMAGE_TEXT,
    UnreadableKind.OVERSIZED: f"{TOO_LARGE}a record of 200,000,000 bytes, more than the 100,000,000 taken",
    UnreadableKind.NOT_UNPACKED: DAMAGE[KafkaError._BAD_COMPRESSION],
}
DUE = Due(
    source=65_536,
    position=7,
    due_ms=0,
    dead="",
    group="g",
    topic="lines",
    topic_id="",
    origin="lines/0@7",
    attempt=1,
    abandoned=0,
    first_emitted_ms=0,
    history=(),
)
KINDS = pytest.mark.parametrize("kind", list(UnreadableKind), ids=str)


def texts_of(kind: UnreadableKind) -> Iterator[str]:
    """Yield all that people read of an offset that cannot be read for a reason."""
    why = WHYS[kind]
    yield str(Damaged("lines", 0, 7, why))
    yield str(Damaged("lines", 0, 7, why).with_cure("do this"))
    yield str(Damaged("lines", 0, 7, why, damage_cure(7, 8, why)))
    yield kind.phrase
    yield held_up_cure(kind)
    letter = build_dead_letter(DUE, Death(DeadReason[kind.name]), None, LetterTopic("dead", 1, 10_000), 1)
    headers = dict(letter.headers)
    yield (headers["__dlq.errors.message"] or b"").decode()
    yield (headers["windhover.missing"] or b"").decode()


@KINDS
def test_only_what_is_damaged_on_a_disk_is_called_so(kind: UnreadableKind) -> None:
    """O1917, O1918: what was written so is the same on every replica, and no replica is waited for."""
    is_disk = kind is UnreadableKind.DAMAGED
    for text in texts_of(kind):
        assert is_disk or not ("damaged" in text or "a replica" in text or "whole" in text), text
    error = Damaged("lines", 0, 7, WHYS[kind])
    assert str(error).startswith("lines/0@7: ")
    assert WHYS[kind] in str(error)
    assert ("damaged on its broker's disk" in str(error)) is is_disk
    assert error.why == WHYS[kind]


@KINDS
def test_each_kind_has_its_own_cause_reason_absence_and_trouble(kind: UnreadableKind) -> None:
    """O1918: programs tell them apart wherever they meet one."""
    assert unreadable_kind(WHYS[kind]) is kind
    run = DamagedRun("lines", 0, 7, 8, WHYS[kind])
    assert absence_by_damage(run).unreadable is kind
    assert kind_of_run(run) is TroubleKind(kind.value.lower())
    assert UNREADABLE_CAUSES[kind.value] is kind
    assert DeadReason(kind.value).value == kind.value


def test_other_absences_are_no_records_that_cannot_be_read() -> None:
    assert Absence.GONE.unreadable is None
    assert Absence.NEVER.unreadable is None

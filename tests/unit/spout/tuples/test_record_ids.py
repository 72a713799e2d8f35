"""The record's own id: the same in every attempt, and another record never has it, whatever its origin."""

from __future__ import annotations

import numpy as np
import pytest
from confluent_kafka import Message

from acker.identity import source_of
from acker.kafka.port import NO_EPOCH, Record
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.copies import build_copy
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import Due, Loss
from replay.records.headers import RECORD_ID, record_id
from replay.records.letters import Letter, copy_of_letter, parse_letter
from spout.tuples.messages import MessageRows

TOPIC_ID = "t2Yz4Qb8R0u0qk1Xn3m1Wg"
FIRST = "t2Yz4Qb8R0u0qk1Xn3m1Wg/3@1042#5"
SOURCE, COPIES = source_of(1, 3), source_of(1, 3, replay=True)
LOSS = Loss(1, Verdict.FAILED, "split", "ValueError", "bad", 1_000, 20, "sentences/3@1042")


def due(source: int, offset: int) -> Due:
    """Return a lost emission of the record 1042."""
    topic, topic_id = ("sentences", TOPIC_ID) if source == SOURCE else ("sentences.g.replay", "other")
    return Due(source, offset, 9, "", "g", topic, topic_id, "sentences/3@1042", 1, 0, 4, (LOSS,))


def record(offset: int, epoch: int = 5, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Record:
    """Return a record of partition 3."""
    return Record("sentences", 3, offset, b"k", b"v", headers, 1_000, leader_epoch=epoch)


def rows(source: int, topic_id: str, offset: int, epoch: int | None, headers: object = ()) -> MessageRows:
    """Return one message as a task reads it."""
    more = {} if epoch is None else {"leader_epoch": epoch}
    message = Message(
        topic="sentences",
        partition=3,
        offset=offset,
        key=b"k",
        value=b"v",
        headers=list(headers),  # type: ignore[call-overload]
        timestamp=(1, 1_000),
        **more,
    )
    read = MessageRows([message], source, np.array([offset]))
    read.topic_id = topic_id
    return read


def test_a_first_emission_has_the_id_of_its_record() -> None:
    """O1201: topic id, place, and the epoch of the leader that wrote it; beside the origin, which stays."""
    named = rows(SOURCE, TOPIC_ID, 1042, 5).message_id(0)
    assert (named.origin, named.record_id) == ("sentences/3@1042", FIRST)
    assert record_id(TOPIC_ID, 3, 1042, 5) == FIRST


@pytest.mark.parametrize(
    ("topic_id", "epoch"),
    [("another-topic-or-cluster", 5), (TOPIC_ID, 6)],
)
def test_another_record_of_the_same_place_has_another_id(topic_id: str, epoch: int) -> None:
    """O1202: of a topic that was created again, of another cluster, or of a log that was cut."""
    other = rows(SOURCE, topic_id, 1042, epoch).message_id(0)
    assert other.origin == "sentences/3@1042"
    assert other.record_id != FIRST


def test_copies_letters_and_redrives_have_the_id_of_the_first_emission() -> None:
    """O1203: however often, and though the copies are in another topic, written by another leader."""
    first = build_copy(due(SOURCE, 1042), record(1042), "sentences.g.replay")
    second = build_copy(due(COPIES, 7), record(7, 9, first.headers), "sentences.g.replay")
    letter = build_dead_letter(
        due(COPIES, 8),
        Death(DeadReason.ATTEMPTS),
        record(8, 9, second.headers),
        LetterTopic("sentences.g.dlq", 4, 1_000_000),
        9_000,
    )
    read = Record(letter.topic, 3, 0, letter.key, letter.value, letter.headers, 9_000, leader_epoch=2)
    parsed = parse_letter(read)
    assert isinstance(parsed, Letter)
    redriven = copy_of_letter(parsed, read, "sentences.g.replay")
    for copy in (first, second, letter, redriven):
        assert dict(copy.headers)[RECORD_ID] == FIRST.encode()
        assert rows(COPIES, "other", 7, 9, copy.headers).message_id(0).record_id == FIRST


def test_where_no_epoch_or_topic_id_is_known_it_is_said() -> None:
    """O1204: an old log has no epochs; a copy of a former version has its origin in place of it."""
    assert rows(SOURCE, TOPIC_ID, 1042, None).message_id(0).record_id == f"{TOPIC_ID}/3@1042#-"
    copied = build_copy(due(SOURCE, 1042), record(1042, NO_EPOCH), "sentences.g.replay")
    assert dict(copied.headers)[RECORD_ID] == f"{TOPIC_ID}/3@1042#-".encode()
    former = tuple(header for header in copied.headers if header[0] != RECORD_ID)
    assert rows(COPIES, "other", 7, 9, former).message_id(0).record_id == "sentences/3@1042"
    again = build_copy(due(COPIES, 7), record(7, 9, former), "sentences.g.replay")
    assert RECORD_ID not in dict(again.headers)
    assert rows(SOURCE, "", 1042, 5).message_id(0).record_id == "sentences/3@1042"


def test_an_id_goes_along_with_parts_of_rows_and_to_another_process() -> None:
    """O1201: a bolt that runs in a child process reads the same."""
    read = rows(SOURCE, TOPIC_ID, 1042, 5)
    for other in (read.part(0, 1), MessageRows.unpacked(read.packed())):
        assert other.message_id(0) == read.message_id(0)
    without = rows(SOURCE, TOPIC_ID, 1042, None)
    assert MessageRows.unpacked(without.packed()).message_id(0) == without.message_id(0)

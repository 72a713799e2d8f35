"""A copy and a dead letter, each byte of them: what came with the record, and what the worker writes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from acker.errors import UnreadableKind
from acker.identity import Position, position_at, source_of
from acker.kafka.port import Headers, Record, record_bytes
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.copies import build_copy
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import Due, Loss

NOW_MS = 1_800_000_000_000
WRITTEN_MS = 1_700_000_000_000
FAILED = Loss(2, Verdict.FAILED, "split", "ValueError", "grün", 1_000, 20, "sentences/3@7")
TIMED_OUT = Loss(1, Verdict.TIMED_OUT, "", "", "", 900, 30_000, "sentences/3@7")
NAMELESS = FAILED._replace(message="")
LETTER_TOPIC = LetterTopic("sentences.g.dlq", 4, 1_000_000)
OWN: Headers = (("trace", b"1"), ("empty", None))


def due_of(*, is_copy: bool, history: tuple[Loss, ...] = (FAILED,)) -> Due:
    """Return a lost root of partition 3, of the source topic or of the replay topic."""
    return Due(
        source_of(1, 3, replay=is_copy), Position(position_at(0, 7)), 9_000, "", "g",
        "sentences.g.replay" if is_copy else "sentences", "id", "sentences/3@5", 6, 1, 1_000, history, 2, 1,
    )  # fmt: skip


def record_of(*, is_copy: bool, headers: Headers = OWN) -> Record:
    topic = "sentences.g.replay" if is_copy else "sentences"
    return Record(topic, 3, 7, b"k", b"v", headers, WRITTEN_MS, leader_epoch=8)


def story_of(due: Due, attempt: int, record_id: str) -> Headers:
    """Return the headers of the table in `replay.records.headers`, one by one."""
    story: list[tuple[str, bytes | None]] = [("windhover.origin", due.origin.encode())]
    if record_id:
        story.append(("windhover.record-id", record_id.encode()))
    story.append(("windhover.attempt", str(attempt).encode()))
    story.append(("windhover.abandoned", str(due.abandoned).encode()))
    if due.timed_out:
        story.append(("windhover.timed-out", str(due.timed_out).encode()))
    if due.held:
        story.append(("windhover.held", str(due.held).encode()))
    reason = cause = operator = ""
    if due.history:
        last = due.history[-1]
        reason, operator = last.reason.value, last.operator
        cause = f"{last.error}: {last.message}" if last.error and last.message else last.error + last.message
    story.append(("windhover.reason", reason.encode()))
    story.append(("windhover.cause", cause.encode()))
    story.append(("windhover.operator", operator.encode()))
    if due.first_emitted_ms >= 0:
        story.append(("windhover.first-emitted", str(due.first_emitted_ms).encode()))
    history = json.dumps([loss._asdict() for loss in due.history], ensure_ascii=False)
    story.append(("windhover.history", history.encode()))
    return tuple(story)


HISTORIES = [(), (FAILED,), (TIMED_OUT,), (TIMED_OUT, FAILED), (FAILED, TIMED_OUT), (FAILED, NAMELESS)]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: f"{len(history)} losses")
@pytest.mark.parametrize("first_emitted_ms", [-1, 0, 1, 1_000])
@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 2, 1)], ids=["no free emission", "free emissions"])
@pytest.mark.parametrize("own", [(), OWN], ids=["no header", "headers"])
def test_a_copy_of_a_source_record_has_its_headers_and_then_its_story(
    own: Headers, counts: tuple[int, int, int], first_emitted_ms: int, history: tuple[Loss, ...]
) -> None:
    abandoned, timed_out, held = counts
    due = replace(
        due_of(is_copy=False, history=history),
        abandoned=abandoned, timed_out=timed_out, held=held, first_emitted_ms=first_emitted_ms,
    )  # fmt: skip
    copy = build_copy(due, record_of(is_copy=False, headers=own), "sentences.g.replay")
    assert copy.headers == own + story_of(due, 7, "id/3@7#8")
    assert copy[:4] == ("sentences.g.replay", 3, b"v", b"k")
    assert copy.timestamp_ms == WRITTEN_MS


@pytest.mark.parametrize(
    ("written", "own", "record_id"),
    [
        ((), (), ""),
        (OWN, OWN, ""),
        ((*OWN, ("windhover.attempt", b"6")), OWN, ""),
        ((*OWN, ("windhover.attempt", b"6"), ("windhover.record-id", b"id/3@5#2")), OWN, "id/3@5#2"),
    ],
    ids=["no header", "somebody's", "of a former worker", "ours"],
)
def test_a_copy_of_a_copy_keeps_the_records_headers_and_its_id_and_no_former_story(
    written: Headers, own: Headers, record_id: str
) -> None:
    due = due_of(is_copy=True)
    copy = build_copy(due, record_of(is_copy=True, headers=written), "sentences.g.replay")
    assert copy.headers == own + story_of(due, 7, record_id)


def test_headers_of_a_source_record_that_look_like_ours_are_the_records() -> None:
    """They are of an earlier life: what they say of another record is not believed."""
    own: Headers = (("windhover.attempt", b"99"), ("windhover.record-id", b"another"))
    due = due_of(is_copy=False)
    copy = build_copy(due, record_of(is_copy=False, headers=own), "sentences.g.replay")
    assert copy.headers == (*own, ("windhover.own", b"2"), *story_of(due, 7, "id/3@7#8"))


# -- the dead letter


def letter_headers(
    due: Due, death: Death, message: str, *, missing: str = "", record_id: str = "id/3@7#8"
) -> Headers:
    """Return the headers of the table in `replay.records.dead_letter`, of a record that lay in 3@5 first."""
    letter: list[tuple[str, bytes | None]] = [
        ("__dlq.errors.topic", b"sentences"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"5"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"6"),
        ("__dlq.errors.message", message.encode()),
        ("windhover.dead", death.reason.encode()),
    ]
    if missing:
        letter.append(("windhover.missing", missing.encode()))
    letter += story_of(due, 6, record_id)
    if due.stack:
        letter.append(("windhover.stack", due.stack.encode()))
    return tuple(letter)


TIME: Headers = (("windhover.timestamp", str(WRITTEN_MS).encode()),)
LAST = "; the last FAILED by split: ValueError: grün"


@pytest.mark.parametrize("stack", ["", "Traceback: line 3"], ids=["no stack", "stack"])
@pytest.mark.parametrize("is_copy", [False, True], ids=["first emission", "copy"])
def test_a_letter_has_the_record_its_story_and_why_it_was_given_up(is_copy: bool, stack: str) -> None:
    due = replace(due_of(is_copy=is_copy), stack=stack)
    written: Headers = (*OWN, ("windhover.record-id", b"id/3@5#2")) if is_copy else OWN
    death = Death(DeadReason.ATTEMPTS)
    record = record_of(is_copy=is_copy, headers=written)
    letter = build_dead_letter(due, death, record, LETTER_TOPIC, NOW_MS)
    message = f"given up after 6 emissions{LAST}"
    record_id = "id/3@5#2" if is_copy else "id/3@7#8"
    assert letter.headers == OWN + letter_headers(due, death, message, record_id=record_id) + TIME
    assert letter[:4] == ("sentences.g.dlq", 3, b"v", b"k")
    assert letter.timestamp_ms == NOW_MS


@pytest.mark.parametrize(("partitions", "partition"), [(1, 0), (2, 1), (3, 0), (4, 3), (9, 3)])
def test_a_letter_goes_to_its_records_partition_as_far_as_the_topic_has_it(
    partitions: int, partition: int
) -> None:
    topic = LETTER_TOPIC._replace(partitions=partitions)
    due, record = due_of(is_copy=False), record_of(is_copy=False)
    letter = build_dead_letter(due, Death(DeadReason.ATTEMPTS), record, topic, NOW_MS)
    assert letter.partition == partition


@pytest.mark.parametrize(
    ("history", "last"),
    [
        ((), ""),
        ((FAILED,), LAST),
        ((FAILED, TIMED_OUT), "; the last TIMED_OUT"),
        ((TIMED_OUT, NAMELESS), "; the last FAILED by split: ValueError"),
        ((FAILED._replace(operator="", error=""),), "; the last FAILED: grün"),
    ],
)
def test_a_letter_says_in_a_sentence_who_lost_it_last(history: tuple[Loss, ...], last: str) -> None:
    due, record = due_of(is_copy=False, history=history), record_of(is_copy=False)
    letter = build_dead_letter(due, Death(DeadReason.ATTEMPTS), record, LETTER_TOPIC, NOW_MS)
    assert dict(letter.headers)["__dlq.errors.message"] == f"given up after 6 emissions{last}".encode()


SENTENCES = {
    DeadReason.ATTEMPTS: "given up after 6 emissions",
    DeadReason.ABANDONED: "given up after its session was taken over 1 times",
    DeadReason.CAUSE: "given up after 6 emissions because its cause is final by a rule",
    DeadReason.TIME_LIMIT: "given up after 6 emissions because it was lost behind its time limit",
    DeadReason.DROPPED: "dropped after 6 emissions because a rule drops its cause",
    DeadReason.GONE: "given up because sentences/3@7 is no longer in the log",
    **{DeadReason[kind.name]: f"given up because sentences/3@7 {kind.phrase}" for kind in UnreadableKind},
    DeadReason.RECREATED: (
        "given up because the topic of sentences/3@7 was deleted or created again, or its log cut"
    ),
    DeadReason.REFUSED: "given up after 6 emissions because its copy is refused (broker says no)",
    DeadReason.TOO_LARGE: (
        "given up because the copy with its history is larger than the replay topic takes"
    ),
    DeadReason.UNWRITABLE: "given up because the name of a header is no UTF-8: a copy cannot have it",
    DeadReason.UNREADABLE: (
        "given up because what _ack_due held of sentences/3@7 was overwritten and cannot be read"
    ),
}
NOT_READ = {
    DeadReason.GONE: "the record is no longer in the log",
    **{DeadReason[kind.name]: f"the record {kind.phrase}" for kind in UnreadableKind},
    DeadReason.RECREATED: "the topic was deleted or created again, or its log cut",
    DeadReason.UNREADABLE: "which record it was, and of which topic, is no longer known for sure",
}


@pytest.mark.parametrize("reason", DeadReason)
def test_each_reason_has_its_sentence_and_a_letter_without_a_record_says_why(reason: DeadReason) -> None:
    due, death = due_of(is_copy=False), Death(reason, "broker says no")
    letter = build_dead_letter(due, death, None, LETTER_TOPIC, NOW_MS)
    assert (letter.key, letter.value) == (None, None)
    missing = NOT_READ.get(reason, "the record could not be read")
    message = SENTENCES[reason] + LAST
    assert letter.headers == letter_headers(due, death, message, missing=missing, record_id="")


def test_a_record_that_a_rule_drops_leaves_its_key_and_time_alone() -> None:
    due, death = due_of(is_copy=False), Death(DeadReason.DROPPED)
    letter = build_dead_letter(due, death, record_of(is_copy=False), LETTER_TOPIC, NOW_MS)
    assert (letter.key, letter.value) == (b"k", None)
    missing = "a rule drops what fails by this cause"
    message = SENTENCES[DeadReason.DROPPED] + LAST
    assert letter.headers == letter_headers(due, death, message, missing=missing) + TIME


def test_a_letter_of_a_record_whose_first_place_is_unknown_names_the_lost_emissions_place() -> None:
    due = replace(due_of(is_copy=True), origin="")
    letter = build_dead_letter(due, Death(DeadReason.UNREADABLE), None, LETTER_TOPIC, NOW_MS)
    assert letter.headers[:3] == (
        ("__dlq.errors.topic", b"sentences.g.replay"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"7"),
    )


def test_a_letter_that_just_fits_has_all_and_a_larger_one_loses_first_its_stack_and_then_its_payload() -> (
    None
):
    due = replace(due_of(is_copy=False), stack="Traceback: line 3")
    death, record = Death(DeadReason.ATTEMPTS), record_of(is_copy=False)
    whole = build_dead_letter(due, death, record, LETTER_TOPIC, NOW_MS)
    bare = build_dead_letter(replace(due, stack=""), death, record, LETTER_TOPIC, NOW_MS)
    whole_bytes, bare_bytes = record_bytes(whole), record_bytes(bare)
    assert bare_bytes < whole_bytes

    def letter_of(bytes_max: int, due: Due = due) -> object:
        topic = LETTER_TOPIC._replace(bytes_max=bytes_max)
        return build_dead_letter(due, death, record, topic, NOW_MS)

    assert letter_of(whole_bytes) == whole
    assert letter_of(whole_bytes - 1) == letter_of(bare_bytes) == bare
    message = f"given up after 6 emissions{LAST}"
    missing = f"with its history it has {bare_bytes} bytes, more than sentences.g.dlq takes"
    headers = letter_headers(replace(due, stack=""), death, message, missing=missing) + TIME
    without = whole._replace(key=None, value=None, headers=headers)
    assert letter_of(bare_bytes - 1) == without
    assert letter_of(bare_bytes - 1, replace(due, stack="")) == without

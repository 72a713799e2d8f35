"""Dead letters: which of them a filter means, and what the copy of one begins anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from acker.kafka.port import Headers, Record
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.due import Loss
from replay.records.headers import Lineage, parse_lineage
from replay.records.letters import (
    Filter,
    KeyIs,
    Letter,
    LetterAction,
    Mark,
    copy_of_letter,
    mark_record,
    own_headers,
    parse_letter,
)
from replay.records.redrives import RedriveBegun, RedriveEnded, audit_record, parse_audit, redrive_of

LOSS = Loss(4, Verdict.FAILED, "split", "ValueError", "bad", 1_000, 20, "sentences/3@7")
LINEAGE = Lineage("sentences/3@5", 4, 1, 900, "FAILED", "ValueError: bad", "split", 1, 1, "id/3@5#0")
LETTER = Letter(
    "sentences.g.dlq/0@9", 0, 9, DeadReason.ATTEMPTS, "g", LINEAGE, (LOSS,), 5_000, None, b"k", 120, ""
)
NOTE = replace(LETTER, dead=DeadReason.DROPPED, missing="a rule drops what fails by this cause")


# -- keys


@pytest.mark.parametrize(
    ("key", "dead", "missing", "has_key"),
    [
        (b"k", DeadReason.ATTEMPTS, "", True),
        (None, DeadReason.ATTEMPTS, "", True),
        (b"", DeadReason.ATTEMPTS, "", True),
        (None, DeadReason.GONE, "the record is no longer in the log", False),
        (b"k", DeadReason.TOO_LARGE, "it is too large", True),
        (None, DeadReason.TOO_LARGE, "it is too large", False),
        (b"k", DeadReason.DROPPED, "a rule drops it", True),
        (None, DeadReason.DROPPED, "a rule drops it", True),
    ],
)
def test_a_letter_has_the_records_key_unless_the_record_is_missing(
    key: bytes | None, dead: str, missing: str, has_key: bool
) -> None:
    """A note about a record that a rule dropped has it: null is then the record's own key."""
    letter = replace(LETTER, key=key, dead=dead, missing=missing)
    assert letter.has_key is has_key
    assert Filter(key=KeyIs(key), notes=True).matches(letter) is has_key
    assert not Filter(key=KeyIs(b"other"), notes=True).matches(letter)
    assert Filter(notes=True).matches(letter)


# -- filters

WITHOUT_ERROR = replace(LETTER, history=(LOSS._replace(reason=Verdict.TIMED_OUT, operator="", error=""),),
                        lineage=replace(LINEAGE, reason="TIMED_OUT", operator=""))  # fmt: skip


@pytest.mark.parametrize(
    ("which", "is_meant"),
    [
        (Filter(), True),
        (Filter(places=frozenset({LETTER.place})), True),
        (Filter(places=frozenset({"sentences/3@5", "other/0@1"})), True),
        (Filter(places=frozenset({"sentences/3@6"})), False),
        (Filter(error="ValueError"), True),
        (Filter(error="KeyError"), False),
        (Filter(error=""), False),
        (Filter(operator="split"), True),
        (Filter(operator=""), False),
        (Filter(dead="ATTEMPTS"), True),
        (Filter(dead="GONE"), False),
        (Filter(key=KeyIs(b"k")), True),
        (Filter(key=KeyIs(None)), False),
        (Filter(since_ms=4_999), True),
        (Filter(since_ms=5_000), True),
        (Filter(since_ms=5_001), False),
        (Filter(until_ms=4_999), False),
        (Filter(until_ms=5_000), False),
        (Filter(until_ms=5_001), True),
        (Filter(since_ms=5_000, until_ms=5_001), True),
        (Filter(error="ValueError", operator="count"), False),
        (Filter(since_ms=0), True),
    ],
)
def test_a_letter_is_meant_if_it_fits_all_that_a_filter_names(which: Filter, is_meant: bool) -> None:
    """From a time on, and before a time; whatever else it has."""
    assert which.matches(LETTER) is is_meant
    assert replace(which, handled=True).matches(LETTER) is is_meant


def test_a_letter_without_an_error_is_found_by_the_reason_of_its_last_loss() -> None:
    assert Filter(error="TIMED_OUT").matches(WITHOUT_ERROR)
    assert Filter(error="TIMED_OUT").matches(replace(WITHOUT_ERROR, history=()))
    assert Filter(operator="").matches(WITHOUT_ERROR)
    assert not Filter(error="ValueError").matches(WITHOUT_ERROR)


@pytest.mark.parametrize(("notes", "handled"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize(
    "places", [frozenset[str](), frozenset({NOTE.place})], ids=["any place", "its place"]
)
@pytest.mark.parametrize("dead", [None, DeadReason.DROPPED])
def test_a_note_is_meant_only_if_something_says_that_notes_are(
    dead: str | None, places: frozenset[str], notes: bool, handled: bool
) -> None:
    """Any of four things, each alone and all together; a letter is meant by all of them."""
    which = Filter(places=places, dead=dead, notes=notes, handled=handled)
    assert which.matches(NOTE) is (notes or handled or bool(places) or dead is not None)
    assert which.matches(LETTER) is (dead is None)


@pytest.mark.parametrize(
    ("which", "is_everything"),
    [
        (Filter(), True),
        (Filter(handled=True), True),
        (Filter(notes=True), False),
        (Filter(error="ValueError"), False),
        (Filter(since_ms=0), False),
        (Filter(handled=True, key=KeyIs(None)), False),
    ],
)
def test_a_filter_that_names_nothing_means_every_letter(which: Filter, is_everything: bool) -> None:
    """A page asks before it lets all of them go."""
    assert which.is_everything is is_everything


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (Filter(), "all"),
        (Filter(notes=True), "all"),
        (Filter(places=frozenset({"b/0@1", "a/0@2"})), "places a/0@2, b/0@1"),
        (Filter(error="ValueError"), "error ValueError"),
        (Filter(operator="split"), "operator split"),
        (Filter(dead="GONE"), "dead GONE"),
        (Filter(key=KeyIs(b"k")), "key k"),
        (Filter(since_ms=0), "since 1970-01-01T00:00:00Z"),
        (Filter(until_ms=1), "until 1970-01-01T00:00:00.001000Z"),
        (Filter(handled=True), "handled ones too"),
        (Filter(error="E", dead="GONE", handled=True), "error E; dead GONE; handled ones too"),
    ],
)
def test_a_filter_is_told_in_words(which: Filter, words: str) -> None:
    """They stand in the audit record of a redrive."""
    assert str(which) == words


# -- marks


@pytest.mark.parametrize("redrive", ["", "r-1"])
@pytest.mark.parametrize("action", LetterAction)
def test_a_mark_is_read_again(action: LetterAction, redrive: str) -> None:
    mark = Mark(LETTER.place, action, "jürgen", "grün", 7_000, redrive)
    written = mark_record(LETTER, "sentences.g.dlq", mark)
    assert written[:4] == ("sentences.g.dlq", LETTER.partition, None, None)
    assert redrive_of(written.headers) == redrive
    assert ("windhover.redrive" in dict(written.headers)) is bool(redrive)
    record = Record("sentences.g.dlq", 0, 10, None, None, written.headers, written.timestamp_ms or 0)
    assert parse_letter(record) == mark


@pytest.mark.parametrize(
    "headers",
    [
        (("windhover.handled", b"EATEN"), ("windhover.letter", b"sentences.g.dlq/0@9")),
        (("windhover.handled", b"DROPPED"), ("windhover.letter", b"nowhere")),
        (("windhover.handled", b"DROPPED"),),
        (("windhover.letter", b"sentences.g.dlq/0@9"),),
        (),
    ],
)
def test_what_is_neither_letter_nor_mark_is_somebody_elses(headers: Headers) -> None:
    assert parse_letter(Record("sentences.g.dlq", 0, 10, None, None, headers, 7_000)) is None


# -- copies

OURS: Headers = (
    ("windhover.dead", b"ATTEMPTS"),
    ("windhover.origin", b"sentences/3@5"),
    ("windhover.record-id", b"id/3@5#0"),
    ("windhover.attempt", b"9"),
    ("windhover.abandoned", b"3"),
    ("windhover.timed-out", b"2"),
    ("windhover.held", b"1"),
    ("windhover.reason", b"FAILED"),
    ("windhover.first-emitted", b"900"),
)


@pytest.mark.parametrize("redrive", ["", "r-1"])
@pytest.mark.parametrize("own", [(), (("trace", b"1"),)], ids=["no header", "headers"])
def test_the_copy_of_a_letter_begins_its_counts_and_its_age_anew_and_keeps_its_story(
    own: Headers, redrive: str
) -> None:
    """So what was counted against it before does not kill it again at once."""
    record = Record("sentences.g.dlq", 0, 9, b"k", b"v", (*own, *OURS), 5_000)
    letter = parse_letter(record)
    assert isinstance(letter, Letter)
    assert (letter.lineage.attempt, letter.lineage.abandoned) == (9, 3)
    assert (letter.lineage.timed_out, letter.lineage.held, letter.lineage.first_emitted_ms) == (2, 1, 900)
    copy = copy_of_letter(letter, record, "sentences.g.replay", redrive)
    assert (copy.topic, copy.partition, copy.key, copy.value) == ("sentences.g.replay", 3, b"k", b"v")
    lineage = parse_lineage(copy.headers, "sentences.g.replay", 3, 1)
    assert lineage == Lineage("sentences/3@5", reason="FAILED", record_id="id/3@5#0")
    written = dict(copy.headers)
    assert written["windhover.attempt"] == b"1"
    assert written["windhover.abandoned"] == b"0"
    assert not written.keys() & {"windhover.timed-out", "windhover.held", "windhover.first-emitted"}
    assert written["windhover.letter"] == b"sentences.g.dlq/0@9"
    assert redrive_of(copy.headers) == redrive
    assert own_headers(copy.headers) == own


# -- audit records

BEGUN = RedriveBegun("r-1", "REPLAYED", "jürgen", "grün", "all", 3, (1, 0), (9,), (), 7_000)
ENDED = RedriveEnded("r-1", "DONE", "jürgen", 3, 2, 1, 8_000)


@pytest.mark.parametrize("event", [BEGUN, ENDED], ids=type)
def test_an_audit_record_is_read_again_and_is_text_that_people_can_read(
    event: RedriveBegun | RedriveEnded,
) -> None:
    written = audit_record(event, "sentences.g.dlq")
    assert written[:4] == ("sentences.g.dlq", 0, None, None)
    assert written.timestamp_ms == event.at_ms
    assert "jürgen".encode() in (dict(written.headers)["windhover.audit"] or b"")
    read = Record("sentences.g.dlq", 0, 4, None, None, written.headers, event.at_ms)
    assert parse_audit(read) == event
    assert redrive_of(read.headers) == "r-1"

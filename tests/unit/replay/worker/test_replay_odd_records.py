"""Records that nobody expects, lost: each becomes a whole copy, or a dead letter that says why it cannot."""

from __future__ import annotations

import json

import pytest

from acker.kafka.port import Record, TopicPartition, UnreadableName
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.headers import UNREADABLE_NAMES, parted_headers
from tests.support.odd_records import NAMES, NO_UTF8, ODD_RECORDS, OddRecord, append_odd, odd_headers
from tests.support.worlds.replay_world import COPIES, TOPIC, Emission, World, header, topics


@pytest.fixture
def world() -> World:
    return World()


def emit(world: World, odd: OddRecord, topic: str = TOPIC) -> Emission:
    """Let another program write an odd record, and return it as a root."""
    root = world.emit(b"", topic=topic)
    offset = append_odd(world.cluster, TopicPartition(topic, 0), odd)
    return root._replace(offset=offset)


def own(record: Record, odd: OddRecord) -> list[tuple[str, bytes | None]]:
    """Return the headers that came with a record."""
    headers = parted_headers(record.headers, OUR_PREFIXES).original
    # the note on placeholders stands behind all that came; a record may have come with one
    has_note = any(isinstance(name, UnreadableName) for name, _ in odd.headers)
    return list(headers[:-1] if has_note else headers)


@pytest.mark.parametrize("odd", ODD_RECORDS, ids=lambda odd: odd.kind)
def test_a_lost_odd_record_is_copied_whole_or_is_a_dead_letter_and_its_neighbours_are_copied(
    world: World, odd: OddRecord
) -> None:
    """O111: key, value and values of headers are there in each case; only a name may be a placeholder."""
    worker = world.worker()
    world.lose(world.emit(b"before"), emit(world, odd), world.emit(b"behind"))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    copies, letters = world.copies(), world.letters()
    assert [copy.value for copy in copies if copy.value in (b"before", b"behind")] == [b"before", b"behind"]
    [found] = [record for record in (*copies, *letters) if record.value not in (b"before", b"behind")]
    shown = [(str(name), value) for name, value in odd.headers]
    assert (found.key, found.value, own(found, odd)) == (odd.record.key, odd.record.value, shown)
    assert found.unreadable_names == (), "nothing that was written is taken for another name"
    assert (len(copies), len(letters)) == ((3, 0) if odd.can_be_copied else (2, 1))
    if not odd.can_be_copied:
        assert header(found, "windhover.dead") == "UNWRITABLE"
        assert "no UTF-8" in (header(found, "__dlq.errors.message") or "")
        names = [str(name) for name, _ in odd.headers if isinstance(name, UnreadableName)]
        assert json.loads(header(found, UNREADABLE_NAMES) or "[]") == names


def test_a_copy_that_another_program_spoilt_is_a_dead_letter_with_its_history(world: World) -> None:
    """O112: a name is no less unreadable in a replay topic."""
    copy = odd_headers(
        "copy",
        [(b"windhover.origin", b"sentences/0@7"), (b"windhover.attempt", b"2"), (NO_UTF8, b"x")],
        ["windhover.origin", "windhover.attempt", UnreadableName.of(NO_UTF8)],
    )
    worker = world.worker()
    world.lose(emit(world, copy, COPIES))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    [letter] = world.letters()
    assert header(letter, "windhover.dead") == "UNWRITABLE"
    assert header(letter, "windhover.origin") == "sentences/0@7"
    assert (header(letter, "windhover.attempt"), own(letter, copy)) == ("2", [(r"\xff\xfe", b"x")])


def test_a_record_that_would_be_given_up_anyhow_keeps_its_reason(world: World) -> None:
    """O113: the letter has the placeholder and the note all the same."""
    worker = world.worker(of=topics(attempts=1))
    world.lose(emit(world, NAMES[0]))
    world.settle(worker)
    [letter] = world.letters()
    assert header(letter, "windhover.dead") == "ATTEMPTS"
    assert json.loads(header(letter, UNREADABLE_NAMES) or "[]") == [r"\xff\xfe"]

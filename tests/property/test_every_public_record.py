"""What is written beside records comes back, or is passed over; and what names their places can be read."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.clock_watch import CLOCKS_APART_MS
from acker.config.topics import parse
from acker.errors import CodecError
from acker.identity import is_replay, offset_of, partition_of, source_of
from acker.kafka.port import Record, TopicPartition
from acker.service.passed_over import offset_to_pass_over, offsets_to_pass_over, passed_over_mark
from acker.wire.events import SourceRun, first_emissions, pack_root_numbers, traces
from acker.wire.item_counts import require_few_items
from acker.wire.lateness import TooLate, read_too_late, too_late_header
from acker.wire.verdict import LOST_VERDICTS, Verdict, lost_verdict
from acker.writer_clocks import WriterTime
from replay.records.due import (
    MESSAGE_BYTES_MAX,
    Due,
    Loss,
    left_out_count,
    left_out_entry,
    left_out_of,
    proves_a_record,
    refused_entry,
    was_a_record,
)
from replay.records.headers import location, parse_location
from replay.records.places import PLACES_MAX, record_place, run_places, topic_of
from spout.group.clocks import YOUNG_MS, wrong_clocks
from spout.planning.plan import runs_without_record
from spout.tuples.anchors import ORDINAL_BITS, pack
from spout.tuples.places import only_roots
from spout.tuples.tuple import Delivery

INPUTS = list(
    parse("inputs: {lines: {id: 3, group: g}, words: {id: 4, group: g}}", file="", environ={}).inputs.values()
)
TEXTS = st.text(max_size=10)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
POSITIONS = st.integers(0, (1 << 48) - 20)
SOURCES = st.builds(source_of, st.sampled_from([3, 4]), st.integers(0, 99), replay=st.booleans())
RUNS = st.builds(
    lambda source, start, length: SourceRun(source, start, start + length),
    SOURCES, POSITIONS, st.integers(1, 9),
)  # fmt: skip


@given(st.integers(0, 1 << 31), st.lists(st.tuples(POSITIONS, NUMBERS, NUMBERS, NUMBERS), max_size=8))
def test_numbers_of_roots_come_back_with_their_positions(
    source: int, rows: list[tuple[int, int, int, int]]
) -> None:
    at = np.array([row[0] for row in rows], np.int64)
    ids = np.array([row[1:] for row in rows], np.int64).reshape(-1, 3)
    found = traces(pack_root_numbers(source, at, ids))
    assert found is not None
    assert (found[0], found[1].tolist(), found[2].tolist()) == (source, at.tolist(), ids.tolist())
    first = first_emissions(pack_root_numbers(source, at, ids[:, 0]))
    assert first is not None
    assert (first[0], first[1].tolist(), first[2].tolist()) == (source, at.tolist(), ids[:, 0].tolist())


@given(st.binary(max_size=100) | st.none())
def test_what_has_not_their_size_is_no_such_header(value: bytes | None) -> None:
    found = first_emissions(value)
    assert (found is None) is (not value or len(value) % 16 != 8)
    assert found is None or len(found[1]) == len(found[2])


@given(
    st.builds(
        TooLate, TEXTS, TEXTS, st.integers(0, 1 << 40), st.booleans(), st.integers(0, 1 << 40), NUMBERS,
        st.integers(0, 1 << 40), NUMBERS, *[st.lists(RUNS, max_size=3).map(tuple)] * 3,
    )
)  # fmt: skip
def test_a_note_on_what_came_too_late_comes_back_as_it_was(note: TooLate) -> None:
    assert read_too_late([("other", b"x"), too_late_header(note)]) == note
    for source, start, end in note.roots:
        assert note.names(source, start)
        assert note.names(source, end - 1)


@given(POSITIONS, st.integers(0, 10), TEXTS, TEXTS)
def test_a_mark_names_the_offsets_that_it_lets_all_pass_over(
    offset: int, further: int, why: str, by: str
) -> None:
    until = offset + further
    mark = passed_over_mark(TopicPartition("t", 3), offset, why, by, until)
    assert (mark.topic, mark.partition) == ("t", 3)
    record = Record("t", 3, 99, key=mark.key, value=mark.value, headers=mark.headers)
    assert offset_to_pass_over(record) == offset
    assert offsets_to_pass_over(record) == range(offset, max(offset + 1, until))
    assert offsets_to_pass_over(record._replace(value=None)) == range(0)


@given(SOURCES, POSITIONS)
def test_the_place_of_a_record_is_its_topic_partition_and_offset(source: int, position: int) -> None:
    place = record_place(source, position, INPUTS)
    parsed = parse_location(place)
    assert parsed is not None
    topic, partition, offset = parsed
    assert topic in {topic_of(own, source) for own in INPUTS}
    assert topic in {own.replay_topic if is_replay(source) else own.topic for own in INPUTS}
    assert (partition, offset) == (partition_of(source), offset_of(position))
    assert location(topic, partition, offset) == place


@given(st.lists(RUNS, max_size=PLACES_MAX + 3))
def test_runs_are_named_each_by_its_first_record_and_more_are_said_to_be_more(runs: list[SourceRun]) -> None:
    text = run_places(runs, INPUTS)
    shown = runs[:PLACES_MAX]
    assert all(record_place(source, start, INPUTS) in text for source, start, _ in shown)
    assert text.endswith("...") is (len(runs) > PLACES_MAX)
    assert (text == "none") is (not runs)


@given(st.sampled_from(list(Verdict)) | TEXTS)
def test_a_name_is_that_of_a_lost_verdict_or_of_none(name: str) -> None:
    if name in LOST_VERDICTS:
        assert lost_verdict(name).value == name
    else:
        with pytest.raises(ValueError, match="not"):
            lost_verdict(name)


LOSSES = st.builds(
    Loss, st.integers(1, 99), st.sampled_from(LOST_VERDICTS), TEXTS, TEXTS, TEXTS,
    st.integers(0, 1 << 40), st.integers(0, 1 << 30), st.just("t/0@1"),
)  # fmt: skip


@given(st.lists(LOSSES | st.tuples(LOSSES, st.integers(1, 1_000)), max_size=6))
def test_an_entry_for_losses_that_were_left_out_counts_them_and_no_real_loss_counts(
    drawn: list[Loss | tuple[Loss, int]],
) -> None:
    history = tuple(one if isinstance(one, Loss) else left_out_entry(*one) for one in drawn)
    counts = [0 if isinstance(one, Loss) else one[1] for one in drawn]
    assert [left_out_count(loss) for loss in history] == counts
    assert left_out_of(history) == sum(counts)


@given(LOSSES)
def test_only_a_failure_by_an_operator_proves_that_a_record_was_read(loss: Loss) -> None:
    if proves_a_record(loss.reason, loss.operator, loss.error):
        assert loss.reason is Verdict.FAILED
        assert loss.operator


DUES = st.builds(
    Due, SOURCES, POSITIONS, st.integers(0, 1 << 40), st.just(""), TEXTS, TEXTS, TEXTS, TEXTS,
    attempt=st.integers(1, 3), abandoned=st.integers(0, 3), first_emitted_ms=NUMBERS,
    history=st.lists(LOSSES, max_size=3).map(tuple), stack=TEXTS,
)  # fmt: skip


@given(DUES, st.integers(0, 1 << 40), st.text(max_size=2_000), st.text(max_size=2_000))
def test_a_root_that_a_topic_refuses_stays_as_it_was_and_has_the_brokers_words_as_far_as_there_is_room(
    due: Due, due_ms: int, copy_why: str, letter_why: str
) -> None:
    entry = refused_entry(due, due_ms, copy_why=copy_why, letter_why=letter_why)
    for field in fields(Due):
        assert getattr(entry, field.name) == (due_ms if field.name == "due_ms" else getattr(due, field.name))
    for kept, whole in ((entry.copy_why, copy_why), (entry.letter_why, letter_why)):
        assert len(kept.encode()) <= MESSAGE_BYTES_MAX
        assert kept == whole if len(whole.encode()) <= MESSAGE_BYTES_MAX else whole.startswith(kept[:-3])


@given(DUES)
def test_a_root_was_a_record_if_somebody_read_it_or_emitted_it_again(due: Due) -> None:
    was_emitted_again = is_replay(due.source) or due.attempt > 1 or len(due.history) > 1
    somebody_read_it = [proves_a_record(loss.reason, loss.operator, loss.error) for loss in due.history]
    assert was_a_record(due) is (was_emitted_again or any(somebody_read_it))


@given(st.integers(0, 20), st.sets(st.integers(0, 30), min_size=1))
def test_holes_are_all_that_is_missing_up_to_the_last_position(expected: int, present: set[int]) -> None:
    at = sorted(position for position in present if position >= expected) or [expected]
    found = runs_without_record(7, expected, np.array(at, np.int64))
    missing = [position for _, start, end in found for position in range(start, end)]
    assert missing == [position for position in range(expected, at[-1]) if position not in at]
    assert {run.source for run in found} <= {7}


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20)), max_size=8))
def test_packed_rows_give_back_index_and_ordinal(rows: list[tuple[int, int]]) -> None:
    indices = np.array([row[0] for row in rows], np.int64)
    ordinals = np.array([row[1] for row in rows], np.int64)
    packed = pack(indices, ordinals, "split").tolist()
    mask = (1 << ORDINAL_BITS) - 1
    assert [(number >> ORDINAL_BITS, number & mask) for number in packed] == rows


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=3), max_size=6))
def test_a_tuple_has_one_root_where_all_its_deliveries_have_it(drawn: list[list[tuple[int, int]]]) -> None:
    places = [tuple(Delivery(root, ((5, ordinal),)) for root, ordinal in row) for row in drawn]
    roots = [{root for root, _ in row} for row in drawn]
    assert only_roots(places).tolist() == [next(iter(some)) if len(some) == 1 else -1 for some in roots]


LISTS: dict[str, Any] = {"type": "array", "items": "long"}
PAIR: dict[str, Any] = {
    "type": "record", "name": "Pair",
    "fields": [{"name": "many", "type": {"type": "array", "items": LISTS}}, {"name": "few", "type": LISTS}],
}  # fmt: skip


@given(st.lists(st.lists(NUMBERS, max_size=4), max_size=4), st.lists(NUMBERS, max_size=4), st.integers(0, 30))
def test_a_record_is_refused_if_its_arrays_have_more_items_than_allowed_and_wherever_it_is_cut(
    many: list[list[int]], few: list[int], items_max: int
) -> None:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(PAIR), {"many": many, "few": few})
    data = body.getvalue()
    count = len(many) + sum(map(len, many)) + len(few)
    if count > items_max:
        with pytest.raises(CodecError, match=f"Pair has more than {items_max} items in its arrays"):
            require_few_items(data, 0, PAIR, items_max)
        return
    require_few_items(data, 0, PAIR, items_max)
    for end in range(len(data)):
        with pytest.raises(CodecError, match="Pair is cut off"):
            require_few_items(data[:end], 0, PAIR, items_max)


NOW_MS = 1_800_000_000_000
APART_MS = st.integers(-3 * CLOCKS_APART_MS, 3 * CLOCKS_APART_MS)


@given(st.lists(st.tuples(APART_MS, st.integers(0, 2 * YOUNG_MS)), max_size=4))
def test_a_clock_is_called_wrong_where_all_of_its_young_signs_say_so(signs: list[tuple[int, int]]) -> None:
    times = [WriterTime(NOW_MS - old_ms + ahead_ms, NOW_MS - old_ms) for ahead_ms, old_ms in signs]
    young = [ahead_ms for ahead_ms, old_ms in signs if old_ms <= YOUNG_MS]
    is_wrong = bool(young) and all(abs(ahead_ms) > CLOCKS_APART_MS for ahead_ms in young)
    found = wrong_clocks([("the acker of partition 3", times)], NOW_MS)
    assert list(found) == (["the acker of partition 3"] if is_wrong else [])
    assert all("the clock of the acker of partition 3 is " in text for text in found.values())

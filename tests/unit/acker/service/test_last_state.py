"""State as records: which one counts, what is none, and what a view and a restart make of it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.errors import CodecError, Disagreement
from acker.identity import source_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.ledger.cohort import NEVER, Session
from acker.service import state as state_module
from acker.service.core import PartitionCore
from acker.service.passed_over import passed_over_mark
from acker.service.snapshot import load_deadlines, load_state, take_snapshot
from acker.service.state import (
    BIN_PART,
    NO_BIN,
    RESTART,
    SHARED_HEADER,
    STATE_BYTES_MAX,
    STATE_ITEMS_MAX,
    Carried,
    CarriedRange,
    EncodedState,
    LastState,
    State,
    StatePart,
    StateSize,
    StoredEmission,
    StoredLane,
    StoredPending,
    StoredRange,
    StoredSession,
    StoredSource,
    bin_part,
    damaged_state_as_disagreement,
    first_verdict_to_read,
    is_sound_part,
    not_needed_from,
    pack_ranges,
    part_key,
    part_of_key,
    parts_of,
    read_last_state,
    read_shared_until_ms,
    shared_headers,
    state_codec,
    unpack_carried,
    unpack_ranges,
    unpack_state,
)
from acker.service.state_notes import (
    DEADLINES_HEADER,
    GROUPS_MAX,
    LATE_HEADER,
    RESTORED_HEADER,
    LastRestore,
    StateNotes,
    moved_deadlines,
    read_notes,
)
from acker.service.view import AckerView
from acker.wire.clusters import cluster_header
from acker.wire.codec import READ_BYTES_MAX, wire_codec
from acker.wire.lateness import LateCounts, TooLate
from tests.support.memory.cluster import MemoryCluster

CODEC = state_codec()
PLACE = TopicPartition("_ack_state", 0)
A, B = source_of(1, 3), source_of(1, 4)
EMPTY = State(0, 1, 0, 0, 0, 0, -1, (), (), (), (), (), (), b"")
FULL = State(
    0, 1, 10, 20, 30, 15, 7,
    (StoredSource(A, "g", "t", "id", 0, 0, 300),),
    (StoredSession("g", 3, "s1", True, True, 17, 500), StoredSession("g", 2, "s0", False, False, 0, 0)),
    (StoredPending(0, True, 0, RESTART), StoredPending(0, True, 0, 40),
     StoredPending(0, False, 500, RESTART)),
    (StoredLane(0, "q/s1", 12, b"\1\0\0\0\2\0\0\0", b"\2" + bytes(7) + b"\3" + bytes(7),
                b"\3\0\0\0\4\0\0\0"),),
    (StoredLane(1, "q/s0", 3, b"", b"", b""),),
    (StoredEmission(0, "t", "id", 17, 1_700_000_000_000, 30_000),),
    pack_ranges([StoredRange(0, A, 0, 100, 0, 12), StoredRange(0, A, NO_BIN, 100, 100, 13)]),
)  # fmt: skip
BIN = Carried((CarriedRange(A, 0, b"\1\0\0\0", bytes(8), b"", b""),))


@dataclass
class StateLog:
    """A state topic, and what is written to it."""

    cluster: MemoryCluster = field(default_factory=MemoryCluster)

    def __post_init__(self) -> None:
        self.cluster.create_topic(PLACE.topic, 1, compacted=True)
        self.log = self.cluster.log()

    def put(self, key: bytes, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> int:
        producer = self.log.producer()
        producer.send(Outgoing(*PLACE, value, key, headers))
        producer.flush(1_000)
        return self.log.ends([PLACE])[PLACE] - 1

    def part(self, part: StatePart, headers: tuple[tuple[str, bytes | None], ...] = ()) -> int:
        return self.put(part_key(0, part.part), CODEC.encode(part), headers)

    def state(self, state: State, headers: tuple[tuple[str, bytes | None], ...] = ()) -> None:
        for part in parts_of(CODEC, state):
            self.part(part, headers if part.part == 0 else ())

    def bin(self, number: int, carried: Carried = BIN) -> None:
        self.part(bin_part(CODEC, 0, number, carried))

    def last(self) -> LastState | None:
        return read_last_state(self.log, PLACE, CODEC, wait_ms=1_000)


@pytest.fixture
def log() -> StateLog:
    return StateLog()


def in_pieces(state: State, pieces: int) -> list[StatePart]:
    """Return a State in more pieces than it needs."""
    [packed] = parts_of(CODEC, state)
    size = len(packed.body) // pieces
    cuts = [packed.body[n * size : (n + 1) * size if n < pieces - 1 else None] for n in range(pieces)]
    return [StatePart(0, part, pieces, body) for part, body in enumerate(cuts)]


# which one counts ------------------------------------------------------------------------------------------


def test_without_a_state_there_is_none(log: StateLog) -> None:
    assert log.last() is None
    log.put(b"other", b"x")
    assert log.last() is None


def test_the_last_state_counts_with_its_bins_and_what_is_noted_beside_it(log: StateLog) -> None:
    log.cluster.now_ms = 100
    log.bin(0)
    log.state(EMPTY)
    log.cluster.now_ms = 300
    log.state(FULL, (*shared_headers({Session("g", 3, "s1"): 9}), (RESTORED_HEADER, b"[5, 70]")))
    log.cluster.now_ms = 200
    log.bin(7)
    last = log.last()
    assert last is not None
    assert (last.state, last.bins, last.is_last) == (FULL, {0: BIN}, False)
    assert (last.at_ms, last.written.written_ms) == (300, 300)
    assert last.shared == {Session("g", 3, "s1"): 9}
    assert last.notes.restored == LastRestore(5, 70)


def test_a_state_without_anything_behind_it_is_the_last(log: StateLog) -> None:
    log.bin(0)
    log.state(FULL)
    last = log.last()
    assert last is not None
    assert last.is_last


@pytest.mark.parametrize("pieces", [2, 3])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_state_of_which_a_piece_is_missing_does_not_count(pieces: int, missing: int, log: StateLog) -> None:
    """A transaction that was committed in part left it; the next State has all of its pieces."""
    log.bin(0)
    for part in in_pieces(EMPTY, pieces):
        log.part(part)
    cut = [part for part in in_pieces(replace(FULL, init=99), pieces) if part.part != missing]
    for part in cut:
        log.part(part)
    last = log.last()
    assert last is not None
    is_whole = missing >= pieces
    assert last.state == (replace(FULL, init=99) if is_whole else EMPTY)
    assert last.is_last is is_whole


@pytest.mark.parametrize("behind", [0, 1, 63, 64, 65, 511, 512, 513, 4_200])
def test_a_state_is_found_however_far_back_it_stands(behind: int, log: StateLog) -> None:
    log.bin(0)
    log.state(FULL)
    producer = log.log.producer()
    for number in range(behind):
        producer.send(
            Outgoing(
                *PLACE,
                CODEC.encode(bin_part(CODEC, 0, 5 + number % 60, BIN)),
                part_key(0, BIN_PART + 5 + number % 60),
            )
        )
    producer.flush(1_000)
    last = log.last()
    assert last is not None
    assert (last.state, last.bins) == (FULL, {0: BIN})


def test_pieces_without_a_whole_state_are_an_error(log: StateLog) -> None:
    log.part(in_pieces(FULL, 2)[1])
    with pytest.raises(Disagreement, match="_ack_state/0 holds pieces of a State but not all of them"):
        log.last()


def test_a_bin_that_is_missing_is_an_error(log: StateLog) -> None:
    log.state(FULL)
    with pytest.raises(Disagreement, match="pieces of a State but not all"):
        log.last()


def test_a_state_of_another_cluster_is_refused(log: StateLog) -> None:
    log.cluster.cluster_id = "here"
    log.state(EMPTY, cluster_header("here"))
    last = log.last()
    assert last is not None
    assert last.cluster == "here"
    log.state(EMPTY, cluster_header("there"))
    with pytest.raises(Disagreement, match="there"):
        log.last()


def test_a_bin_is_found_by_its_number(log: StateLog) -> None:
    ranges = pack_ranges([StoredRange(0, A, 3, 100, 0, 12)])
    log.bin(3)
    log.state(replace(FULL, ranges=ranges))
    last = log.last()
    assert last is not None
    assert last.bins == {3: BIN}


# what is none ----------------------------------------------------------------------------------------------

GARBAGE = StatePart(0, 0, 1, b"nonsense")


@pytest.mark.parametrize("as_bin", [False, True])
def test_what_does_not_unpack_is_named_by_its_place_and_a_mark_lets_it_pass(
    as_bin: bool, log: StateLog
) -> None:
    """And the State before it counts then."""
    log.bin(0)
    log.state(FULL)
    wrong = replace(GARBAGE, part=BIN_PART) if as_bin else GARBAGE
    offset = log.part(wrong)
    if as_bin:
        log.state(FULL)
    with pytest.raises(Disagreement, match=rf"^_ack_state/0@{offset} cannot be read as State: .*unpack"):
        log.last()
    mark = passed_over_mark(PLACE, offset, "why", "by")
    log.put(mark.key or b"", mark.value)
    last = log.last()
    assert last is not None
    assert (last.state, last.bins) == (FULL, {0: BIN})


def test_the_state_that_counts_is_named_and_not_the_piece_behind_it(log: StateLog) -> None:
    offset = log.part(GARBAGE)
    log.part(in_pieces(FULL, 2)[0])
    with pytest.raises(Disagreement, match=rf"^_ack_state/0@{offset} cannot be read as State"):
        log.last()


@pytest.mark.parametrize("value", [b"x", b"\xc3\x01" + bytes(20)])
def test_what_does_not_decode_is_named_with_what_it_may_be(value: bytes, log: StateLog) -> None:
    log.state(EMPTY)
    offset = log.put(part_key(0, 0), value)
    with pytest.raises(Disagreement, match=rf"^_ack_state/0@{offset} cannot be read .*(garbage|newer)"):
        log.last()


@pytest.mark.parametrize(
    ("key", "part"),
    [
        (0, StatePart(1, 0, 1, b"")),
        (1, StatePart(0, 0, 1, b"")),
        (0, StatePart(0, 1, 2, b"")),
        (0, BIN),
        (0, EMPTY),
    ],
)
def test_a_part_under_the_key_of_another_is_an_error(
    key: int, part: StatePart | Carried | State, log: StateLog
) -> None:
    log.state(EMPTY)
    offset = log.put(part_key(0, key), CODEC.encode(part))
    with pytest.raises(
        Disagreement, match=rf"_ack_state/0@{offset} .*not the part of this partition's State"
    ):
        log.last()


def test_a_mark_does_not_let_a_state_pass_that_is_sound(log: StateLog) -> None:
    log.bin(0)
    log.state(EMPTY)
    log.state(FULL)
    offset = log.log.ends([PLACE])[PLACE] - 1
    for marked in (0, offset):
        mark = passed_over_mark(PLACE, marked, "why", "by")
        log.put(mark.key or b"", mark.value)
    last = log.last()
    assert last is not None
    assert (last.state, last.bins) == (FULL, {0: BIN})


WHOLE = parts_of(CODEC, EMPTY)[0]


@pytest.mark.parametrize(
    ("number", "part", "is_sound"),
    [
        (None, WHOLE, False), (0, WHOLE, True), (1, WHOLE, False), (0, GARBAGE, False),
        (0, StatePart(0, 0, 2, b"nonsense"), True), (1, StatePart(0, 1, 2, b"nonsense"), True),
        (BIN_PART, bin_part(CODEC, 0, 0, BIN), True), (BIN_PART + 5, bin_part(CODEC, 0, 5, BIN), True),
        (BIN_PART, replace(GARBAGE, part=BIN_PART), False),
        (BIN_PART + 5, replace(GARBAGE, part=BIN_PART + 5), False),
        (BIN_PART, replace(GARBAGE, part=BIN_PART, parts=2), False),
        (BIN_PART, StatePart(0, BIN_PART, 1, WHOLE.body), False),
        (0, StatePart(0, 0, 1, bin_part(CODEC, 0, 0, BIN).body), False),
    ],
)  # fmt: skip
def test_a_part_is_sound_where_it_unpacks_as_far_as_it_can_alone(
    number: int | None, part: StatePart, is_sound: bool
) -> None:
    assert is_sound_part(CODEC, number, Record(*PLACE, 9, b"", CODEC.encode(part))) is is_sound


@pytest.mark.parametrize(
    ("key", "part"),
    [
        (b"3/0", 0), (b"3/7", 7), (b"3/1000000", 1_000_000), (b"3/999999999", 999_999_999),
        (b"3/1000000000", None), (b"2/7", None), (b"3/07", None), (b"3/-7", None), (b"3/", None),
        (b"7", None), (b"", None), (None, None),
        ("3/\u0667".encode(), None), (b"3/x", None),
    ],
)  # fmt: skip
def test_a_key_names_a_part_of_its_partition(key: bytes | None, part: int | None) -> None:
    assert part_of_key(3, key) == part


def test_of_a_state_no_piece_may_be_missing_when_it_is_joined() -> None:
    parts = {part.part: part for part in in_pieces(FULL, 3)}
    assert unpack_state(CODEC, parts) == FULL
    for missing in range(3):
        rest: Mapping[int, StatePart] = {number: part for number, part in parts.items() if number != missing}
        assert unpack_state(CODEC, rest) is None
    assert unpack_state(CODEC, {}) is None


def test_what_unpacks_to_another_kind_is_named() -> None:
    carried = bin_part(CODEC, 0, 3, BIN)
    assert (carried.part, carried.parts) == (BIN_PART + 3, 1)
    with pytest.raises(CodecError, match="Carried where State belongs"):
        unpack_state(CODEC, {0: replace(carried, part=0)})
    with pytest.raises(CodecError, match="State where Carried belongs"):
        unpack_carried(CODEC, WHOLE)
    with pytest.raises(CodecError, match="Carried cannot be unpacked"):
        unpack_carried(CODEC, GARBAGE)
    with pytest.raises(CodecError, match=r"Carried of .* bytes is cut off"):
        unpack_carried(CODEC, replace(carried, body=carried.body[:-1]))


@pytest.mark.parametrize("size", [1, 31, 33])
def test_ranges_of_another_length_are_none(size: int) -> None:
    with pytest.raises(CodecError, match=f"live ranges of State: {size} bytes are not a multiple of 32"):
        unpack_ranges(bytes(size))


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_state_has_so_many_ranges_at_most(
    more: int, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = replace(EMPTY, ranges=pack_ranges([StoredRange(0, A, NO_BIN, 1, n, 0) for n in range(5 + more)]))
    parts = {part.part: part for part in parts_of(CODEC, state)}
    monkeypatch.setattr(state_module, "STATE_ITEMS_MAX", 5)
    if is_read:
        assert unpack_state(CODEC, parts) == state
    else:
        with pytest.raises(CodecError, match="State has 6 live ranges, more than 5"):
            unpack_state(CODEC, parts)


@pytest.mark.parametrize(
    ("size", "is_written"),
    [
        (StateSize(STATE_ITEMS_MAX, 0, 0), True), (StateSize(STATE_ITEMS_MAX + 1, 0, 0), False),
        (StateSize(0, STATE_ITEMS_MAX, 0), True), (StateSize(0, STATE_ITEMS_MAX + 1, 0), False),
        (StateSize(0, 0, STATE_BYTES_MAX), True), (StateSize(0, 0, STATE_BYTES_MAX + 1), False),
        (StateSize(STATE_ITEMS_MAX, STATE_ITEMS_MAX, STATE_BYTES_MAX), True),
    ],
)  # fmt: skip
def test_a_state_is_written_up_to_the_size_that_can_be_read(size: StateSize, is_written: bool) -> None:
    encoded = EncodedState(0, b"x", size)
    if is_written:
        [part] = encoded.parts()
        assert zlib.decompress(part.body) == b"x"
    else:
        with pytest.raises(CodecError, match="State of acker partition 0 would have"):
            encoded.parts()


def test_errors_of_what_a_state_holds_become_one_kind() -> None:
    for error in (CodecError("c"), KeyError("k"), ValueError("v"), OverflowError("o"), IndexError("i")):
        with (
            pytest.raises(
                Disagreement,
                match=f"_ack_state/0 holds a State that cannot be loaded .{type(error).__name__}",
            ),
            damaged_state_as_disagreement(PLACE),
        ):
            raise error


# what is noted beside it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "is_read"), [(READ_BYTES_MAX, True), (READ_BYTES_MAX + 1, False)])
def test_shared_sessions_are_read_up_to_a_size(size: int, is_read: bool) -> None:
    value = json.dumps([["g", 3, "s1", 9]]).encode().ljust(size)
    assert read_shared_until_ms(((SHARED_HEADER, value),)) == ({Session("g", 3, "s1"): 9} if is_read else {})


LATE = TooLate("g", "q/s1", 7, True, 5, 6, 8, 9, (), (), ())


def test_notes_come_back_each_group_with_its_own() -> None:
    notes = StateNotes(
        LastRestore(5, 70), {2: 100, 3: -7, 9: 1 << 60},
        {"g": LateCounts(1, 2, LATE), "h": LateCounts(3, 4), "": LateCounts(5, 6, LATE)},
    )  # fmt: skip
    assert read_notes((("x", b"y"), *notes.headers(), ("x", None))) == notes
    assert read_notes(()) == StateNotes()
    assert StateNotes().headers() == ()


def test_of_too_many_groups_the_first_are_noted() -> None:
    notes = StateNotes(too_late={f"g{n}": LateCounts(n, n) for n in range(GROUPS_MAX + 5)})
    assert list(read_notes(notes.headers()).too_late) == [f"g{n}" for n in range(GROUPS_MAX)]


@pytest.mark.parametrize("value", [None, b"", b"x", b"7", b"[1, 2]", b'["h", "x", 1]', b'["h", 1e999, 1]'])
def test_a_note_that_is_none_spoils_no_other(value: bytes | None) -> None:
    headers = ((LATE_HEADER, value), *StateNotes(too_late={"g": LateCounts(1, 2, LATE)}).headers())
    assert read_notes(headers).too_late == {"g": LateCounts(1, 2, LATE)}
    garbage = ((RESTORED_HEADER, value if value != b"[1, 2]" else b"[1]"), (DEADLINES_HEADER, value))
    assert read_notes(garbage) == StateNotes()


@pytest.mark.parametrize("count", [1, 2, 1_000, 40_000])
def test_of_moved_deadlines_the_oldest_are_noted(count: int) -> None:
    rng = np.random.default_rng(3)
    deadlines = dict(enumerate((rng.integers(0, 1 << 40, count)).tolist()))
    read = read_notes(StateNotes(deadlines_ms=deadlines).headers()).deadlines_ms
    kept = len(read)
    assert read == {number: deadlines[number] for number in range(kept)}
    # where not all have room, half of them have, or a quarter
    assert kept in (count, count // 2, count // 4, count // 8)
    assert kept == count or count > 2_000


# where verdicts begin --------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 5, 1 << 40])
def test_where_no_verdict_is_needed_those_of_the_own_transaction_are_read(offset: int) -> None:
    verdict = TopicPartition("_ack_verdict", 0)
    cluster = MemoryCluster()
    cluster.create_topic(verdict.topic, 1)
    log = cluster.log()
    producer = log.producer()
    for _ in range(6):
        producer.send(Outgoing(*verdict, b"x"))
    producer.flush(1_000)
    noted = not_needed_from(offset)
    assert noted < -1
    assert first_verdict_to_read(log, verdict, replace(EMPTY, verdict=noted), 6) == offset
    assert first_verdict_to_read(log, verdict, replace(EMPTY, verdict=offset), 6) == offset
    # a former version wrote that nothing is needed
    assert first_verdict_to_read(log, verdict, replace(EMPTY, verdict=-1), 6) == 6
    log.delete_before({verdict: 4})
    assert first_verdict_to_read(log, verdict, replace(EMPTY, verdict=noted), 6) == max(4, offset)


# damaged_state_as_disagreement -----------------------------------------------------------------------------


def loaded(state: State = FULL) -> PartitionCore:
    core = PartitionCore(0, 1, AckerLimits(), wire_codec())
    load_state(core, state, {0: BIN})
    return core


def test_a_state_that_is_loaded_is_written_again_as_it_was() -> None:
    core = loaded()
    again = take_snapshot(core)
    # of the range that is not carried all contributions from its init on are read again
    assert replace(again, safe=15, verdict=7, acks=FULL.acks) == FULL
    assert core.ledger.open_count == 101
    clocks = [(item.is_take, item.former_clock_ms) for item in core.sessions.queue]
    assert clocks == [(True, None), (True, 40), (False, None)]


@pytest.mark.parametrize(
    "columns", [(b"", bytes(8), bytes(4)), (bytes(4), bytes(8), b""), (bytes(4), bytes(16), bytes(8))]
)
def test_marks_whose_columns_differ_in_length_are_none(columns: tuple[bytes, bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="zip"):
        loaded(replace(FULL, acks=(StoredLane(0, "q/s1", 12, *columns),)))


def test_only_a_range_that_is_not_carried_has_its_deadline_beside_state() -> None:
    core = loaded()
    carried, other = core.ledger.cohorts()
    before_ms = other.first_deadline_ms()
    load_deadlines(core, {0: 1 << 50, 1: before_ms - 5})
    assert [cohort.first_deadline_ms() for cohort in (carried, other)] == [before_ms, before_ms]
    assert moved_deadlines(core.ledger.cohorts()) == {}
    load_deadlines(core, {1: before_ms + 5})
    assert [cohort.first_deadline_ms() for cohort in (carried, other)] == [before_ms, before_ms + 5]
    assert moved_deadlines(core.ledger.cohorts()) == {1: before_ms + 5}


@pytest.mark.parametrize(
    ("timeout_ms", "left_ms"), [(0, None), (-1, None), (484, 1), (483, 0), (1, 0), (30_000, 29_517)]
)
def test_a_view_says_how_long_open_roots_have(timeout_ms: int, left_ms: int | None) -> None:
    """By the clock that was read last, 500; the roots were emitted at 17."""
    core = loaded(replace(FULL, emissions=(replace_timeout(timeout_ms),)))
    view = AckerView(core, 1_000, StateNotes(LastRestore(5, 70)), is_behind=True)
    carried, other = view.open_ranges()
    assert (other.left_ms, other.deadline_ms) == (left_ms, None if left_ms is None else 1_000 + left_ms)
    assert (carried.carried, other.carried) == (True, False)
    assert (carried.first, other.first) == (1, 100)
    assert (view.is_behind, view.next_init, view.next_ack, view.restored) == (
        True,
        10,
        20,
        LastRestore(5, 70),
    )
    assert view.owner("g") == Session("g", 3, "s1")
    assert view.owner("h") is None
    found = [
        view.find(A, 1),
        view.find(A, 150),
        view.find(A, 0),
        view.find(A, 99),
        view.find(A, 200),
        view.find(B, 150),
    ]
    assert [None if place is None else place.start for place in found] == [0, 100, None, None, None, None]
    assert (view.watermark(A), view.watermark(B)) == (300, 0)
    assert NEVER > 1 << 40


def replace_timeout(timeout_ms: int) -> StoredEmission:
    return FULL.emissions[0]._replace(timeout_ms=timeout_ms)

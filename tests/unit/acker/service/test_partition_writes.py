"""When an acker partition is written, what its transaction has and in which order, and what logs may lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.identity import root_edge, source_of
from acker.kafka.port import OffsetAnswers, Outgoing, Record, TopicPartition
from acker.ledger.output import AckerEventKind
from acker.service import state as state_module
from acker.service.core import PartitionCore
from acker.service.partition import (
    NAMED_MAX,
    ORIGIN_HEADER,
    QUARANTINE_BYTES,
    RESTORE_WRITTEN_AFTER_MS,
    PartitionAcker,
    QuarantineForm,
)
from acker.service.passed_over import WHY_HEADER
from acker.service.service import Retention
from acker.service.snapshot import take_snapshot
from acker.service.state import BIN_PART, encode_state, part_key, read_shared_until_ms, state_codec
from acker.service.state_notes import LastRestore, read_notes
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    Init,
    SourceRun,
    Take,
    TakeSource,
    Tick,
    Verdicts,
    pack_positions,
    pack_values,
)
from acker.wire.lateness import TOO_LATE, TooLate, too_late_header
from acker.wire.passed_calls import PASSED_CALLS, PassedCall, passed_calls_header

CODEC, STORED = wire_codec(), state_codec()
TOPICS = AckTopics.with_prefix("")
A = source_of(1, 3)
NOW_MS = 1_800_000_000_000
TAKE = Take("g", "s1", 1, 0, 1, (TakeSource(A, "t", "id", 0, 0),))
INIT = Init("g", "s1", 1, 0, 0, 30_000, 1, "t", "id", (SourceRun(A, 0, 10),))
PUT_OFF_MS = 1_000


def acks(position: int, seq: int = 1, *, whole: bool = True) -> Acks:
    value = root_edge(A, position) if whole else 5
    packed = pack_positions(np.array([position])), pack_values(np.array([value], np.uint64))
    return Acks("q/s1", seq, "g", "s1", 1, A, 0, (), *packed, (), b"", 0)


@dataclass
class NotedTransactions:
    """Notes what is written, and what is done to it."""

    calls: list[str] = field(default_factory=list)
    records: list[Outgoing] = field(default_factory=list)

    def begin(self) -> None:
        self.calls.append("begin")
        self.records = []

    def send_all(self, records: Iterable[Outgoing]) -> None:
        sent = list(records)
        self.records += sent
        self.calls.append("send " + " ".join(sorted({record.topic for record in sent})))

    def flush(self, timeout_ms: int) -> None:
        self.calls.append(f"flush {timeout_ms}")

    def commit(self, timeout_ms: int) -> None:
        self.calls.append(f"commit {timeout_ms}")

    def close(self) -> None:
        self.calls.append("close")


class Partition:
    """An acker partition with what it wrote last."""

    def __init__(self, **limits: int) -> None:
        """Let nobody own a group yet."""
        bounds = AckerLimits(put_off_ms=PUT_OFF_MS, operation_ms=9_000, **limits)
        self.core = PartitionCore(0, 1, bounds, CODEC)
        self.transactions = NotedTransactions()
        self.acker = PartitionAcker(self.core, self.transactions, TOPICS, bounds, STORED)
        self.offset = 0

    def record(self, event: Event, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Record:
        self.offset += 1
        return Record("_ack", 0, self.offset, None, CODEC.encode(event), headers, NOW_MS)

    def read(self, *events: Event) -> None:
        self.core.read_inits([self.record(event) for event in events])
        self.core.set_barrier(0, 0)
        self.core.apply_reached_ticks()

    def ack(self, event: Event, *headers: tuple[str, bytes | None]) -> None:
        self.core.apply_acks([self.record(event, headers)])

    def written(self, topic: str) -> list[Outgoing]:
        return [record for record in self.transactions.records if record.topic == topic]

    def verdicts(self) -> list[Event]:
        return [CODEC.decode(record.value) for record in self.written(TOPICS.verdict)]

    def state_keys(self) -> list[bytes | None]:
        return [record.key for record in self.written(TOPICS.state)]


@pytest.fixture
def partition() -> Partition:
    return Partition()


def owned(**limits: int) -> Partition:
    partition = Partition(**limits)
    partition.read(TAKE, INIT)
    partition.acker.write(NOW_MS)
    return partition


# when ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since_ms", [0, 600, NOW_MS])
@pytest.mark.parametrize(
    ("after_ms", "is_due"),
    [
        (0, False),
        (1, False),
        (400, False),
        (PUT_OFF_MS - 1, False),
        (PUT_OFF_MS, True),
        (PUT_OFF_MS + 1, True),
        (-1, True),
    ],
)
def test_what_nobody_waits_for_is_put_off(since_ms: int, after_ms: int, is_due: bool) -> None:
    """The time counts from the first change on; a clock that is set back says nothing."""
    acker = owned().acker
    assert not acker.must_write(since_ms + after_ms)
    acker.record_change(since_ms, has_read_acks_or_fails=False)
    acker.record_change(since_ms + 300, has_read_acks_or_fails=False)
    assert acker.must_write(since_ms + after_ms) is is_due
    acker.write(since_ms)
    assert not acker.must_write(since_ms + after_ms)


def test_what_contributions_changed_is_written_at_once() -> None:
    acker = owned().acker
    acker.record_change(5, has_read_acks_or_fails=True)
    acker.record_change(5, has_read_acks_or_fails=False)
    assert acker.must_write(5)
    acker.write(5)
    acker.record_change(6, has_read_acks_or_fails=False)
    assert not acker.must_write(6)


def test_output_is_written_at_once(partition: Partition) -> None:
    partition.acker.record_change(5, has_read_acks_or_fails=False)
    assert not partition.acker.must_write(5)
    partition.read(TAKE)
    assert partition.acker.must_write(5)


@pytest.mark.parametrize("at_ms", [0, 3_000, NOW_MS])
@pytest.mark.parametrize(
    ("after_ms", "is_due"),
    [
        (0, False),
        (1, False),
        (RESTORE_WRITTEN_AFTER_MS - 1, False),
        (RESTORE_WRITTEN_AFTER_MS, True),
        (-RESTORE_WRITTEN_AFTER_MS, True),
        (1 - RESTORE_WRITTEN_AFTER_MS, False),
    ],
)
def test_a_restore_is_named_in_state_once(at_ms: int, after_ms: int, is_due: bool) -> None:
    partition = owned()
    partition.acker.record_restore(70, at_ms)
    assert partition.acker.must_write(at_ms + after_ms) is is_due
    partition.acker.write(at_ms)
    [state] = partition.written(TOPICS.state)
    assert read_notes(state.headers).restored == LastRestore(at_ms, 70)
    assert not partition.acker.must_write(at_ms + after_ms)


def test_a_restore_that_is_told_while_state_is_under_way_is_in_the_next_one() -> None:
    """D1013: a step finds out how long a restore took, while another thread commits."""
    partition = owned()
    write = partition.acker.prepare()
    partition.acker.record_restore(70, 0)
    partition.acker.write_transaction(write)
    partition.acker.record_written(write)
    assert partition.acker.must_write(RESTORE_WRITTEN_AFTER_MS)
    partition.acker.write(0)
    [state] = partition.written(TOPICS.state)
    assert read_notes(state.headers).restored == LastRestore(0, 70)


def test_a_partition_that_never_read_anything_names_no_restore(partition: Partition) -> None:
    partition.acker.record_restore(70, 0)
    assert not partition.acker.must_write(RESTORE_WRITTEN_AFTER_MS)
    assert not owned().acker.must_write(NOW_MS)
    # it has read something since, and never wrote
    partition.read(TAKE)
    assert partition.acker.must_write(RESTORE_WRITTEN_AFTER_MS)


@pytest.mark.parametrize(("has_changed", "is_open", "waits"), list(product((False, True), repeat=3)))
def test_a_partition_is_quiet_where_nothing_is_open_or_waits(
    has_changed: bool, is_open: bool, waits: bool
) -> None:
    partition = Partition()
    partition.read(TAKE)
    partition.acker.write()
    if is_open:
        partition.read(INIT)
    if waits:
        partition.core.read_inits([partition.record(Tick("g", "s1", 1, 5))])
    if has_changed:
        partition.acker.record_change(5, has_read_acks_or_fails=False)
    assert bool(partition.acker.is_quiet) == (not (has_changed or is_open or waits))
    assert not Partition().acker.has_quarantined


# what ------------------------------------------------------------------------------------------------------


def test_verdicts_are_in_the_log_before_state_is_sent() -> None:
    partition = owned()
    partition.ack(acks(3))
    partition.transactions.calls = []
    partition.acker.write(NOW_MS)
    assert partition.transactions.calls == [
        "begin", f"send {TOPICS.verdict}", "flush 9000", f"send {TOPICS.state}", "commit 9000",
    ]  # fmt: skip
    assert partition.verdicts() == [Verdicts((SourceRun(A, 3, 4),), (), ())]
    assert partition.core.ledger.counts.transactions == 2
    partition.acker.close()
    assert partition.transactions.calls[-1] == "close"


def test_notes_are_written_behind_the_verdicts() -> None:
    note = TooLate("g", "q/s1", 7, True, 5, 6, 8, 9, (), (), ())
    calls = passed_calls_header("q/s1", 7, [PassedCall("split", "E", "passed", ())])
    partition = owned()
    partition.ack(acks(3), too_late_header(note), *calls)
    before = partition.core.ledger.verdict_end_pin.offset
    partition.acker.write(NOW_MS)
    names = [[name for name, _ in record.headers] for record in partition.written(TOPICS.verdict)]
    assert names == [[], [TOO_LATE], [PASSED_CALLS]]
    assert partition.verdicts()[1:] == [Verdicts((), (), ())] * 2
    # three records, and a marker
    assert partition.core.ledger.verdict_end_pin.offset == before + 4
    [state] = partition.written(TOPICS.state)
    assert read_notes(state.headers).too_late["g"].rows == 8
    assert read_shared_until_ms(state.headers) == {}


def test_logs_may_lose_what_lies_before_a_restart_would_read() -> None:
    """Of the verdicts of a range with open roots none may be lost, also those at offset 0."""
    partition = Partition()
    init, ack, fail, verdict = (
        TopicPartition(topic, 0) for topic in (TOPICS.init, TOPICS.ack, TOPICS.fail, TOPICS.verdict)
    )
    assert partition.acker.needed_offsets == {}
    partition.read(TAKE, INIT)
    partition.core.outbox.take()
    partition.ack(acks(3))
    partition.acker.write(NOW_MS)
    assert partition.acker.needed_offsets == {init: 3, ack: 3, fail: 0, verdict: 0}
    assert partition.acker.read_offsets == {init: 3, ack: 4, fail: 0}
    for position in {*range(10)} - {3}:
        partition.ack(acks(position, seq=2 + position))
    partition.acker.write(NOW_MS)
    assert partition.acker.needed_offsets == {
        init: 3,
        ack: 13,
        fail: 0,
        verdict: partition.core.ledger.verdict_end_pin.offset,
    }


def test_roots_are_carried_where_a_restart_would_read_too_much() -> None:
    partition = Partition(refold_bytes=0)
    partition.read(TAKE, INIT)
    partition.ack(acks(3, whole=False))
    output = partition.acker.write(NOW_MS)
    assert part_key(0, BIN_PART) in partition.state_keys()
    assert partition.state_keys()[-1] == part_key(0, 0)
    assert AckerEventKind.CARRIED in [event.kind for event in output.events]
    assert "10 open roots are carried" in next(
        event.detail for event in output.events if event.kind is AckerEventKind.CARRIED
    )
    for position in range(10):
        partition.ack(acks(position, seq=5 + position, whole=position != 3))
    partition.ack(replace(acks(3, seq=50), values=pack_values(np.array([root_edge(A, 3)], np.uint64))))
    assert partition.core.ledger.open_count == 0
    partition.acker.write(NOW_MS)
    assert [
        record.value for record in partition.written(TOPICS.state) if record.key == part_key(0, BIN_PART)
    ] == [None]


# quarantine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", QuarantineForm)
@pytest.mark.parametrize("key", [None, b"k", b"k" * (QUARANTINE_BYTES + 1)])
def test_of_what_cannot_be_applied_as_much_is_copied_as_its_form_says(
    form: QuarantineForm, key: bytes | None
) -> None:
    partition = owned()
    partition.acker.quarantine_form = form
    value = b"v" * (QUARANTINE_BYTES + 5)
    for offset in range(NAMED_MAX + 1):
        partition.core.apply_fails([Record("_ack_fail", 0, offset, key, value)])
    assert not partition.acker.has_quarantined
    output = partition.acker.write(NOW_MS)
    assert partition.acker.has_quarantined
    copies = partition.written(TOPICS.quarantine)
    not_copied = [event for event in output.events if event.kind is AckerEventKind.NOT_COPIED]
    if form is QuarantineForm.NOTHING:
        assert copies == []
        assert [event.detail.partition(":")[0] for event in not_copied] == [
            f"_ack_fail/0@{n}" for n in range(NAMED_MAX)
        ]
    else:
        assert len(copies) == NAMED_MAX + 1
        assert not_copied == []
        assert dict(copies[7].headers)[ORIGIN_HEADER] == b"_ack_fail/0@7"
        kept = key and key[:QUARANTINE_BYTES]
        whole = kept, value[: QUARANTINE_BYTES - len(kept or b"")]
        assert (copies[0].key, copies[0].value) == (whole if form is QuarantineForm.WHOLE else (None, None))
    partition.acker.write(NOW_MS)
    assert not partition.acker.has_quarantined


@pytest.mark.parametrize("size", [1, QUARANTINE_BYTES // 10, QUARANTINE_BYTES // 10 + 1, QUARANTINE_BYTES])
def test_why_it_cannot_be_applied_is_cut(size: int) -> None:
    partition = owned()
    partition.core.outbox.add_quarantined(Record("_ack_fail", 0, 0, None, None), "w" * size)
    partition.acker.write(NOW_MS)
    [copy] = partition.written(TOPICS.quarantine)
    assert dict(copy.headers)[WHY_HEADER] == b"w" * min(size, QUARANTINE_BYTES // 10)
    assert copy.value is None


# full ------------------------------------------------------------------------------------------------------


def items_of(partition: Partition) -> int:
    return encode_state(STORED, take_snapshot(partition.core)).size.items


def with_room(monkeypatch: pytest.MonkeyPatch, items_max: int) -> None:
    monkeypatch.setattr(state_module, "STATE_ITEMS_MAX", items_max)


@pytest.mark.parametrize(("less", "is_written"), [(0, True), (1, False)])
def test_a_state_at_its_limit_is_written(
    less: int, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = owned()
    partition.ack(acks(3))
    partition.acker.has_quarantined = True
    with_room(monkeypatch, items_of(partition) - less)
    partition.transactions.calls = []
    partition.acker.record_change(5, has_read_acks_or_fails=True)
    output = partition.acker.write(NOW_MS)
    assert ("begin" in partition.transactions.calls) is is_written
    assert bool(partition.acker.why_full) is not is_written
    assert not partition.acker.has_quarantined
    kinds = [event.kind for event in output.events]
    assert (AckerEventKind.FULL in kinds) is not is_written
    # it is not measured again before something has become smaller
    assert not partition.acker.must_write(NOW_MS)
    if not is_written:
        assert partition.acker.write(NOW_MS).events == []
        with_room(monkeypatch, 1_000)
        output = partition.acker.write(NOW_MS)
        assert [event.kind for event in output.events] == [AckerEventKind.GOES_ON]
        assert partition.verdicts() == [Verdicts((SourceRun(A, 3, 4),), (), ())]


def test_a_state_that_fills_is_named_from_its_first_write_on(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition()
    partition.read(TAKE, INIT)
    with_room(monkeypatch, 2 * items_of(partition))
    counts = []
    for items_max in (2 * items_of(partition), 2 * items_of(partition), 100, 2 * items_of(partition)):
        with_room(monkeypatch, items_max)
        kinds = [event.kind for event in partition.acker.write(NOW_MS).events]
        counts.append(kinds.count(AckerEventKind.FILLING))
        assert AckerEventKind.GOES_ON not in kinds
    assert counts == [1, 0, 0, 1]


# retention -------------------------------------------------------------------------------------------------

INTERVAL_MS, KEEP_MS = 60_000, 86_400_000
VERDICT, OTHER_VERDICT, ACK = (
    TopicPartition(TOPICS.verdict, 0),
    TopicPartition(TOPICS.verdict, 1),
    TopicPartition(TOPICS.ack, 0),
)


@dataclass
class ShortenedLog:
    """Notes what is deleted; `young` is where verdicts begin that are kept."""

    replayed: dict[TopicPartition, int] = field(
        default_factory=lambda: {VERDICT: 1_000, OTHER_VERDICT: 1_000}
    )
    young: dict[TopicPartition, int] = field(default_factory=lambda: {VERDICT: 1_000, OTHER_VERDICT: 1_000})
    troubles: dict[TopicPartition, str] = field(default_factory=dict)
    deleted: list[dict[TopicPartition, int]] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def committed(self, group: str, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        assert group == "replay"
        return {place: self.replayed[place] for place in places if place in self.replayed}

    def bounds(self, time_ms: int, places: Iterable[TopicPartition]) -> OffsetAnswers:
        self.times_ms.append(time_ms)
        return OffsetAnswers({place: self.young[place] for place in places if place in self.young}, {})

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        self.deleted.append(dict(offsets))
        return {place: text for place, text in self.troubles.items() if place in offsets}


@dataclass
class Needing:
    """An acker partition that needs its logs from some offsets on."""

    needed_offsets: dict[TopicPartition, int]


def retention(log: ShortenedLog) -> Retention:
    return Retention(log, TOPICS, "replay", INTERVAL_MS, KEEP_MS)


@pytest.mark.parametrize("begin_ms", [0, 40_000, NOW_MS])
def test_logs_are_shortened_at_times(begin_ms: int) -> None:
    log = ShortenedLog()
    shortening = retention(log)
    counts: list[int] = []
    after_ms = [
        0,
        0,
        1,
        INTERVAL_MS - 1,
        INTERVAL_MS,
        INTERVAL_MS + 1,
        2 * INTERVAL_MS - 1,
        2 * INTERVAL_MS,
        2 * INTERVAL_MS - 1,
    ]
    for number, ms in enumerate(after_ms):
        shortening.delete_if_due([Needing({ACK: 10 + number})], begin_ms + ms)
        counts.append(len(log.deleted))
    assert counts == [0, 0, 0, 0, 1, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("needed", "replayed", "young", "deleted"),
    [
        (7, 8, 9, 7),
        (8, 7, 9, 7),
        (9, 8, 7, 7),
        (9, None, 7, None),
        (9, 8, None, None),
        (0, 8, 8, None),
        (1, 1, 1, 1),
    ],
)
def test_verdicts_stay_while_anybody_needs_them(
    needed: int, replayed: int | None, young: int | None, deleted: int | None
) -> None:
    """A commit or a time that nobody says keeps all of them; contributions go all the same."""
    log = ShortenedLog(
        {} if replayed is None else {VERDICT: replayed}, {} if young is None else {VERDICT: young}
    )
    shortening = retention(log)
    for now_ms in (0, INTERVAL_MS):
        shortening.delete_if_due([Needing({VERDICT: needed, ACK: 50})], now_ms)
    assert log.deleted == [{ACK: 50} | ({} if deleted is None else {VERDICT: deleted})]
    assert log.times_ms == [0]


def test_verdicts_are_kept_for_a_time() -> None:
    log = ShortenedLog()
    shortening = retention(log)
    for now_ms in (NOW_MS, NOW_MS + INTERVAL_MS):
        shortening.delete_if_due([Needing({VERDICT: 5}), Needing({OTHER_VERDICT: 6})], now_ms)
    assert log.times_ms == [NOW_MS + INTERVAL_MS - KEEP_MS]
    assert log.deleted == [{VERDICT: 5, OTHER_VERDICT: 6}]


def test_what_was_deleted_is_not_deleted_again_and_what_was_not_is() -> None:
    log = ShortenedLog(troubles={VERDICT: "has no leader"})
    shortening = retention(log)
    for number, needed in enumerate([5, 5, 5, 4, 6, 6]):
        shortening.delete_if_due([Needing({VERDICT: needed, ACK: needed})], number * INTERVAL_MS)
        if number == 2:
            log.troubles = {}
    assert log.deleted == [{VERDICT: 5, ACK: 5}, {VERDICT: 5}, {VERDICT: 4}, {VERDICT: 6, ACK: 6}]


def test_where_only_contributions_are_needed_nobody_is_asked_for_verdicts() -> None:
    log = ShortenedLog()
    shortening = retention(log)
    for now_ms in (0, INTERVAL_MS):
        shortening.delete_if_due([Needing({ACK: 0})], now_ms)
    assert (log.deleted, log.times_ms) == ([], [])

"""What a read task reports: positions that it did not find, and records that `tracked_when` refuses."""

from __future__ import annotations

import gc
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from time import sleep
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from acker.errors import Disagreement, TrackingError, Unreachable, WindhoverError
from acker.identity import copies_source, position_at, source_of
from acker.kafka.port import DamagedRun
from acker.wire.causes import HELD, error_text
from acker.wire.events import SourceRun
from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.isolation.task_runs import no_garbage_collection
from spout.planning.journal import BEGINNING, Journal
from spout.planning.order import LineUp
from spout.planning.plan import BatchPlan, ReadTask, runs_without_record
from spout.publishing.blob import decode, encode
from spout.publishing.delayed import HighestTime
from spout.publishing.fold import TaskReport
from spout.publishing.root_marks import RootMark
from spout.streaming import consume, read_task
from spout.streaming.consume import FirstRecords, KeptConsumers, RangeReader, Share, TaskReader, Together
from spout.streaming.map_task import Received
from spout.streaming.options import SealedStage, SourceOptions, batch_tasks
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import AnchorForm
from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple
from tests.support.reports import failures_in, untracked_in
from tests.support.worlds.topology_world import SOURCE, TOPICS


def test_positions_between_records_are_holes() -> None:
    """S91, P6: they never held a record."""
    found = runs_without_record(7, 10, np.array([11, 12, 15, 19]))
    assert found == [(7, 10, 11), (7, 13, 15), (7, 16, 19)]
    assert runs_without_record(7, 11, np.array([11, 12, 13])) == []
    assert runs_without_record(7, 11, np.array([13])) == [(7, 11, 13)]


def test_the_collector_is_switched_on_again_whatever_happens() -> None:
    def fail() -> None:
        with no_garbage_collection():
            raise KeyError(gc.isenabled())

    with pytest.raises(KeyError, match="False"):
        fail()
    assert gc.isenabled()


def test_the_first_task_takes_what_is_imported_out_of_later_collections() -> None:
    gc.unfreeze()
    done = Event()
    with no_garbage_collection(done):
        assert not gc.get_freeze_count()
    frozen = gc.get_freeze_count()
    assert frozen > 10 * len(gc.get_objects())
    with no_garbage_collection(done):
        mine: list[list[int]] = [[]]
    assert any(each is mine for each in gc.get_objects())
    gc.unfreeze()


def test_roots_that_come_once_are_marked_and_one_that_comes_twice_is_named() -> None:
    received = Received("split")
    received.mark(np.array([5, 0]))
    received.mark(np.array([], np.int64))
    received.mark(np.array([2]))
    assert received.marks().tolist() == [True, False, True, False, False, True]
    for again in ([2], [9, 9]):
        with pytest.raises(TrackingError, match="'split' received a root twice"):
            received.mark(np.array(again))


def at(offset: int, *, ends: bool = False) -> Message:
    """A record, or the event that a partition ends there."""
    event = {"error": KafkaError(KafkaError._PARTITION_EOF)} if ends else {"value": b"%d" % offset}
    return Message(topic="lines", partition=0, offset=offset, **event)


class Replica:
    """Stands for a consumer of a replica that returns these messages; None: nothing comes for a while."""

    def __init__(self, come: list[Message | None], leader_ends: int | KafkaError) -> None:
        """Let the leader's log end at an offset, or the leader answer with an error."""
        self.come = come
        self.leader_ends = leader_ends

    def assign(self, _partitions: object) -> None:
        """Take note of nothing."""

    incremental_assign = incremental_unassign = assign

    def close(self) -> None:
        """Do nothing."""

    def poll(self, _wait_s: float) -> Message | None:
        """Return the next message."""
        return self.come.pop(0)

    def consume(self, _most: int, _wait_s: float) -> list[Message]:
        """Return no more."""
        return []

    def get_watermark_offsets(self, _place: object, _wait_s: float, *, cached: bool) -> tuple[int, int]:
        """Ask the leader."""
        if isinstance(self.leader_ends, KafkaError):
            raise KafkaException(self.leader_ends)
        return 0, self.leader_ends


def values_of(monkeypatch: pytest.MonkeyPatch, replica: Replica, end: int) -> list[bytes | None]:
    """Read a range from offset 0 on."""
    monkeypatch.setattr(consume, "Consumer", lambda _settings: replica)
    reader = RangeReader({"bootstrap.servers": "kafka"}, Share("lines", 0, 0, end), KeptConsumers(0))
    return [message.value() for chunk in reader.chunks() for message in chunk]


@pytest.mark.parametrize("leader_ends", [3, 9, KafkaError(KafkaError.LEADER_NOT_AVAILABLE)])
def test_a_range_goes_on_behind_an_end_that_a_replica_reports_too_early(
    monkeypatch: pytest.MonkeyPatch, leader_ends: int | KafkaError
) -> None:
    """A follower learns late what is committed, and so may a new leader: such a record is not absent."""
    come = [at(0), at(1), at(2, ends=True), None, None, at(2), at(3, ends=True)]
    assert values_of(monkeypatch, Replica(come, leader_ends), 3) == [b"0", b"1", b"2"]
    come = [at(0), at(1, ends=True), None, at(4, ends=True)]  # the others are not there for anybody
    assert values_of(monkeypatch, Replica(come, leader_ends), 3) == [b"0"]


class Prompt(Replica):
    """A consumer that has several records at once."""

    def consume(self, most: int, _wait_s: float) -> list[Message]:
        """Return two more at most."""
        more, self.come = self.come[: min(most, 2)], self.come[min(most, 2) :]
        return more

    def list_topics(self, _topic: str, *, timeout: float) -> None:
        """Find the leaders."""


def test_a_chunk_of_large_records_has_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow has 2 GB for a column, and a worker its memory; each record comes once all the same."""
    monkeypatch.setattr(consume, "CHUNK_BYTES", 2)
    replica = Prompt([at(offset) for offset in range(8)], 8)
    monkeypatch.setattr(consume, "Consumer", lambda _settings: replica)
    share = Share("lines", 0, 0, 8)
    early = Together().read({"bootstrap.servers": "kafka"}, [share])[share]
    assert (len(early.records), early.next) == (3, 3)
    reader = RangeReader({"bootstrap.servers": "kafka"}, share, KeptConsumers(0), early)
    chunks = [[message.offset() for message in chunk] for chunk in reader.chunks()]
    assert chunks == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_a_consumer_that_was_closed_is_not_used_again_though_no_other_could_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Settings of another input may be refused; the tasks of the first one go on."""
    made: list[str] = []

    def make(settings: dict[str, object]) -> Prompt:
        bootstrap = str(settings["bootstrap.servers"])
        made.append(bootstrap)
        if bootstrap == "refused":
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        return Prompt([at(0)], 1)

    monkeypatch.setattr(consume, "Consumer", make)
    together = Together()
    together.read({"bootstrap.servers": "kafka"}, [Share("lines", 0, 0, 1)])
    with pytest.raises(WindhoverError):
        together.read({"bootstrap.servers": "refused"}, [Share("lines", 0, 0, 1)])
    together.read({"bootstrap.servers": "kafka"}, [Share("lines", 0, 0, 1)])
    assert made == ["kafka", "refused", "kafka"]


def test_what_was_read_together_comes_in_chunks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 2)
    early = FirstRecords([at(offset) for offset in range(5)], 5)
    reader = RangeReader({"bootstrap.servers": "kafka"}, Share("lines", 0, 0, 5), KeptConsumers(0), early)
    assert [[message.offset() for message in chunk] for chunk in reader.chunks()] == [[0, 1], [2, 3], [4]]


class Endless(Replica):
    """A consumer of one partition that has a record for each poll."""

    def __init__(self) -> None:
        """Begin with nothing assigned."""
        super().__init__([], 0)
        self.partition, self.offset, self.is_closed = -1, 0, False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin where the range does."""
        [place] = partitions
        self.partition, self.offset = place.partition, place.offset

    def poll(self, _wait_s: float) -> Message:
        """Return the next record."""
        self.offset += 1
        return at(self.offset - 1)

    def close(self) -> None:
        """Take note of it."""
        self.is_closed = True


def openings(monkeypatch: pytest.MonkeyPatch) -> list[Endless]:
    """Let consumers be made, and return those that were."""
    made: list[Endless] = []

    def make(_settings: object) -> Endless:
        made.append(Endless())
        return made[-1]

    monkeypatch.setattr(consume, "Consumer", make)
    return made


class Noted(Together):
    """Notes which shares are read together, and reads nothing of them."""

    def __init__(self) -> None:
        """Begin without any."""
        super().__init__()
        self.groups: list[list[int]] = []

    def read(self, _settings: Mapping[str, str], shares: Sequence[Share]) -> dict[Share, FirstRecords]:
        """Note the partitions; all of them end at once."""
        self.groups.append([share.partition for share in shares])
        return {share: FirstRecords([], share.end) for share in shares}


def test_small_ranges_are_read_together_and_large_ones_one_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker keeps four consumers, and a task may have a hundred ranges."""
    monkeypatch.setattr(consume, "CHUNK_RECORDS", 2)
    monkeypatch.setattr(consume, "TOGETHER_RECORDS", 6)
    opened = openings(monkeypatch)
    together, sizes = Noted(), (3, 3, 3, 9, 9, 2)
    shares = [Share("lines", number, 0, size) for number, size in enumerate(sizes)]
    reader = TaskReader({"bootstrap.servers": "kafka"}, shares, KeptConsumers(0), together)
    open_at: list[list[int]] = []
    for share in shares:
        chunks = reader.chunks(share)
        first = next(chunks, [])
        open_at.append([each.partition for each in opened if not each.is_closed])
        rest = [message for chunk in chunks for message in chunk]
        was_read = [] if share.partition in (0, 1, 5) else list(range(share.end))
        assert [message.offset() for message in [*first, *rest]] == was_read
    assert together.groups == [[0, 1], [5]]
    assert open_at == [[], [2], [2, 3], [3, 4], [4], []]
    assert len(opened) == 3


def test_a_task_that_ends_early_closes_what_it_fetched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = openings(monkeypatch)
    shares = [Share("lines", number, 0, consume.TOGETHER_RECORDS) for number in range(3)]
    reader = TaskReader({"bootstrap.servers": "kafka"}, shares, KeptConsumers(0), Noted())
    assert next(iter(reader.chunks(shares[0])))
    assert [each.partition for each in opened] == [0, 1]
    assert not opened[1].is_closed
    reader.close()
    assert opened[1].is_closed


class Chatty(Replica):
    """A consumer of two partitions: of one there is always more, of the other nothing comes."""

    def __init__(self, polls_max: int) -> None:
        """Fail when it was polled so often."""
        super().__init__([], 0)
        self.polls_max, self.polls = polls_max, 0

    def list_topics(self, _topic: str, *, timeout: float) -> None:
        """Find the leaders."""

    def poll(self, _wait_s: float) -> Message | None:
        """Return the next record of partition 0."""
        self.polls += 1
        assert self.polls < self.polls_max, "it reads without end"
        sleep(0.02)
        return at(self.polls - 1)


def test_ranges_are_not_read_together_without_end_where_the_leader_of_one_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Producers go on writing to the others; reading it alone finds out what is wrong, within a minute."""
    monkeypatch.setattr(consume, "Consumer", lambda _settings: Chatty(200))
    shares = [Share("lines", 0, 0, 3), Share("lines", 1, 0, 3)]
    found = Together().read({"bootstrap.servers": "kafka"}, shares)
    assert [(len(early.records), early.next) for early in found.values()] == [(3, 3), (0, 0)]


class Greedy(Chatty):
    """A consumer that gets nothing of a partition as long as it reads one before it."""

    def __init__(self, polls_max: int) -> None:
        """Read nothing."""
        super().__init__(polls_max)
        self.assigned: set[int] = set()

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
        """Read these too."""
        self.assigned |= {each.partition for each in partitions}

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:  # type: ignore[override]
        """Read these no more."""
        self.assigned -= {each.partition for each in partitions}

    def poll(self, _wait_s: float) -> Message | None:
        """Return the next record of the first partition."""
        super().poll(0)
        return Message(topic="lines", partition=min(self.assigned), offset=self.polls - 1, value=b"")


def test_a_partition_that_is_read_to_its_end_keeps_no_other_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of batches larger than the client asks for the broker sends one, of one partition, at a time."""
    consumer = Greedy(20)
    monkeypatch.setattr(consume, "Consumer", lambda _settings: consumer)
    shares = [Share("lines", number, 0, 3) for number in range(3)]
    found = Together().read({"bootstrap.servers": "kafka"}, shares)
    assert [early.next for early in found.values()] == [3, 3, 3]
    assert not consumer.assigned, "it goes on to fetch between two tasks"


def test_what_a_silent_leader_keeps_back_is_an_error_that_names_him(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume, "STALL_MS", 2 * consume.WAIT_MS)
    monkeypatch.setattr(consume, "first_behind_damage", lambda _client, _place, at: at)
    replica, broker = Replica([None, None], 3), SimpleNamespace(host="kafka-2", port=9092)
    for leader, text in (2, "nothing came from its leader, kafka-2:9092"), (-1, "it has no leader"):
        topic = SimpleNamespace(error=None, partitions={0: SimpleNamespace(leader=leader)})
        found = SimpleNamespace(topics={"lines": topic}, brokers={2: broker})
        replica.come = [None, None]
        monkeypatch.setattr(replica, "list_topics", lambda *_, found=found: found, raising=False)
        with pytest.raises(Unreachable, match=rf"lines/0@0: no answer .* within 400 ms .*{text}.*; start it"):
            values_of(monkeypatch, replica, 3)


def test_a_batch_of_an_input_that_the_query_no_longer_reads_says_so() -> None:
    """Spark runs the last batch again, whatever the query reads now."""
    options = SourceOptions(TOPICS, tuple(TOPICS.inputs)[:1], "s")
    ranges = (SourceRun(source_of(999, 0), 0, 5),)
    with pytest.raises(Disagreement, match=r"input id 999, which this query does not read.*fresh checkpoint"):
        batch_tasks(options, BEGINNING, Journal("s1", 1, 0, 1, {}, ranges))


def test_a_log_that_ends_within_a_range_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Disagreement, match=r"lines/0@1: the log begins at 0 and ends at 1:.*offsets reset"):
        values_of(monkeypatch, Replica([at(0), at(1, ends=True)], 1), 3)


def not_debug(tuple: Tuple) -> bool:
    """Break on a tombstone, as who forgets them would."""
    return b"debug" not in tuple["value"]


class Panic(BaseException):
    """As PyO3 derives the panic of a library in Rust."""


@dataclass(slots=True)
class Read:
    """What became of a read task: the values of the rows that it returned, and its report."""

    values: list[bytes | None] = field(default_factory=list)
    reports: list[TaskReport | None] = field(default_factory=list)

    @property
    def report(self) -> TaskReport:
        """The one report."""
        [report] = self.reports
        assert report is not None
        return report

    @property
    def failed(self) -> dict[Cause, list[int]]:
        """The failed roots by cause."""
        return {cause: roots.tolist() for cause, roots in failures_in(self.report)}


class Log:
    """Stands for `TaskReader`, over values of records with the key ``k``; offsets count from 0."""

    values: ClassVar[list[bytes | None]] = []
    more: ClassVar[Mapping[int, list[tuple[str, bytes]]]] = {
        1: [("traceparent", b"00-%032x-%016x-01" % (7, 5))],
        2: [("traceparent", b"00-%032x-%016x-00" % (8, 5))],
        3: [("traceparent", b"nonsense")],
    }

    closed = 0
    times: ClassVar[Mapping[int, int]] = {}

    def __init__(self, _kafka: object, _shares: object) -> None:
        """Read shares."""
        self.lost = 0
        self.damaged: list[DamagedRun] = []

    def close(self) -> None:
        """Count it."""
        Log.closed += 1

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Return the records, two at a time."""
        for begin in range(share.start, share.end, 2):
            offsets = range(begin, min(begin + 2, share.end))
            yield [
                Message(
                    topic="lines",
                    partition=0,
                    offset=offset,
                    key=b"k",
                    value=self.values[offset],
                    timestamp=(TIMESTAMP_CREATE_TIME, self.times.get(offset, 5)),
                    headers=[
                        ("windhover.first-emitted", b"%d" % (1_000 + offset)),
                        *self.more.get(offset, ()),
                    ],
                )
                for offset in offsets
            ]


def read(
    monkeypatch: pytest.MonkeyPatch,
    *values: bytes | None,
    tracked_when: Callable[[Tuple], bool] = not_debug,
    order: Mapping[int, LineUp] | None = None,
    source: int = SOURCE,
    sources: Sequence[int] = (),
    **options: Any,
) -> Read:
    """Let a task read records of these values, of each of several sources; nothing runs behind it."""
    found = Read()
    monkeypatch.setattr(read_task, "TaskReader", Log)
    monkeypatch.setattr(Log, "values", list(values))
    monkeypatch.setattr(
        read_task, "add_report", lambda _ledger, _stream, report: found.reports.append(report)
    )
    every = sources or (source,)
    runs = tuple(SourceRun(number, position_at(0, 0), position_at(0, len(values))) for number in every)
    plan = BatchPlan("g", "s", 1, 2, 7, 30_000, True, runs)
    task = ReadTask(plan, runs, dict.fromkeys(every, "lines"), order or {})
    options |= {"tracked_when": tracked_when, "ledger": object()}
    asked = SourceOptions(TOPICS, ("lines",), "q", **options)
    for batch in read_task.read(task, asked):
        found.values += batch.column("value").to_pylist()
    return found


def test_a_record_for_which_tracked_when_raises_fails_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tracked, so that it comes again, and is a dead letter in the end; no bolt sees it."""
    found = read(monkeypatch, b"a", None, None, b"debug", b"b")
    assert found.values == [b"a", b"debug", b"b"]
    [(cause, roots)] = found.failed.items()
    assert roots == [1, 2]
    assert (cause.operator, cause.error) == ("lines", "TypeError")
    assert cause.message.startswith("tracked_when: ")
    assert untracked_in(found.report) == [3]


@pytest.mark.parametrize("ends", [SystemExit, CancelledError, KeyboardInterrupt, GeneratorExit, Panic])
def test_what_ends_a_process_fails_the_record_for_which_tracked_when_raises_it(
    ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """O813: it ended the query at each start, as `sys.exit` or a panic in a bolt did."""

    def ends_at_bad(received: Tuple) -> bool:
        if received["value"] == b"bad":
            raise ends("no")
        return True

    found = read(monkeypatch, b"a", b"bad", b"b", tracked_when=ends_at_bad)
    assert found.values == [b"a", b"b"]
    [(cause, roots)] = found.failed.items()
    assert (cause.error, roots) == (error_text(ends), [1])


def test_a_task_that_nobody_reads_to_its_end_closes_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_task, "TaskReader", Log)
    monkeypatch.setattr(Log, "values", [b"a", b"b", b"c"])
    run = SourceRun(SOURCE, position_at(0, 0), position_at(0, 3))
    task = ReadTask(BatchPlan("g", "s", 1, 2, 7, 30_000, True, (run,)), (run,), {SOURCE: "lines"}, {})
    rows = read_task.read(task, SourceOptions(TOPICS, ("lines",), "q"))
    assert next(rows).num_rows == 2
    closed = Log.closed
    rows.close()  # type: ignore[attr-defined]
    assert Log.closed == closed + 1


def test_a_record_for_which_tracked_when_raises_holds_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b"a", None, b"debug", b"b", order={SOURCE: LineUp("key")})
    assert found.values == [b"a", b"debug"]
    assert [(cause.error, roots) for cause, roots in found.failed.items()] == [
        ("TypeError", [1]),
        (HELD, [3]),
    ]
    assert untracked_in(found.report) == [2]


def test_what_waits_already_is_held_before_its_predicate_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting costs it nothing; failing costs an attempt."""
    line_up = LineUp("partition", {0: 0})
    found = read(monkeypatch, b"a", None, b"debug", order={SOURCE: line_up})
    assert found.values == [b"a", b"debug"]
    assert found.failed == {Cause("lines", HELD, "waits for lines/0@0"): [1]}


class Careful(BasicBolt):
    """Copies a value; fails one that says so, and a record that it cannot read."""

    output = "value binary"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Copy."""
        if tuple["value"] == b"bad":
            raise ValueError("bad")
        collector.emit((tuple["value"],))


@pytest.mark.parametrize(
    ("carry", "last", "told"),
    [(AnchorForm.NONE, b"bad", [0, 1, 2]), (AnchorForm.NONE, b"c", []), (AnchorForm.PACKED, b"c", [0, 1, 2])],
)
def test_lines_are_told_where_a_record_failed_and_of_all_that_goes_on_to_other_tasks(
    monkeypatch: pytest.MonkeyPatch, carry: AnchorForm, last: bytes, told: list[int]
) -> None:
    steps = (Step("careful", Careful(), pa.schema([("value", pa.binary())])),)
    narrow = Chain(steps, arriving_form=AnchorForm.PACKED, leaving_form=carry).stage
    found = read(
        monkeypatch, b"a", b"b", last, order={SOURCE: LineUp("key")}, sealed_stage=SealedStage(narrow)
    )
    [lined_records] = found.report.lined_records
    assert lined_records.indices.tolist() == told
    assert found.values == [b"a", b"b", last][: 2 + (last != b"bad")]


@pytest.mark.parametrize("by", ["key", "partition"])
def test_a_record_that_fails_holds_back_its_own_partition_alone(
    monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """A task reads several partitions, one after the other; all records have the same key."""
    sources = (SOURCE, SOURCE + 1, SOURCE + 2)
    line_ups = {SOURCE: LineUp(by), SOURCE + 1: LineUp(by), SOURCE + 2: LineUp(by)}
    steps = (Step("careful", Careful(), pa.schema([("value", pa.binary())])),)
    narrow = SealedStage(Chain(steps, arriving_form=AnchorForm.PACKED, leaving_form=AnchorForm.NONE).stage)
    found = read(monkeypatch, b"a", b"bad", b"c", order=line_ups, sources=sources, sealed_stage=narrow)
    assert found.values == [b"a"] * 3
    waits = {cause.message: roots for cause, roots in found.failed.items() if cause.error == HELD}
    assert waits == {"waits for lines/0@1": [2], "waits for lines/1@1": [5], "waits for lines/2@1": [8]}
    lined_records = found.report.lined_records
    partition_names = [of_task.partition_name for of_task in lined_records]
    assert partition_names == ["lines/0", "lines/1", "lines/2"]
    assert [of_task.indices.tolist() for of_task in lined_records] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
    ]


def test_copies_are_reported_with_their_first_emissions_and_other_records_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = copies_source(SOURCE)
    report = decode(encode(read(monkeypatch, b"a", None, b"b", source=copies).report))
    marks = report.marks.of(*(kind for kind in RootMark if kind is not RootMark.FAILED))
    assert {row.kind for row in marks.rows()} == {RootMark.FIRST_EMITTED}
    assert (marks.sources.tolist(), marks.positions.tolist()) == ([copies] * 2, [0, 2])
    assert marks.values.tolist() == [1_000, 1_002]
    assert len(read(monkeypatch, b"a", b"b").report.marks) == 0


def test_sampled_traces_are_reported_where_the_driver_writes_spans_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = b"a", b"b", b"c", b"d"
    marks = decode(encode(read(monkeypatch, *values, traced=True).report)).marks
    assert {row.kind for row in marks.rows()} == {RootMark.TRACED}
    assert (marks.sources.tolist(), marks.positions.tolist()) == ([SOURCE] * 3, [1] * 3)
    assert marks.values.astype("<i8").tobytes().hex() == f"{7:032x}{5:016x}"
    assert len(read(monkeypatch, *values).report.marks) == 0
    monkeypatch.setattr(read_task, "TRACED_MAX", 0)
    assert len(read(monkeypatch, *values, traced=True).report.marks) == 0


class Timed(BasicBolt):
    """Emits a time for each record, and none for an empty one."""

    output = pa.schema([("value", pa.binary()), ("at", pa.timestamp("ms", "UTC"))])

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        value = tuple["value"]
        collector.emit((value, datetime.fromtimestamp(int(value), UTC) if value else None))


def test_the_highest_time_is_reported_with_the_record_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """O1503: so that a watermark that drops others can be traced to it."""
    monkeypatch.setattr(Log, "times", {1: 9_000, 3: 1_924_992_000_000, 4: 8})
    found = decode(encode(read(monkeypatch, b"a", b"b", b"c", b"d", b"e").report))
    assert found.highest_times == (HighestTime("timestamp", 1_924_992_000_000, SourceRun(SOURCE, 3, 4)),)
    assert read(monkeypatch, b"a", b"b", tracked=False).reports == [None]


def test_behind_bolts_the_highest_time_is_known_of_a_chunk_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """O1503: they may emit any number of rows for a record."""
    narrow = Chain(
        (Step("timed", Timed(), Timed.output),), arriving_form=AnchorForm.PACKED, leaving_form=AnchorForm.NONE
    ).stage
    values = (b"7", b"9", b"8", b"", b"6")
    found = read(monkeypatch, *values, sealed_stage=SealedStage(narrow)).report
    assert found.highest_times == (HighestTime("at", 9_000, SourceRun(SOURCE, 0, 2)),)
    assert read(monkeypatch, b"", sealed_stage=SealedStage(narrow)).report.highest_times == ()


def test_tracked_when_is_not_asked_where_nothing_is_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b"a", None, b"debug", tracked=False)
    assert found.values == [b"a", None, b"debug"]
    assert found.reports == [None]

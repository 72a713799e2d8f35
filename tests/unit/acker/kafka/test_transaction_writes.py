"""What a transaction writes, and writes again behind one that was undone; when it waits, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from acker.errors import (
    Aborted,
    Fenced,
    LogError,
    NotAuthenticated,
    NotAuthorized,
    PartitionStands,
    RecordRefused,
    Unreachable,
)
from acker.kafka.client import WAIT_MS_MAX
from acker.kafka.port import Operation, Outgoing, UnreadableName
from acker.kafka.transactions import FLUSH_PIECE_S, SERVED_EVERY, KafkaTransactions
from acker.kafka.writer import CONNECT_MS, DEFAULTS, FORCED
from tests.support.fake_consumer import kafka_sleep
from tests.support.given_client import GivenClient
from tests.support.steady_clock import SteadyClock

PATIENCE_MS = 30_000
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
NO_RIGHT = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
UNDONE = KafkaError(KafkaError._INCONSISTENT, "1 message(s) failed delivery", txn_requires_abort=True)
FENCED = KafkaError(KafkaError._FENCED, "another instance", fatal=True)
FATAL = KafkaError(KafkaError._FATAL, "the producer is dead", fatal=True)


@dataclass
class Librdkafka:
    """librdkafka's transactional producer, and what is in the log.

    Attributes:
        committed: the values of each transaction that committed.
        undone: the values of each transaction that was aborted.
        refused: topics whose records the client refuses at once, and why.
        answers: what calls raise the next times, by their name; None: nothing.
        failed: why the open transaction must be aborted.
        is_full: how often the queue is full yet.
        stuck: topics whose records stay in the queue.
        reports_late: whether delivery reports wait for a poll.
        leaderless: topics whose partitions have no leader.
        polls: the timeouts of all polls, in seconds.
        calls: the names of the calls of the transactional API, with their timeouts.
    """

    clock: SteadyClock = field(default_factory=SteadyClock)
    settings: dict[str, Any] = field(default_factory=dict)
    committed: list[list[bytes | None]] = field(default_factory=list)
    undone: list[list[bytes | None]] = field(default_factory=list)
    refused: dict[str, KafkaError] = field(default_factory=dict)
    answers: dict[str, list[KafkaError | None]] = field(default_factory=dict)
    failed: KafkaError | None = None
    is_full: int = 0
    stuck: set[str] = field(default_factory=set)
    reports_late: bool = False
    leaderless: set[str] = field(default_factory=set)
    polls: list[float] = field(default_factory=list)
    calls: list[tuple[str, float]] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    _open: list[tuple[str, bytes | None, Callable[..., None] | None]] | None = None
    _queued: list[tuple[str, bytes | None, Callable[..., None] | None]] = field(default_factory=list)
    _reports: list[Callable[[], None]] = field(default_factory=list)
    _next_offset: int = 0

    def _answer(self, call: str, timeout_s: float = 0.0) -> None:
        self.calls.append((call, timeout_s))
        answers = self.answers.get(call, [])
        if answers and (error := answers.pop(0)) is not None:
            if error.code() == KafkaError._TIMED_OUT:
                self.clock.now_s += timeout_s
            raise KafkaException(error)

    def cluster_id(self, timeout_s: float) -> str:
        self._answer("cluster_id", timeout_s)
        return "cluster"

    def poll(self, timeout_s: float) -> None:
        self.polls.append(timeout_s)
        answers = self.answers.get("poll", [])
        if answers and (error := answers.pop(0)) is not None:
            raise KafkaException(error)
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        if not reports:
            self.clock.now_s += timeout_s

    def init_transactions(self, timeout_s: float) -> None:
        self._answer("init_transactions", timeout_s)

    def begin_transaction(self) -> None:
        if self.failed is not None:
            raise KafkaException(self.failed)
        if self._open is not None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Transaction already in progress"))
        self._answer("begin_transaction")
        self._open, self._queued = [], []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        on_delivery: Callable[..., None] | None,
        **options: Any,
    ) -> None:
        if self.is_full:
            self.is_full -= 1
            raise BufferError
        if topic in self.refused:
            raise KafkaException(self.refused[topic])
        self.options.append(options)
        self._queued.append((topic, value, on_delivery))

    def __len__(self) -> int:
        return len(self._queued)

    def flush(self, timeout_s: float) -> int:
        self.calls.append(("flush", timeout_s))
        self._deliver()
        if self._queued:
            self.clock.now_s += timeout_s
        return len(self._queued)

    def _deliver(self) -> None:
        queued, self._queued = self._queued, []
        for topic, value, on_delivery in queued:
            if topic in self.stuck:
                self._queued.append((topic, value, on_delivery))
                continue
            if self._open is not None:
                self._open.append((topic, value, on_delivery))
            offset, self._next_offset = self._next_offset, self._next_offset + 1
            if on_delivery is not None:
                message = Message(topic=topic, partition=0, offset=offset)
                report = lambda told=on_delivery, message=message: told(None, message)  # noqa: E731
                self._reports.append(report) if self.reports_late else report()

    def commit_transaction(self, timeout_s: float) -> None:
        if self.failed is not None:
            self.calls.append(("commit_transaction", timeout_s))
            raise KafkaException(self.failed)
        if self.leaderless:
            self.calls.append(("commit_transaction", timeout_s))
            self.clock.now_s += timeout_s
            raise KafkaException(TIMED_OUT)
        self._answer("commit_transaction", timeout_s)
        self._deliver()
        self.committed.append([value for _, value, _ in self._open or []])
        self._open = None

    def abort_transaction(self, timeout_s: float) -> None:
        self._answer("abort_transaction", timeout_s)
        self.failed = None
        records = [*(self._open or []), *self._queued]
        self.undone.append([value for _, value, _ in records])
        self._open, self._queued = None, []

    def list_topics(self, topic: str, _timeout_s: float) -> object:
        leader = -1 if topic in self.leaderless else 1
        partitions = {0: SimpleNamespace(leader=leader, replicas=[1])}
        brokers = {1: SimpleNamespace(host="kafka-1", port=9092)}
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)}, brokers=brokers)


def client_of(producer: Librdkafka) -> GivenClient:
    """Return a client that makes that producer in place of one that connects."""

    def make(settings: dict[str, Any]) -> Librdkafka:
        producer.settings = settings
        return producer

    return GivenClient(make, PATIENCE_MS, producer.clock, kafka_sleep(producer.clock))


def writer_of(producer: Librdkafka, forbidden: Collection[str] = ()) -> KafkaTransactions:
    """Return what writes with a producer; to some topics we have no right."""

    def forbids(operation: Operation, topics: Collection[str]) -> Collection[str]:
        assert operation is Operation.WRITE
        assert topics
        return [topic for topic in topics if topic in forbidden]

    return KafkaTransactions(client_of(producer), "replay-0", forbids)


def record(value: bytes, topic: str = "due") -> Outgoing:
    return Outgoing(topic, 0, value)


def send_in_turn(writer: KafkaTransactions, *values: bytes) -> None:
    """Send records, one by one, all at once, and with a question for the offset, in turn."""
    for number, value in enumerate(values):
        match number % 3:
            case 0:
                writer.send(record(value))
            case 1:
                writer.send_all(iter([record(value)]))
            case _:
                writer.send(record(value), lambda _offset: None)


# what is written --------------------------------------------------------------------------------------------


def test_each_transaction_has_what_was_sent_in_it_and_nothing_of_another() -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    writer.init(PATIENCE_MS)
    for values in ([b"a", b"b", b"c", b"d"], [], [b"e"]):
        writer.begin()
        send_in_turn(writer, *values)
        writer.commit(PATIENCE_MS)
    writer.begin()
    writer.send(record(b"no"))
    writer.abort(PATIENCE_MS)
    writer.abort(PATIENCE_MS)
    assert producer.committed == [[b"a", b"b", b"c", b"d"], [], [b"e"]]
    assert producer.undone == [[b"no"]], "a second abort has nothing to undo"


@pytest.mark.parametrize("step", ["flush", "commit"])
@pytest.mark.parametrize("undone_before", [0, 1, 2])
def test_what_follows_an_undone_transaction_is_written_once_more_if_it_is_undone_too(
    step: str, undone_before: int
) -> None:
    """librdkafka counts sequence numbers on that it never sent, and the broker refuses the next ones."""
    producer = Librdkafka()
    writer = writer_of(producer)
    for _ in range(undone_before):
        writer.begin()
        writer.send(record(b"undone"))
        writer.abort(PATIENCE_MS)
    writer.begin()
    send_in_turn(writer, b"a", b"b")
    if step == "flush":
        writer.flush(PATIENCE_MS)
    send_in_turn(writer, b"c", b"d", b"e")
    producer.failed = UNDONE
    if not undone_before:
        with pytest.raises(Aborted, match=r"committing a transaction of replay-0: aborted instead"):
            writer.commit(PATIENCE_MS)
        assert producer.committed == []
        return
    writer.commit(PATIENCE_MS)
    assert producer.committed == [[b"a", b"b", b"c", b"d", b"e"]]
    assert [call for call, _ in producer.calls].count("flush") == (2 if step == "flush" else 0)
    writer.begin()
    writer.send(record(b"f"))
    producer.failed = UNDONE
    with pytest.raises(Aborted):
        writer.commit(PATIENCE_MS)
    assert producer.committed == [[b"a", b"b", b"c", b"d", b"e"]], "one that committed is followed as ever"


def test_a_transaction_is_written_once_more_and_no_third_time() -> None:
    producer = Librdkafka(answers={"commit_transaction": [UNDONE, UNDONE, UNDONE]})
    writer = writer_of(producer)
    writer.begin()
    with pytest.raises(Aborted):
        writer.commit(PATIENCE_MS)
    writer.begin()
    writer.send(record(b"a"))
    with pytest.raises(Aborted):
        writer.commit(PATIENCE_MS)
    assert producer.undone == [[], [b"a"], [b"a"]]


def test_records_without_end_are_read_once_also_where_they_are_written_again() -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    writer.begin()
    writer.abort(PATIENCE_MS)
    writer.begin()
    writer.send_all(record(b"%d" % number) for number in range(3))
    producer.failed = UNDONE
    writer.commit(PATIENCE_MS)
    assert producer.committed == [[b"0", b"1", b"2"]]


@pytest.mark.parametrize("undone_before", [0, 1])
@pytest.mark.parametrize("refused_number", [0, 1, 2])
def test_a_record_that_the_client_refuses_undoes_its_transaction_and_no_other(
    undone_before: int, refused_number: int
) -> None:
    """Nor is it written again: it would be refused again."""
    producer = Librdkafka(refused={"large": TOO_LARGE})
    writer = writer_of(producer)
    if undone_before:
        writer.begin()
        writer.abort(PATIENCE_MS)
    for all_at_once in (False, True):
        writer.begin()
        records = [record(b"v", "large" if number == refused_number else "due") for number in range(3)]
        if all_at_once:
            writer.send_all(records)
        else:
            for sent in records:
                writer.send(sent)
        with pytest.raises(
            RecordRefused, match=r"transaction of replay-0 aborted: writing large/0: "
        ) as raised:
            writer.commit(PATIENCE_MS)
        assert raised.value.reason.startswith("MSG_SIZE_TOO_LARGE: ")
        assert producer.undone[-1] == [b"v", b"v"]
    writer.begin()
    writer.send(record(b"fine"))
    writer.commit(PATIENCE_MS)
    assert producer.committed == [[b"fine"]]


def test_of_several_refused_records_the_first_is_named() -> None:
    producer = Librdkafka(refused={"large": TOO_LARGE, "secret": NO_RIGHT})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"v", "large"))
    writer.send(record(b"v", "secret"))
    with pytest.raises(RecordRefused, match="writing large/0"):
        writer.commit(PATIENCE_MS)


# offsets of records -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reports_late", [True, False])
def test_offsets_are_handed_out_after_the_commit_each_to_who_asked_for_it(reports_late: bool) -> None:
    producer = Librdkafka(reports_late=reports_late)
    writer = writer_of(producer)
    offsets: dict[bytes, int] = {}
    for start in (0, 3):
        writer.begin()
        for value in (b"a", b"b", b"c"):
            asked = None if value == b"b" else lambda offset, value=value: offsets.update({value: offset})
            writer.send(record(value), asked)
        before = dict(offsets)
        producer.flush(1.0)
        assert offsets == before, "not before the commit: it may be undone"
        writer.commit(PATIENCE_MS)
        assert offsets == {b"a": start, b"c": start + 2}


def test_the_reports_of_an_undone_transaction_give_no_offset_to_the_next_one() -> None:
    producer = Librdkafka(reports_late=True)
    writer = writer_of(producer)
    offsets: list[int] = []
    writer.begin()
    writer.send(record(b"undone"), offsets.append)
    producer.flush(1.0)
    writer.abort(PATIENCE_MS)
    writer.begin()
    writer.send(record(b"a"), offsets.append)
    writer.commit(PATIENCE_MS)
    assert offsets == [1]


def test_a_report_that_does_not_come_is_waited_for_until_the_deadline() -> None:
    producer = Librdkafka(stuck={"due"})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"), lambda _offset: None)
    begun_s = producer.clock.now_s
    with pytest.raises(Unreachable, match=r"a transaction of replay-0: .* 2000 ms .*1 reports are missing"):
        writer.commit(2_000)
    assert producer.clock.now_s - begun_s == pytest.approx(2.0, abs=0.1)
    assert max(producer.polls) == 0.05
    assert min(wait_s for wait_s in producer.polls if wait_s) > 0


def test_a_refused_report_is_no_offset() -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    offsets: list[int] = []
    writer.begin()
    writer.send(record(b"a"), offsets.append)
    _, _, on_delivery = producer._queued.pop()
    assert on_delivery is not None
    on_delivery(TOO_LARGE, Message(topic="due", partition=0, offset=5))
    writer.commit(PATIENCE_MS)
    assert offsets == []


def test_records_whose_offsets_are_asked_for_may_not_be_flushed() -> None:
    writer = writer_of(Librdkafka(stuck={"due"}))
    writer.begin()
    writer.send(record(b"a"), lambda _offset: None)
    with pytest.raises(LogError, match="replay-0: flush before records whose offsets are asked for"):
        writer.flush(PATIENCE_MS)


# waits ------------------------------------------------------------------------------------------------------


def test_a_flush_waits_until_all_is_written_and_looks_often_whether_the_transaction_is_sound() -> None:
    producer = Librdkafka(stuck={"due"})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"))
    with pytest.raises(Unreachable, match=r"a transaction of replay-0: .*5000 ms .*1 records are not ack"):
        writer.flush(5_000)
    waits_s = [timeout_s for call, timeout_s in producer.calls if call == "flush"]
    assert max(waits_s) == FLUSH_PIECE_S
    assert len(waits_s) == pytest.approx(5 / FLUSH_PIECE_S, abs=2)
    producer.stuck.clear()
    writer.flush(5_000)
    producer.stuck.add("due")
    writer.send(record(b"b"))
    producer.failed = UNDONE
    begun_s = producer.clock.now_s
    with pytest.raises(Aborted):
        writer.flush(PATIENCE_MS)
    assert producer.clock.now_s - begun_s <= FLUSH_PIECE_S + 0.01
    assert producer.undone == [[b"a", b"b"]]


def test_a_flush_without_records_asks_nobody() -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    writer.begin()
    writer.flush(PATIENCE_MS)
    assert [call for call, _ in producer.calls] == ["begin_transaction"]


def test_a_partition_without_a_leader_is_named_by_flush_and_by_commit() -> None:
    producer = Librdkafka(leaderless={"due"}, stuck={"due"})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"))
    writer.send(record(b"b", "other"))
    what = "due/0 has no leader: its replicas are on broker 1"
    with pytest.raises(PartitionStands, match=f"writing a .* replay-0 within 1000 ms: {what}; start"):
        writer.flush(1_000)
    with pytest.raises(PartitionStands, match=f"committing a .* replay-0 within 2000 ms: {what}; start"):
        writer.commit(2_000)


def test_a_commit_that_nobody_answers_leaves_its_outcome_open() -> None:
    producer = Librdkafka(answers={"commit_transaction": [TIMED_OUT] * 9})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"))
    begun_s = producer.clock.now_s
    with pytest.raises(Unreachable, match=r"committing a transaction of replay-0: .* within 10000 ms"):
        writer.commit(10_000)
    assert producer.clock.now_s - begun_s == pytest.approx(10.0, abs=0.1)
    waits_s = [timeout_s for call, timeout_s in producer.calls if call == "commit_transaction"]
    assert max(waits_s) == WAIT_MS_MAX / 1000
    assert producer.undone == []


def test_a_full_queue_is_waited_for_as_long_as_an_operation_may_take() -> None:
    producer = Librdkafka(is_full=3)
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"))
    writer.commit(PATIENCE_MS)
    assert producer.committed == [[b"a"]]
    writer.begin()
    producer.stuck.add("due")
    writer.send(record(b"b"))
    producer.is_full = 1 << 30
    begun_s = producer.clock.now_s
    with pytest.raises(Unreachable, match=r"writing due/0: .* within 30000 ms \(the queue stays full\)"):
        writer.send(record(b"c"))
    assert producer.clock.now_s - begun_s == pytest.approx(PATIENCE_MS / 1000, abs=0.1)


@pytest.mark.parametrize("all_at_once", [True, False])
def test_callbacks_run_now_and_then_while_many_records_are_sent(all_at_once: bool) -> None:
    """A poll costs more than a record; without any the reports would pile up."""
    producer = Librdkafka()
    writer = writer_of(producer)
    writer.begin()
    for _ in range(2):
        records = [record(b"v")] * (SERVED_EVERY * 5 // 2)
        if all_at_once:
            writer.send_all(records)
        else:
            for sent in records:
                writer.send(sent)
    assert producer.polls == [0] * (4 if all_at_once else 5)


def test_what_a_poll_raises_meanwhile_is_for_the_commit() -> None:
    producer = Librdkafka(answers={"poll": [NO_RIGHT]})
    writer = writer_of(producer)
    writer.begin()
    writer.send_all([record(b"v")] * SERVED_EVERY)
    with pytest.raises(NotAuthorized, match="writing to due: the right to Write on Topic due is missing"):
        writer.commit(PATIENCE_MS)


# taking over, and being taken over --------------------------------------------------------------------------


def test_taking_over_waits_a_moment_for_a_broker_and_then_until_its_deadline() -> None:
    producer = Librdkafka(answers={"init_transactions": [TIMED_OUT] * 99, "cluster_id": [TIMED_OUT]})
    writer = writer_of(producer)
    begun_s = producer.clock.now_s
    with pytest.raises(Unreachable, match=r"taking over a transaction of replay-0: .* within 10000 ms"):
        writer.init(10_000)
    assert producer.clock.now_s - begun_s == pytest.approx(10.0, abs=0.1)
    assert producer.calls[0] == ("cluster_id", CONNECT_MS / 1000)
    assert [call for call, _ in producer.calls].count("cluster_id") == 1
    writer = writer_of(short := Librdkafka())
    writer.init(400)
    assert short.calls[0] == ("cluster_id", 0.4)
    assert short.calls[1] == ("init_transactions", pytest.approx(0.4))


def test_a_broker_that_lets_nobody_in_is_not_waited_for() -> None:
    producer = Librdkafka(answers={"cluster_id": [TIMED_OUT], "init_transactions": [TIMED_OUT] * 99})
    writer = writer_of(producer)
    producer.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    with pytest.raises(NotAuthenticated, match="connecting: no connection to kafka:9092 was accepted"):
        writer.init(10_000)
    assert "init_transactions" not in dict(producer.calls)


def test_a_broker_that_has_let_us_in_may_change_its_mind() -> None:
    """A poll behind the first answer tells what the client's threads have seen."""
    refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
    producer = Librdkafka(answers={"init_transactions": [TIMED_OUT, None]})
    writer = writer_of(producer)
    producer.settings["error_cb"](refused)
    writer.init(10_000)
    assert producer.polls[0] == 0
    assert [call for call, _ in producer.calls].count("init_transactions") == 2


def test_a_missing_right_to_a_topic_is_named_though_the_commit_does_not_name_it() -> None:
    producer = Librdkafka(answers={"commit_transaction": [NO_RIGHT]})
    writer = writer_of(producer, forbidden=["due"])
    writer.begin()
    writer.send(record(b"a"))
    with pytest.raises(NotAuthorized, match=r"committing .* the right to Write on Topic due is missing"):
        writer.commit(PATIENCE_MS)
    assert producer.undone == [[b"a"]]


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction", "begin_transaction"])
def test_who_was_taken_over_learns_it_in_every_call_from_then_on(call: str) -> None:
    producer = Librdkafka(answers={call: [FENCED]} if call != "begin_transaction" else {})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"))
    if call == "abort_transaction":
        with pytest.raises(Fenced, match="another process owns this transactional id now"):
            writer.abort(PATIENCE_MS)
    elif call == "commit_transaction":
        with pytest.raises(Fenced, match="another process owns this transactional id now"):
            writer.commit(PATIENCE_MS)
    else:
        producer.failed = FENCED
        with pytest.raises(Fenced, match="writing a transaction of replay-0: another process owns"):
            writer.flush(PATIENCE_MS)
    calls = len(producer.calls)
    for again in (
        writer.begin,
        lambda: writer.send(record(b"b")),
        lambda: writer.send_all([record(b"b")]),
        lambda: writer.flush(PATIENCE_MS),
        lambda: writer.commit(PATIENCE_MS),
    ):
        with pytest.raises(Fenced, match="another process owns this transactional id now"):
            again()
    writer.abort(PATIENCE_MS)
    assert len(producer.calls) == calls, "the producer is asked for nothing"


def test_what_killed_the_producer_is_told_and_not_only_that_it_is_dead() -> None:
    producer = Librdkafka(answers={"commit_transaction": [FATAL], "poll": [FENCED]})
    writer = writer_of(producer)
    writer.begin()
    with pytest.raises(Fenced, match=r"another process owns this transactional id now \(_FENCED"):
        writer.commit(PATIENCE_MS)


def test_an_error_that_is_no_silence_and_no_death_is_told_as_it_is() -> None:
    refusal = KafkaError(KafkaError._INVALID_ARG, "no")
    producer = Librdkafka(answers={"commit_transaction": [refusal], "poll": [FENCED]})
    writer = writer_of(producer)
    writer.begin()
    with pytest.raises(LogError, match="_INVALID_ARG: no"):
        writer.commit(PATIENCE_MS)
    assert producer.polls == []


@pytest.mark.parametrize(
    "call",
    [
        lambda writer: writer.send(record(b"a")),
        lambda writer: writer.send_all([record(b"a")]),
        lambda writer: writer.flush(PATIENCE_MS),
        lambda writer: writer.commit(PATIENCE_MS),
    ],
)
@pytest.mark.parametrize("before", ["nothing", "commit", "abort"])
def test_outside_of_a_transaction_nothing_is_written(
    call: Callable[[KafkaTransactions], None], before: str
) -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    if before != "nothing":
        writer.begin()
        writer.commit(PATIENCE_MS) if before == "commit" else writer.abort(PATIENCE_MS)
    with pytest.raises(LogError, match="transactional id replay-0 has no open transaction; call begin first"):
        call(writer)
    assert len(producer) == 0


@pytest.mark.parametrize("code", [KafkaError._INCONSISTENT, KafkaError._STATE])
@pytest.mark.parametrize("forbidden", [(), ("other",), ("due", "other")])
def test_a_transaction_that_is_undone_without_a_reason_is_asked_for_a_missing_right(
    code: int, forbidden: tuple[str, ...]
) -> None:
    """Only of topics that it has written to; without one the error is what it was."""
    undone = KafkaError(code, "failed", txn_requires_abort=True)
    producer = Librdkafka(answers={"commit_transaction": [undone]})
    writer = writer_of(producer, forbidden)
    writer.begin()
    writer.send(record(b"a"))
    expected = NotAuthorized if "due" in forbidden else Aborted
    with pytest.raises(expected):
        writer.commit(PATIENCE_MS)
    assert producer.undone == [[b"a"]]


def test_a_missing_right_to_the_id_undoes_the_transaction_and_is_told() -> None:
    no_id = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer = Librdkafka(answers={"commit_transaction": [no_id], "abort_transaction": [no_id]})
    writer = writer_of(producer)
    writer.begin()
    writer.send(record(b"a"))
    with pytest.raises(NotAuthorized, match="the right to Write on TransactionalId replay-0 is missing"):
        writer.commit(PATIENCE_MS)
    assert [call for call, _ in producer.calls].count("abort_transaction") == 1


def test_a_right_is_looked_for_only_to_topics_of_the_transaction_that_was_undone() -> None:
    producer = Librdkafka()
    writer = writer_of(producer, forbidden=["due"])
    writer.begin()
    writer.send(record(b"a"))
    writer.commit(PATIENCE_MS)
    for topics in (["other"], []):
        writer.begin()
        writer.send_all(record(b"b", topic) for topic in topics)
        producer.failed = UNDONE
        with pytest.raises(Aborted):
            writer.flush(PATIENCE_MS) if topics else writer.commit(PATIENCE_MS)
        writer.begin()
        writer.commit(PATIENCE_MS)


# what goes to the client ------------------------------------------------------------------------------------


def test_times_and_headers_go_with_a_record_and_a_name_that_nobody_can_write_is_an_error() -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    writer.begin()
    writer.send(Outgoing("due", 0, b"v", None, (("h", b"1"), ("h", None)), 77))
    writer.send(Outgoing("due", 0, b"v"))
    assert producer.options == [
        {"timestamp": 77, "headers": [("h", b"1"), ("h", None)]},
        {"timestamp": 0, "headers": None},
    ]
    with pytest.raises(LogError, match="due/0"):
        writer.send(Outgoing("due", 0, b"v", None, ((UnreadableName.of(b"\xff"), b"1"),)))


def test_every_write_is_confirmed_by_all_replicas_and_counted() -> None:
    producer = Librdkafka()
    writer_of(producer)
    assert producer.settings["transactional.id"] == "replay-0"
    assert {name: producer.settings[name] for name in FORCED} == dict(FORCED)
    assert producer.settings["acks"] == "all"
    assert producer.settings["enable.idempotence"] is True
    assert producer.settings["max.in.flight.requests.per.connection"] == 1
    assert DEFAULTS.items() <= producer.settings.items()


def test_a_closed_writer_lets_its_client_go() -> None:
    producer = Librdkafka()
    writer = writer_of(producer)
    writer.begin()
    writer.close()
    writer.close()
    with pytest.raises(AttributeError):
        writer.abort(PATIENCE_MS)
    assert producer.undone == [], "an open transaction stays as it is"

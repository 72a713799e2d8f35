"""How a transaction ends that did not commit: what is told, and what its producer may do afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.errors import Aborted, LogError, NotAuthorized, RecordRefused, Unreachable
from acker.kafka.port import Operation, Outgoing, OutgoingColumns, UnreadableName
from acker.kafka.transactions import KafkaTransactions
from tests.support.given_client import GivenClient

NO_TRANSACTION = KafkaError(KafkaError.INVALID_TXN_STATE, "Failed to end transaction", fatal=True)
"""What an abort comes to that overtakes the request with which the transaction would have begun."""

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "too late", txn_requires_abort=True)
REFUSED = KafkaError(KafkaError._INCONSISTENT, "1 message(s) failed delivery", txn_requires_abort=True)


class Producer:
    """Answers each call of the transactional API as it was told to."""

    def __init__(self, answers: Mapping[str, KafkaError]) -> None:
        self.answers = dict(answers)
        self.calls: list[str] = []

    def list_topics(self, topic: str, _timeout_s: float) -> object:
        """Say nothing of who leads it."""
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, topic))

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*args: object, **options: object) -> None:
            self.calls.append(name)
            if name in self.answers:
                raise KafkaException(self.answers[name])

        return call


def client_of(producer: Producer) -> GivenClient:
    """Return a client that makes that producer in place of one that connects."""
    return GivenClient(lambda _settings: producer, 1_000, lambda: 0.0)


def begun(
    answers: Mapping[str, KafkaError], forbidden: Collection[str] = ()
) -> tuple[KafkaTransactions, Producer]:
    """Return transactions with an open one, in which there is a record."""
    producer = Producer(answers)

    def forbids(operation: Operation, topics: Collection[str]) -> Collection[str]:
        return [topic for topic in topics if topic in forbidden]

    transactions = KafkaTransactions(client_of(producer), "replay-0", forbids)
    transactions.begin()
    transactions.send(Outgoing("due", 0, b"value"))
    return transactions, producer


def test_what_is_aborted_may_be_begun_again() -> None:
    transactions, producer = begun({"commit_transaction": TIMED_OUT})

    with pytest.raises(Aborted):
        transactions.commit(1000)

    transactions.begin()
    assert producer.calls.count("begin_transaction") == 2


def test_a_producer_that_dies_of_its_abort_leaves_the_outcome_to_a_new_owner() -> None:
    """That is no refusal to end the process for: the coordinator knows of no transaction to end."""
    transactions, producer = begun({"commit_transaction": TIMED_OUT, "abort_transaction": NO_TRANSACTION})

    with pytest.raises(Unreachable, match=r"INVALID_TXN_STATE.*make a new owner, and look"):
        transactions.commit(1000)

    transactions.abort(1000)
    for call in (transactions.begin, lambda: transactions.send(Outgoing("due", 0, b"value"))):
        with pytest.raises(Unreachable, match="make a new owner"):
            call()
    assert producer.calls.count("begin_transaction") == 1


@pytest.mark.parametrize("abort", [{}, {"abort_transaction": NO_TRANSACTION}], ids=["aborted", "dead"])
def test_a_missing_right_is_told_whatever_becomes_of_the_abort(abort: Mapping[str, KafkaError]) -> None:
    transactions, _ = begun({"commit_transaction": REFUSED, **abort}, forbidden=["due"])

    with pytest.raises(NotAuthorized, match="the right to Write on Topic due is missing"):
        transactions.commit(1000)


@pytest.mark.parametrize("abort", [{}, {"abort_transaction": NO_TRANSACTION}], ids=["aborted", "dead"])
def test_a_record_that_was_refused_at_once_is_told_whatever_becomes_of_the_abort(
    abort: Mapping[str, KafkaError],
) -> None:
    refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    transactions, _ = begun({"produce": refused, **abort})

    with pytest.raises(NotAuthorized, match="the right to Write on Topic due is missing"):
        transactions.commit(1000)


TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class PickyProducer(Producer):
    """Keeps what it takes, and does not take some values: the first time, or ever."""

    def __init__(self, *, full_at: Collection[bytes] = (), refused: Collection[bytes] = ()) -> None:
        super().__init__({})
        self.full_at = set(full_at)
        self.refused = refused
        self.taken: list[tuple[object, ...]] = []

    def produce(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        callback: None = None,
        on_delivery: None = None,
        timestamp: int = 0,
        headers: object = None,
    ) -> None:
        if value in self.full_at:
            self.full_at.remove(value)
            raise BufferError
        if value in self.refused:
            raise KafkaException(TOO_LARGE)
        self.taken.append((topic, value, key, partition, timestamp, headers))


def _sent_by_columns(producer: PickyProducer, columns: OutgoingColumns) -> KafkaTransactions:
    transactions = KafkaTransactions(client_of(producer), "sink", lambda _operation, _topics: ())
    transactions.begin()
    transactions.send_columns(columns)
    return transactions


NUMBERED = OutgoingColumns("words", [n % 4 for n in range(2_500)], [b"%d" % n for n in range(2_500)])
ALL_TAKEN = [("words", b"%d" % n, None, n % 4, 0, None) for n in range(2_500)]


@pytest.mark.parametrize(
    "full_at",
    [[b"0"], [b"1234"], [b"2499"], [b"0", b"999", b"1000", b"1001", b"2499"]],
    ids=["the first", "a middle one", "the last", "several"],
)
def test_a_record_that_finds_the_queue_full_is_queued_again_once_and_in_its_place(
    full_at: list[bytes],
) -> None:
    producer = PickyProducer(full_at=full_at)
    transactions = _sent_by_columns(producer, NUMBERED)
    transactions.commit(1000)
    assert producer.taken == ALL_TAKEN


@pytest.mark.parametrize("refused", [b"0", b"1234", b"2499"])
def test_a_refused_record_of_columns_is_told_by_the_commit_and_the_others_are_queued(refused: bytes) -> None:
    producer = PickyProducer(refused=[refused])
    transactions = _sent_by_columns(producer, NUMBERED)
    with pytest.raises(RecordRefused, match=rf"writing words/{int(refused) % 4}: .*MSG_SIZE_TOO_LARGE"):
        transactions.commit(1000)
    assert producer.taken == [taken for taken in ALL_TAKEN if taken[1] != refused]
    assert "commit_transaction" not in producer.calls


def test_keys_times_and_headers_of_columns_go_to_the_client_as_they_are() -> None:
    columns = OutgoingColumns(
        "words",
        [0, 1, 2],
        [b"", None, b"v"],
        [b"", None, b"k"],
        [(), (("name", None),), (("name", b"\x00"), ("name", b""))],
        [None, 0, 5],
    )
    producer = PickyProducer()
    _sent_by_columns(producer, columns)
    assert producer.taken == [
        ("words", b"", b"", 0, 0, None),
        ("words", None, None, 1, 0, [("name", None)]),
        ("words", b"v", b"k", 2, 5, [("name", b"\x00"), ("name", b"")]),
    ]


def test_a_name_of_a_header_that_no_client_can_write_is_refused_among_columns_too() -> None:
    columns = OutgoingColumns("words", [0], [b"v"], headers=[((UnreadableName("\\xff"), b""),)])
    with pytest.raises(LogError, match="no UTF-8"):
        _sent_by_columns(PickyProducer(), columns)


def test_columns_of_a_transaction_that_was_undone_are_written_once_more() -> None:
    """As all writes behind one that was aborted: librdkafka's sequence numbers have a gap there."""
    producer = PickyProducer(refused=[b"1234"])
    transactions = _sent_by_columns(producer, NUMBERED)
    with pytest.raises(RecordRefused):
        transactions.commit(1000)
    producer.refused = ()
    producer.taken.clear()

    transactions.begin()
    transactions.send_columns(NUMBERED)
    producer.answers["commit_transaction"] = TIMED_OUT
    with pytest.raises(Aborted):
        transactions.commit(1000)
    assert producer.taken == ALL_TAKEN * 2

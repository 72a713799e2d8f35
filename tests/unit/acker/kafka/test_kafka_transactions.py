"""How a transaction ends that did not commit: what is told, and what its producer may do afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.errors import Aborted, NotAuthorized, Unreachable
from acker.kafka.client import Background, KafkaClient, T
from acker.kafka.port import Operation, Outgoing
from acker.kafka.transactions import KafkaTransactions

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


class Client(KafkaClient):
    """Makes that producer instead of one that connects."""

    def __init__(self, producer: Producer) -> None:
        super().__init__({"bootstrap.servers": "kafka:9092"}, "test", 1000, lambda: 0.0)
        self._made: Any = producer

    def make_client(
        self,
        kind: Callable[[dict[str, Any]], T],
        defaults: Mapping[str, Any],
        forced: Mapping[str, Any],
        background: Background,
    ) -> T:
        made: T = self._made
        return made


def begun(
    answers: Mapping[str, KafkaError], forbidden: Collection[str] = ()
) -> tuple[KafkaTransactions, Producer]:
    """Return transactions with an open one, in which there is a record."""
    producer = Producer(answers)

    def forbids(operation: Operation, topics: Collection[str]) -> Collection[str]:
        return [topic for topic in topics if topic in forbidden]

    transactions = KafkaTransactions(Client(producer), "replay-0", forbids)
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

"""Items that wait and items that are open: who gets what, and what comes back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Message

from acker.config.topics import parse
from acker.errors import TupleError
from acker.identity import source_of
from acker.wire.events import Lost, pack_positions
from acker.wire.verdict import Verdict
from spout.standalone.item_records import ItemRecords
from spout.standalone.queues import ClientLimits, QueueCollection
from spout.standalone.store import Lease, PendingStore
from tests.support.worlds.kestrel_world import YAML

A = source_of(1, 0)


def store_of(count: int) -> PendingStore:
    """Make a store in which the items 0 to `count` - 1 wait."""
    store = PendingStore()
    store.add(0, count)
    return store


def opened(store: PendingStore, client: str, count: int, until_ms: int | None = None) -> Lease:
    """Open items that are there."""
    lease = store.open(client, count, until_ms)
    assert lease is not None
    return lease


def items_of(lease: Lease | None) -> list[int]:
    """Return the items of a lease that are open."""
    return [] if lease is None else [serial for run in lease.open_runs() for serial in range(*run)]


def test_an_open_item_is_hidden_and_a_confirmed_one_is_gone() -> None:
    """S154: open hides the item from others, confirm removes it, a second confirm does nothing."""
    store = store_of(1)
    lease = opened(store, "a", 1)
    assert store.open("b", 1) is None
    assert store.confirm("a", lease, 0)
    assert not store.confirm("a", lease, 0)
    assert store.put_back_of_client("a") == 0
    assert store.open("b", 1) is None


def test_what_is_put_back_comes_first_and_the_oldest_before_the_others() -> None:
    """S155: an aborted item is at the head, whatever came meanwhile."""
    store = store_of(6)
    lease = opened(store, "a", 4)
    assert store.put_back("a", lease, 2)
    assert store.put_back("a", lease, 1)
    assert items_of(store.open("b", 3)) == [1, 2, 4]
    assert items_of(lease) == [0, 3]
    assert not store.put_back("a", lease, 1)


def test_a_lease_is_put_back_after_its_time_unless_it_is_settled_before() -> None:
    """S157: three opened, the first and the third confirmed: only the second returns, at 500 ms."""
    store = store_of(3)
    lease = opened(store, "a", 3, until_ms=500)
    assert store.confirm("a", lease, 0)
    assert store.confirm("a", lease, 2)
    assert store.put_back_expired(499) == 0
    assert store.put_back_expired(500) == 1
    assert not store.confirm("a", lease, 1)
    again = opened(store, "a", 3, until_ms=1_000)
    assert items_of(again) == [1]
    assert store.put_back("a", again, 1)
    assert store.put_back_expired(2_000) == 0


def test_all_of_a_client_returns_when_it_leaves_and_nothing_of_the_others() -> None:
    """S159: always oldest first."""
    store = store_of(6)
    opened(store, "a", 2)
    other = opened(store, "b", 2)
    opened(store, "a", 1)
    assert store.put_back_of_client("a") == 3
    assert items_of(store.open("c", 10)) == [0, 1, 4, 5]
    assert items_of(other) == [2, 3]
    assert store.open_count_by_client() == {"b": 2, "c": 4}


def test_a_client_that_left_is_forgotten_and_its_items_count_nothing() -> None:
    """Clients with names of their own may come and go all the time."""
    store = store_of(3)
    lease = opened(store, "a", 1, until_ms=500)
    assert store.put_back_of_client("a") == 1
    assert not any("a" in value for value in vars(store).values() if isinstance(value, dict))
    assert store.put_back_expired(500) == 0
    assert store.confirm_all("a", lease) == []
    assert store.put_back_all("a", lease) == 0
    assert items_of(store.open("a", 3)) == [0, 1, 2]


def test_leases_that_were_settled_do_not_wait_for_their_deadlines() -> None:
    """With a long `auto_abort_ms` they would fill the memory; those that are open keep theirs."""
    store = store_of(5_001)
    kept = opened(store, "a", 1, until_ms=1_000)
    for serial in range(1, 5_001):
        assert store.confirm("a", opened(store, "a", 1, until_ms=1_000), serial)
    assert store.put_back_expired(0) == 0
    assert sum(isinstance(each, Lease) for each in gc.get_objects()) < 1_000
    assert store.put_back_expired(1_000) == 1
    assert items_of(kept) == []


def test_peek_changes_nothing() -> None:
    """S161: the next item is looked at and stays."""
    store = store_of(2)
    assert store.peek() == 0
    assert store.peek() == 0
    assert (store.waiting_count, store.open_count_by_client()) == (2, {})
    opened(store, "a", 2)
    assert store.peek() is None


def test_another_clients_item_is_refused_by_name() -> None:
    """S163, P43: to confirm, abort, fail or split what another client has open changes nothing."""
    store = store_of(2)
    lease = opened(store, "a", 2)
    for settle in (store.confirm, store.put_back, store.remove):
        with pytest.raises(TupleError, match="client 'b' settled what 'a' has open"):
            settle("b", lease, 0)
    for act_on_all in (store.confirm_all, store.put_back_all, store.remove_all):
        with pytest.raises(TupleError, match=r"'b'.*'a'"):
            act_on_all("b", lease)
    with pytest.raises(TupleError, match=r"'b'.*'a'"):
        store.split("b", lease, 0, 2)
    assert items_of(lease) == [0, 1]


def test_an_item_in_parts_is_settled_by_the_last_of_them() -> None:
    """S166: one item, two tuples: the first confirmation does not confirm the item."""
    store = store_of(1)
    lease = opened(store, "a", 1)
    assert store.split("a", lease, 0, 2)
    assert not store.confirm_part("a", lease, 0, 1)
    assert not store.confirm_part("a", lease, 0, 1)
    with pytest.raises(TupleError, match="1 parts are open"):
        store.confirm("a", lease, 0)
    with pytest.raises(TupleError, match="twice"):
        store.split("a", lease, 0, 2)
    assert items_of(lease) == [0]
    assert store.confirm_part("a", lease, 0, 0)
    assert items_of(lease) == []


def test_the_parts_of_an_item_that_was_put_back_count_no_more() -> None:
    """S166: who gets it next works on all of it."""
    store = store_of(1)
    lease = opened(store, "a", 1)
    store.split("a", lease, 0, 2)
    store.confirm_part("a", lease, 0, 0)
    assert store.put_back_of_client("a") == 1
    again = opened(store, "b", 1)
    assert not store.confirm_part("a", lease, 0, 1)
    assert items_of(again) == [0]
    assert store.confirm("b", again, 0)


def test_a_lost_item_is_taken_away_wherever_it_is() -> None:
    """A root that timed out is replayed: neither waiting nor open may it be worked on to any effect."""
    store = store_of(4)
    lease = opened(store, "a", 2)
    assert store.remove_lost({1: "late", 2: "late", 9: "never here"}) == [(1, 3)]
    assert not store.confirm("a", lease, 1)
    assert lease.why_lost_by_serial == {1: "late"}
    assert items_of(lease) == [0]
    assert items_of(store.open("b", 5)) == [3]
    assert store.remove_lost({1: "again"}) == []


def test_lost_positions_are_found_wherever_they_were_put() -> None:
    """Of each source, between others and beyond them; what was put later may be lower."""
    records = ItemRecords()
    for source, at in ((A, [10, 12, 13]), (A + 1, [0, 1, 2]), (A, [0, 1, 2, 4]), (A, [20])):
        records.add(source, [Message()] * len(at), np.array(at, np.int64))
    lost = np.array([20, 1, 2, 3, 4, 5, 10, 11, 13, 14, 21], np.int64)
    assert records.serial_runs_at(A, lost) == [(7, 10), (0, 1), (2, 3), (10, 11)]
    records.drop_records([(0, 3)])
    assert records.serial_runs_at(A, lost) == [(7, 10), (10, 11)]


def test_a_lost_item_is_found_without_a_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients would stand still where thousands that are open time out: each look is under their lock."""
    looks: list[object] = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: object, **options: object) -> object:
            looks.append(function)
            return function(*values, **options)

        return call

    monkeypatch.setattr(np, "isin", counted(np.isin))
    for name in ("fill_open_set", "open_runs"):
        monkeypatch.setattr(Lease, name, counted(getattr(Lease, name)))
    queues = QueueCollection(list(parse(YAML, file="topics.yaml", environ={}).inputs.values()))
    for at in range(300):
        queues.put(A, [Message()], np.array([at], np.int64))
        assert queues.open(ClientLimits("a", 300), queues.queue(None), 1, 0)
    looks.clear()
    for at in [*range(300)] * 2:
        where = pack_positions(np.array([at], np.int64))
        queues.remove_lost(Lost(Verdict.TIMED_OUT, "g", "sentences", "t", "", "", "", 0, 0, 0, A, where))
    assert (queues.queue(None).store.open_count_by_client(), len(queues.records)) == ({}, 0)
    assert len(looks) < 20 * 600


def test_the_oldest_that_a_client_has_open_are_found_over_its_leases() -> None:
    store = store_of(6)
    opened(store, "a", 2)
    opened(store, "b", 1)
    second = opened(store, "a", 3)
    assert [serial for _, serial in store.oldest("a", 3)] == [0, 1, 3]
    assert store.oldest("a", 3)[2][0] is second

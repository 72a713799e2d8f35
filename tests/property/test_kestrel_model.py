"""The pending store against the plainest one there is: a list of items, each with its owner."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spout.standalone.store import Lease, PendingStore

CLIENTS = st.sampled_from(["a", "b", "c"])
WAITING = "waiting"


class KestrelMachine(RuleBasedStateMachine):
    """S154, S155, S157, S159: any history of opens, settlements, deadlines, losses and clients that leave."""

    def __init__(self) -> None:
        super().__init__()
        self.store = PendingStore()
        self.now_ms = 0
        self.next = 0
        self.where: dict[int, str | Lease] = {}
        self.leases: list[Lease] = []

    @rule(count=st.integers(1, 6))
    def add(self, count: int) -> None:
        self.store.add(self.next, self.next + count)
        self.where |= dict.fromkeys(range(self.next, self.next + count), WAITING)
        self.next += count

    @rule(client=CLIENTS, count=st.integers(1, 5), patience_ms=st.none() | st.integers(1, 5))
    def open(self, client: str, count: int, patience_ms: int | None) -> None:
        expected = self._in(WAITING)[:count]
        lease = self.store.open(client, count, None if patience_ms is None else self.now_ms + patience_ms)
        assert (lease is None) == (not expected)
        if lease is not None:
            assert [serial for run in lease.open_runs() for serial in range(*run)] == expected
            self.where |= dict.fromkeys(expected, lease)
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), stays=st.booleans())
    def settle_or_put_back_one(self, data: st.DataObject, stays: bool) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        serial = data.draw(st.integers(0, self.next))
        is_open = self.where.get(serial) is lease
        act = self.store.put_back if stays else self.store.confirm
        assert act(lease.client, lease, serial) == is_open
        if is_open:
            self._move([serial], stays=stays)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), stays=st.booleans())
    def settle_or_put_back_all(self, data: st.DataObject, stays: bool) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        expected = self._in(lease)
        if stays:
            assert self.store.put_back_all(lease.client, lease) == len(expected)
        else:
            runs = self.store.confirm_all(lease.client, lease)
            assert [serial for run in runs for serial in range(*run)] == expected
        self._move(expected, stays=stays)

    @rule(client=CLIENTS)
    def leave(self, client: str) -> None:
        held = [serial for lease in self.leases if lease.client == client for serial in self._in(lease)]
        assert self.store.put_back_of_client(client) == len(held)
        self._move(held, stays=True)

    @rule(ms=st.integers(1, 6))
    def let_time_pass(self, ms: int) -> None:
        self.now_ms += ms
        over = [
            lease
            for lease in self.leases
            if lease.put_back_at_ms is not None and lease.put_back_at_ms <= self.now_ms
        ]
        held = [serial for lease in over for serial in self._in(lease)]
        assert self.store.put_back_expired(self.now_ms) == len(held)
        self._move(held, stays=True)

    @rule(serials=st.sets(st.integers(0, 30), max_size=6))
    def lose(self, serials: set[int]) -> None:
        expected = sorted(serials & self.where.keys())
        runs = self.store.remove_lost(dict.fromkeys(serials, "timed out"))
        assert [serial for run in runs for serial in range(*run)] == expected
        self._move(expected, stays=False)

    @invariant()
    def the_books_agree(self) -> None:
        waiting = self._in(WAITING)
        assert self.store.waiting_count == len(waiting)
        assert self.store.peek() == (waiting[0] if waiting else None)
        for client in ("a", "b", "c"):
            held = [s for s, at in self.where.items() if isinstance(at, Lease) and at.client == client]
            assert self.store.open_count_of(client) == len(held)
            assert [serial for _, serial in self.store.oldest(client, 3)] == sorted(held)[:3]

    def _in(self, place: str | Lease) -> list[int]:
        return sorted(serial for serial, at in self.where.items() if at is place)

    def _move(self, serials: list[int], *, stays: bool) -> None:
        for serial in serials:
            if stays:
                self.where[serial] = WAITING
            else:
                del self.where[serial]


KestrelMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestKestrelStore = KestrelMachine.TestCase

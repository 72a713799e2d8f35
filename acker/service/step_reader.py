"""Fetches the records that a step applies, for all partitions of a process, in the order that the rules need.

Contributions are fetched first. Then it fetches the ends of ``_ack_fail``, after them the ends of
``_ack_init``, and reads both topics up to these ends. So the init of each root in a contribution or fail is
applied before it, and so is every fail that was flushed before a contribution. An acker that was away for
long finds a day's ticks there: it reads and applies them in several fetches, and what was fetched of
contributions and fails waits.

Source: docs/design/protocol.md, section 4, "Order between the three topics" (a).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.errors import Unreachable
from acker.kafka.port import Log, Reader, Record, TopicPartition
from acker.kafka.reading import POLLS, poll_past_damage
from acker.service.passed_over import damage_passed_over
from acker.wire.codec import RECORD_BYTES_MAX

_FETCH = 200

BURST = 10
"""After a rest, so many fetches with contributions may follow each other without a pause."""


@dataclass(slots=True)
class StepRecords:
    """Records of a partition, fetched and not applied; from `fail_end` on fails wait for their inits."""

    inits: list[Record] = field(default_factory=list)
    fails: list[Record] = field(default_factory=list)
    acks: list[Record] = field(default_factory=list)
    fail_end: int = 0


class StepReader:
    """The readers of a process, and by partition the records that they fetched."""

    def __init__(self, log: Log, topics: AckTopics, limits: AckerLimits) -> None:
        self._log = log
        self._topics = topics
        self._limits = limits
        self._on_damage = damage_passed_over(log, limits.operation_ms)
        self._acks: Reader = log.reader(committed=False, patient=True)
        self._control: Reader = log.reader(committed=False, patient=True)
        self.records: dict[int, StepRecords] = {}
        self._next: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}  # of the control topics; empty if nothing waits for them
        self._broken = False
        self._fetched_ms = 0
        self._paid_ms = 0
        self._came = False

    def assign(self, starts: Mapping[int, tuple[int, int, int]]) -> None:
        """Set the partitions to read, each with its offsets in ``_ack_init``, ``_ack_fail``, ``_ack_ack``.

        A partition that was assigned before goes on where it is; its offsets here are ignored.
        """
        self._next = {
            where: self._next[where] if number in self.records else start
            for number, offsets in starts.items()
            for where, start in zip(self._places(number), offsets, strict=True)
        }
        self.records = {number: self.records.get(number, StepRecords()) for number in starts}
        self._reassign()
        self._broken = False

    def drop(self, number: int) -> None:
        self.records.pop(number, None)
        for where in self._places(number):
            self._next.pop(where, None)
            self._ends.pop(where, None)
        # `assign` takes it from the readers, or the next fetch does when no `assign` comes before.
        self._broken = True

    def fetch(self, now_ms: int, *, is_quiet: bool = False) -> None:
        """Fetch contributions and what must be applied before them; wait a little when there is nothing.

        While all is quiet, since no root is open and nothing waits to be written, it waits longer, and for
        what comes first then: an init or a take.

        Contributions may come a few at a time, in one fetch after the other. Then for a while only the
        control topics are polled, so that more contributions share a transaction: each transaction costs the
        broker several requests.

        Raises:
            Unreachable: the broker does not answer; what was fetched stays here.
            OutOfRange: a log begins above the next position to read.
            Damaged: a batch of one partition cannot be read; the others are as they were.
        """
        if self._broken:
            self._reassign()
        self._broken = True
        if self._ends:
            self._read_control()
        elif rest_ms := self._rest_ms(now_ms):
            self._sort(self._poll(self._control, min(rest_ms, self._limits.poll_ms), _FETCH))
        else:
            self._fetched_ms = now_ms
            is_quiet = is_quiet and not self._came
            if is_quiet:
                self._sort(self._poll(self._control, self._limits.quiet_ms, _FETCH))
            is_all = self._fetch_acks(0 if is_quiet else self._limits.poll_ms)
            self._sort(self._poll(self._control, 0, _FETCH))
            self._came = any(found.acks or found.fails for found in self.records.values())
            if self._came:
                fails = self._log.ends([TopicPartition(self._topics.fail, number) for number in self.records])
                inits = self._log.ends([TopicPartition(self._topics.init, number) for number in self.records])
                self._ends = {**fails, **inits}
                self._read_control()
            if self._came and is_all:
                self._paid_ms = max(self._paid_ms, now_ms) + self._limits.pace_ms
        self._broken = False

    def take(self, number: int) -> StepRecords:
        """Remove and return what may be applied to a partition now; call it after a `fetch` without error."""
        held = self.records[number]
        if self._ends:
            self.records[number] = StepRecords([], held.fails, held.acks, held.fail_end)
            return StepRecords(held.inits)
        ready = [record for record in held.fails if record.offset < held.fail_end]
        rest = held.fails[len(ready) :]
        self.records[number] = StepRecords(fails=rest, fail_end=held.fail_end)
        return StepRecords(held.inits, ready, held.acks, held.fail_end)

    def positions(self, number: int) -> tuple[int, int, int]:
        """Return the offsets of inits, fails and contributions up to which `take` has handed them out."""
        held = self.records[number]
        init, fail, ack = self._places(number)
        fail_at = held.fails[0].offset if held.fails else self._control.position(fail)
        ack_at = held.acks[0].offset if held.acks else self._acks.position(ack)
        return self._control.position(init), fail_at, ack_at

    def barriers(self, numbers: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return where ``_ack_ack`` and ``_ack_fail`` of some partitions end now."""
        places = {number: self._places(number) for number in numbers}
        ends = self._log.ends([place for _, fail, ack in places.values() for place in (ack, fail)])
        return {number: (ends[ack], ends[fail]) for number, (_, fail, ack) in places.items()}

    def close(self) -> None:
        self._acks.close()
        self._control.close()

    def _poll(self, reader: Reader, timeout_ms: int, most: int) -> Sequence[Record]:
        return poll_past_damage(reader, timeout_ms, most, self._on_damage)

    def _rest_ms(self, now_ms: int) -> int:
        """A fetch with contributions is paid with `pace_ms` of time; up to `BURST` of them may be unpaid."""
        if now_ms < self._fetched_ms:
            self._paid_ms = now_ms
        return max(0, self._paid_ms - BURST * self._limits.pace_ms - now_ms)

    def _fetch_acks(self, wait_ms: int) -> bool:
        """Fetch contributions up to a step's limits, wait only for the first; whether all were fetched."""
        held = [record for found in self.records.values() for record in found.acks]
        count, size = len(held), sum(len(record.value or b"") for record in held)
        timeout_ms = 0 if held else wait_ms
        while (room := self._room(count, size)) > 0:
            records = self._poll(self._acks, timeout_ms, room)
            if not records:
                return True
            self._sort(records)
            count += len(records)
            size += sum(len(record.value or b"") for record in records)
            timeout_ms = 0
        return False

    def _room(self, count: int, size: int) -> int:
        limits = self._limits
        if size >= limits.step_bytes:
            return 0
        return min(_FETCH, limits.step_records - count, 1 + (limits.step_bytes - size) // RECORD_BYTES_MAX)

    def _read_control(self) -> None:
        """Read on up to `_ends`, but no more than a step's records."""
        ends, count, idle = self._ends, 0, 0
        while any(self._control.position(where) < end for where, end in ends.items()):
            if count >= self._limits.step_records:
                return
            before = [self._control.position(where) for where in ends]
            records = self._poll(self._control, max(1, self._limits.operation_ms // POLLS), _FETCH)
            self._sort(records)
            count += len(records)
            idle = 0 if before != [self._control.position(where) for where in ends] else idle + 1
            if idle >= POLLS:
                raise Unreachable(f"{self._topics.init} and {self._topics.fail} do not go on to {ends}")
        for where, end in ends.items():
            if where.topic == self._topics.fail:
                self.records[where.partition].fail_end = end
        self._ends = {}

    def _reassign(self) -> None:
        acks = {where: at for where, at in self._next.items() if where.topic == self._topics.ack}
        self._acks.assign(acks)
        self._control.assign({where: at for where, at in self._next.items() if where not in acks})

    def _sort(self, records: Iterable[Record]) -> None:
        for record in records:
            self._next[TopicPartition(record.topic, record.partition)] = record.offset + 1
            found = self.records[record.partition]
            if record.topic == self._topics.ack:
                found.acks.append(record)
            elif record.topic == self._topics.fail:
                found.fails.append(record)
            else:
                found.inits.append(record)

    def _places(self, number: int) -> list[TopicPartition]:
        """Return the partition's places in ``_ack_init``, ``_ack_fail``, ``_ack_ack``."""
        topics = self._topics
        return [TopicPartition(name, number) for name in (topics.init, topics.fail, topics.ack)]

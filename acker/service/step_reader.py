"""Fetches the records that a step applies, for all partitions of a process, in the order that the rules need.

Contributions are fetched first. Then it fetches the ends of ``_ack_fail``, after them the ends of
``_ack_init``, and reads both topics up to these ends. So the init of each root in a contribution or fail is
applied before it, and so is every fail that was flushed before a contribution. An acker that was away for
long finds a day's ticks there: it reads and applies them in several fetches, and what was fetched of
contributions and fails waits.

A partition whose control topics cannot be read up to their ends is set *apart*: one of them has no leader, or
nothing of it arrives. What was fetched of its contributions and fails waits, and no more is; its inits are
applied as they come. The others go on without it. It joins them again when both topics were read up to their
ends, as they were then.

A partition is *held* while its transaction takes long: it is not read, and what was fetched waits.

Source: docs/design/protocol.md, section 4, "Order between the three topics" (a).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from acker.clock_watch import ClockWatch
from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.kafka.port import Bound, Log, Reader, Record, TopicPartition
from acker.kafka.read_to_end import poll_past_damage
from acker.kafka.standing import StandingNews, StandingPartition, StandingWatch
from acker.ledger.sessions import Barrier
from acker.service.passed_over import damage_passed_over
from acker.wire.codec import RECORD_BYTES_MAX

_FETCH = 200

BURST = 10
"""After a rest, so many fetches with contributions may follow each other without a pause."""

APART_POLL_MS: Final = 500
APART_POLLS: Final = 4
"""A partition is set apart when its control topics have not gone on in so many polls, 2 s: the others wait
meanwhile. A reader may come by what it has been assigned 600 ms late."""

APART_ASK_MS: Final = 1_000
"""So often the ends of the control topics of a partition that is apart are asked."""


class StepOffsets(NamedTuple):
    """An offset of each log that a partition's step reads."""

    init: int
    fail: int
    ack: int


class _Places(NamedTuple):
    """The logs that a partition's step reads, in the order of `StepOffsets`."""

    init: TopicPartition
    fail: TopicPartition
    ack: TopicPartition


@dataclass(slots=True)
class StepRecords:
    """Records of a partition, fetched and not applied; from `fail_end` on fails wait for their inits."""

    inits: list[Record] = field(default_factory=list)
    fails: list[Record] = field(default_factory=list)
    acks: list[Record] = field(default_factory=list)
    fail_end: int = 0


@dataclass(slots=True)
class _Apart:
    """A partition that is apart: where its control topics must be read up to; empty: that is unknown yet."""

    requested_ms: int
    ends: dict[TopicPartition, int] = field(default_factory=dict)


class StepReader:
    """The readers of a process, and by partition the records that they fetched.

    Attributes:
        clock_news: what the last fetch found out about this machine's clock and the broker's; mostly empty.
    """

    def __init__(self, log: Log, topics: AckTopics, limits: AckerLimits) -> None:
        self._log = log
        self._topics = topics
        self._limits = limits
        self._on_damage = damage_passed_over(log, limits.operation_ms)
        self._acks: Reader = log.reader(committed=False, patient=True)
        self._control: Reader = log.reader(committed=False, patient=True)
        self._assigned: frozenset[TopicPartition] = frozenset()
        self.records: dict[int, StepRecords] = {}
        self._next: dict[TopicPartition, int] = {}
        # up to where the control topics must be read; empty if nothing waits for them
        self._end_by_place: dict[TopicPartition, int] = {}
        self._apart: dict[int, _Apart] = {}
        self._held: set[int] = set()
        self._watch = StandingWatch(log, Bound.END, limits.stands_ms)
        self._clocks = ClockWatch()
        self.clock_news = ""
        self._must_reassign = False
        self._now_ms = self._fetched_ms = 0
        self._paid_ms = 0
        self._came_with_acks = False

    def assign(self, starts: Mapping[int, StepOffsets]) -> None:
        """Set the partitions to read, each with the offsets at which its logs begin for us.

        A partition that was assigned before goes on where it is; its offsets here are ignored.
        """
        next_offsets: dict[TopicPartition, int] = {}
        for number, offsets in starts.items():
            is_read_already = number in self.records
            for place, start in zip(self._places(number), offsets, strict=True):
                next_offsets[place] = self._next[place] if is_read_already else start
        self._next = next_offsets
        self.records = {number: self.records.get(number, StepRecords()) for number in starts}
        self._reassign()
        self._must_reassign = False

    def hold(self, numbers: Iterable[int]) -> None:
        """Read nothing of partitions until they are released; they take no room of the others."""
        new = set(numbers) - self._held
        if not new:
            return
        self._held |= new
        for number in new:
            for place in self._places(number):
                self._end_by_place.pop(place, None)  # what waits has others when it is released
        self._reassign()

    def release(self, number: int) -> None:
        """Read a partition on that was held."""
        if number in self._held:
            self._held.remove(number)
            self._must_reassign = True

    def drop(self, number: int) -> None:
        """Forget a partition, with what was fetched of it."""
        self.records.pop(number, None)
        self._apart.pop(number, None)
        self._held.discard(number)
        for place in self._places(number):
            self._next.pop(place, None)
            self._end_by_place.pop(place, None)
        # `assign` takes it from the readers, or the next fetch does when no `assign` comes before.
        self._must_reassign = True

    def fetch(self, now_ms: int, *, is_quiet: bool = False) -> StandingNews:
        """Fetch contributions and what must be applied before them; wait a little when there is nothing.

        While all is quiet, since no root is open and nothing waits to be written, it waits longer, and for
        what comes first then: an init or a take.

        Contributions may come a few at a time, in one fetch after the other. Then for a while only the
        control topics are polled, so that more contributions share a transaction: each transaction costs the
        broker several requests.

        Return which partitions of the three topics stand, or go on again.

        Raises:
            Unreachable: the broker does not answer; what was fetched stays here.
            OutOfRange: a log begins above the next position to read.
            Damaged: a batch of one partition cannot be read; the others are as they were.
        """
        if self._must_reassign:
            self._reassign()
        self._must_reassign = True
        self._now_ms, self.clock_news = now_ms, ""
        news = StandingNews()
        if self._apart:
            self._try_those_apart(now_ms)
        if self._end_by_place:
            self._read_control(now_ms)
        elif rest_ms := self._rest_ms(now_ms):
            self._distribute(self._poll(self._control, min(rest_ms, self._limits.poll_ms), _FETCH))
        else:
            self._fetched_ms = now_ms
            is_quiet = is_quiet and not self._came_with_acks
            if is_quiet:
                self._distribute(self._poll(self._control, self._limits.quiet_ms, _FETCH))
            is_all = self._fetch_acks(0 if is_quiet else self._limits.poll_ms)
            self._distribute(self._poll(self._control, 0, _FETCH))
            together = self._together()
            self._came_with_acks = any(
                self.records[number].acks or self.records[number].fails for number in together
            )
            if self._came_with_acks:
                self._end_by_place = self._control_ends(together)
                for number in set(together) - {place.partition for place in self._end_by_place}:
                    self._set_apart(number, _Apart(now_ms))
                self._read_control(now_ms)
            if self._came_with_acks and is_all:
                self._paid_ms = max(self._paid_ms, now_ms) + self._limits.pace_ms
            news = self._watch.look(self._read_positions(), now_ms, is_drained=is_all)
        self._must_reassign = False
        return news

    def take(self, number: int) -> StepRecords:
        """Remove and return what may be applied to a partition now; call it after a `fetch` without error."""
        fetched = self.records[number]
        if self._waits(number):
            self.records[number] = StepRecords(
                fails=fetched.fails, acks=fetched.acks, fail_end=fetched.fail_end
            )
            return StepRecords(inits=fetched.inits)
        # they ascend, so those that still wait for their inits are the last ones
        ready_fails = [record for record in fetched.fails if record.offset < fetched.fail_end]
        waiting_fails = fetched.fails[len(ready_fails) :]
        self.records[number] = StepRecords(fails=waiting_fails, fail_end=fetched.fail_end)
        return StepRecords(fetched.inits, ready_fails, fetched.acks, fetched.fail_end)

    def positions(self, number: int) -> StepOffsets:
        """Return the offsets up to which `take` has handed records out."""
        fetched = self.records[number]
        places = self._places(number)
        fail_offset = fetched.fails[0].offset if fetched.fails else self._position(places.fail)
        ack_offset = fetched.acks[0].offset if fetched.acks else self._position(places.ack)
        return StepOffsets(init=self._position(places.init), fail=fail_offset, ack=ack_offset)

    def barriers(self, numbers: Collection[int]) -> dict[int, Barrier]:
        """Return where ``_ack_ack`` and ``_ack_fail`` of some partitions end now, of those that say it."""
        places_of_ends: list[TopicPartition] = []
        for number in numbers:
            places = self._places(number)
            places_of_ends += [places.ack, places.fail]
        ends = self._log.bounds(Bound.END, places_of_ends).offsets
        barriers: dict[int, Barrier] = {}
        for number in numbers:
            places = self._places(number)
            if places.ack in ends and places.fail in ends:
                barriers[number] = Barrier(ack=ends[places.ack], fail=ends[places.fail])
        return barriers

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return which partitions of the three topics stand."""
        return self._watch.standing()

    def close(self) -> None:
        self._acks.close()
        self._control.close()

    def _poll(self, reader: Reader, timeout_ms: int, records_max: int) -> Sequence[Record]:
        records = poll_past_damage(reader, timeout_ms, records_max, self._on_damage)
        # ticks come each second: of contributions a poll may bring those that waited in the client
        if reader is self._control:
            self.clock_news = self._clocks.polled(records, self._now_ms) or self.clock_news
        return records

    def _rest_ms(self, now_ms: int) -> int:
        """A fetch with contributions is paid with `pace_ms` of time; up to `BURST` of them may be unpaid."""
        if now_ms < self._fetched_ms:
            self._paid_ms = now_ms
        return max(0, self._paid_ms - BURST * self._limits.pace_ms - now_ms)

    def _fetch_acks(self, wait_ms: int) -> bool:
        """Fetch contributions up to a step's limits, wait only for the first; whether all were fetched."""
        fetched = [record for number in self._together() for record in self.records[number].acks]
        count, fetched_bytes = len(fetched), sum(len(record.value or b"") for record in fetched)
        timeout_ms = 0 if fetched else wait_ms
        while (room := self._room(count, fetched_bytes)) > 0:
            records = self._poll(self._acks, timeout_ms, room)
            if not records:
                return True
            self._distribute(records)
            count += len(records)
            fetched_bytes += sum(len(record.value or b"") for record in records)
            timeout_ms = 0
        return False

    def _room(self, count: int, size: int) -> int:
        limits = self._limits
        if size >= limits.step_bytes:
            return 0
        return min(_FETCH, limits.step_records - count, 1 + (limits.step_bytes - size) // RECORD_BYTES_MAX)

    # -- the control topics

    def _control_ends(self, numbers: Collection[int]) -> dict[TopicPartition, int]:
        """Ask where the control topics of partitions end; leave out partitions of which one does not say it.

        In this order: the init of each root in a fail was written before the fail.
        """
        fails = self._log.bounds(Bound.END, [TopicPartition(self._topics.fail, number) for number in numbers])
        inits = self._log.bounds(Bound.END, [TopicPartition(self._topics.init, number) for number in numbers])
        ends: dict[TopicPartition, int] = {}
        for number in numbers:
            init, fail, _ = self._places(number)
            if init in inits.offsets and fail in fails.offsets:
                ends |= {init: inits.offsets[init], fail: fails.offsets[fail]}
        return ends

    def _read_control(self, now_ms: int) -> None:
        """Read on up to `_ends`, but no more than a step's records; set apart what does not go on."""
        count, idle_polls = 0, 0
        while unread := self._unread(self._end_by_place):
            if count >= self._limits.step_records:
                break
            if idle_polls >= APART_POLLS:
                for number in {place.partition for place in unread}:
                    # both: a partition waits for its two control topics together
                    init, fail, _ = self._places(number)
                    ends = {place: self._end_by_place.pop(place) for place in (init, fail)}
                    self._set_apart(number, _Apart(now_ms, ends))
                break
            positions_before = [self._control.position(place) for place in unread]
            records = self._poll(self._control, min(APART_POLL_MS, self._limits.operation_ms), _FETCH)
            self._distribute(records)
            count += len(records)
            is_idle = positions_before == [self._control.position(place) for place in unread]
            idle_polls = idle_polls + 1 if is_idle else 0
        self._end_by_place = self._without_read_up(self._end_by_place)

    def _unread(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the logs that were not read up to these ends yet."""
        return [place for place, end in ends.items() if self._position(place) < end]

    def _without_read_up(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Let the fails of partitions be applied whose control topics were read to their ends.

        Return the ends of the other partitions.
        """
        unread_partitions = {place.partition for place in self._unread(ends)}
        for place, end in ends.items():
            if place.topic == self._topics.fail and place.partition not in unread_partitions:
                self.records[place.partition].fail_end = end
        return {place: end for place, end in ends.items() if place.partition in unread_partitions}

    # -- partitions that are apart

    def _together(self) -> list[int]:
        """Return the partitions that are neither apart nor held."""
        left_out = self._apart.keys() | self._held
        return [number for number in self.records if number not in left_out]

    def _waits(self, number: int) -> bool:
        """Return whether contributions and fails of a partition wait for its control topics."""
        return number in self._apart or TopicPartition(self._topics.init, number) in self._end_by_place

    def _set_apart(self, number: int, apart: _Apart) -> None:
        self._apart[number] = apart
        self._reassign()

    def _try_those_apart(self, now_ms: int) -> None:
        """Ask for ends that are unknown; let partitions join that were read up to theirs."""
        unknown = [
            number
            for number, apart in self._apart.items()
            if number not in self._held
            and not apart.ends
            and not 0 <= now_ms - apart.requested_ms < APART_ASK_MS
        ]
        ends = self._control_ends(unknown) if unknown else {}
        for number in unknown:
            init, fail, _ = self._places(number)
            own_ends = {place: ends[place] for place in (init, fail) if place in ends}
            self._apart[number] = _Apart(now_ms, own_ends)
        joined = [
            number
            for number, apart in self._apart.items()
            if number not in self._held and apart.ends and not self._without_read_up(apart.ends)
        ]
        for number in joined:
            del self._apart[number]
        if unknown or joined:
            self._reassign()

    # -- what is read

    def _reassign(self) -> None:
        """Read the three topics of each partition; of one that is apart only what it waits for."""
        acks: dict[TopicPartition, int] = {}
        control: dict[TopicPartition, int] = {}
        for number in [number for number in self.records if number not in self._held]:
            init, fail, ack = self._places(number)
            apart = self._apart.get(number)
            control[init] = self._next[init]
            if apart is None:
                acks[ack] = self._next[ack]
            if apart is None or fail in self._unread(apart.ends):
                control[fail] = self._next[fail]
        self._acks.assign(acks)
        self._control.assign(control)
        self._assigned = frozenset([*acks, *control])

    def _position(self, place: TopicPartition) -> int:
        """Return up to where a partition was read; of one that is not read now, behind its last record."""
        if place not in self._assigned:
            return self._next[place]
        reader = self._acks if place.topic == self._topics.ack else self._control
        return reader.position(place)

    def _read_positions(self) -> dict[TopicPartition, int]:
        """Return the positions of all that is to be read now; where an end is unknown, that is, too."""
        places = set(self._assigned)
        for number, apart in self._apart.items():
            if not apart.ends and number not in self._held:
                places.add(TopicPartition(self._topics.fail, number))
        return {place: self._position(place) for place in places}

    def _distribute(self, records: Iterable[Record]) -> None:
        """Add records to those of their partitions, and move the positions behind them."""
        for record in records:
            self._next[TopicPartition(record.topic, record.partition)] = record.offset + 1
            records_of_partition = self.records[record.partition]
            if record.topic == self._topics.ack:
                records_of_partition.acks.append(record)
            elif record.topic == self._topics.fail:
                records_of_partition.fails.append(record)
            else:
                records_of_partition.inits.append(record)

    def _places(self, number: int) -> _Places:
        topics = self._topics
        return _Places(
            init=TopicPartition(topics.init, number),
            fail=TopicPartition(topics.fail, number),
            ack=TopicPartition(topics.ack, number),
        )

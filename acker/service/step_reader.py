"""Fetches the records that a step applies, for all partitions of a process, in the order that the rules need.

Contributions are fetched first. Then it fetches the ends of ``_ack_fail``, after them the ends of
``_ack_init``, and reads both topics up to these ends. So the init of each root in a contribution or fail is
applied before it, and so is every fail that was flushed before a contribution. An acker that was
away for long finds a day's ticks there: it reads and applies them in several fetches, and what was
fetched of contributions and fails waits.

A partition is *stalled* while its control topics cannot be read up to their ends: one of them has
no leader, or nothing of it arrives. What was fetched of its contributions and fails waits, and no
more is fetched; its inits are applied as they come. The others go on without it. It is active again
when both topics were read up to their ends, as they were when it stalled.

A partition is *paused* while its transaction takes long: it is not read, and what was fetched
waits.

A *step* is one round of an acker: fetch, apply, commit. A *partition* is an acker partition, by its
number; a *place* is a partition of one topic. The *control topics* are ``_ack_init`` and
``_ack_fail``. A place *stands* if it does not go on although its log does.

Source: docs/design/protocol.md, section 4, "Order between the three topics" (a).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from acker.clock_watch import ClockWatch
from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.kafka.port import Bound, Log, Reader, Record, TopicPartition
from acker.kafka.read_to_end import poll_past_damage
from acker.kafka.standing import StandingNews, StandingPartition, StandingWatch
from acker.ledger.sessions import Barrier
from acker.service.passed_over import damage_handler
from acker.wire.codec import RECORD_BYTES_MAX

_POLL_RECORDS = 200
"""Most records of one poll."""

BURST = 10
"""So many fetches with contributions may follow each other without a rest between them."""

STALLED_POLL_MS: Final = 500
STALLED_POLLS: Final = 4
"""A partition is stalled when its control topics have not gone on in so many polls, 2 s: the others wait
meanwhile. A reader may get what it has been assigned 600 ms late."""

STALLED_ASK_MS: Final = 1_000
"""So often the ends of the control topics of a stalled partition are asked, if they are unknown."""


class StepOffsets(NamedTuple):
    """An offset of each log that a partition's step reads."""

    init: int
    fail: int
    ack: int


class _Places(NamedTuple):
    """The places that a step of one partition reads, in the order of `StepOffsets`."""

    init: TopicPartition
    fail: TopicPartition
    ack: TopicPartition


@dataclass(slots=True)
class StepRecords:
    """Records of a partition, fetched and not applied, each list by ascending offsets.

    Attributes:
        fails_ready_until: fails from this offset on wait, since their inits may not be read yet.
    """

    inits: list[Record] = field(default_factory=list)
    fails: list[Record] = field(default_factory=list)
    acks: list[Record] = field(default_factory=list)
    fails_ready_until: int = 0


@dataclass(slots=True)
class _StalledPartition:
    """A partition that is stalled.

    Attributes:
        requested_ms: when its ends were asked last, wall time.
        ends: up to where its control topics must be read; empty: nobody could say it yet.
    """

    requested_ms: int
    ends: dict[TopicPartition, int] = field(default_factory=dict)


class StepReader:
    """The readers of a process, and by partition the records that they fetched.

    Partitions are acker partitions, by their number. Two Kafka clients read: one ``_ack_ack``, the
    other one the two control topics.

    Attributes:
        records: by partition, what was fetched and not taken.
        clock_news: what the polls of the last fetch found out about this machine's clock and the
            broker's; mostly empty.
    """

    def __init__(self, log: Log, topics: AckTopics, limits: AckerLimits) -> None:
        self._log = log
        self._topics = topics
        self._limits = limits
        self._on_damage = damage_handler(log, limits.operation_ms)
        self._ack_reader: Reader = log.reader(committed=False, patient=True)
        self._control_reader: Reader = log.reader(committed=False, patient=True)
        # places that one of the two readers reads
        self._assigned_places: frozenset[TopicPartition] = frozenset()
        self.records: dict[int, StepRecords] = {}
        # by place: the offset behind the last record that was fetched of it
        self._next_offsets: dict[TopicPartition, int] = {}
        # by place: the offset up to which a control topic must be read before what was fetched may
        # be applied; empty if nothing waits for it
        self._control_end_by_place: dict[TopicPartition, int] = {}
        self._stalled: dict[int, _StalledPartition] = {}  # by partition
        self._paused: set[int] = set()  # partitions
        self._standing_watch = StandingWatch(log, Bound.END, limits.stands_ms)
        self._clock_watch = ClockWatch()
        self.clock_news = ""
        # whether the Kafka clients read other places, or from elsewhere, than they should
        self._must_reassign = False
        # wall time: when the present fetch began, and the last one of contributions
        self._fetch_began_ms = 0
        self._contributions_fetched_ms = 0
        # the wall time until which the fetches so far would have taken, at `pace_ms` each; see
        # `_ms_until_contributions`
        self._paced_until_ms = 0
        # whether the last fetch left contributions or fails to apply
        self._had_records_to_apply = False

    def assign(self, starts: Mapping[int, StepOffsets]) -> None:
        """Set the acker partitions to read, each with the offsets from which its three logs are
        read.

        A partition that was assigned before goes on where it is; its offsets here are ignored.
        """
        next_offsets: dict[TopicPartition, int] = {}
        for partition, offsets in starts.items():
            is_assigned_already = partition in self.records
            for place, start in zip(self._step_places(partition), offsets, strict=True):
                next_offsets[place] = self._next_offsets[place] if is_assigned_already else start
        self._next_offsets = next_offsets
        self.records = {partition: self.records.get(partition, StepRecords()) for partition in starts}
        self._reassign()
        self._must_reassign = False

    def pause(self, partitions: Iterable[int]) -> None:
        """Read nothing of some acker partitions until `resume`.

        What was fetched of them waits, and does not count against the limits of a step of the
        others.
        """
        newly_paused = set(partitions) - self._paused
        if not newly_paused:
            return
        self._paused |= newly_paused
        for partition in newly_paused:
            for place in self._step_places(partition):
                # what was fetched no longer waits for these ends; after `resume` new ones are
                # asked for
                self._control_end_by_place.pop(place, None)
        self._reassign()

    def resume(self, partition: int) -> None:
        """Go on reading a partition if it is paused."""
        if partition in self._paused:
            self._paused.remove(partition)
            self._must_reassign = True

    def forget(self, partition: int) -> None:
        """Stop reading a partition, and drop what was fetched of it."""
        self.records.pop(partition, None)
        self._stalled.pop(partition, None)
        self._paused.discard(partition)
        for place in self._step_places(partition):
            self._next_offsets.pop(place, None)
            self._control_end_by_place.pop(place, None)
        # the readers still have it: `assign` takes it from them, or else the next fetch
        self._must_reassign = True

    def fetch(self, now_ms: int, *, is_quiet: bool = False) -> StandingNews:
        """Fetch contributions and what must be applied before them, and add them to `records`.

        The latter are the records of the control topics: ``_ack_init`` and ``_ack_fail``. It
        waits up to `poll_ms` when there is nothing. While all is quiet (`is_quiet`: no root is
        open, and nothing waits to be written) it waits up to `quiet_ms`, and for what comes first
        then: an init or a take.

        Contributions may come a few at a time, in one fetch after the other. Then for a while only
        the control topics are polled, so that more contributions share a transaction: each
        transaction costs the broker several requests.

        Returns which places do not go on from now on although their logs do (they *stand*), and
        which go on again; sets `clock_news`.

        Raises:
            Unreachable: the broker does not answer; what was fetched stays here.
            OutOfRange: a log begins above the next position to read.
            Damaged: a batch of one partition cannot be read; the others are as they were.
        """
        if self._must_reassign:
            self._reassign()
        # An error may come when a client has passed records that are not in `records`. Then the
        # next fetch assigns both anew; without an error this is taken back at the end.
        self._must_reassign = True
        self._fetch_began_ms = now_ms
        self.clock_news = ""
        standing_news = StandingNews()
        if self._stalled:
            self._resume_stalled(now_ms)
        if self._control_end_by_place:  # the last fetch did not come to these ends
            self._read_control_topics(now_ms)
        else:
            # the clock was set back: without this, contributions would rest for as long as that
            if now_ms < self._contributions_fetched_ms:
                self._paced_until_ms = now_ms
            rest_ms = self._ms_until_contributions(now_ms)
            if rest_ms:
                self._poll_control_topics(min(rest_ms, self._limits.poll_ms))
            else:
                is_still_quiet = is_quiet and not self._had_records_to_apply
                standing_news = self._fetch_all_topics(now_ms, is_quiet=is_still_quiet)
        self._must_reassign = False
        return standing_news

    def _fetch_all_topics(self, now_ms: int, *, is_quiet: bool) -> StandingNews:
        """Fetch contributions, then fails and inits up to the ends that their topics have by then.

        The topics of fails and inits are the *control topics*. While all is quiet (`is_quiet`) it
        waits for an init or a take, and for contributions not at all. Returns which places do not
        go on from now on although their logs do (they *stand*), and which go on again.
        """
        # 1. contributions; while all is quiet an init or take comes first, so that is waited for
        self._contributions_fetched_ms = now_ms
        contributions_wait_ms = self._limits.poll_ms
        if is_quiet:
            self._poll_control_topics(self._limits.quiet_ms)
            contributions_wait_ms = 0
        is_drained = self._fetch_contributions(contributions_wait_ms)
        # 2. what the control topics have already, without waiting
        self._poll_control_topics(0)
        active = self._active_partitions()
        self._had_records_to_apply = any(
            self.records[partition].acks or self.records[partition].fails for partition in active
        )
        # 3. if contributions or fails came, all that must be applied before them
        if self._had_records_to_apply:
            self._control_end_by_place = self._ask_control_ends(active)
            partitions_with_ends = {place.partition for place in self._control_end_by_place}
            for partition in set(active) - partitions_with_ends:  # a topic of it has no leader
                self._set_stalled(partition, _StalledPartition(now_ms))
            self._read_control_topics(now_ms)
            # while there are more contributions they fill a step, so there is no rest between steps
            if is_drained:
                self._paced_until_ms = max(self._paced_until_ms, now_ms) + self._limits.pace_ms
        watched_offsets = self._read_offsets_to_watch()
        return self._standing_watch.check_positions(watched_offsets, now_ms, is_drained=is_drained)

    def take_ready(self, partition: int) -> StepRecords:
        """Remove from `records` and return what may be applied to an acker partition now.

        Call it after a `fetch` without error. While its control topics (``_ack_init``,
        ``_ack_fail``) are not read to their ends, that is the inits alone. Else it is all, except
        fails from `fails_ready_until` on: their inits may not be read yet.
        """
        fetched = self.records[partition]
        if self._must_wait_for_inits(partition):
            self.records[partition] = StepRecords(
                fails=fetched.fails, acks=fetched.acks, fails_ready_until=fetched.fails_ready_until
            )
            return StepRecords(inits=fetched.inits)
        # offsets ascend, so the fails that still wait for their inits are the last ones
        until = fetched.fails_ready_until
        ready_fails = [record for record in fetched.fails if record.offset < until]
        waiting_fails = fetched.fails[len(ready_fails) :]
        self.records[partition] = StepRecords(
            fails=waiting_fails, fails_ready_until=fetched.fails_ready_until
        )
        return StepRecords(fetched.inits, ready_fails, fetched.acks, fetched.fails_ready_until)

    def taken_offsets(self, partition: int) -> StepOffsets:
        """Return the offsets up to which `take_ready` has returned the records of an acker
        partition.

        They are those of the first records that still wait in `records`, or of what is read next.
        Call it after `take_ready`, which leaves no init.
        """
        fetched = self.records[partition]
        places = self._step_places(partition)
        fail_offset = fetched.fails[0].offset if fetched.fails else self._read_offset(places.fail)
        ack_offset = fetched.acks[0].offset if fetched.acks else self._read_offset(places.ack)
        return StepOffsets(init=self._read_offset(places.init), fail=fail_offset, ack=ack_offset)

    def read_barriers(self, partitions: Collection[int]) -> dict[int, Barrier]:
        """Ask where ``_ack_ack`` and ``_ack_fail`` end now, and return it by partition.

        A partition is missing if one of its topics has no leader that says it.
        """
        requested_places: list[TopicPartition] = []
        for partition in partitions:
            places = self._step_places(partition)
            requested_places += [places.ack, places.fail]
        ends = self._log.bounds(Bound.END, requested_places).offsets
        barriers: dict[int, Barrier] = {}
        for partition in partitions:
            places = self._step_places(partition)
            if places.ack in ends and places.fail in ends:
                barriers[partition] = Barrier(ack=ends[places.ack], fail=ends[places.fail])
        return barriers

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return which partitions of the three topics stand."""
        return self._standing_watch.standing()

    def close(self) -> None:
        self._ack_reader.close()
        self._control_reader.close()

    def _poll_control_topics(self, timeout_ms: int) -> int:
        """Poll ``_ack_init`` and ``_ack_fail`` once, store what comes, and return how many
        records came.

        It waits up to `timeout_ms` for the first one. The times of the records are compared with
        this machine's clock; `clock_news` gets a sentence on a difference.
        """
        records = poll_past_damage(self._control_reader, timeout_ms, _POLL_RECORDS, self._on_damage)
        # Only here: a session ticks every 500 ms, so these records are fresh. Contributions may
        # have waited in the client, and say nothing of the time.
        self.clock_news = self._clock_watch.compare(records, self._fetch_began_ms) or self.clock_news
        self._store_fetched(records)
        return len(records)

    def _ms_until_contributions(self, now_ms: int) -> int:
        """Return for how many ms no contributions are fetched; 0: they may be fetched now.

        Each fetch with contributions moves `_paced_until_ms` on by `pace_ms`, so that fetches come
        `pace_ms` apart in the long run. `BURST` fetches may be ahead of the clock. Example: at
        1,000 ms with a pace of 20 ms, a rest begins if `_paced_until_ms` is above 1,200.
        """
        return max(0, self._paced_until_ms - BURST * self._limits.pace_ms - now_ms)

    def _fetch_contributions(self, wait_ms: int) -> bool:
        """Fetch contributions up to a step's limits; return whether these were all that there are.

        `wait_ms` is how long it waits for the first one; it does not wait for others.
        """
        # what was fetched before and is not applied counts against the limits, too
        fetched_bytes = fetched_count = 0
        for partition in self._active_partitions():
            contributions = self.records[partition].acks
            fetched_count += len(contributions)
            fetched_bytes += _value_bytes(contributions)
        timeout_ms = 0 if fetched_count else wait_ms
        records_max = self._next_poll_records_max(fetched_count, fetched_bytes)
        while records_max > 0:
            records = poll_past_damage(self._ack_reader, timeout_ms, records_max, self._on_damage)
            if not records:  # there are no more
                return True
            self._store_fetched(records)
            fetched_count += len(records)
            fetched_bytes += _value_bytes(records)
            timeout_ms = 0
            records_max = self._next_poll_records_max(fetched_count, fetched_bytes)
        return False

    def _next_poll_records_max(self, fetched_count: int, fetched_bytes: int) -> int:
        """Return how many contributions the next poll may bring before a step's limits are reached.

        0 or less: none, a limit is reached.
        """
        limits = self._limits
        if fetched_bytes >= limits.step_bytes:
            return 0
        # So many of the largest size fit. One more: the last record may go beyond the bytes, or a
        # limit below the largest size would let none pass.
        fitting_count = 1 + (limits.step_bytes - fetched_bytes) // RECORD_BYTES_MAX
        return min(_POLL_RECORDS, limits.step_records - fetched_count, fitting_count)

    # -- the control topics

    def _ask_control_ends(self, partitions: Collection[int]) -> dict[TopicPartition, int]:
        """Ask where ``_ack_init`` and ``_ack_fail`` end for some acker partitions.

        Returns the offsets by place. A partition is missing if one of its two
        topics has no leader that says it.
        """
        places_of_partitions = [self._step_places(partition) for partition in partitions]
        # The ends of the fails first: the init of each root in a fail was written before the
        # fail, so it lies below the end of the inits that is asked later.
        fail_ends = self._log.bounds(Bound.END, [places.fail for places in places_of_partitions])
        init_ends = self._log.bounds(Bound.END, [places.init for places in places_of_partitions])
        ends: dict[TopicPartition, int] = {}
        for places in places_of_partitions:
            if places.init in init_ends.offsets and places.fail in fail_ends.offsets:
                ends[places.init] = init_ends.offsets[places.init]
                ends[places.fail] = fail_ends.offsets[places.fail]
        return ends

    def _read_control_topics(self, now_ms: int) -> None:
        """Read ``_ack_init`` and ``_ack_fail`` up to the ends in `_control_end_by_place`.

        It reads no more than a step's records. Ends that were reached are removed there, and the
        fails below them may be applied. A partition of which nothing comes in `STALLED_POLLS`
        polls is
        *stalled* from now on: the others no longer wait for it.
        """
        timeout_ms = min(STALLED_POLL_MS, self._limits.operation_ms)
        record_count, idle_polls = 0, 0
        unread = self._unread_places(self._control_end_by_place)
        while unread and record_count < self._limits.step_records:
            if idle_polls >= STALLED_POLLS:
                for partition in {place.partition for place in unread}:
                    # both ends: a partition waits for its two control topics together
                    places = self._step_places(partition)
                    ends = {
                        places.init: self._control_end_by_place.pop(places.init),
                        places.fail: self._control_end_by_place.pop(places.fail),
                    }
                    self._set_stalled(partition, _StalledPartition(now_ms, ends))
                break
            offsets_before = [self._control_reader.position(place) for place in unread]
            record_count += self._poll_control_topics(timeout_ms)
            # offsets, not records: a log may end in markers of transactions, which are no records
            is_idle = offsets_before == [self._control_reader.position(place) for place in unread]
            idle_polls = idle_polls + 1 if is_idle else 0
            unread = self._unread_places(self._control_end_by_place)
        self._release_fails_up_to(self._control_end_by_place)
        self._control_end_by_place = self._unreached_ends(self._control_end_by_place)

    def _unread_places(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the places that were not read up to these ends yet."""
        return [place for place, end in ends.items() if self._read_offset(place) < end]

    def _release_fails_up_to(self, ends: Mapping[TopicPartition, int]) -> None:
        """Release fails below these ends, of partitions that were read up to both of theirs.

        `ends` are those of ``_ack_init`` and ``_ack_fail``, by place: the init of each root in
        such a fail was read then.
        """
        unread_partitions = {place.partition for place in self._unread_places(ends)}
        for place, end in ends.items():
            if place.topic == self._topics.fail and place.partition not in unread_partitions:
                self.records[place.partition].fails_ready_until = end

    def _unreached_ends(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return both ends of each partition that was not read up to both, by place."""
        unread_partitions = {place.partition for place in self._unread_places(ends)}
        return {place: end for place, end in ends.items() if place.partition in unread_partitions}

    # -- stalled partitions

    def _active_partitions(self) -> list[int]:
        """Return the partitions that are neither stalled nor paused."""
        left_out = self._stalled.keys() | self._paused
        return [partition for partition in self.records if partition not in left_out]

    def _must_wait_for_inits(self, partition: int) -> bool:
        """Return whether contributions and fails of a partition wait until its control topics are
        read.
        """
        init_place = TopicPartition(self._topics.init, partition)
        return partition in self._stalled or init_place in self._control_end_by_place

    def _set_stalled(self, partition: int, stalled: _StalledPartition) -> None:
        """Stall a partition: no more contributions are fetched of it."""
        self._stalled[partition] = stalled
        self._reassign()

    def _resume_stalled(self, now_ms: int) -> None:
        """Make stalled partitions active again whose control topics were read up to their ends.

        A partition stalls if its ``_ack_init`` or ``_ack_fail`` cannot be read. If no leader could
        name the ends then, they are requested here. Paused partitions stay as they are.
        """
        # 1. request the ends of stalled partitions that have none, of each every
        # `STALLED_ASK_MS` at most
        partitions_to_ask: list[int] = []
        for partition, stalled in self._stalled.items():
            # negative: the clock was set back, so the question is due, too
            was_just_requested = 0 <= now_ms - stalled.requested_ms < STALLED_ASK_MS
            if partition not in self._paused and not stalled.ends and not was_just_requested:
                partitions_to_ask.append(partition)
        ends = self._ask_control_ends(partitions_to_ask) if partitions_to_ask else {}
        for partition in partitions_to_ask:
            places = self._step_places(partition)
            own_ends = {place: ends[place] for place in (places.init, places.fail) if place in ends}
            self._stalled[partition] = _StalledPartition(requested_ms=now_ms, ends=own_ends)
        # 2. those that have come to both ends are active again
        resumed: list[int] = []
        for partition, stalled in self._stalled.items():
            if partition not in self._paused and stalled.ends:
                # if both ends are reached, the fails below them may be applied
                self._release_fails_up_to(stalled.ends)
                if not self._unread_places(stalled.ends):
                    resumed.append(partition)
        for partition in resumed:
            del self._stalled[partition]
        if partitions_to_ask or resumed:
            self._reassign()

    # -- what is read

    def _reassign(self) -> None:
        """Make the Kafka clients read the three topics of each acker partition.

        They go on at their next offsets.

        Of a *stalled* partition, whose control topics (``_ack_init``, ``_ack_fail``) could not be
        read, they read only these, and its fails only up to the end that it waits for:
        contributions and fails behind it would fill the memory. A *paused* one, whose transaction
        takes long, is left out.
        """
        ack_offsets: dict[TopicPartition, int] = {}
        control_offsets: dict[TopicPartition, int] = {}
        for partition in self.records:
            if partition in self._paused:
                continue
            init, fail, ack = self._step_places(partition)
            stalled = self._stalled.get(partition)
            control_offsets[init] = self._next_offsets[init]
            if stalled is None:
                ack_offsets[ack] = self._next_offsets[ack]
            # the fails of a stalled partition wait for an end only if that is known and not reached
            if stalled is None or fail in self._unread_places(stalled.ends):
                control_offsets[fail] = self._next_offsets[fail]
        self._ack_reader.assign(ack_offsets)
        self._control_reader.assign(control_offsets)
        self._assigned_places = frozenset([*ack_offsets, *control_offsets])

    def _read_offset(self, place: TopicPartition) -> int:
        """Return the offset up to which a place was read.

        The Kafka client knows it, also where the log ends in markers of transactions. It does not
        know a place that it does not read: then it is the offset behind the last record fetched.
        """
        if place not in self._assigned_places:
            return self._next_offsets[place]
        reader = self._ack_reader if place.topic == self._topics.ack else self._control_reader
        return reader.position(place)

    def _read_offsets_to_watch(self) -> dict[TopicPartition, int]:
        """Return by place the offset up to which it was read, of all places to watch.

        `StandingWatch` watches them. They are the places that the clients read. In addition it
        is the fail topic of each stalled partition without ends: nobody reads that topic, so it
        is reported as standing if it has more records, or no leader.
        """
        places = set(self._assigned_places)
        for partition, stalled in self._stalled.items():
            if not stalled.ends and partition not in self._paused:
                places.add(TopicPartition(self._topics.fail, partition))
        return {place: self._read_offset(place) for place in places}

    def _store_fetched(self, records: Iterable[Record]) -> None:
        """Add fetched records to those of their partitions, and move the next offsets behind them."""
        for record in records:
            self._next_offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
            records_of_partition = self.records[record.partition]
            if record.topic == self._topics.ack:
                records_of_partition.acks.append(record)
            elif record.topic == self._topics.fail:
                records_of_partition.fails.append(record)
            else:
                records_of_partition.inits.append(record)

    def _step_places(self, partition: int) -> _Places:
        """Return the places of the three topics that a step of a partition reads."""
        topics = self._topics
        return _Places(
            init=TopicPartition(topics.init, partition),
            fail=TopicPartition(topics.fail, partition),
            ack=TopicPartition(topics.ack, partition),
        )


def _value_bytes(records: Iterable[Record]) -> int:
    return sum(len(record.value or b"") for record in records)

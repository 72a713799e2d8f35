"""What a planning process writes to the ack topics: takes, inits, ticks, and which records left the log.

A `Take` claims a group for a session, an `Init` makes roots pending, a `Tick` has the session's
clock. A *lane* is a numbered sequence of `Acks`; an acker applies each number of a lane once. In
this file a `clock_ms` is a session's clock.

An old process that still writes does no harm: a repeated Init is below the watermark, of ticks the
highest counts, and a settled root stays settled.

Source: docs/design/protocol.md, sections 4 and 5.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import numpy as np

from acker.config.settings import UNREACHABLE_MS, AckTopics
from acker.identity import WIRE_BLOCK_BITS, acker_partition
from acker.kafka.port import Bound, Headers, Log, OffsetAnswers, Outgoing, Producer, TopicPartition
from acker.ledger.verdicts import RECORD_BUDGET_BYTES, SOURCE_BYTES
from acker.root_sets.root_set import RootSet
from acker.wire.clusters import UNKNOWN_CLUSTER, cluster_header
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Event, Init, SourceRun, Take, TakeSource, Tick, pack_positions
from acker.wire.leader_epochs import epochs_of_runs
from acker.writer_clocks import clock_header
from spout.group.presence import Who, sign_headers
from spout.group.sources import PlannerSpec, SourceSpec
from spout.group.troubles import Troubles
from spout.planning.session import SessionName
from spout.planning.supply import Sighting

PARTITIONS_EACH: Final = 8
"""So many acker partitions share a producer. A producer has one request under way, of one partition: what
goes to 64 of them would take 64 round trips, one after another."""

LEAVE_MS = 2_000
"""A process that ends waits so long for its last tick to be durable; else others notice its silence."""

REPEAT_MS = 5_000
"""A `Take` is repeated this often to acker partitions that do not answer."""

SIGNS_AT = 0
"""The acker partition that gets the signs of life of a session without pending roots."""

INIT_RUNS_MAX = 10_000
"""Runs in one Init: at most some 300 kB."""


class _InitPart(NamedTuple):
    """What one part of an init has: the roots of one topic that one acker partition owns.

    Parts are sent in the order of these fields. Those of one `turn` are sent together, and those of
    the next turn once they are durable.
    """

    turn: int
    acker_partition: int
    topic: str


def _parts_that_fit(sources: Iterable[TakeSource]) -> list[tuple[TakeSource, ...]]:
    """Cut sources into parts, in their order, each of which has room in a record; one part at least."""
    parts: list[list[TakeSource]] = [[]]
    used_bytes = 0
    for source in sources:
        needed_bytes = SOURCE_BYTES + len(source.topic.encode()) + len(source.topic_id.encode())
        if used_bytes + needed_bytes > RECORD_BUDGET_BYTES:
            parts.append([])
            used_bytes = 0
        parts[-1].append(source)
        used_bytes += needed_bytes
    return [tuple(part) for part in parts]


class Announcer:
    """Writes for one group; each call returns when what it wrote is durable."""

    def __init__(
        self,
        log: Log,
        topics: AckTopics,
        group: str,
        partitions: int,
        who: Who | None = None,
        *,
        durable_ms: int = UNREACHABLE_MS,
        reads: Collection[int] = (),
    ) -> None:
        """Open producers for N acker partitions.

        Args:
            log: the cluster.
            topics: the names of the ack topics.
            group: whose roots and sessions it writes about.
            partitions: N.
            who: the process, as its signs of life name it; None: they do not.
            durable_ms: a call fails if a record takes longer to be durable.
            reads: the ids of the inputs that the process reads; none: its signs of life do not say
                it.
        """
        self._durable_ms = durable_ms
        self._input_ids = tuple(sorted(reads))
        producer_count = -(-partitions // PARTITIONS_EACH)  # rounded up: 9 partitions have two
        self._producers = [log.producer() for _ in range(producer_count)]
        self._codec = wire_codec()
        self._topics = topics
        self._group = group
        self._acker_count = partitions  # N: how many acker partitions there are
        self.who = who
        self._cluster_headers = cluster_header(log.cluster_id())
        self._defers_wait = False  # within `together`: a call does not wait for its last records
        self._is_unflushed = False  # an Init or a Take may not be durable yet

    @contextmanager
    def together(self) -> Iterator[None]:
        """Wait once, at the end of this context, for what `send_init` and `send_take` write in it.

        What they wrote is durable only then, so do not give away anything that was initialised
        before. Each call must have sources of its own.
        """
        self._defers_wait = True
        try:
            yield
        finally:
            self._defers_wait = False
        if self._is_unflushed:
            self._flush()

    def send_take(
        self, name: SessionName, clock_ms: int, sources: Sequence[TakeSource], to: Iterable[int]
    ) -> None:
        """Send the `Take` of a session to the acker partitions `to`; of epoch 0 it asks and changes nothing.

        A record has room for some 9,000 sources; the answer that counts is the one that names all.
        """
        partitions = list(to)
        sign = self._sign_headers()
        for part in _parts_that_fit(sources):
            take = Take(self._group, name.id, name.epoch, clock_ms, self._acker_count, part)
            for partition in partitions:
                self._send(self._topics.init, partition, take, sign)
        self._is_unflushed = True
        if not self._defers_wait:
            self._flush()

    def send_init(
        self,
        name: SessionName,
        clock_ms: int,
        wall_ms: int,
        roots: RootSet,
        specs: Mapping[int, SourceSpec],
        *,
        epochs: Mapping[int, int] = MappingProxyType({}),
        grace_ms: int = 0,
    ) -> None:
        """Initialise roots, of each source one acker partition after another.

        A part, the runs of one acker partition and topic, is sent when those before it of the same
        sources are durable. So if the process dies in between, a prefix of each source's parts is
        initialised. Parts of different sources go in one *turn*, and are waited for together: some
        hundred sources would take as many round trips otherwise.

        Args:
            name: the session.
            clock_ms: its clock.
            wall_ms: this machine's.
            roots: all of sources in `specs`.
            specs: by source.
            epochs: by source, where it is known: an epoch of the leader in which its log had all of
                these.
            grace_ms: added to the timeouts of the roots.
        """
        runs_by_part = self._init_parts(roots, specs)
        has_sent = False
        last_turn = 0
        for part, runs in sorted(runs_by_part.items()):
            spec = specs[runs[0].source]  # all sources of a part are of one topic
            timeout_ms = spec.input.timeout_ms
            if timeout_ms:  # 0: without a timeout, so there is nothing to add to
                timeout_ms += grace_ms
            for start in range(0, len(runs), INIT_RUNS_MAX):
                init = Init(
                    self._group,
                    name.id,
                    name.epoch,
                    clock_ms,
                    wall_ms,
                    timeout_ms,
                    self._acker_count,
                    part.topic,
                    spec.topic_id,
                    tuple(runs[start : start + INIT_RUNS_MAX]),
                )
                # what was sent is durable before a further piece of this part, or a new turn
                is_further_piece = start > 0
                if has_sent and (is_further_piece or part.turn > last_turn):
                    self._flush()
                last_turn = part.turn
                headers = (*self._sign_headers(), *epochs_of_runs(init.runs, epochs))
                self._send(self._topics.init, part.acker_partition, init, headers)
                has_sent = True
                self._is_unflushed = True
        if has_sent and not self._defers_wait:
            self._flush()

    def _init_parts(
        self, roots: RootSet, specs: Mapping[int, SourceSpec]
    ) -> dict[_InitPart, list[SourceRun]]:
        """Return the runs of each part of an init; `specs` are by source.

        Of a source no two parts are in one turn: its lowest acker partition is in turn 0, the next
        in turn 1. So of each source a prefix of its parts is initialised, wherever the process
        dies.
        """
        runs_by_part: dict[_InitPart, list[SourceRun]] = {}
        # by source: how many acker partitions before this one have roots of it
        turn_by_source = Counter[int]()
        roots_by_owner = roots.by_acker_partition(self._acker_count)
        for owner, owned_roots in sorted(roots_by_owner.items()):
            for run in owned_roots.runs():
                topic = specs[run.source].place.topic
                part = _InitPart(turn_by_source[run.source], owner, topic)
                runs_by_part.setdefault(part, []).append(run)
            turn_by_source.update(owned_roots.sources())
        return runs_by_part

    def send_tick(
        self, name: SessionName, clock_ms: int, to: Iterable[int], wall_ms: int | None = None
    ) -> None:
        """Send the session's clock to the acker partitions `to`: a sign of life.

        It carries `wall_ms`, what this machine's clock shows; None: it carries none.
        """
        tick = Tick(self._group, name.id, name.epoch, clock_ms)
        sign = self._sign_headers(reads=self._input_ids)
        clock_headers = clock_header(wall_ms)
        for partition in to:
            self._send(self._topics.init, partition, tick, (*sign, *clock_headers))
            clock_headers = ()  # the first one has it for all: a group may tick in hundreds of partitions
        self._flush()

    def send_goodbye(self, name: SessionName, clock_ms: int) -> None:
        """Send the last sign of life of this process, so that a new session need not wait for its silence."""
        tick = Tick(self._group, name.id, name.epoch, clock_ms)
        self._send(self._topics.init, SIGNS_AT, tick, sign_headers(self.who, leaves=True))
        self._producer_of(SIGNS_AT).flush(LEAVE_MS)

    def send_absent(self, name: SessionName, lane: str, seq: int, clock_ms: int, roots: RootSet) -> None:
        """Report to the ackers that the log has no record of roots: their verdict is ABSENT.

        Args:
            name: the session.
            lane: the numbered sequence of messages whose number `seq` is; an acker applies each
                number of a lane once.
            seq: higher than at the last call.
            clock_ms: the session's clock.
            roots: of any sources.
        """
        of_no_root = self._acks_of_no_root(name, lane, seq, clock_ms)
        for (source, block), runs in roots.runs_by_block().items():
            self._send_acks(replace(of_no_root, source=source, block=block, absent=runs))
        self._flush()

    def reset_timeouts(self, name: SessionName, lane: str, seq: int, clock_ms: int, roots: RootSet) -> None:
        """Begin the timeouts of roots anew, at the session's clock `clock_ms`.

        Args:
            name: the session.
            lane: the numbered sequence of messages whose number `seq` is; an acker applies each
                number of a lane once.
            seq: higher than at the last call.
            clock_ms: the session's clock.
            roots: of any sources.
        """
        of_no_root = self._acks_of_no_root(name, lane, seq, clock_ms)
        for (source, block), runs in roots.runs_by_block().items():
            positions_of_runs = [np.arange(start, end, dtype=np.int64) for start, end in runs]
            touched = pack_positions(np.concatenate(positions_of_runs))
            self._send_acks(replace(of_no_root, source=source, block=block, touched=touched))
        self._flush()

    def close(self) -> None:
        """Close the producers."""
        for producer in self._producers:
            producer.close()

    def _sign_headers(self, reads: Iterable[int] = ()) -> Headers:
        """Return the headers that say who writes, in which cluster, and which inputs it `reads`."""
        return (*sign_headers(self.who, reads=reads), *self._cluster_headers)

    def _acks_of_no_root(self, name: SessionName, lane: str, seq: int, clock_ms: int) -> Acks:
        """Return a contribution to no root, of no block yet: the caller fills in both."""
        return Acks(
            lane=lane, seq=seq, group=self._group, session=name.id, epoch=name.epoch,
            source=0, block=0,
            runs=(), positions=b"", values=b"", absent=(), touched=b"", touched_at=clock_ms,
        )  # fmt: skip

    def _send_acks(self, acks: Acks) -> None:
        """Send a contribution to the acker partition of its block, behind the inits that came before it."""
        if self._is_unflushed:
            self._flush()
        # one acker partition owns all positions of a block, so that of the first one will do
        first_position = acks.block << WIRE_BLOCK_BITS
        owner = acker_partition(acks.source, first_position, self._acker_count)
        self._send(self._topics.ack, owner, acks)

    def _flush(self) -> None:
        """Wait until all that was sent is durable; `Unreachable` if that takes over `durable_ms`."""
        for producer in self._producers:
            producer.flush(self._durable_ms)
        self._is_unflushed = False

    def _producer_of(self, partition: int) -> Producer:
        """Return the producer of an acker partition: what one of them gets stays in order."""
        return self._producers[partition % len(self._producers)]

    def _send(self, topic: str, partition: int, event: Event, headers: Headers = ()) -> None:
        """Send one record to an acker partition, without waiting until it is durable."""
        record = Outgoing(topic, partition, self._codec.encode(event), headers=headers)
        self._producer_of(partition).send(record)


Report = Callable[[str, Mapping[str, object]], None]
"""Called with an event's name and its fields."""


class Reach(Protocol):
    """The offsets between which the records of a partition can be read; a `Log` gets them from the broker."""

    def bounds(self, bound: Bound, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return for each partition its first readable offset, or the one behind its last (STABLE_END).

        Of others the answer has why that is unknown.
        """


class SightRequest(NamedTuple):
    """How many records of a partition planning would take, from the offset `start` on and below `end`."""

    start: int
    end: int
    record_count: int


class Sightings(NamedTuple):
    """What was seen of partitions; `awaited` are those of which more will be known soon."""

    by_partition: Mapping[TopicPartition, Sighting]
    awaited: Collection[TopicPartition]


class Sight(Protocol):
    """Looks which of the next offsets of partitions hold a record, before they are planned."""

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Sightings:
        """Look as far as it is cheap; partitions of which nothing is known may be missing."""

    def fetch_ahead(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Prepare to look at these partitions next, each from an offset on; at no others soon."""

    def close(self) -> None:
        """Look no more."""


@dataclass(frozen=True, slots=True)
class PlannerContext:
    """The cluster, the task, and the connection to the ackers (None where nothing is tracked).

    `troubles` are of the partitions of inputs and of what planning must know besides; `left_out`
    are sources that are not read yet, each with the wall time (ms) at which it was left out first.
    `cluster_id` is empty before the planner is opened, and where the brokers say none.
    """

    log: Log
    spec: PlannerSpec
    sources: dict[int, SourceSpec]
    announcer: Announcer | None
    report: Report
    reach: Reach
    sight: Sight
    troubles: Troubles
    left_out: dict[int, int] = field(default_factory=dict)
    cluster_id: str = UNKNOWN_CLUSTER

    def leave_out(self, since_ms: Mapping[int, int]) -> None:
        """Do not read sources yet: nobody can say where they begin, since they have no leader.

        They come later, as new partitions do (`spout.group.growth`), and begin where they would
        have begun at these wall times.
        """
        for source in since_ms:
            del self.sources[source]
        self.left_out.update(since_ms)

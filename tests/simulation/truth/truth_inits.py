"""What ``_ack_init`` says: who holds a group, what its clock is, and which roots there are. See `Truth`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acker.errors import CodecError
from acker.identity import generation_of, is_replay, offset_of, partition_of, root_edge
from acker.ledger.sessions import SIBLING_MS
from acker.wire.codec import wire_codec
from acker.wire.events import Init, Take, Tick
from tests.simulation.truth.facts import Holder, KnownSource, RootTruth, Stamp
from tests.simulation.truth.truth import Truth

_WALL_AHEAD_MS_MAX = 2 * 3_600_000
"""Source: docs/design/protocol.md, "What one record can claim"."""


class InitTruth:
    """Reads takes, ticks and inits into the truth."""

    def __init__(self, truth: Truth, initialised: Callable[[Sequence[RootTruth]], None]) -> None:
        """Begin with nothing read; what an init opens goes to `initialised`."""
        self._truth = truth
        self._initialised = initialised
        self._codec = wire_codec()

    def read(self, number: int, value: bytes | None) -> None:
        """Read a record of a partition; garbage says nothing."""
        try:
            event = self._codec.decode(value)
        except CodecError:
            return
        if isinstance(event, Take):
            self._take(number, event)
        elif isinstance(event, Tick):
            self._tick(number, event)
        elif isinstance(event, Init):
            self._init(number, event)

    def _take(self, number: int, take: Take) -> None:
        part = self._truth.partitions[number]
        key = take.group, take.session
        part.unanswered[key] = part.unanswered.get(key, 0) + 1
        self._truth.owed += 1
        holder = Holder(take.epoch, take.session)
        held = part.holders.get(take.group)
        self._truth.tell("take", number, take.group, f"{take.epoch}/{take.session}")
        if take.epoch <= 0 or (held is not None and holder < held):
            return
        for source in take.sources:
            known = part.known.get(source.source)
            if known is None or source.generation > known.generation:
                part.known[source.source] = KnownSource(
                    take.group, source.topic, source.topic_id, source.generation, source.from_
                )
                key2 = source.source, source.generation
                self._truth.froms[key2] = min(source.from_, self._truth.froms.get(key2, source.from_))
        if held != holder:
            part.holders[take.group] = holder
            part.takes.setdefault(take.group, []).append((self._truth.at, holder))
            part.clocks.setdefault((take.group, holder), take.now)
            part.begun.setdefault((take.group, holder), take.now)
            part.ticks.setdefault((take.group, holder), [])
        else:
            part.shared_until[take.group, holder] = part.clocks[take.group, holder] + SIBLING_MS

    def _tick(self, number: int, tick: Tick) -> None:
        part = self._truth.partitions[number]
        holder = Holder(tick.epoch, tick.session)
        if part.holders.get(tick.group) == holder:
            key = tick.group, holder
            part.clocks[key] = max(part.clocks[key], tick.now)
            part.ticks[key].append(Stamp(self._truth.at, part.clocks[key], self._truth.now_ms))

    def _init(self, number: int, init: Init) -> None:
        part = self._truth.partitions[number]
        holder = Holder(init.epoch, init.session)
        if part.holders.get(init.group) != holder:
            return
        key = init.group, holder
        is_shared = part.clocks[key] < part.shared_until.get(key, 0)
        part.clocks[key] = max(part.clocks[key], init.now)
        fresh: list[RootTruth] = []
        for run in init.runs:
            known = part.known.get(run.source)
            ends = {generation_of(run.start), generation_of(max(run.start, run.end - 1))}
            if known is None or ends != {known.generation} or known.group != init.group:
                continue
            start = max(run.start, part.watermarks.get(run.source, 0))
            fresh += [self._root(number, holder, init, run.source, p) for p in range(start, run.end)]
            part.watermarks[run.source] = max(run.end, part.watermarks.get(run.source, 0))
        for root in fresh:
            root.is_shared = is_shared
        if not fresh:
            return
        self._truth.open[key] = self._truth.open.get(key, 0) + len(fresh)
        self._truth.open_roots += len(fresh)
        self._truth.tell("init", number, f"{init.epoch}/{init.session}", *map(str, fresh))
        self._initialised(fresh)

    def _wall_ms(self, init: Init) -> int:
        """Return when the roots of an init were emitted; a wall time of the future is that of its record."""
        is_of_future = init.wall > self._truth.now_ms + _WALL_AHEAD_MS_MAX
        return self._truth.now_ms if is_of_future else init.wall

    def _root(self, number: int, holder: Holder, init: Init, source: int, position: int) -> RootTruth:
        place = init.topic, partition_of(source), int(offset_of(position))
        location = f"{place[0]}/{place[1]}@{place[2]}"
        parent = self._truth.parents.get(place) if is_replay(source) else None
        clock_ms = self._truth.partitions[number].clocks[init.group, holder]
        root = RootTruth(
            source, position, number, init.group, holder, init.topic, init.topic_id,
            init.now, self._wall_ms(init), init.timeout_ms + clock_ms - init.now if init.timeout_ms else 0,
            clock_ms, self._truth.at, self._truth.now_ms,
            attempt=1 if parent is None else parent.attempt + 1,
            origin=location if parent is None else parent.origin,
            missing=root_edge(source, position),
            parent=parent,
        )  # fmt: skip
        self._truth.roots[source, position] = root
        self._truth.located.setdefault(location, []).append(root)
        return root

"""What ``_ack_ack`` and ``_ack_fail`` say of each root, folded in the plainest way. See `Truth`."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from acker.errors import CodecError
from acker.identity import root_edge
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Fails, positions, values
from tests.simulation.truth.facts import Holder, RootTruth
from tests.simulation.truth.truth import Truth


class ContributionTruth:
    """Reads contributions and fails into the truth."""

    def __init__(self, truth: Truth) -> None:
        """Begin with nothing read."""
        self._truth = truth
        self._codec = wire_codec()

    def read_acks(self, number: int, value: bytes | None) -> None:
        """Read a record of ``_ack_ack``; garbage says nothing."""
        try:
            acks = self._codec.decode(value)
        except CodecError:
            return
        if not isinstance(acks, Acks) or value is None:
            return
        seen = self._seen(number, "ack", acks, value)
        named = list(zip(positions(acks.positions).tolist(), values(acks.values).tolist(), strict=True))
        spread = [p for run in acks.runs for p in range(run.start, run.end)]
        absent = [p for run in acks.absent for p in range(run.start, run.end)]
        touched = positions(acks.touched).tolist()
        self._truth.tell(
            "acks", number, acks.lane, acks.seq, seen, acks.source, spread, [p for p, _ in named], absent
        )
        if seen == "different":
            everything = {p for p, _ in named} | set(spread) | set(absent) | set(touched)
            self._differ(acks, everything)
        if seen != "new":
            return
        for position in spread:
            self._contribute(acks, position, root_edge(acks.source, position))
        for position, edge in named:
            self._contribute(acks, position, edge)
        for position in absent:
            root = self._root_of(acks, position)
            if root is not None and root.absent_at is None:
                root.absent_at = self._truth.at
        for position in touched:
            root = self._root_of(acks, position)
            if root is not None:
                root.touches.append((self._truth.at, acks.touched_at))

    def read_fails(self, number: int, value: bytes | None) -> None:
        """Read a record of ``_ack_fail``; garbage says nothing."""
        try:
            fails = self._codec.decode(value)
        except CodecError:
            return
        if not isinstance(fails, Fails) or value is None:
            return
        seen = self._seen(number, "fail", fails, value)
        named = {cause: positions(cause.positions).tolist() for cause in fails.causes}
        self._truth.tell(
            "fails",
            number,
            fails.lane,
            fails.seq,
            seen,
            fails.source,
            sorted(p for found in named.values() for p in found),
        )
        if seen == "different":
            self._differ(fails, {p for found in named.values() for p in found})
        if seen != "new":
            return
        for cause, found in named.items():
            for position in found:
                self._fail(fails, position, (cause.operator, cause.error, cause.message))

    def _seen(self, number: int, topic: str, record: Acks | Fails, value: bytes) -> str:
        """Tell whether a record is new, a repeat, or a repeat with other content."""
        marks = self._truth.partitions[number].marks
        key = topic, record.group, Holder(record.epoch, record.session), record.lane
        seq, applied = marks.get(key, (record.seq, {}))
        if record.seq < seq:
            return "repeat"
        if record.seq > seq:
            applied = {}
        marks[key] = record.seq, applied
        crc, place = zlib.crc32(value), (record.source, record.block)
        if place not in applied:
            applied[place] = crc
            return "new"
        return "repeat" if applied[place] == crc else "different"

    def _contribute(self, acks: Acks, position: int, edge: int) -> None:
        root = self._root_of(acks, position)
        if root is not None:
            root.missing ^= edge
            if root.missing == 0 and root.complete_at is None:
                root.complete_at = self._truth.at

    def _differ(self, record: Acks | Fails, named: Iterable[int]) -> None:
        for position in named:
            self._fail(record, position, ("", "NONDETERMINISTIC", ""))

    def _fail(self, record: Acks | Fails, position: int, cause: tuple[str, str, str]) -> None:
        root = self._root_of(record, position)
        if root is not None:
            root.causes.add(cause)
            if root.failed_at is None:
                root.failed_at = self._truth.at

    def _root_of(self, record: Acks | Fails, position: int) -> RootTruth | None:
        root = self._truth.roots.get((record.source, position))
        if root is None or root.holder != (record.epoch, record.session) or root.group != record.group:
            return None
        return root

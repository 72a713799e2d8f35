"""What an acker partition must decide, as plain dicts: one entry for each root, one loop for each rule.

The model receives written records in batches: everything in the logs when the acker read them. Within a batch
it applies inits, then fails, then absences, then contributions one record after the other, then ticks and
takes. It knows nothing of ranges, arrays, positions in the log, State or restarts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from acker.identity import root_edge
from acker.wire.events import Acks, Event, Fails, Init, Take, Tick, positions, values

Root = tuple[int, int]
Session = tuple[int, str]
Decode = Callable[[bytes], Event]

SIBLING_MS = 10_000
"""The process before may live for so long after a restart (rule 8)."""

UNSENT_MS = 1_000
"""A process sends its clock again before it has moved on by more (rule 8)."""


@dataclass
class OpenRoot:
    """An open root."""

    session: Session
    value: int
    deadline: int | None
    timeout: int


@dataclass
class Model:
    """One acker partition and one group, in plain dicts."""

    open: dict[Root, OpenRoot] = field(default_factory=dict)
    verdicts: dict[Root, tuple[str, str]] = field(default_factory=dict)
    watermark: dict[int, int] = field(default_factory=dict)
    holder: Session | None = None
    clock: dict[Session, int] = field(default_factory=dict)
    read: dict[Session, int] = field(default_factory=dict)
    shared_until: dict[Session, int] = field(default_factory=dict)
    marks: dict[tuple[str, str], tuple[int, dict[tuple[int, int], bytes]]] = field(default_factory=dict)

    def apply(self, inits: list[Event], fails: list[bytes], acks: list[bytes], decode: Decode) -> None:
        """Apply one batch."""
        counted: list[tuple[Session, int | None]] = []
        for event in inits:
            self._read(event, counted)
        named: list[tuple[Session, int, list[int], str]] = []
        for raw in fails:
            named += self._read_fails(raw, decode)
        fresh: list[Acks] = []
        for raw in acks:
            event = decode(raw)
            if not isinstance(event, Acks):
                raise TypeError("contributions only")
            session, seen = (event.epoch, event.session), self._seen("ack", event, raw)
            if seen == "new":
                fresh.append(event)
            elif seen == "different":
                named.append((session, event.source, everything(event), "NONDETERMINISTIC"))
        for session, source, failed, error in named:
            self._settle(session, source, failed, ("FAILED", error))
        for event in fresh:
            absent = [p for run in event.absent for p in range(run.start, run.end)]
            self._settle((event.epoch, event.session), event.source, absent, ("ABSENT", ""))
        for event in fresh:
            self._fold(event)
        for session, now in counted:
            self._count(session, now)

    def _read(self, event: Event, counted: list[tuple[Session, int | None]]) -> None:
        if isinstance(event, Take):
            session = (event.epoch, event.session)
            if self.holder is not None and session < self.holder:
                return
            self.clock.setdefault(session, event.now)
            self.read.setdefault(session, event.now)
            if session == self.holder:
                self.shared_until[session] = self.read[session] + SIBLING_MS
            self.holder = session
            counted.append((session, None))
        elif isinstance(event, Tick) and (event.epoch, event.session) == self.holder:
            self.read[self.holder] = max(self.read[self.holder], event.now)
            counted.append((self.holder, event.now))
        elif isinstance(event, Init) and (event.epoch, event.session) == self.holder:
            timeout = event.timeout_ms and event.timeout_ms + self._grace_ms(self.holder, event.now)
            self.read[self.holder] = max(self.read[self.holder], event.now)
            for run in event.runs:
                for position in range(run.start, run.end):
                    if position >= self.watermark.get(run.source, 0):
                        self.watermark[run.source] = position + 1
                        deadline = event.now + timeout if timeout else None
                        self.open[run.source, position] = OpenRoot(self.holder, 0, deadline, timeout)

    def _grace_ms(self, session: Session, now: int) -> int:
        """Return how much longer roots have, since another process of the session may have a higher clock."""
        read = self.read[session]
        if read >= self.shared_until.get(session, 0) and now >= read:
            return 0
        return max(0, read + UNSENT_MS - now)

    def _read_fails(self, raw: bytes, decode: Decode) -> list[tuple[Session, int, list[int], str]]:
        event = decode(raw)
        if not isinstance(event, Fails):
            raise TypeError("fails only")
        seen = self._seen("fail", event, raw)
        if seen == "old":
            return []
        return [
            (
                (event.epoch, event.session),
                event.source,
                positions(cause.positions).tolist(),
                cause.error if seen == "new" else "NONDETERMINISTIC",
            )
            for cause in event.causes
        ]

    def _seen(self, topic: str, event: Acks | Fails, raw: bytes) -> str:
        seq, applied = self.marks.get((topic, event.lane), (-1, {}))
        if event.seq < seq:
            return "old"
        if event.seq > seq:
            applied = {}
        self.marks[topic, event.lane] = (event.seq, applied)
        first = applied.setdefault((event.source, event.block), raw)
        if first is raw:
            return "new"
        return "old" if first == raw else "different"

    def _fold(self, event: Acks) -> None:
        session = (event.epoch, event.session)
        given = [
            ((event.source, p), root_edge(event.source, p))
            for run in event.runs
            for p in range(run.start, run.end)
        ]
        pairs = zip(positions(event.positions).tolist(), values(event.values).tolist(), strict=True)
        given += [((event.source, p), v) for p, v in pairs]
        for root, value in given:
            if root in self.open and self.open[root].session == session:
                self.open[root].value ^= value
        for root, _ in given:
            if root in self.open and self.open[root].value == root_edge(*root):
                self._settle(session, root[0], [root[1]], ("ACKED", ""))
        for position in positions(event.touched).tolist():
            found = self.open.get((event.source, position))
            if found and found.session == session and found.deadline is not None:
                found.deadline = max(found.deadline, event.touched_at + found.timeout)

    def _count(self, session: Session, now: int | None) -> None:
        if now is None:
            others = [root for root, found in self.open.items() if found.session < session]
            for root in others:
                self._settle(self.open[root].session, root[0], [root[1]], ("ABANDONED", ""))
            return
        self.clock[session] = max(self.clock[session], now)
        due = [
            root
            for root, found in self.open.items()
            if found.session == session
            and found.deadline is not None
            and found.deadline <= self.clock[session]
        ]
        for root in due:
            self._settle(session, root[0], [root[1]], ("TIMED_OUT", ""))

    def _settle(self, session: Session, source: int, named: list[int], verdict: tuple[str, str]) -> None:
        for position in named:
            root = (source, position)
            if root in self.open and self.open[root].session == session:
                del self.open[root]
                self.verdicts[root] = verdict


def everything(acks: Acks) -> list[int]:
    """Return every position that a record of contributions names."""
    runs = [p for run in acks.runs + acks.absent for p in range(run.start, run.end)]
    return [*runs, *positions(acks.positions).tolist(), *positions(acks.touched).tolist()]

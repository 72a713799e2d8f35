"""Records that somebody writes in the name of another's group, and what must come of each.

Anybody who may write to the ack topics can claim to be any session. `FORGERIES` has records for each field
of each kind, with values at which something ends. What must come of one: it goes to the quarantine with a
reason, or it is believed and does harm to the session in whose name it is, or it changes nothing. After each
of them a *new* session of the group has all that a session has: its roots are acked, time out, and can be
rewound. No single record takes that away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from acker.config.settings import AckTopics
from acker.identity import position_at, root_edge, source_of
from acker.kafka.port import Headers, Log, Outgoing, Record, TopicPartition
from acker.wire.checks import CLOCK_AHEAD_MS_MAX, EPOCHS_FREE
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    FailCause,
    Fails,
    Init,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakeSource,
    Tick,
    Verdicts,
    pack_positions,
    pack_values,
    positions,
)
from spout.group.opening import clock_after, epoch_above

TIMEOUT_MS: Final = 30_000
FAR: Final = 1 << 53
MINUTE_MS: Final = 60_000
GENERATION: Final = 1
"""The group of each session was rewound once, so that there is a generation below and one above."""

_CODEC: Final = wire_codec()


@dataclass(frozen=True)
class Victim:
    """The session in whose name something is written; `now_ms` is wall time, and its clock.

    Attributes:
        generation: the present one of its source.
        partitions: N.
    """

    group: str
    input_id: int
    now_ms: int
    session: str = "s1"
    epoch: int = 1
    generation: int = GENERATION
    partitions: int = 1

    @property
    def source(self) -> int:
        return source_of(self.input_id, 0)

    @property
    def lane(self) -> str:
        return f"query/{self.session}"

    def at(self, offset: int, ahead: int = 0) -> int:
        """Return the position of an offset, so many generations ahead."""
        return int(position_at(self.generation + ahead, offset))

    def named(self, ahead: int = 0, from_: int | None = None) -> TakeSource:
        begin = self.at(0, ahead) if from_ is None else from_
        return TakeSource(self.source, "lines", "id", self.generation + ahead, begin)

    def take(self, *sources: TakeSource) -> Take:
        named = sources or (self.named(),)
        return Take(self.group, self.session, self.epoch, self.now_ms, self.partitions, named)

    def tick(self, now_ms: int) -> Tick:
        return Tick(self.group, self.session, self.epoch, now_ms)

    def init(self, first: int, end: int, ahead: int = 0) -> Init:
        run = SourceRun(self.source, self.at(first, ahead), self.at(end, ahead))
        return Init(
            self.group, self.session, self.epoch, self.now_ms, self.now_ms, TIMEOUT_MS, self.partitions,
            "lines", "id", (run,),
        )  # fmt: skip

    def acks(self, first: int, end: int, seq: int, ahead: int = 0) -> Acks:
        run = PositionRun(self.at(first, ahead), self.at(end, ahead))
        return Acks(
            self.lane, seq, self.group, self.session, self.epoch, self.source, run.start >> 15, (run,), b"",
            b"", (), b"", 0,
        )  # fmt: skip

    def touch(self, offset: int, touched_at_ms: int) -> Acks:
        """Reset the timeout of a root, in a lane of its own."""
        touched = pack_positions(np.array([self.at(offset)], np.int64))
        empty = replace(self.acks(offset, offset + 1, 0), lane="another", runs=())
        return replace(empty, touched=touched, touched_at=touched_at_ms)

    def false_ack(self, offset: int) -> Acks:
        """Contribute all that a root misses, in a lane of its own."""
        edge = root_edge(self.source, self.at(offset))
        return replace(
            self.acks(offset, offset + 1, 0),
            lane="another",
            runs=(),
            positions=pack_positions(np.array([self.at(offset)], np.int64)),
            values=pack_values(np.array([edge], np.uint64)),
        )

    def fails(self, offset: int, seq: int = 0) -> Fails:
        cause = FailCause("", "Forged", "", pack_positions(np.array([self.at(offset)], np.int64)))
        acks = self.acks(offset, offset + 1, 0)
        return Fails("another", seq, self.group, self.session, self.epoch, self.source, acks.block, (cause,))


class Forgery(NamedTuple):
    """One forged record, and what must come of it.

    Attributes:
        topic: init, ack or fail.
        of: makes the record.
        why: part of the reason in the quarantine; empty: it is not quarantined.
        goes_on: whether the session in whose name it is goes on as if there were no such record.
        headers: of the record.
        stamp_ms: makes the time that the record claims; None: none is claimed.
    """

    name: str
    topic: str
    of: Callable[[Victim], Event]
    why: str = ""
    goes_on: bool = True
    headers: Headers = ()
    stamp_ms: Callable[[Victim], int] | None = None


def _numbers(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


_CLOCK = "ahead of the time of its record"
_EPOCH = "no session can have"
_NEITHER = "is no epoch and no time"

FORGERIES: Final = (
    # -- the clock: by one that is far ahead nothing of the group would time out ever again
    Forgery("tick-2^53", "init", lambda v: v.tick(FAR), _CLOCK),
    Forgery("tick-2^53-and-1", "init", lambda v: v.tick(FAR + 1), _NEITHER),
    Forgery("tick-2^62", "init", lambda v: v.tick(1 << 62), _NEITHER),
    Forgery("tick-in-a-day", "init", lambda v: v.tick(v.now_ms + 24 * 60 * MINUTE_MS), _CLOCK),
    Forgery(
        "tick-beyond-the-limit", "init", lambda v: v.tick(v.now_ms + CLOCK_AHEAD_MS_MAX + MINUTE_MS), _CLOCK
    ),
    Forgery(
        "tick-below-the-limit", "init", lambda v: v.tick(v.now_ms + CLOCK_AHEAD_MS_MAX - MINUTE_MS),
        goes_on=False,
    ),
    Forgery("tick-of-the-past", "init", lambda v: v.tick(-FAR)),
    Forgery("take-now-2^53", "init", lambda v: replace(v.take(), epoch=2, session="x", now=FAR), _CLOCK),
    Forgery(
        "take-now-of-the-past", "init", lambda v: replace(v.take(), epoch=2, session="x", now=-FAR),
        goes_on=False,
    ),
    Forgery("init-now-2^53", "init", lambda v: replace(v.init(10, 20), now=FAR), _CLOCK),
    Forgery("init-wall-2^53", "init", lambda v: replace(v.init(10, 20), wall=FAR)),
    Forgery("init-of-the-past", "init", lambda v: replace(v.init(10, 20), now=-FAR, wall=-FAR)),
    Forgery("init-never-times-out", "init", lambda v: replace(v.init(10, 20), timeout_ms=FAR), goes_on=False),
    Forgery("init-times-out-at-once", "init", lambda v: replace(v.init(10, 20), timeout_ms=1), goes_on=False),
    Forgery("touched-at-2^53", "ack", lambda v: v.touch(9, FAR), _CLOCK),
    Forgery("touched-at-2^62", "ack", lambda v: v.touch(9, 1 << 62), _NEITHER),
    Forgery(
        "touched-below-the-limit", "ack", lambda v: v.touch(9, v.now_ms + CLOCK_AHEAD_MS_MAX - MINUTE_MS),
        goes_on=False,
    ),
    Forgery("touched-in-the-past", "ack", lambda v: v.touch(9, -FAR)),
    # -- the epoch: above the highest one no session could own the group again
    Forgery("take-epoch-2^53", "init", lambda v: replace(v.take(), epoch=FAR, session="x"), _EPOCH),
    Forgery("take-epoch-2^53-less-1", "init", lambda v: replace(v.take(), epoch=FAR - 1, session="x"),
             _EPOCH),
    Forgery("take-epoch-2^62", "init", lambda v: replace(v.take(), epoch=1 << 62, session="x"), _NEITHER),
    Forgery(
        "take-epoch-of-tomorrow", "init",
        lambda v: replace(v.take(), epoch=v.now_ms + EPOCHS_FREE + 24 * 60 * MINUTE_MS, session="x"), _EPOCH,
    ),
    Forgery(
        "take-highest-epoch", "init",
        lambda v: replace(v.take(), epoch=v.now_ms + EPOCHS_FREE - MINUTE_MS, session="x"), goes_on=False,
    ),
    Forgery("take-next-epoch", "init", lambda v: replace(v.take(), epoch=2, session="x"), goes_on=False),
    Forgery("take-epoch-0", "init", lambda v: replace(v.take(), epoch=0, session="x")),
    Forgery("take-epoch-below-0", "init", lambda v: replace(v.take(), epoch=-FAR, session="x")),
    Forgery("tick-of-a-higher-session", "init", lambda v: replace(v.tick(5), epoch=FAR), _EPOCH),
    Forgery(
        "init-of-a-higher-session", "init", lambda v: replace(v.init(10, 20), epoch=FAR), "has not taken"
    ),
    # -- generations: in the last one nobody could rewind the group again
    Forgery("generation-32767", "init", lambda v: v.take(v.named(32_767 - v.generation)),
            "may go to generation"),
    Forgery("generation-18", "init", lambda v: v.take(v.named(17)), "may go to generation"),
    Forgery("generation-32768", "init", lambda v: v.take(v.named(0, 0)._replace(generation=32_768)),
            "does not exist"),
    Forgery("generation-below-0", "init", lambda v: v.take(v.named()._replace(generation=-1)),
            "does not exist"),
    Forgery("next-generation", "init", lambda v: v.take(v.named(1)), goes_on=False),
    Forgery(
        "from-beyond-the-log", "init", lambda v: v.take(v.named(1, v.at(1 << 47, 1))),
        goes_on=False,
    ),
    Forgery("from-of-another-generation", "init", lambda v: v.take(v.named(1, v.at(0, 9))),
            "cannot begin"),
    Forgery("from-below-0", "init", lambda v: v.take(v.named(1, -1)), "cannot begin"),
    Forgery("from-of-the-same-generation", "init", lambda v: v.take(v.named(0, v.at(1 << 40)))),
    # -- who has what
    Forgery("take-of-another-n", "init", lambda v: replace(v.take(), partitions=v.partitions + 1),
            "ack topics have 1"),
    Forgery("init-of-another-n", "init", lambda v: replace(v.init(10, 20), partitions=v.partitions + 1),
             "ack topics have 1"),
    Forgery("take-of-another-group", "init", lambda v: replace(v.take(), group=f"{v.group}-x"),
             "is of group"),
    Forgery(
        "take-of-another-topic", "init", lambda v: v.take(v.named()._replace(topic="other")), "is topic"
    ),
    Forgery(
        "take-of-a-partition-that-never-was", "init",
        lambda v: v.take(v.named()._replace(source=source_of(v.input_id, 65_535))),
    ),
    Forgery("take-without-a-group", "init", lambda v: replace(v.take(), group=""), "names no group"),
    Forgery("take-without-a-session", "init", lambda v: replace(v.take(), session=""), "no session"),
    Forgery("take-of-a-long-name", "init", lambda v: replace(v.take(), session="x" * 1_001), "a name of"),
    Forgery("take-of-no-input", "init", lambda v: v.take(v.named()._replace(source=0)), "of no input"),
    # -- positions: what an init leaves out would never be read
    Forgery("init-leaves-all-out", "init", lambda v: v.init((1 << 48) - 2, (1 << 48) - 1), "leaves out"),
    Forgery("init-leaves-a-block-out", "init", lambda v: v.init(2 << 16, (2 << 16) + 1), "leaves out"),
    Forgery("init-leaves-some-out", "init", lambda v: v.init(1_000, 1_001), goes_on=False),
    Forgery("init-of-too-many", "init", lambda v: v.init(10, 200_000_000), "positions, more than"),
    Forgery("init-beyond-the-log", "init", lambda v: v.init(10, 70_000), goes_on=False),
    Forgery("init-of-the-next-generation", "init", lambda v: v.init(10, 20, 1)),
    Forgery("init-of-the-generation-before", "init", lambda v: v.init(10, 20, -1)),
    Forgery(
        "init-below-0", "init",
        lambda v: replace(v.init(10, 20), runs=(SourceRun(v.source, -(1 << 63), -(1 << 63) + 5),)),
    ),
    Forgery(
        "init-ends-before-it-starts", "init",
        lambda v: replace(v.init(10, 20), runs=(SourceRun(v.source, v.at(20), v.at(10)),)), "ends before",
    ),
    Forgery(
        "init-of-a-source-that-never-was", "init",
        lambda v: replace(v.init(10, 20), runs=(SourceRun(v.source + 7, v.at(10), v.at(20)),)),
    ),
    Forgery(
        "acks-of-no-block", "ack", lambda v: replace(v.acks(9, 10, 0), lane="another", block=1 << 60),
        "does not exist",
    ),
    # -- batches: by a high seq the later acks of a lane count no more
    Forgery("seq-2^63-less-1", "ack", lambda v: replace(v.acks(0, 1, 0), seq=(1 << 63) - 1), _NEITHER),
    Forgery("seq-2^53", "ack", lambda v: v.acks(0, 1, FAR), goes_on=False),
    Forgery("seq-below-0", "ack", lambda v: v.acks(0, 1, -5)),
    Forgery("seq-of-another-lane", "ack", lambda v: replace(v.acks(0, 1, FAR), lane="another")),
    Forgery("fails-seq-2^53", "fail", lambda v: v.fails(0, FAR)),
    # -- who may write, and speaks in another's name, is believed about its roots
    Forgery("a-false-ack", "ack", lambda v: v.false_ack(9), goes_on=False),
    Forgery("a-false-fail", "fail", lambda v: v.fails(5), goes_on=False),
    Forgery("acks-of-a-higher-session", "ack", lambda v: replace(v.false_ack(9), epoch=2)),
    Forgery("acks-of-another-group", "ack", lambda v: replace(v.false_ack(9), group="x"), "is of group"),
    # -- headers
    Forgery("who-is-nobody", "init", lambda v: v.tick(v.now_ms), headers=(("windhover.who", b"[" * 900),)),
    Forgery(
        "who-is-of-the-future", "init", lambda v: v.tick(v.now_ms),
        headers=(("windhover.who", b'["h", "a", 1, 99999999999999999999, "s"]'),),
    ),
    Forgery("leaves", "init", lambda v: v.tick(v.now_ms), headers=(("windhover.leaves", b""),)),
    Forgery(
        "first-emissions-of-the-ends", "ack", lambda v: replace(v.acks(0, 1, 0), lane="another"),
        headers=(("windhover.first-emissions", _numbers(1 << 30, 0, 1, -(1 << 63), (1 << 63) - 1)),),
    ),
    Forgery(
        "traces-of-the-ends", "ack", lambda v: replace(v.acks(0, 1, 0), lane="another"),
        headers=(("windhover.traces", _numbers(1, 0, -1, (1 << 63) - 1, -(1 << 63))),),
    ),
)  # fmt: skip

STAMPED: Final = (
    Forgery("stamped-tick-2^53", "init", lambda v: v.tick(FAR), _CLOCK, stamp_ms=lambda _: FAR),
    Forgery(
        "stamped-tick-in-a-day", "init", lambda v: v.tick(v.now_ms + 24 * 60 * MINUTE_MS), _CLOCK,
        stamp_ms=lambda v: v.now_ms + 24 * 60 * MINUTE_MS,
    ),
    Forgery(
        "stamped-take-epoch-2^53", "init", lambda v: replace(v.take(), epoch=FAR, session="x"), _EPOCH,
        stamp_ms=lambda _: FAR,
    ),
    Forgery("stamped-touched-at", "ack", lambda v: v.touch(9, FAR), _CLOCK, stamp_ms=lambda _: FAR),
    Forgery("stamped-before-1970", "init", lambda v: v.tick(v.now_ms), stamp_ms=lambda _: 0),
)  # fmt: skip
"""Forgeries whose records claim a time of their own; where the broker sets the time, it does not count."""

UNHARMED: Final = {
    offset: "ACKED" if offset < 8 or 10 <= offset < 18 else "TIMED_OUT" for offset in range(20)
}
"""What becomes of the roots of a session in whose name nobody else writes, by their offsets."""


@dataclass
class Plot:
    """Plays honest sessions, and one forgery in the name of each, in an installation of one acker partition.

    Attributes:
        work: lets the acker work, and time pass, until all that was written is read and counts.
        clock: wall time, ms.
    """

    log: Log
    names: AckTopics
    work: Callable[[], None]
    clock: Callable[[], int]
    forgeries: Sequence[Forgery]
    victims: list[Victim] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Let each session begin: ten roots, of which five are acked."""
        self._producer = self.log.producer()
        now_ms = self.clock()
        self.victims = [
            Victim(f"{self.names.init}-g{number}", number + 1, now_ms)
            for number in range(len(self.forgeries))
        ]
        for victim in self.victims:
            self._write("init", victim.take(), victim.init(0, 10))
        self._flush()
        for victim in self.victims:
            self._write("ack", victim.acks(0, 5, 1))
        self._flush()
        self.work()

    def forge(self) -> None:
        """Write the forgeries."""
        for victim, forgery in zip(self.victims, self.forgeries, strict=True):
            stamp_ms = None if forgery.stamp_ms is None else forgery.stamp_ms(victim)
            place = TopicPartition(self._topic(forgery.topic), 0)
            self.places.append(f"{place.topic}/0@{self.log.ends([place])[place]}")
            value = _CODEC.encode(forgery.of(victim))
            self._producer.send(Outgoing(place.topic, 0, value, None, forgery.headers, stamp_ms))
            self._flush()
        self.work()

    def go_on(self) -> None:
        """Let each session go on as if nothing was forged: ten more roots, of which two are never acked."""
        for victim in self.victims:
            emission = replace(victim.init(10, 20), now=victim.now_ms + 1_000)
            self._write("init", emission, victim.tick(victim.now_ms + 1_000))
        self._flush()
        self.work()
        for victim in self.victims:
            self._write("ack", victim.acks(5, 8, 2), victim.acks(10, 18, 3))
        self._flush()
        self.work()
        # a forged process of the session gives its roots a second more
        for after_ms in (TIMEOUT_MS, TIMEOUT_MS + 3_000):
            for victim in self.victims:
                self._write("init", victim.tick(victim.now_ms + after_ms))
            self._flush()
            self.work()

    def succeed(self) -> list[Victim]:
        """Let a new session follow in each group, as a query does; return these sessions.

        It asks, draws its epoch and its clock, begins a new generation, and acks one of two roots.
        """
        for victim in self.victims:
            self._write("init", replace(victim.take(), epoch=0, session="q?"))
        self._flush()
        self.work()
        answers = {taken.group: taken for taken in self.taken() if taken.asked_by == "q?"}
        successors: list[Victim] = []
        for victim in self.victims:
            answer, now_ms = answers[victim.group], self.clock()
            [generation] = [one.generation for one in answer.sources if one.source == victim.source]
            successors.append(
                replace(
                    victim,
                    epoch=epoch_above(answer.epoch, now_ms),
                    session="s2",
                    now_ms=clock_after(answer.clock, now_ms),
                    generation=generation + 1,
                )
            )
        for each in successors:
            self._write("init", each.take(), each.init(0, 2))
        self._flush()
        for each in successors:
            self._write("ack", each.acks(0, 1, 1))
        self._flush()
        self.work()
        for each in successors:
            self._write("init", each.tick(each.now_ms + TIMEOUT_MS))
        self._flush()
        self.work()
        return successors

    def outcomes(self, victim: Victim) -> dict[int, str]:
        """Return the verdict of each root of a session's generation, by offset."""
        first, end = victim.at(0), victim.at(0, 1)
        return {
            position - first: kind
            for (source, position), kind in self._verdicts().items()
            if source == victim.source and first <= position < end
        }

    def reasons(self) -> dict[str, str]:
        """Return the reason of each quarantined record by its place, ``topic/partition@offset``."""
        reasons: dict[str, str] = {}
        for record in self._read(self.names.quarantine):
            headers = dict(record.headers)
            place = (headers["windhover.origin"] or b"").decode()
            reasons[place] = (headers["windhover.why"] or b"").decode()
        return reasons

    def taken(self) -> list[Taken]:
        return [event for event in self._events() if isinstance(event, Taken)]

    def write(self, topic: str, *events: Event) -> None:
        """Write records, and let the acker work."""
        self._write(topic, *events)
        self._flush()
        self.work()

    def _verdicts(self) -> dict[tuple[int, int], str]:
        found: dict[tuple[int, int], str] = {}
        for event in self._events():
            if isinstance(event, Verdicts):
                for run in event.acked:
                    found |= {(run.source, position): "ACKED" for position in range(run.start, run.end)}
                for lost in event.lost:
                    lost_at = positions(lost.positions).tolist()
                    found |= {(lost.source, position): lost.reason.value for position in lost_at}
        return found

    def _events(self) -> Iterable[Event]:
        return (_CODEC.decode(record.value) for record in self._read(self.names.verdict))

    def _read(self, topic: str) -> Iterable[Record]:
        place = TopicPartition(topic, 0)
        end = self.log.stable_ends([place])[place]
        reader = self.log.reader(committed=True)
        try:
            reader.assign({place: self.log.starts([place])[place]})
            while reader.position(place) < end:
                yield from reader.poll(100, 10_000)
        finally:
            reader.close()

    def _topic(self, kind: str) -> str:
        return {"init": self.names.init, "ack": self.names.ack, "fail": self.names.fail}[kind]

    def _write(self, kind: str, *events: Event) -> None:
        for event in events:
            self._producer.send(Outgoing(self._topic(kind), 0, _CODEC.encode(event)))

    def _flush(self) -> None:
        self._producer.flush(30_000)

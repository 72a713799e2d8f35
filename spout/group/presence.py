"""Which process owns a group, and whether it is alive: the signs of life in `_ack_init`.

Each Take, Init and Tick of a session is a sign of life, and its header names the process. A process
that ends in order marks its last tick. One that died is noticed by its silence, and on the same
machine at once.

The ackers do not use this: they compare epochs. It keeps a query with its own checkpoint from
taking a group whose owner is alive. Signs from before the first read have the age of their records'
timestamps, so the clocks of the machines have to agree within `SILENT_MS_MAX` less `SIGN_EVERY_MS`.
From then on only the time counts that passes here (`PassedTime`): a clock that is set meanwhile
makes no owner silent, and none alive.

Source: docs/design/protocol.md, rule 9, and section 4, "Take and Taken".
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Self

from acker.errors import CodecError, Unreachable, WindhoverError
from acker.kafka.port import Bound, Headers, Log, Record, TopicPartition
from acker.kafka.read_to_end import Follower
from acker.kafka.standing import all_answers
from acker.service.passed_over import damage_handler
from acker.units import TIME_MS_MAX
from acker.untrusted import Untrusted, UntrustedName
from acker.waits import PassedTime
from acker.wire.codec import wire_codec
from acker.wire.events import Init, Take, Tick
from acker.writer_clocks import WriterTime, writer_time
from spout.group.sources import PlannerSpec
from spout.planning.session import SessionName

SIGN_EVERY_MS: Final = 2_000
"""A session without pending roots gives a sign of life this often; with pending roots its ticks are signs."""

SILENT_MS_MAX: Final = 10_000
"""A group may be taken when its owner gave no sign of life for this time; a new session waits no longer."""

CLIPPED_MS: Final = 2 * SIGN_EVERY_MS
"""After an acker has shortened the log, signs may be missing: a new session waits so long for new ones."""

SIGNS_EVERY_MS: Final = 250
"""New signs are read at most so often."""

TIMES_MAX: Final = 20
"""Of so many of the newest signs of a session it is kept when they were written."""

UNREAD_MS_MAX: Final = 60_000
"""If the broker has not sent all earlier signs after this time, nobody can say whether the owner lives."""

TEXT_MAX: Final = 200
"""A host's and an application's name are cut to so many characters in the header."""

WHO_HEADER: Final = "windhover.who"
LEAVES_HEADER: Final = "windhover.leaves"
READS_HEADER: Final = "windhover.reads"
"""The ids of the inputs that the process reads, in decimal digits, with commas between them."""


class Who(NamedTuple):
    """The process that gives a sign of life, which began at `since_ms`, wall time.

    `space` names the boot of a machine and the container in which `pid` is valid, since other
    machines use the same numbers; empty: unknown.
    """

    host: str
    application: str
    pid: int
    since_ms: int
    space: str = ""

    @classmethod
    def here(cls, application: str, now_ms: int) -> Self:
        """Return this process, which runs an application that people know by its name."""
        return cls(socket.gethostname(), application, os.getpid(), now_ms, _space())

    @property
    def is_dead(self) -> bool:
        """Whether it ran on this machine and has ended; False where that cannot be known."""
        if not self.space or self.space != _space():
            return False
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        # "4711 (python) S 1 ...": the name may have spaces and brackets, the state is behind its last bracket
        fields_behind_name = stat.rpartition(")")[2].split()
        return fields_behind_name[:1] in (["Z"], ["X"])  # a zombie, or dead

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(" ", "seconds")
        application, host = Untrusted(self.application), Untrusted(self.host)
        return f"{application} on host {host}, process {self.pid}, since {since}"

    @classmethod
    def read(cls, headers: Headers) -> Self | None:
        """Return the process that gave a sign; None: an older version or something else wrote the record."""
        value = dict(headers).get(WHO_HEADER)
        try:
            # a list in the order in which `sign_headers` writes it
            host, application, pid, since_ms, space = json.loads(value or b"")
            return cls(
                host=_shortened(host),
                application=_shortened(application),
                pid=int(pid),
                since_ms=max(0, min(int(since_ms), TIME_MS_MAX)),
                space=_shortened(space),
            )
        except (ValueError, TypeError, OverflowError, RecursionError):
            return None


def _shortened(text: object) -> str:
    """Return a text of a header, or what stands in its place, cut to `TEXT_MAX` characters."""
    return str(text)[:TEXT_MAX]


def sign_headers(who: Who | None, *, leaves: bool = False, reads: Iterable[int] = ()) -> Headers:
    """Return the headers of a process's sign of life; `leaves`: it is the last one.

    `reads` are the ids of the inputs that the process reads; none: it does not say.
    """
    headers: list[tuple[str, bytes]] = []
    if who is not None:
        host, application, space = map(_shortened, (who.host, who.application, who.space))
        # the order in which `Who.read` unpacks them
        text = json.dumps([host, application, who.pid, who.since_ms, space])
        headers.append((WHO_HEADER, text.encode()))
    ids = ",".join(map(str, reads))
    if ids:
        headers.append((READS_HEADER, ids.encode()))
    if leaves:
        headers.append((LEAVES_HEADER, b""))
    return tuple(headers)


def read_inputs(headers: Headers) -> frozenset[int] | None:
    """Return the ids of the inputs that a process reads; None: an older version does not say it."""
    text = dict(headers).get(READS_HEADER) or b""
    try:
        return frozenset(int(input_id) for input_id in text.split(b",")) if text else None
    except ValueError:  # a stranger wrote it
        return None


def _space() -> str:
    """Return the boot and the namespace in which process ids are valid here; empty: unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


class Sign(NamedTuple):
    """The newest sign of one process: its time, wall time, and whether it was marked as the last."""

    at_ms: int
    leaves: bool


SignByProcess = dict[Who | None, Sign]
"""The newest sign of each process; None: the process that an older version's signs do not name."""


class Presence:
    """The signs of life in one group: those of the last `SILENT_MS_MAX`, and all new ones."""

    def __init__(
        self, log: Log, topic: str, partitions: int, group: str, now_ms: int, *, patient: bool = False
    ) -> None:
        """Read the signs of the last `SILENT_MS_MAX`.

        1. Find from which offset on each partition has signs that count.
        2. Read them from there.

        `patient`: wait for a partition that has no leader, as long as a request to the broker may
        take. Else raise `PartitionStands` at once.
        """
        self._topic = topic
        self._group = group
        # what is unknown while a partition has no leader, as errors say it
        self._unknown_subject = f"whether the owner of group {group} lives"
        self._began_ms = now_ms
        # since the first read, by a clock that is never set
        self._passed_time = PassedTime(now_ms)
        self._read_at_ms = 0  # when new signs were read last, by `_passed_time`
        self._codec = wire_codec()
        self._signs_by_session: dict[SessionName, SignByProcess] = {}
        # sessions with a sign, not marked as the last, that came after the first read
        self._sessions_seen_since_first_read: set[SessionName] = set()
        # None: its process is of an older version, which does not say what it reads
        self._input_ids_by_session: dict[SessionName, frozenset[int] | None] = {}
        # when the newest `TIMES_MAX` signs of a session were written
        self._times_by_session: dict[SessionName, list[WriterTime]] = {}
        # 1. from where
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        since_ms = max(0, now_ms - SILENT_MS_MAX)
        if patient:
            since_offsets = log.offsets_at(places, since_ms)
            start_offsets = log.starts(places)
        else:
            since_offsets = all_answers(log.bounds(since_ms, places), self._unknown_subject)
            start_offsets = all_answers(log.bounds(Bound.START, places), self._unknown_subject)
        # an acker has shortened the log up to the time from which on signs are wanted, or beyond
        self._may_lack_signs = any(0 < start_offsets[place] >= since_offsets[place] for place in places)
        first_offsets = {place: max(since_offsets[place], start_offsets[place]) for place in places}
        self._follower = Follower(
            log, places, first_offsets=first_offsets, committed=False, on_damage=damage_handler(log)
        )
        # 2. read; `undo` closes the follower unless all went well
        with ExitStack() as undo:
            undo.callback(self.close)
            for record in self._follower.read():
                self._record_sign(record)
            if not patient:
                # a partition may have lost its leader since the offsets were asked for
                all_answers(self._follower.answers, self._unknown_subject)
            undo.pop_all()
        self._has_read_earlier_signs = self._follower.is_whole

    def read_new_signs(self, now_ms: int) -> None:
        """Read new signs, at most once in `SIGNS_EVERY_MS`.

        Until the earlier signs, which the first read asked for, have all come, these are read
        instead.

        Raises `Unreachable`: the broker did not send them within `UNREAD_MS_MAX`;
        `PartitionStands`: a partition has no leader.
        """
        passed_ms = self._passed_time.read(now_ms)
        if passed_ms - self._read_at_ms < SIGNS_EVERY_MS:
            return
        self._read_at_ms = passed_ms
        for record in self._follower.read():
            name = self._record_sign(record)
            if name is not None and self._has_read_earlier_signs:
                self._sessions_seen_since_first_read.add(name)
        self._has_read_earlier_signs = self._has_read_earlier_signs or self._follower.is_whole
        if not self._has_read_earlier_signs and passed_ms >= UNREAD_MS_MAX:
            # raises `PartitionStands` if that is why
            all_answers(self._follower.answers, self._unknown_subject)
            raise Unreachable(
                f"{self._topic}: the broker does not send all records of the last {SILENT_MS_MAX // 1000} s,"
                f" which say whether the owner of group {self._group} lives; start it, or wait"
            )

    def lives(self, name: SessionName) -> bool:
        """Return whether a session gave a sign of life since the first read, and has not ended since."""
        was_seen = name in self._sessions_seen_since_first_read
        return was_seen and bool(self._newest_times_of_living(name))

    def is_same_application(self, name: SessionName, who: Who) -> bool:
        """Return whether a session is run by the application of `who`, on the same host."""
        for process in self._signs_by_session.get(name, ()):
            if process is None:  # an older version, which does not say
                continue
            if (process.host, process.application) == (who.host, who.application):
                return True
        return False

    def highest_seen(self, name: SessionName) -> SessionName:
        """Return the highest of `name` and the sessions that gave a sign since the first read."""
        return max([name, *self._sessions_seen_since_first_read])

    @property
    def _now_ms(self) -> int:
        """The wall time of the first read, and what has passed since: the clock may show something else."""
        return self._began_ms + self._passed_time.ms

    def wait_ms(self, name: SessionName) -> int:
        """Return how much longer a session has to be silent until it counts as gone, as of the last read.

        0: it counts as gone already.
        """
        # Where the ackers know of no owner, which is epoch 0, nobody is waited for: an acker
        # shortens the log only below what it has read, so it would know the owner of a sign that is missing.
        has_owner = bool(name.epoch)
        if has_owner and not self._has_read_earlier_signs:
            return SIGNS_EVERY_MS
        times_ms = self._newest_times_of_living(name)
        if times_ms:
            return max(0, max(times_ms) + SILENT_MS_MAX - self._now_ms)
        # the log was shortened where this session's signs would be: it may give a new one soon
        if self._may_lack_signs and has_owner and name not in self._signs_by_session:
            return max(0, CLIPPED_MS - self._passed_time.ms)
        return 0

    def _newest_times_of_living(self, name: SessionName) -> list[int]:
        """Return the time of the newest sign of each process of a session that has neither left nor died."""
        times_ms: list[int] = []
        for who, sign in self._signs_by_session.get(name, {}).items():
            is_dead = who is not None and who.is_dead
            if not sign.leaves and not is_dead:
                times_ms.append(sign.at_ms)
        return times_ms

    def describe(self, name: SessionName) -> str:
        """Return a session as text, with its process and the age of its last sign of life where known."""
        signs = self._signs_by_session.get(name)
        if not signs:
            return session_text(name)
        who, sign = max(signs.items(), key=_time_of_sign)
        ago = f"last sign of life {max(0, self._now_ms - sign.at_ms) / 1000:.1f} s ago"
        if who is None:
            return f"{session_text(name)} ({ago})"
        return f"{session_text(name)} ({who}, {ago})"

    @property
    def last_sign_ms(self) -> int | None:
        """Wall time of the last sign of a process that has not left; None: there is none."""
        times_ms: list[int] = []
        for signs in self._signs_by_session.values():
            times_ms += [sign.at_ms for sign in signs.values() if not sign.leaves]
        return max(times_ms, default=None)

    def input_ids(self) -> frozenset[int] | None:
        """Return the ids of the inputs that living processes read.

        None: one of them does not say it, or none lives.
        """
        read_by_living: set[int] = set()
        has_living = False
        for name, input_ids in self._input_ids_by_session.items():
            if not self._newest_times_of_living(name):
                continue
            if input_ids is None:
                return None
            has_living = True
            read_by_living |= input_ids
        return frozenset(read_by_living) if has_living else None

    def writer_times(self) -> list[WriterTime]:
        """Return when the newest signs of living processes were written, by their clocks and the broker's."""
        times_of_living: list[WriterTime] = []
        for name, times in self._times_by_session.items():
            if self._newest_times_of_living(name):
                times_of_living += times
        return times_of_living

    def close(self) -> None:
        """Read no more signs."""
        self._follower.close()

    def _record_sign(self, record: Record) -> SessionName | None:
        """Record the sign that a record is, and return its session.

        None: the record is no sign in this group; or it is the last one of a process, which is
        recorded too.
        """
        try:
            event = self._codec.decode(record.value)
        except CodecError:
            return None  # the ackers move it to the quarantine
        if not isinstance(event, Take | Init | Tick) or event.group != self._group or event.epoch <= 0:
            return None
        name = SessionName(event.epoch, event.session)
        # a sign of the future, from a clock that is ahead, is one of now: it would hold the group as long
        at_ms = min(record.timestamp_ms, self._now_ms) if record.timestamp_ms >= 0 else self._now_ms
        sign = Sign(at_ms, LEAVES_HEADER in dict(record.headers))
        who = Who.read(record.headers)
        sign_by_process = self._signs_by_session.setdefault(name, {})
        # the newer of both: partitions are not read in the order of time
        sign_by_process[who] = max(sign_by_process.get(who, sign), sign)
        # an Init has its writer's clock in its body, other signs have it in a header
        wall_ms_in_body = event.wall if isinstance(event, Init) else None
        times = self._times_by_session.setdefault(name, [])
        times.append(writer_time(record, wall_ms_in_body))
        del times[:-TIMES_MAX]  # keep the newest
        if isinstance(event, Tick):  # only a tick says which inputs its process reads
            self._input_ids_by_session[name] = read_inputs(record.headers)
        return None if sign.leaves else name


def _time_of_sign(item: tuple[Who | None, Sign]) -> int:
    """Return when a process gave its newest sign; `item` is that process with the sign."""
    _who, sign = item
    return sign.at_ms


def session_text(name: SessionName) -> str:
    """Return a session as a sentence has it; its id came with a record."""
    return f"session {UntrustedName(str(name))}"


def describe_session(log: Log, spec: PlannerSpec, name: SessionName, now_ms: int) -> str:
    """Return a session as `Presence.describe` does, after reading once; only its name where that fails."""
    try:
        with closing(Presence(log, spec.topics.init, spec.partitions, spec.group, now_ms)) as presence:
            return presence.describe(name)
    except WindhoverError:  # then the message lacks the process, and is still true
        return session_text(name)

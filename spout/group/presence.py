"""Who holds a group, and whether he lives: the signs of life in `_ack_init`.

Each Take, Init and Tick of a session is a sign, and its header says who gives it. A session with nothing open
has no clock to tell, and sends acker partition 0 a tick all the same, every `SIGN_EVERY_MS`. A process that
leaves in order says so with its last tick. One that died is known by its silence, or at once to a newcomer on
the same machine, which looks whether it runs.

The ackers know nothing of this: they judge epochs. It keeps a query with a checkpoint of its own from taking
a group that a living one holds. What was written before the first look is as old as its record says, so the
clocks of the machines have to agree within `SILENT_MS_MAX` less `SIGN_EVERY_MS`; what comes after it is new,
whatever its time says.

Source: docs/design/protocol.md, rule 9, and section 4, "Take and Taken".
"""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Self

from acker.errors import CodecError, WindhoverError
from acker.kafka.port import Headers, Log, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Init, Take, Tick
from spout.planning.session import SessionName
from spout.runtime.follow import Follower

SIGN_EVERY_MS: Final = 2_000
"""A session with nothing open gives a sign of life this often; with open roots its ticks are signs."""

SILENT_MS_MAX: Final = 10_000
"""A group whose holder gave no sign of life for this long may be taken; a newcomer waits so long at most."""

CLIPPED_MS: Final = 2 * SIGN_EVERY_MS
"""Where an acker has just shortened the log, signs may be missing: a newcomer looks so long for new ones."""

LOOK_EVERY_MS: Final = 250

TEXT_MAX: Final = 200
"""Characters of a host's and an application's name that travel."""

_YEAR_9999_MS: Final = 253_402_300_799_000

WHO_HEADER: Final = "windhover.who"
LEAVES_HEADER: Final = "windhover.leaves"


class Who(NamedTuple):
    """The process that gives a sign of life.

    Attributes:
        host: name of its machine.
        application: what a person calls it.
        pid: its number there.
        since_ms: wall time at which it began.
        space: where that number is valid, unique among all machines and containers; empty: unknown.
    """

    host: str
    application: str
    pid: int
    since_ms: int
    space: str = ""

    @classmethod
    def here(cls, application: str, now_ms: int) -> Self:
        """Return who this process is."""
        return cls(socket.gethostname(), application, os.getpid(), now_ms, _space())

    @property
    def is_dead(self) -> bool:
        """Whether it ran where this process runs, and does no more; False where that cannot be known."""
        if not self.space or self.space != _space():
            return False
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        return text.rpartition(")")[2].split()[:1] in (["Z"], ["X"])

    def __str__(self) -> str:
        """Print for messages."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(" ", "seconds")
        return f"{self.application} on host {self.host}, process {self.pid}, since {since}"

    @classmethod
    def read(cls, headers: Headers) -> Self | None:
        """Return who gave a sign; None where an older version wrote it, or something else."""
        value = dict(headers).get(WHO_HEADER)
        try:
            host, application, pid, since_ms, space = json.loads(value or b"")
            began_ms = max(0, min(int(since_ms), _YEAR_9999_MS))
            return cls(_shown(host), _shown(application), int(pid), began_ms, _shown(space))
        except (ValueError, TypeError, OverflowError):
            return None


def sign_headers(who: Who | None, *, leaves: bool = False) -> Headers:
    """Return the headers of a sign that a process gives; `leaves`: it is its last one."""
    found: Headers = ()
    if who is not None:
        text = json.dumps(
            [who.host[:TEXT_MAX], who.application[:TEXT_MAX], who.pid, who.since_ms, who.space[:TEXT_MAX]]
        )
        found = ((WHO_HEADER, text.encode()),)
    return (*found, (LEAVES_HEADER, b"")) if leaves else found


def _space() -> str:
    """Name the boot of this machine and the namespace of its process numbers; empty where that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _shown(text: object) -> str:
    """Return a text from a topic so that no terminal takes it for a command."""
    return "".join(character for character in str(text)[:TEXT_MAX] if character.isprintable())


class Sign(NamedTuple):
    """The last sign of one process: when, and whether it was said to be the last."""

    at_ms: int
    leaves: bool


class Presence:
    """The signs of life in one group, those of the last `SILENT_MS_MAX` and all that come."""

    def __init__(self, log: Log, topic: str, partitions: int, group: str, now_ms: int) -> None:
        """Look for the first time.

        Args:
            log: the cluster.
            topic: name of `_ack_init`.
            partitions: N.
            group: the group.
            now_ms: wall time.

        Raises:
            Unreachable: the broker does not answer.
        """
        self._group = group
        self._began_ms = self._looked_ms = now_ms
        self._codec = wire_codec()
        self._signs: dict[SessionName, dict[Who | None, Sign]] = {}
        self._fresh: set[SessionName] = set()
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        young, starts = log.offsets_at(places, max(0, now_ms - SILENT_MS_MAX)), log.starts(places)
        self._is_clipped = any(0 < starts[place] >= young[place] for place in places)
        first = {place: max(young[place], starts[place]) for place in places}
        self._follower = Follower(log, places, first=first, committed=False)
        for record in self._follower.look():
            self._read(record, now_ms)

    def look(self, now_ms: int) -> None:
        """Read what came since, now and then.

        Raises:
            Unreachable: the broker does not answer.
        """
        if 0 <= now_ms - self._looked_ms < LOOK_EVERY_MS:
            return
        self._looked_ms = now_ms
        for record in self._follower.look():
            if (name := self._read(record, now_ms)) is not None:
                self._fresh.add(name)

    def lives(self, name: SessionName) -> bool:
        """Tell whether a session gave a sign of life since the first look, and has neither left nor died."""
        return name in self._fresh and bool(self._last_signs(name))

    def is_of(self, name: SessionName, who: Who) -> bool:
        """Tell whether a process of the same application on the same host runs a session."""
        held = (each for each in self._signs.get(name, ()) if each is not None)
        return any((each.host, each.application) == (who.host, who.application) for each in held)

    def newest(self, name: SessionName) -> SessionName:
        """Return the session that took the group since the first look, or else the one given."""
        return max([name, *self._fresh])

    def wait_ms(self, name: SessionName, now_ms: int) -> int:
        """Return for how much longer a session has to be silent before it counts as gone, 0 if it does."""
        if last := self._last_signs(name):
            return max(0, max(last) + SILENT_MS_MAX - now_ms)
        if self._is_clipped and name not in self._signs:
            return max(0, self._began_ms + CLIPPED_MS - now_ms)
        return 0

    def _last_signs(self, name: SessionName) -> list[int]:
        """Return when each process of a session gave its last sign, without those that left or died."""
        signs = self._signs.get(name, {}).items()
        return [sign.at_ms for who, sign in signs if not sign.leaves and not (who and who.is_dead)]

    def describe(self, name: SessionName, now_ms: int) -> str:
        """Print a session, with who runs it and the age of its last sign of life where that is known."""
        signs = self._signs.get(name)
        if not signs:
            return f"session {name}"
        who, sign = max(signs.items(), key=lambda item: item[1].at_ms)
        ago = f"last sign of life {max(0, now_ms - sign.at_ms) / 1000:.1f} s ago"
        return f"session {name} ({ago})" if who is None else f"session {name} ({who}, {ago})"

    @property
    def last_ms(self) -> int | None:
        """Wall time of the last sign of life of a process that has not left; None: there is none."""
        signs = [sign for found in self._signs.values() for sign in found.values() if not sign.leaves]
        return max((sign.at_ms for sign in signs), default=None)

    def close(self) -> None:
        """Leave."""
        self._follower.close()

    def _read(self, record: Record, now_ms: int) -> SessionName | None:
        """Note a sign; return its session, or None for what is none, and for the last one of a process."""
        try:
            event = self._codec.decode(record.value)
        except CodecError:
            return None  # the ackers put it aside
        if not isinstance(event, Take | Init | Tick) or event.group != self._group or event.epoch <= 0:
            return None
        name = SessionName(event.epoch, event.session)
        at_ms = min(record.timestamp_ms, now_ms) if record.timestamp_ms >= 0 else now_ms
        sign = Sign(at_ms, LEAVES_HEADER in dict(record.headers))
        signs, who = self._signs.setdefault(name, {}), Who.read(record.headers)
        signs[who] = max(signs.get(who, sign), sign)  # partitions are not read in the order of time
        return None if sign.leaves else name


def described(log: Log, topic: str, partitions: int, group: str, name: SessionName, now_ms: int) -> str:
    """Print a session as `Presence.describe` does, by one look; by its name alone where that fails."""
    try:
        presence = Presence(log, topic, partitions, group, now_ms)
    except WindhoverError:  # without it the message lacks a name, and what it says is true all the same
        return f"session {name}"
    try:
        return presence.describe(name, now_ms)
    finally:
        presence.close()

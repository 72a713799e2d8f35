"""Members of a group in which no member should be, and offsets that somebody else has committed for it.

A spout is no member of its group: it plans by the ackers, and commits for tools that show lag. Kafka lets
nobody commit for a group from outside while it has members. So one that joins it, such as `kafka-console-
consumer --group`, keeps our commits back for as long as it stays; and what it commits itself are offsets that
nobody of us has settled. Neither changes what is emitted.

Source: docs/design/protocol.md, section 5.1; docs/design/conformance.md, D1101 to D1108.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.errors import WindhoverError
from acker.kafka.port import GroupMember, Log, TopicPartition
from acker.untrusted import Untrusted, UntrustedName, shell_word
from acker.waits import LongWait
from spout.group.announce import Report

STRANGER_CHECK_MS: Final = 30_000
"""So often it is looked who is in the group."""

REFUSED_CHECK_MS: Final = 5_000
"""The same where the broker has just refused a commit."""

OWN_PREFIX: Final = "windhover"
"""The client ids of ackers and replay workers begin so."""

NAMED_MAX: Final = 5
"""So many members are named in one text; of others only their number is."""

END_IT: Final = "end it, or give it another group"

UNNAMED: Final = (
    "nobody whom the broker names; see `kafka-consumer-groups.sh --describe --members --group {}`"
)


def member_text(member: GroupMember) -> str:
    """Return a member as a sentence has it: client id, host, and its id in the group where that is known."""
    name = str(Untrusted(member.name))
    return f"{name} (member {UntrustedName(member.id)})" if member.id else name


def members_text(members: Sequence[GroupMember]) -> str:
    """Return some members as a sentence has them."""
    named = "; ".join(member_text(member) for member in members[:NAMED_MAX])
    others = len(members) - NAMED_MAX
    return f"{named}; and {others} more" if others > 0 else named


def strangers_of(members: Iterable[GroupMember], *, has_own: bool) -> list[GroupMember]:
    """Return those that should not be there; `has_own`: our ackers, or replay workers, are in the group."""
    return [member for member in members if not (has_own and member.name.startswith(OWN_PREFIX))]


def stranger_text(group: str, members: Sequence[GroupMember], *, has_own: bool) -> str:
    """Say who is in a group and should not be, what that does, and how it ends."""
    effect = (
        "partitions that the group gives to it have no process of ours, and wait"
        if has_own
        else "its commits stand still as long as that is there, though its records are done"
    )
    return (
        f"group {UntrustedName(group)} has a member that is not Windhover's, {members_text(members)}:"
        f" {effect}; {END_IT}"
    )


def stranger_texts(
    of_spouts: Mapping[str, Sequence[GroupMember]], of_services: Mapping[str, Sequence[GroupMember]]
) -> dict[str, str]:
    """Return, by group, what is to be said of members that should not be there."""
    texts: dict[str, str] = {}
    for has_own, members_by_group in ((False, of_spouts), (True, of_services)):
        for group, members in members_by_group.items():
            if strangers := strangers_of(members, has_own=has_own):
                texts[group] = stranger_text(group, strangers, has_own=has_own)
    return texts


class MovedCommit(NamedTuple):
    """A committed offset that no spout wrote.

    `ours` is what Windhover had committed, or, where only that is known, up to where it has emitted; None:
    nothing. `theirs` is what is committed now.
    """

    place: TopicPartition
    ours: int | None
    theirs: int | None

    def __str__(self) -> str:
        ours = "nothing" if self.ours is None else f"{self.ours:,}"
        theirs = "nothing" if self.theirs is None else f"{self.theirs:,}"
        return f"{self.place.topic}/{self.place.partition} from {ours} to {theirs}"


def moved_cure(group: str, name: str, moved: MovedCommit) -> str:
    """Return which commands put a moved commit right; `name` is that of the input."""
    to = "earliest" if moved.theirs is None else str(moved.theirs)
    place = f"--partition {moved.place.partition} --to {to}"
    return (
        f"to go on where Windhover was, run `windhover release {shell_word(group)}`; to begin where it was"
        f" moved to, `windhover offsets reset {shell_word(name)} {place} --execute`; each says how to start"
        " the query then"
    )


class StrangerWatch:
    """Looks now and then who is in a spout's group, and reports it.

    Attributes:
        strangers: who was there at the last look.
    """

    def __init__(self, log: Log, group: str, report: Report) -> None:
        self.strangers: Sequence[GroupMember] = ()
        self._log = log
        self._group = group
        self._report = report
        self._looked_ms: int | None = None
        self._wait = LongWait(first_ms=0)
        self._is_there = self._was_refused = False

    def step(self, refused: str, now_ms: int) -> None:
        """Look, where it is time to; `refused` has the broker's words if it refused the last commit."""
        is_new = bool(refused) and not self._was_refused
        self._was_refused = bool(refused)
        every_ms = REFUSED_CHECK_MS if refused else STRANGER_CHECK_MS
        if self._looked_ms is None and not refused:
            self._looked_ms = now_ms  # a start has other questions to ask
        is_time = self._looked_ms is None or not 0 <= now_ms - self._looked_ms < every_ms
        if not is_time and not is_new:
            return
        self._looked_ms = now_ms
        try:
            self.strangers = self._log.members(self._group)
        except WindhoverError:  # then nobody knows; what is said stays said
            return
        if self.strangers or refused:
            self._say(refused, now_ms)
        elif self._is_there:
            self._is_there = False
            self._wait.over()
            self._report("stranger_left_group", {"group": self._group, "why": "its commits go on"})

    def _say(self, refused: str, now_ms: int) -> None:
        names = members_text(self.strangers) or UNNAMED.format(shell_word(self._group))
        waited_ms = self._wait.look(names, now_ms)
        self._is_there = True
        if waited_ms is not None:
            fields: dict[str, object] = {
                "group": self._group,
                "member": names,
                "since_s": waited_ms // 1000,
                "effect": "the group's commits stand still as long as it is there; records are done",
                "next_step": END_IT,
            }
            self._report("stranger_in_group", fields | ({"error": refused} if refused else {}))


def strangers_now(log: Log, group: str) -> str:
    """Return who is in a spout's group now, in a sentence's end; empty: nobody, or it is unknown."""
    try:
        members = log.members(group)
    except WindhoverError:
        return ""
    return members_text(members)

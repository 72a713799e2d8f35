"""Finds strangers, members of a group that are not ours, and names offsets that somebody else has committed.

A spout does not join its group: it plans by the ackers, and commits only for tools that show lag.
While a group has members, Kafka refuses a commit from anybody who is none. So a stranger that
joins, such as `kafka-console-consumer --group`, keeps our commits back for as long as it stays. And
the offsets that it commits itself are not settled. Neither changes what is emitted.

Source: docs/design/protocol.md, section 5.1; docs/design/conformance.md, D1101 to D1108.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.errors import WindhoverError
from acker.kafka.port import GroupMember, Log, TopicPartition
from acker.listing import first_of
from acker.untrusted import Untrusted, UntrustedName, shell_word
from acker.waits import LastTime, LongWait
from spout.group.announce import Report

STRANGER_CHECK_MS: Final = 30_000
"""How often a spout asks the broker who is in its group."""

REFUSED_CHECK_MS: Final = 5_000
"""How often it asks while the broker refuses its commits, for which a stranger is the likely cause."""

OWN_PREFIX: Final = "windhover"
"""The client ids of ackers and replay workers begin so."""

NAMED_MAX: Final = 5
"""So many members, or moved commits, are named in one text; the others are counted."""

END_IT: Final = "end it, or give it another group"

END_OTHER: Final = (
    "both installations read the group, and each record may be handled twice: end the query of one,"
    " or give it another group"
)

UNNAMED: Final = (
    "nobody whom the broker names; see `kafka-consumer-groups.sh --describe --members --group {}`"
)


def member_text(member: GroupMember) -> str:
    """Return a member as a sentence has it: client id, host, and its id in the group where that is known."""
    name = str(Untrusted(member.name))
    return f"{name} (member {UntrustedName(member.id)})" if member.id else name


def members_text(members: Sequence[GroupMember]) -> str:
    """Return some members as a sentence has them; empty: there is none."""
    return first_of([member_text(member) for member in members], NAMED_MAX, "; ")


def strangers_of(members: Iterable[GroupMember], *, has_own: bool) -> list[GroupMember]:
    """Return the members that should not be there.

    `has_own`: it is the group of our ackers or replay workers, which are its members by right. In a
    spout's group nobody is, not even a client of ours.
    """
    if not has_own:
        return list(members)
    return [member for member in members if not member.name.startswith(OWN_PREFIX)]


def stranger_text(group: str, members: Sequence[GroupMember], *, has_own: bool) -> str:
    """Return who is in a group and should not be, what that does, and how it ends.

    `has_own`: as for `strangers_of`.
    """
    if has_own:  # Kafka deals the partitions out to all members of a service's group
        effect = "partitions that the group gives to it have no process of ours, and wait"
    else:  # Kafka refuses a spout's commits while the group has members
        effect = "its commits stand still as long as that is there, though its records are done"
    return (
        f"group {UntrustedName(group)} has a member that is not Windhover's, {members_text(members)}:"
        f" {effect}; {END_IT}"
    )


def stranger_texts(
    of_spouts: Mapping[str, Sequence[GroupMember]], of_services: Mapping[str, Sequence[GroupMember]]
) -> dict[str, str]:
    """Return, by group, a sentence about its strangers; a group without one has no entry.

    Args:
        of_spouts: the members of the groups of inputs.
        of_services: those of the groups of ackers and replay workers.
    """
    texts: dict[str, str] = {}
    for has_own, members_by_group in ((False, of_spouts), (True, of_services)):
        for group, members in members_by_group.items():
            strangers = strangers_of(members, has_own=has_own)
            if strangers:
                texts[group] = stranger_text(group, strangers, has_own=has_own)
    return texts


class MovedCommit(NamedTuple):
    """A committed offset that no spout wrote.

    Attributes:
        ours: what Windhover had committed, or else up to where it has emitted; None: nothing is
            known.
        theirs: what is committed now; None: nothing.
        prefix: the `acker.topic_prefix` of the other installation that made it; None: it was no
            Windhover.
    """

    place: TopicPartition
    ours: int | None
    theirs: int | None
    prefix: str | None = None

    def __str__(self) -> str:
        ours = "nothing" if self.ours is None else f"{self.ours:,}"
        theirs = "nothing" if self.theirs is None else f"{self.theirs:,}"
        by = "" if self.prefix is None else f" by acker.topic_prefix {Untrusted(self.prefix)}"
        return f"{self.place.topic}/{self.place.partition} from {ours} to {theirs}{by}"


def moved_cure(group: str, name: str, moved: MovedCommit) -> str:
    """Return which commands put a moved commit right; `name` is that of the input."""
    target = "earliest" if moved.theirs is None else str(moved.theirs)
    options = f"--partition {moved.place.partition} --to {target} --execute"
    first_cure = "" if moved.prefix is None else f"{END_OTHER}. Then, "
    return (
        f"{first_cure}to go on where Windhover was, run `windhover release {shell_word(group)}`; to"
        f" begin where it was moved to, `windhover offsets reset {shell_word(name)} {options}`; each"
        " says how to start the query then"
    )


class StrangerWatch:
    """Asks the broker from time to time who is in a spout's group, and reports who comes, stays and leaves.

    Attributes:
        strangers: who was there when it asked last.
    """

    def __init__(self, log: Log, group: str, report: Report) -> None:
        """Watch the group of a spout; `report` gets the events."""
        self.strangers: Sequence[GroupMember] = ()
        self._log = log
        self._group = group
        self._report = report
        self._last_question = LastTime()  # to the broker
        # says when the next report of a stranger is due: at once, then each minute
        self._report_times = LongWait(first_ms=0)
        self._has_reported_stranger = False  # and not yet that it has left
        self._was_refused = False  # whether the broker refused the last commit

    def step(self, refused: str, now_ms: int) -> None:
        """Ask the broker if it is time to, and report who has come, stays, or has left.

        `refused` has the broker's words if it refused the last commit, and is empty else.
        """
        is_first_refusal = bool(refused) and not self._was_refused
        self._was_refused = bool(refused)
        if self._last_question.at_ms is None and not refused:
            # a start has other questions to ask: this one comes half a minute later
            self._last_question.at_ms = now_ms
        every_ms = REFUSED_CHECK_MS if refused else STRANGER_CHECK_MS
        if not self._last_question.is_due(now_ms, every_ms) and not is_first_refusal:
            return
        self._last_question.at_ms = now_ms
        try:
            self.strangers = self._log.members(self._group)
        except WindhoverError:  # a report that was made holds until the broker answers
            return
        if self.strangers or refused:
            self._report_strangers(refused, now_ms)
        elif self._has_reported_stranger:
            self._has_reported_stranger = False
            self._report_times.over()
            self._report("stranger_left_group", {"group": self._group, "why": "its commits go on"})

    def _report_strangers(self, refused: str, now_ms: int) -> None:
        """Report who keeps our commits back, at once and then each minute.

        `refused` is as in `step`.
        """
        names = members_text(self.strangers) or UNNAMED.format(shell_word(self._group))
        self._has_reported_stranger = True
        since_ms = self._report_times.record_wait(names, now_ms)
        if since_ms is None:  # the last report is not a minute ago
            return
        fields: dict[str, object] = {
            "group": self._group,
            "member": names,
            "since_s": since_ms // 1000,
            "effect": "the group's commits stand still as long as it is there; records are done",
            "next_step": END_IT,
        }
        if refused:
            fields["error"] = refused
        self._report("stranger_in_group", fields)


def strangers_now(log: Log, group: str) -> str:
    """Return who is in a spout's group now, as `members_text`; empty: nobody, or the broker does not say."""
    try:
        members = log.members(group)
    except WindhoverError:
        return ""
    return members_text(members)

"""Whether ackers and replay workers run with this topics.yaml, and with this version; pure.

Neither writes its version or its file anywhere. What can be known of them:

- Whoever is in their groups has partitions of topics, whose names begin with `acker.topic_prefix`.
- The last State of an acker partition has the number of acker partitions for which it was written.
- A State that this version cannot read was written by a later version; a State that names neither
  its last restore nor its cluster by an earlier one.
- The last State of an acker, and the last progress of a replay worker, say what the clock of
  their machine said, and the broker dates them. A clock that is ahead is ahead for certain. One
  that is behind has to be behind by more: the record may have taken a while to the broker.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from acker.clock_watch import CLOCKS_APART_MS, SKEW_MS_MAX
from acker.clocks import difference_text
from acker.config.topics import Topics
from acker.untrusted import Untrusted
from acker.writer_clocks import WriterTime
from spout.doctor.codes import CLOCKS, SERVICES, CheckResult
from spout.inspect.readings import Reading

NO_SIGNS: Final = "none of them has written lately, or the broker does not date their topic (CreateTime)"
CLOCK_EXPECTED: Final = "at most 2 s ahead of the broker's, and less than a minute behind"
RESTART: Final = "end them, and start them with this file: windhover {command} --config {file}"


@dataclass(frozen=True, slots=True)
class ServiceMember:
    """A process in the group of the ackers, or of the replay workers.

    Attributes:
        name: its client id and host.
        topics: of which the group has assigned partitions to it; empty while it shares them out
            anew.
        host: its host alone.
        partitions: the numbers of its partitions.
    """

    name: str
    topics: frozenset[str]
    host: str = ""
    partitions: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class StateOrigin:
    """Who wrote the last State of an acker partition.

    Attributes:
        partitions: how many acker partitions its writer had.
        is_former: whether it is of an earlier version.
    """

    partitions: int
    is_former: bool


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """What a broker says of ackers and replay workers.

    Attributes:
        file: the path of topics.yaml.
        members: who is in each of the two groups, by the name of the group.
        origins: of acker partitions who wrote their last State; None: nobody wrote one yet.
        unreadable: of acker partitions why their last State cannot be read.
        signs: by the name of the group, and by partition, when its owner wrote there last; old
            signs are left out.
    """

    file: str
    members: Mapping[str, Reading[Sequence[ServiceMember]]]
    origins: Mapping[int, Reading[StateOrigin | None]]
    unreadable: Mapping[int, str]
    signs: Mapping[str, Reading[Mapping[int, WriterTime]]] = field(default_factory=dict)


def judge_services(facts: ServiceFacts, topics: Topics) -> Iterator[CheckResult]:
    """Judge the processes in the two groups, then what ackers have written."""
    acker, names = topics.acker, topics.ack_topics
    ackers_topics = frozenset((names.init, names.ack, names.fail))
    for kind, group, expected, command in (
        ("ackers", acker.group, ackers_topics, "acker run"),
        ("replay workers", acker.replay_group, frozenset((names.verdict,)), "replay run"),
    ):
        cure = RESTART.format(command=command, file=shlex.quote(facts.file))
        yield from _judge_group(kind, group, facts.members[group], expected, cure)
    cure = RESTART.format(command="acker run", file=shlex.quote(facts.file))
    yield from _judge_states(facts, acker.partitions, cure)


def judge_service_clocks(facts: ServiceFacts, topics: Topics) -> Iterator[CheckResult]:
    """Judge the clocks of the machines with ackers, and of those with replay workers."""
    acker = topics.acker
    for kind, group in (("ackers", acker.group), ("replay workers", acker.replay_group)):
        yield from _judge_clocks(kind, facts.members[group], facts.signs[group])


def _judge_clocks(
    kind: str, members: Reading[Sequence[ServiceMember]], signs: Reading[Mapping[int, WriterTime]]
) -> Iterator[CheckResult]:
    """Judge the clock of each machine with such a process, by its last records."""
    subject = f"clocks of {kind}"
    if members.value is None or signs.value is None:
        yield CLOCKS.unknown(subject, members.unknown or signs.unknown)
        return
    if not members.value:
        yield CLOCKS.unknown(subject, f"no {kind} run")
        return
    aheads_ms: dict[ServiceMember, int] = {}  # without members whose clock is unknown
    for member in members.value:
        own_signs = [signs.value[number] for number in member.partitions if number in signs.value]
        ahead_ms = _ahead_ms(own_signs)
        if ahead_ms is not None:
            aheads_ms[member] = ahead_ms
    wrong = {
        member: ahead_ms
        for member, ahead_ms in aheads_ms.items()
        # a record may take a while to the broker: so a clock may be behind by more
        if not -CLOCKS_APART_MS <= ahead_ms <= SKEW_MS_MAX
    }
    for member, ahead_ms in wrong.items():
        numbers = ", ".join(map(str, sorted(member.partitions)))
        plural = "s" if len(member.partitions) > 1 else ""
        text = (
            f"{difference_text(ahead_ms)} the broker's, on the machine of {Untrusted(member.name)},"
            f" which has acker partition{plural} {numbers}: its times, and the times of its"
            " replays, are wrong by as much; set that clock"
        )
        cure = f"ssh {shlex.quote(member.host)} {CLOCKS.cure}"
        yield CLOCKS.failed(subject, text, expected=CLOCK_EXPECTED, cure=cure)
    if not aheads_ms:
        yield CLOCKS.unknown(subject, NO_SIGNS)
    elif not wrong:
        counts = f"{len(aheads_ms)} of {len(members.value)}"
        yield CLOCKS.ok(subject, f"of {counts}, none differs from the broker's")


def _ahead_ms(times: Iterable[WriterTime]) -> int | None:
    """Return by how many ms a clock is ahead of the broker's, by its newest sign; None: unknown.

    An older sign may be of the process that had the partition before.
    """
    dated = [time for time in times if time.appended_ms is not None and time.ahead_ms is not None]
    if not dated:
        return None
    return max(dated, key=lambda time: time.appended_ms or 0).ahead_ms


def _judge_group(
    kind: str, group: str, reading: Reading[Sequence[ServiceMember]], expected: frozenset[str], cure: str
) -> Iterator[CheckResult]:
    """Judge whose topics the members of a group have."""
    subject = f"{kind} in group {group}"
    if reading.value is None:
        yield SERVICES.unknown(subject, reading.unknown)
        return
    misplaced = [member for member in reading.value if member.topics - expected]
    for member in misplaced:
        other_topics = ", ".join(sorted(member.topics - expected))
        text = (
            f"{Untrusted(member.name)} has partitions of {Untrusted(other_topics)}: it runs with"
            " another topics.yaml, with another acker.topic_prefix, and is in the group of the"
            f" processes that work on {', '.join(sorted(expected))}"
        )
        yield SERVICES.failed(subject, text, cure=cure)
    if not misplaced:
        count = "nobody" if not reading.value else f"{len(reading.value)}"
        yield SERVICES.ok(subject, f"{count} there; nobody with another topic prefix")


def _judge_states(facts: ServiceFacts, partitions: int, cure: str) -> Iterator[CheckResult]:
    """Judge who wrote the State of each acker partition; one fault of several has one result."""
    for number, why in facts.unreadable.items():
        # a later version may read it; if none does, all readers have to pass over it
        repair = f"windhover topics repair {shlex.quote(facts.file)}"
        yield SERVICES.failed(_states([number]), why, cure=repair)
    unknown_by_reason: dict[str, list[int]] = {}
    numbers_by_count: dict[int, list[int]] = {}
    of_earlier_version: list[int] = []
    of_this_version: list[int] = []
    without_state: list[int] = []
    for number, reading in facts.origins.items():
        if reading.unknown:
            unknown_by_reason.setdefault(reading.unknown, []).append(number)
        elif reading.value is None:
            without_state.append(number)
        elif reading.value.partitions != partitions:
            numbers_by_count.setdefault(reading.value.partitions, []).append(number)
        elif reading.value.is_former:
            of_earlier_version.append(number)
        else:
            of_this_version.append(number)
    for why, numbers in unknown_by_reason.items():
        yield SERVICES.unknown(_states(numbers), why)
    for count, numbers in sorted(numbers_by_count.items()):
        yield SERVICES.failed(
            _states(numbers),
            f"an acker with acker.partitions: {count} wrote it, this file has {partitions}: it"
            " looks for roots in other partitions than this file's queries",
            cure=cure,
        )
    if of_earlier_version:
        text = "an acker of an earlier version of Windhover wrote it"
        yield SERVICES.warning(_states(of_earlier_version), text, cure=cure)
    if of_this_version:
        text = f"written for {partitions} acker partitions, and this version reads it"
        yield SERVICES.ok(_states(of_this_version), text)
    if without_state:
        yield SERVICES.ok(_states(without_state), "nobody has written one yet")


def _states(numbers: Collection[int]) -> str:
    """Return the subject of a result: the States of some acker partitions."""
    plural = "s" if len(numbers) > 1 else ""
    return f"State of acker partition{plural} {', '.join(map(str, sorted(numbers)))}"

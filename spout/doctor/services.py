"""Whether ackers and replay workers run with this topics.yaml, and with this version; pure.

Neither writes its version or its file anywhere. What can be known of them:

- Whoever is in their groups has partitions of topics, whose names begin with `acker.topic_prefix`.
- The last State of an acker partition has the number of acker partitions for which it was written.
- A State that this version cannot read was written by a later one; one that names neither its last restore
  nor its cluster by an earlier one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from acker.config.topics import Topics
from acker.untrusted import Untrusted
from spout.doctor.codes import SERVICES, CheckResult
from spout.inspect.readings import Reading

RESTART: Final = "end them, and start them with this file: windhover {command} --config {file}"


@dataclass(frozen=True, slots=True)
class ServiceMember:
    """A process in the group of the ackers, or of the replay workers.

    Attributes:
        name: its client id and host.
        topics: of which the group has assigned partitions to it; empty while it shares them out anew.
    """

    name: str
    topics: frozenset[str]


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
    """

    file: str
    members: Mapping[str, Reading[Sequence[ServiceMember]]]
    origins: Mapping[int, Reading[StateOrigin | None]]
    unreadable: Mapping[int, str]


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


def _judge_group(
    kind: str, group: str, reading: Reading[Sequence[ServiceMember]], expected: frozenset[str], cure: str
) -> Iterator[CheckResult]:
    """Judge whose topics the members of a group have."""
    subject = f"{kind} in group {group}"
    if reading.value is None:
        yield SERVICES.unknown(subject, reading.unknown)
        return
    others = [member for member in reading.value if member.topics - expected]
    for member in others:
        named = ", ".join(sorted(member.topics - expected))
        text = (
            f"{Untrusted(member.name)} has partitions of {Untrusted(named)}: it runs with another"
            " topics.yaml, by another acker.topic_prefix, and is in the group of those that work on"
            f" {', '.join(sorted(expected))}"
        )
        yield SERVICES.failed(subject, text, cure=cure)
    if not others:
        count = "nobody" if not reading.value else f"{len(reading.value)}"
        yield SERVICES.ok(subject, f"{count} there; nobody with another topic prefix")


def _judge_states(facts: ServiceFacts, partitions: int, cure: str) -> Iterator[CheckResult]:
    """Judge who wrote the State of each acker partition; partitions with one fault share a result."""
    for number, why in facts.unreadable.items():
        # a later version reads it, else somebody has to let all readers pass over it
        repair = f"windhover topics repair {shlex.quote(facts.file)}"
        yield SERVICES.failed(_states([number]), why, cure=repair)
    unknown: dict[str, list[int]] = {}
    others: dict[int, list[int]] = {}
    former, right, without = list[int](), list[int](), list[int]()
    for number, reading in facts.origins.items():
        if reading.unknown:
            unknown.setdefault(reading.unknown, []).append(number)
        elif reading.value is None:
            without.append(number)
        elif reading.value.partitions != partitions:
            others.setdefault(reading.value.partitions, []).append(number)
        elif reading.value.is_former:
            former.append(number)
        else:
            right.append(number)
    for why, numbers in unknown.items():
        yield SERVICES.unknown(_states(numbers), why)
    for count, numbers in sorted(others.items()):
        yield SERVICES.failed(
            _states(numbers),
            f"an acker with acker.partitions: {count} wrote it, this file has {partitions}: it looks for"
            " roots in other partitions than this file's queries",
            cure=cure,
        )
    if former:
        yield SERVICES.warning(
            _states(former), "an acker of an earlier version of Windhover wrote it", cure=cure
        )
    if right:
        yield SERVICES.ok(
            _states(right), f"written for {partitions} acker partitions, and this version reads it"
        )
    if without:
        yield SERVICES.ok(_states(without), "nobody has written one yet")


def _states(numbers: Iterable[int]) -> str:
    named = sorted(numbers)
    plural = "s" if len(named) > 1 else ""
    return f"State of acker partition{plural} {', '.join(map(str, named))}"

"""What each role must be allowed to do at a broker that asks: the least with which all of it works.

`NEEDS` is the whole of it, as data. The table in docs/operate/security.md, what `windhover acls` prints, the
messages of `NotAuthorized` and the tests are made of it. In Kafka, Read, Write, Delete and Alter include
Describe, and an idempotent producer needs no right of its own beside Write; both are made use of.

Not here: whoever writes source topics, and what a query does beside Windhover; those are the user's own.

Source: Kafka's documentation, "Authorization and ACLs", "Operations and resources on protocols".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.kafka.port import Operation, Resource, Right


class Role(StrEnum):
    """A part of an installation, or who works with it, with a name of its own at the broker."""

    OPERATOR = "operator"
    ACKER = "acker"
    REPLAY = "replay"
    SPOUT = "spout"
    OBSERVER = "observer"
    KEEPER = "keeper"


class Of(StrEnum):
    """Which names of a topics.yaml a need is about."""

    INIT = "`_ack_init`"
    ACK = "`_ack_ack`"
    FAIL = "`_ack_fail`"
    VERDICT = "`_ack_verdict`"
    STATE = "`_ack_state`"
    DUE = "`_ack_due`"
    QUARANTINE = "`_ack_quarantine`"
    EVERY = "every topic of the file"
    SOURCES = "`inputs.*.topic`"
    REPLAYS = "`inputs.*.replay_topic`"
    DEAD_LETTERS = "`inputs.*.dead_letter.topic`"
    GROUPS = "`inputs.*.group`"
    ACKER_GROUP = "`acker.group`"
    REPLAY_GROUP = "`acker.replay_group`"
    ACKER_IDS = "`acker.group`, a hyphen and the number of a partition"
    REPLAY_IDS = "`acker.replay_group`, a hyphen and the number of a partition"
    LETTER_IDS = "`acker.replay_group`, `-letters-` and `inputs.*.dead_letter.topic`"


@dataclass(frozen=True, slots=True)
class Need:
    """What a role does with resources of one kind, and what for."""

    role: Role
    of: Of
    operations: tuple[Operation, ...]
    why: str


_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE, _CONFIGS = Operation.ALTER, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS

NEEDS: Final = (
    Need(Role.OPERATOR, Of.EVERY, (_CREATE, _DESCRIBE, _CONFIGS), "`topics create`, `topics check`"),
    Need(Role.OPERATOR, Of.REPLAYS, (_ALTER,), "`topics create`: they grow with their sources"),
    Need(
        Role.OPERATOR, Of.INIT, (_READ, _WRITE), "`release`, `offsets reset`: who holds the group; takes it"
    ),
    Need(Role.OPERATOR, Of.VERDICT, (_READ,), "the ackers' answer"),
    Need(Role.OPERATOR, Of.SOURCES, (_READ,), "to commit the group's offsets"),
    Need(Role.OPERATOR, Of.REPLAYS, (_READ,), "to commit the group's offsets"),
    Need(Role.OPERATOR, Of.GROUPS, (_READ,), "to commit the group's offsets"),
    Need(Role.OPERATOR, Of.ACK, (_READ, _WRITE), "`topics repair`: finds what stops readers, marks it"),
    Need(Role.OPERATOR, Of.FAIL, (_READ, _WRITE), "`topics repair`"),
    Need(Role.OPERATOR, Of.VERDICT, (_WRITE,), "`topics repair`"),
    Need(Role.OPERATOR, Of.STATE, (_READ, _WRITE), "`topics repair`"),
    Need(
        Role.OPERATOR, Of.DUE, (_READ, _WRITE), "`topics repair`; `replay resume`, `drop`: what waits, pauses"
    ),
    Need(Role.OPERATOR, Of.REPLAY_IDS, (_WRITE,), "`replay resume`, `drop`: write as a worker does"),
    Need(Role.ACKER, Of.INIT, (_READ, _DELETE), "inits, ticks, takes; deletes what nothing needs"),
    Need(Role.ACKER, Of.ACK, (_READ, _DELETE), "what was acked; deletes what nothing needs"),
    Need(Role.ACKER, Of.FAIL, (_READ, _DELETE), "what failed; deletes what nothing needs"),
    Need(Role.ACKER, Of.VERDICT, (_READ, _WRITE, _DELETE), "gives verdicts, reads them to restore"),
    Need(Role.ACKER, Of.STATE, (_READ, _WRITE), "what a restart needs"),
    Need(Role.ACKER, Of.QUARANTINE, (_WRITE,), "records that cannot be read"),
    Need(Role.ACKER, Of.ACKER_GROUP, (_READ,), "shares the partitions"),
    Need(Role.ACKER, Of.REPLAY_GROUP, (_DESCRIBE,), "deletes no verdict that replay workers have not read"),
    Need(Role.ACKER, Of.ACKER_IDS, (_WRITE,), "one transactional id for each partition"),
    Need(Role.REPLAY, Of.VERDICT, (_READ,), "what was lost"),
    Need(Role.REPLAY, Of.DUE, (_READ, _WRITE), "what waits for its replay"),
    Need(Role.REPLAY, Of.SOURCES, (_READ, _CONFIGS), "the record that is copied"),
    Need(Role.REPLAY, Of.REPLAYS, (_READ, _WRITE, _CONFIGS), "copies; a copy may be lost again"),
    Need(Role.REPLAY, Of.DEAD_LETTERS, (_WRITE, _CONFIGS), "records given up"),
    Need(Role.REPLAY, Of.REPLAY_GROUP, (_READ,), "shares the partitions"),
    Need(Role.REPLAY, Of.REPLAY_IDS, (_WRITE,), "one transactional id for each partition"),
    Need(Role.SPOUT, Of.SOURCES, (_READ,), "executors read them"),
    Need(Role.SPOUT, Of.REPLAYS, (_READ,), "executors read them"),
    Need(Role.SPOUT, Of.GROUPS, (_READ,), "commits what is settled"),
    Need(
        Role.SPOUT,
        Of.INIT,
        (_READ, _WRITE),
        "who holds the group; the planning process announces what it emits",
    ),
    Need(Role.SPOUT, Of.ACK, (_WRITE,), "the driver publishes what was acked"),
    Need(Role.SPOUT, Of.FAIL, (_WRITE,), "the driver publishes what failed"),
    Need(Role.SPOUT, Of.VERDICT, (_READ,), "the planning process settles"),
    Need(Role.SPOUT, Of.DUE, (_READ,), "what waits: `ordering`; `availableNow` ends when nothing does"),
    Need(Role.OBSERVER, Of.STATE, (_READ,), "`status`, `roots`, `inspect`: what is open"),
    Need(Role.OBSERVER, Of.VERDICT, (_READ,), "`status`, `roots`, `inspect`: what was settled since"),
    Need(Role.OBSERVER, Of.INIT, (_READ,), "`inspect`: what was announced since; `status`: who lives"),
    Need(Role.OBSERVER, Of.ACK, (_READ,), "`inspect`: what was acked of an open root"),
    Need(Role.OBSERVER, Of.DUE, (_READ,), "`status`, `inspect`: what waits for its replay"),
    Need(Role.OBSERVER, Of.SOURCES, (_READ, _CONFIGS), "`inspect`: the record, or why there is none"),
    Need(Role.OBSERVER, Of.REPLAYS, (_READ, _CONFIGS), "`inspect`: its copies"),
    Need(
        Role.OBSERVER, Of.DEAD_LETTERS, (_READ, _CONFIGS), "`status`, `inspect`, `dlq list`, `show`, `stats`"
    ),
    Need(Role.OBSERVER, Of.GROUPS, (_DESCRIBE,), "`status`, `inspect`: how far it has committed"),
    Need(Role.OBSERVER, Of.ACKER_GROUP, (_DESCRIBE,), "`status`: whether an acker lives"),
    Need(Role.OBSERVER, Of.REPLAY_GROUP, (_DESCRIBE,), "`status`: which verdicts are taken over; who lives"),
    Need(
        Role.KEEPER, Of.DEAD_LETTERS, (_READ, _WRITE), "all of `dlq`: letters, their marks, and who did what"
    ),
    Need(Role.KEEPER, Of.REPLAYS, (_READ, _WRITE, _CONFIGS), "`dlq replay`: copies, and what became of them"),
    Need(Role.KEEPER, Of.VERDICT, (_READ,), "`dlq replay`, `redrives`: what became of the copies"),
    Need(Role.KEEPER, Of.LETTER_IDS, (_WRITE,), "one transactional id for each dead-letter topic"),
)
COMMANDS: Final[Mapping[Role, tuple[str, ...]]] = MappingProxyType(
    {
        Role.OPERATOR: (
            *("topics create", "topics check", "topics repair", "offsets reset", "release"),
            *("replay resume", "replay drop", "doctor"),
        ),
        Role.ACKER: ("acker run", "acker free"),
        Role.REPLAY: ("replay run",),
        Role.SPOUT: ("submit",),
        Role.OBSERVER: (
            *("status", "check", "roots", "inspect", "machinery", "failures", "latency", "ui"),
            *("dlq list", "dlq show", "dlq stats", "dlq redrives"),
        ),
        Role.KEEPER: ("dlq replay", "dlq drop", "dlq cancel"),
    }
)
"""Which commands each role can run; a keeper runs all of `dlq`."""

_OF_TRACKED: Final = frozenset({Role.REPLAY, Role.OBSERVER, Role.KEEPER})
"""Roles that have nothing to do with an input that is not tracked."""


def rights(topics: Topics, role: Role, group: str | None = None) -> list[Right]:
    """Return what a role needs, each right once, sorted; of the inputs only those of a group, or all."""
    inputs = [
        each
        for each in topics.inputs.values()
        if group in (None, each.group) and (each.tracked or role not in _OF_TRACKED)
    ]
    found = {
        Right(operation, resource, name)
        for need in _needs_of(role, inputs)
        for resource, name in _named(need.of, topics, inputs)
        for operation in need.operations
    }
    return sorted(found, key=lambda right: (right.resource, right.name, right.operation))


def commands(found: Iterable[Right], principal: str, bootstrap: str) -> Iterator[str]:
    """Yield the calls of Kafka's own tool that grant rights, one for each resource."""
    options = {
        Resource.TOPIC: "--topic",
        Resource.GROUP: "--group",
        Resource.TRANSACTIONAL_ID: "--transactional-id",
    }
    for (resource, operations), names in _together(found):
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--add", "--allow-principal", principal]
        for operation in operations:
            words += ["--operation", operation]
        for name in names:
            words += [options[resource], name]
        yield shlex.join(words)


def rights_text(found: Iterable[Right]) -> Iterator[str]:
    """Yield rights for people, a line for each resource: ``Topic _ack_init: Delete, Read``."""
    for (resource, operations), names in _together(found):
        yield f"{resource} {', '.join(names)}: {', '.join(operations)}"


def _together(found: Iterable[Right]) -> Iterator[tuple[tuple[Resource, tuple[Operation, ...]], list[str]]]:
    """Yield operations with the resources on which they are needed.

    Each topic and group stands alone. Transactional ids of the same operations stand together: there is one
    for each partition.
    """
    by_name = groupby(found, key=attrgetter("resource", "name"))
    rows = [(*key, tuple(right.operation for right in members)) for key, members in by_name]

    def line(row: tuple[Resource, str, tuple[Operation, ...]]) -> tuple[object, ...]:
        resource, name, operations = row
        return (resource, operations, "" if resource is Resource.TRANSACTIONAL_ID else name)

    for _, of_line in groupby(rows, key=line):
        members = list(of_line)
        resource, _, operations = members[0]
        yield (resource, operations), [name for _, name, _ in members]


def _needs_of(role: Role, inputs: Iterable[Input]) -> list[Need]:
    reads_only = role is Role.SPOUT and not any(each.tracked for each in inputs)
    found = [need for need in NEEDS if need.role is role]
    return [need for need in found if need.of in (Of.SOURCES, Of.GROUPS) or not reads_only]


def _named(of: Of, topics: Topics, inputs: Iterable[Input]) -> Iterator[tuple[Resource, str]]:
    found = _names(topics, inputs)
    if of in (Of.ACKER_IDS, Of.REPLAY_IDS):
        group = topics.acker.group if of is Of.ACKER_IDS else topics.acker.replay_group
        # by name, and not by prefix: `a-` is also the beginning of the ids of a group `a-b`
        ids = (f"{group}-{number}" for number in range(topics.acker.partitions))
        yield from ((Resource.TRANSACTIONAL_ID, name) for name in ids)
    elif of is Of.LETTER_IDS:
        first = f"{topics.acker.replay_group}-letters-"
        yield from ((Resource.TRANSACTIONAL_ID, first + name) for name in found[Of.DEAD_LETTERS])
    elif of is Of.EVERY:
        yield from ((Resource.TOPIC, name) for names in found.values() for name in names)
    elif of in (Of.GROUPS, Of.ACKER_GROUP, Of.REPLAY_GROUP):
        groups = {Of.ACKER_GROUP: [topics.acker.group], Of.REPLAY_GROUP: [topics.acker.replay_group]}
        yield from ((Resource.GROUP, name) for name in groups.get(of, [one.group for one in inputs]))
    else:
        yield from ((Resource.TOPIC, name) for name in found[of])


def _names(topics: Topics, inputs: Iterable[Input]) -> dict[Of, list[str]]:
    ack_topics = (Of.INIT, Of.ACK, Of.FAIL, Of.VERDICT, Of.STATE, Of.DUE, Of.QUARANTINE)
    ours = zip(ack_topics, topics.ack_topics.names(), strict=True)
    tracked = [each for each in inputs if each.tracked]
    return {of: [name] for of, name in ours} | {
        Of.SOURCES: [each.topic for each in inputs],
        Of.REPLAYS: [each.replay_topic for each in tracked],
        Of.DEAD_LETTERS: [each.dead_letter.topic for each in tracked],
    }

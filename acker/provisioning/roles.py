"""What each role must be allowed to do at a broker that asks: the least with which all of it works.

`NEEDS` is the whole of it, as data. The table in docs/operate/security.md, what `windhover acls` prints, the
messages of `NotAuthorized` and the tests are made of it. In Kafka, Read, Write, Delete and Alter include
Describe, and an idempotent producer needs no right of its own beside Write; both are made use of.

Not here: whoever writes source topics, and what a query does beside Windhover; those are the user's own.

Source: Kafka's documentation, "Authorization and ACLs", "Operations and resources on protocols".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, groupby
from operator import attrgetter
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.kafka.port import Operation, Resource, Right
from acker.listing import first_of


class Role(StrEnum):
    """A part of an installation, or who works with it, with a name of its own at the broker."""

    OPERATOR = "operator"
    ACKER = "acker"
    REPLAY = "replay"
    SPOUT = "spout"
    OBSERVER = "observer"
    KEEPER = "keeper"


class Names(StrEnum):
    """Of which names a role needs something: names in a topics.yaml, or made of them."""

    INIT = "`_ack_init`"
    ACK = "`_ack_ack`"
    FAIL = "`_ack_fail`"
    VERDICT = "`_ack_verdict`"
    STATE = "`_ack_state`"
    DUE = "`_ack_due`"
    QUARANTINE = "`_ack_quarantine`"
    SINK = "`_ack_sink`"
    EVERY = "every topic of the file"
    SOURCES = "`inputs.*.topic`"
    REPLAYS = "`inputs.*.replay_topic`"
    DEAD_LETTERS = "`inputs.*.dead_letter.topic`"
    GROUPS = "`inputs.*.group`"
    ACKER_GROUP = "`acker.group`"
    REPLAY_GROUP = "`acker.replay_group`"
    ACKER_IDS = "`acker.group`, a hyphen and the number of each partition"
    REPLAY_IDS = "`acker.replay_group`, a hyphen and the number of each partition"
    SINK_IDS = "`_ack_sink`, a slash and each of `inputs.*.group`"
    LETTER_IDS = "`acker.replay_group`, `-letters-` and `inputs.*.dead_letter.topic`"


@dataclass(frozen=True, slots=True)
class Need:
    """What a role does with resources of one kind, and what for."""

    role: Role
    names: Names
    operations: tuple[Operation, ...]
    why: str


_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE, _CONFIGS = Operation.ALTER, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS

NEEDS: Final = (
    Need(
        Role.OPERATOR,
        Names.EVERY,
        (_CREATE, _DESCRIBE, _CONFIGS),
        "`topics create`, `topics check`",
    ),
    Need(Role.OPERATOR, Names.REPLAYS, (_ALTER,), "`topics create`: they grow with their sources"),
    Need(
        Role.OPERATOR,
        Names.INIT,
        (_READ, _WRITE),
        "`release`, `offsets reset`: who holds the group; takes it",
    ),
    Need(Role.OPERATOR, Names.VERDICT, (_READ,), "the ackers' answer"),
    Need(Role.OPERATOR, Names.SOURCES, (_READ,), "to commit the group's offsets"),
    Need(Role.OPERATOR, Names.REPLAYS, (_READ,), "to commit the group's offsets"),
    Need(Role.OPERATOR, Names.GROUPS, (_READ,), "to commit the group's offsets"),
    *(
        Need(Role.OPERATOR, names, (_READ, _WRITE), "`topics repair`: finds what stops its readers, marks it")
        for names in (Names.INIT, Names.ACK, Names.FAIL, Names.VERDICT, Names.STATE, Names.DUE)
    ),
    Need(
        Role.OPERATOR, Names.DUE, (_READ, _WRITE), "`replay resume`, `replay drop`: what waits for its replay"
    ),
    Need(
        Role.OPERATOR,
        Names.REPLAY_GROUP,
        (_DESCRIBE,),
        "`replay resume`: whether a replay worker lives",
    ),
    Need(
        Role.OPERATOR,
        Names.REPLAY_IDS,
        (_WRITE,),
        "`replay resume`, `replay drop`: take a partition over",
    ),
    Need(
        Role.ACKER,
        Names.INIT,
        (_READ, _DELETE),
        "inits, ticks, takes; deletes what nothing needs",
    ),
    Need(Role.ACKER, Names.ACK, (_READ, _DELETE), "what was acked; deletes what nothing needs"),
    Need(Role.ACKER, Names.FAIL, (_READ, _DELETE), "what failed; deletes what nothing needs"),
    Need(
        Role.ACKER,
        Names.VERDICT,
        (_READ, _WRITE, _DELETE),
        "gives verdicts, reads them to restore",
    ),
    Need(Role.ACKER, Names.STATE, (_READ, _WRITE), "what a restart needs"),
    Need(Role.ACKER, Names.QUARANTINE, (_WRITE,), "records that cannot be read"),
    Need(Role.ACKER, Names.ACKER_GROUP, (_READ,), "shares the partitions"),
    Need(
        Role.ACKER, Names.REPLAY_GROUP, (_DESCRIBE,), "deletes no verdict that replay workers have not read"
    ),
    Need(Role.ACKER, Names.ACKER_IDS, (_WRITE,), "one transactional id for each partition"),
    Need(Role.REPLAY, Names.VERDICT, (_READ,), "what was lost"),
    Need(Role.REPLAY, Names.DUE, (_READ, _WRITE), "what waits for its replay"),
    Need(Role.REPLAY, Names.SOURCES, (_READ, _CONFIGS), "the record that is copied"),
    Need(Role.REPLAY, Names.REPLAYS, (_READ, _WRITE, _CONFIGS), "copies; a copy may be lost again"),
    Need(Role.REPLAY, Names.DEAD_LETTERS, (_WRITE, _CONFIGS), "records given up"),
    Need(Role.REPLAY, Names.REPLAY_GROUP, (_READ,), "shares the partitions"),
    Need(Role.REPLAY, Names.REPLAY_IDS, (_WRITE,), "one transactional id for each partition"),
    Need(Role.SPOUT, Names.SOURCES, (_READ,), "executors read them"),
    Need(Role.SPOUT, Names.REPLAYS, (_READ,), "executors read them"),
    Need(Role.SPOUT, Names.GROUPS, (_READ,), "commits what is settled"),
    Need(
        Role.SPOUT,
        Names.INIT,
        (_READ, _WRITE),
        "who holds the group; the planning process announces what it emits",
    ),
    Need(Role.SPOUT, Names.ACK, (_WRITE,), "the driver publishes what was acked"),
    Need(Role.SPOUT, Names.FAIL, (_WRITE,), "the driver publishes what failed"),
    Need(Role.SPOUT, Names.VERDICT, (_READ,), "the planning process settles"),
    Need(
        Role.SPOUT,
        Names.DUE,
        (_READ,),
        "what waits: `ordering`, `availableNow`, `spout.run_once`",
    ),
    Need(Role.SPOUT, Names.SINK, (_READ, _WRITE), "exactly once: the last batch of each group"),
    Need(
        Role.SPOUT,
        Names.SINK_IDS,
        (_WRITE,),
        "exactly once: one transactional id for each group",
    ),
    Need(Role.OBSERVER, Names.STATE, (_READ,), "`status`, `roots`, `inspect`: what is open"),
    Need(
        Role.OBSERVER,
        Names.VERDICT,
        (_READ,),
        "`status`, `roots`, `inspect`: what was settled since",
    ),
    Need(
        Role.OBSERVER,
        Names.INIT,
        (_READ,),
        "`inspect`: what was announced since; `status`: who lives",
    ),
    Need(Role.OBSERVER, Names.ACK, (_READ,), "`inspect`: what was acked of an open root"),
    Need(Role.OBSERVER, Names.DUE, (_READ,), "`status`, `inspect`: what waits for its replay"),
    Need(
        Role.OBSERVER,
        Names.QUARANTINE,
        (_READ,),
        "`sql`, `picture`: what ackers could not apply",
    ),
    Need(
        Role.OBSERVER,
        Names.SOURCES,
        (_READ, _CONFIGS),
        "`inspect`: the record, or why there is none",
    ),
    Need(Role.OBSERVER, Names.REPLAYS, (_READ, _CONFIGS), "`inspect`, `sql`, `picture`: copies"),
    Need(
        Role.OBSERVER,
        Names.DEAD_LETTERS,
        (_READ, _CONFIGS),
        "`status`, `inspect`, `dlq list`, `show`, `stats`",
    ),
    Need(
        Role.OBSERVER,
        Names.GROUPS,
        (_DESCRIBE,),
        "`status`, `inspect`: how far it has committed",
    ),
    Need(Role.OBSERVER, Names.ACKER_GROUP, (_DESCRIBE,), "`status`: whether an acker lives"),
    Need(
        Role.OBSERVER,
        Names.REPLAY_GROUP,
        (_DESCRIBE,),
        "`status`: which verdicts are accepted; who lives",
    ),
    Need(
        Role.KEEPER,
        Names.DEAD_LETTERS,
        (_READ, _WRITE),
        "all of `dlq`: letters, their marks, and who did what",
    ),
    Need(
        Role.KEEPER, Names.REPLAYS, (_READ, _WRITE, _CONFIGS), "`dlq replay`: copies, and what became of them"
    ),
    Need(
        Role.KEEPER,
        Names.VERDICT,
        (_READ,),
        "`dlq replay`, `redrives`: what became of the copies",
    ),
    Need(
        Role.KEEPER,
        Names.LETTER_IDS,
        (_WRITE,),
        "one transactional id for each dead-letter topic",
    ),
)
_OF_TRACKED: Final = frozenset({Role.REPLAY, Role.OBSERVER, Role.KEEPER})
"""Roles that have nothing to do with an input that is not tracked."""


def rights(topics: Topics, role: Role, group: str | None = None) -> list[Right]:
    """Return what a role needs, each right once, sorted.

    `group`: only for the inputs of this group; None: for all inputs.
    """
    inputs = []
    for input in topics.inputs.values():
        is_of_role = input.tracked or role not in _OF_TRACKED
        is_of_group = group is None or input.group == group
        if is_of_group and is_of_role:
            inputs.append(input)
    needed: set[Right] = set()
    for need in _needs_of(role, inputs):
        for resource, name in _resources_of(need.names, topics, inputs):
            needed.update(Right(operation, resource, name) for operation in need.operations)
    return sorted(needed, key=lambda right: (right.resource, right.name, right.operation))


_NAMES_SHOWN: Final = 9
"""So many transactional ids stand in a line for people; the commands have all of them."""

_resource_of = attrgetter("resource", "name")


def commands(sorted_rights: Iterable[Right], principal: str, bootstrap: str) -> Iterator[str]:
    """Yield the calls of Kafka's own tool that grant rights; transactional ids share one."""
    options = {
        Resource.TOPIC: "--topic",
        Resource.GROUP: "--group",
        Resource.TRANSACTIONAL_ID: "--transactional-id",
    }
    for grant in _grants(sorted_rights):
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap, "--add", "--allow-principal", principal]
        for operation in grant.operations:
            words += ["--operation", operation]
        for name in grant.names:
            words += [options[grant.resource], name]
        yield shlex.join(words)


class _Grant(NamedTuple):
    """The same operations on resources of one kind."""

    resource: Resource
    names: list[str]
    operations: tuple[Operation, ...]


def _grants(sorted_rights: Iterable[Right]) -> Iterator[_Grant]:
    """Yield a grant for each resource; transactional ids with the same operations share one, at the end.

    The rights are sorted as `rights` returns them: those of one resource are neighbours.
    """
    ids_by_operations: dict[tuple[Operation, ...], list[str]] = {}
    for (resource, name), rights_of_resource in groupby(sorted_rights, key=_resource_of):
        operations = tuple(right.operation for right in rights_of_resource)
        if resource is Resource.TRANSACTIONAL_ID:
            ids_by_operations.setdefault(operations, []).append(name)
        else:
            yield _Grant(resource, [name], operations)
    for operations, names in ids_by_operations.items():
        yield _Grant(Resource.TRANSACTIONAL_ID, names, operations)


def rights_text(sorted_rights: Iterable[Right]) -> Iterator[str]:
    """Yield rights for people, a line for each resource: ``Topic _ack_init: Delete, Read``.

    Transactional ids come together: ``TransactionalId acks-0, acks-1: Write``.
    """
    for grant in _grants(sorted_rights):
        # `first_of` writes "and 1 more" for one name too many: it would take the place of that name
        shown_max = _NAMES_SHOWN if len(grant.names) <= _NAMES_SHOWN else _NAMES_SHOWN - 1
        yield f"{grant.resource} {first_of(grant.names, shown_max)}: {', '.join(grant.operations)}"


def _needs_of(role: Role, inputs: Iterable[Input]) -> list[Need]:
    """Return the needs of a role; a spout without tracked inputs only reads sources and commits."""
    needs = [need for need in NEEDS if need.role is role]
    if role is Role.SPOUT and not any(input.tracked for input in inputs):
        return [need for need in needs if need.names in (Names.SOURCES, Names.GROUPS)]
    return needs


def _resources_of(names: Names, topics: Topics, inputs: Iterable[Input]) -> Iterator[tuple[Resource, str]]:
    """Yield the kind and the name of each resource that `names` stands for."""
    acker = topics.acker
    topic_names = _topic_names(topics, inputs)
    match names:
        case Names.ACKER_IDS | Names.REPLAY_IDS:
            group = acker.group if names is Names.ACKER_IDS else acker.replay_group
            # Each by its whole name: the prefix `a-` would cover `a-b-0` of an installation whose group is
            # `a-b`, and whoever may write under an id of others can fence them out.
            for number in range(acker.partitions):
                yield Resource.TRANSACTIONAL_ID, f"{group}-{number}"
        case Names.LETTER_IDS:
            for topic in topic_names[Names.DEAD_LETTERS]:
                yield Resource.TRANSACTIONAL_ID, f"{acker.replay_group}-letters-{topic}"
        case Names.SINK_IDS:
            id_of = topics.ack_topics.sink_transactional_id
            for input in inputs:
                if input.tracked:
                    yield Resource.TRANSACTIONAL_ID, id_of(input.group)
        case Names.EVERY:  # all topics
            for topic in chain.from_iterable(topic_names.values()):
                yield Resource.TOPIC, topic
        case Names.ACKER_GROUP:
            yield Resource.GROUP, acker.group
        case Names.REPLAY_GROUP:
            yield Resource.GROUP, acker.replay_group
        case Names.GROUPS:
            for input in inputs:
                yield Resource.GROUP, input.group
        case _:  # all others stand for topics
            for topic in topic_names[names]:
                yield Resource.TOPIC, topic


def _topic_names(topics: Topics, inputs: Iterable[Input]) -> dict[Names, list[str]]:
    """Return the topics that each member of `Names` stands for, if it stands for topics."""
    # in the order of `AckTopics.names`
    ack_topics = (
        Names.INIT, Names.ACK, Names.FAIL, Names.VERDICT,
        Names.STATE, Names.DUE, Names.QUARANTINE, Names.SINK,
    )  # fmt: skip
    topic_names: dict[Names, list[str]] = {}
    for member, name in zip(ack_topics, topics.ack_topics.names(), strict=True):
        topic_names[member] = [name]
    tracked_inputs = [input for input in inputs if input.tracked]
    topic_names[Names.SOURCES] = [input.topic for input in inputs]
    topic_names[Names.REPLAYS] = [input.replay_topic for input in tracked_inputs]
    topic_names[Names.DEAD_LETTERS] = [input.dead_letter.topic for input in tracked_inputs]
    return topic_names

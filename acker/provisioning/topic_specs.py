"""What topics there must be and how they must be set, from topics.yaml; pure.

A finding is an error where going on would lose records or verdicts, otherwise a warning.

Source: docs/design/protocol.md, sections 2, 4 and 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.kafka.port import TopicInfo

MESSAGE_BYTES: Final = 1_048_588
"""Kafka's default max.message.bytes: 1 MiB of records and the batch's 12 bytes of framing."""

MESSAGE_BYTES_MIN: Final = 1_000_000
"""A record of the wire has up to 900,000 bytes; header, key and batch need the rest."""

MARKER_BYTES: Final = 78
"""A batch with the mark that ends a transaction; a topic that takes less never gets it."""

COPY_HEADERS_BYTES: Final = 1_048_576
"""What a copy or a dead letter may be larger than its record: headers, causes, history."""

MESSAGE_BYTES_MAX: Final = (1 << 31) - 1
"""The largest max.message.bytes that a broker takes."""

REPLICATION_SAFE: Final = 3
"""From so many replicas on, every write has to be on two of them."""

FOR_EVER: Final = "-1"

EXACTLY_ONCE: Final = "queries that write exactly once into Kafka"
"""Installations of former versions lack their topic, and go on without it."""


class TopicRole(StrEnum):
    """What a topic is for."""

    LOG = "ack log"
    TABLE = "ack table"
    SOURCE = "source"
    REPLAY = "replay"
    DEAD_LETTER = "dead letters"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """How a topic must be; `key` is the key of topics.yaml that names it.

    Attributes:
        partitions: how many it must have, at least where `role` is REPLAY; None: as many as it has.
        replication: replicas of each partition; -1: the broker's default.
        settings: what it is made with; those of MUST_BE are also demanded of a topic that exists.
        source_topic: the topic whose partitions and settings decide about these; empty: none does.
        source_settings: the settings of that topic, where the broker has it.
        has_clocks: whether ackers compare what its records say with the time of these records.
        only_for: who needs it, if not everybody does: then it is only a warning that it is missing.
    """

    name: str
    role: TopicRole
    key: str
    partitions: int | None
    replication: int
    settings: Mapping[str, str]
    source_topic: str = ""
    source_settings: Mapping[str, str] = field(default_factory=dict)
    has_clocks: bool = False
    only_for: str = ""


class Level(StrEnum):
    """Whether a finding ends the command."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a topic, why it matters, and the next step.

    `setting` is what cures it, ``min.insync.replicas=2``; empty: no setting of the topic does. `replicas`: so
    many replicas of each partition do, which only a reassignment adds; 0: they do not.
    """

    topic: str
    level: Level
    text: str
    setting: str = ""
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What `windhover topics create` has to do.

    Attributes:
        make: topics that are missing.
        grow: topics that need more partitions.
        existing: topics that exist and stay as they are.
    """

    make: tuple[TopicSpec, ...]
    grow: tuple[TopicSpec, ...]
    existing: tuple[TopicSpec, ...]


_LOG: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.ms": FOR_EVER, "retention.bytes": FOR_EVER}
)
_TABLE: Final[Mapping[str, str]] = MappingProxyType(
    # A restore reads the table whole: small segments and a low ratio keep what it reads near what lives.
    {"cleanup.policy": "compact", "segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0.2"}
)
_BROKERS_TIME: Final[Mapping[str, str]] = MappingProxyType({"message.timestamp.type": "LogAppendTime"})
"""Of every ack topic: so none refuses what a process with a wrong clock writes. Ackers also compare the
clocks and epochs of sessions with the time of their records."""

_AHEAD_LIMIT: Final = "message.timestamp.after.max.ms"
_AGE_LIMIT: Final = "message.timestamp.before.max.ms"
_DIFFERENCE_LIMIT: Final = "message.timestamp.difference.max.ms"
"""Both limits in one, in brokers before 4.0."""

AGE_LIMITS: Final = (_AGE_LIMIT, _DIFFERENCE_LIMIT)
"""Settings by which a topic refuses records that are older than so many ms; a replay topic has no limit."""

_TIME_LIMITS: Final = (_AHEAD_LIMIT, *AGE_LIMITS)
_TIME_TYPE: Final = "message.timestamp.type"
_APPEND_TIME: Final = "LogAppendTime"
_SCHEMA_CHECK: Final = ".schema.validation"
"""The end of the names of settings by which some brokers check each record against a schema."""

NO_LIMIT: Final = str((1 << 63) - 1)

_KEPT_TIME: Final = "a copy keeps its record's time, and that of an older record is refused"
_NEEDED_BY_ROOTS: Final = "records that open roots need would be deleted; the ackers delete the others"

MUST_BE: Final[Mapping[tuple[TopicRole, str], str]] = MappingProxyType(
    {
        (TopicRole.LOG, "cleanup.policy"): "compaction would drop records that open roots need",
        (TopicRole.LOG, "retention.ms"): _NEEDED_BY_ROOTS,
        (TopicRole.LOG, "retention.bytes"): _NEEDED_BY_ROOTS,
        (TopicRole.TABLE, "cleanup.policy"): "state that a restart needs would be deleted",
        (TopicRole.REPLAY, "cleanup.policy"): "a copy would replace another one of the same key",
        (TopicRole.REPLAY, _AGE_LIMIT): _KEPT_TIME,
        (TopicRole.REPLAY, _DIFFERENCE_LIMIT): _KEPT_TIME,
        (TopicRole.DEAD_LETTER, "cleanup.policy"): "a dead letter would replace another one of the same key",
    }
)
"""Settings that a topic must have exactly as it is made, each with the reason."""


def required_topics(topics: Topics, infos: Mapping[str, TopicInfo]) -> list[TopicSpec]:
    """Return how each topic must be, each topic once.

    `infos` is what the broker has, by name: a source topic that is there decides about its replay
    topic.
    """
    specs_by_name = {spec.name: spec for spec in _specs_of_ack_topics(topics)}
    # Several inputs may read one topic, and it is enough that one of them says how large it is
    # made. The first of them counts.
    partitions_by_topic: dict[str, int] = {}
    for input in topics.inputs.values():
        if input.partitions is not None:
            partitions_by_topic.setdefault(input.topic, input.partitions)
    for input in topics.inputs.values():
        partitions = partitions_by_topic.get(input.topic)  # None: nobody says it
        for spec in _specs_of_input(input, partitions, infos, topics.acker.replication_factor):
            same_topic = specs_by_name.setdefault(spec.name, spec)
            # One input's dead letters may be another's source: they are kept as dead letters.
            if same_topic.role is TopicRole.SOURCE and spec.role is TopicRole.DEAD_LETTER:
                specs_by_name[spec.name] = spec
    return list(specs_by_name.values())


def _specs_of_ack_topics(topics: Topics) -> Iterator[TopicSpec]:
    """Yield how each ack topic must be: a log, or a compacted table that restarts read whole."""
    names = topics.ack_topics
    tables = (names.state, names.due, names.sink)
    replication = topics.acker.replication_factor
    basic = _basic_settings(replication) | {"max.message.bytes": str(MESSAGE_BYTES)}
    for name in names.names():
        is_table = name in tables
        settings = _TABLE if is_table else _LOG
        yield TopicSpec(
            name=name,
            role=TopicRole.TABLE if is_table else TopicRole.LOG,
            key="acker.partitions",
            partitions=topics.acker.partitions,
            replication=replication,
            settings={**basic, **settings, **_BROKERS_TIME},
            has_clocks=name in (names.init, names.ack),
            only_for=EXACTLY_ONCE if name == names.sink else "",
        )


def _basic_settings(replication: int) -> dict[str, str]:
    """Return the settings of every topic; `replication` is `acker.replication_factor`, -1 the broker's."""
    settings = {"unclean.leader.election.enable": "false"}
    if replication > 0:
        settings["min.insync.replicas"] = "2" if replication >= REPLICATION_SAFE else "1"
    return settings


def _specs_of_input(
    input: Input, partitions: int | None, infos: Mapping[str, TopicInfo], replication: int
) -> Iterator[TopicSpec]:
    """Yield the topics of one input; a replay or dead-letter topic exists only where records are tracked.

    `partitions` is what it, or another input of its topic, says; None: nobody does.
    """
    path, basic = f"inputs.{input.name}", _basic_settings(replication)
    # 1. the source topic itself
    yield TopicSpec(input.topic, TopicRole.SOURCE, f"{path}.topic", partitions, replication, basic)
    if not input.tracked:
        return
    # 2. what topics of copies take over from it; it may not be there yet
    info = infos.get(input.topic)
    copy_partitions = info.partitions if info else partitions
    source_settings = info.settings if info else {}
    record_bytes_max = int(source_settings.get("max.message.bytes", MESSAGE_BYTES))
    copy_bytes_max = min(record_bytes_max + COPY_HEADERS_BYTES, MESSAGE_BYTES_MAX)
    # A copy keeps its record's time, so retention by time could delete it as soon as it is written. Which
    # times are taken the source decides, and may decide otherwise later: a copy of what it took is taken.
    settings = {**basic, **_LOG, "max.message.bytes": str(copy_bytes_max), _TIME_TYPE: "CreateTime"}
    for name in _TIME_LIMITS:
        if name in source_settings:  # no broker has all of them
            settings[name] = NO_LIMIT
    # 3. both of them: the replay topic, and that of dead letters
    copies = TopicSpec(
        name=input.replay_topic,
        role=TopicRole.REPLAY,
        key=f"{path}.replay_topic",
        partitions=copy_partitions,
        replication=replication,
        settings=settings,
        source_topic=input.topic,
        source_settings=source_settings,
    )
    yield copies
    yield replace(
        copies,
        name=input.dead_letter.topic,
        role=TopicRole.DEAD_LETTER,
        key=f"{path}.dead_letter.topic",
    )


def plan(specs: list[TopicSpec], infos: Mapping[str, TopicInfo]) -> Plan:
    """Plan what to make. Only a replay topic grows: a copy keeps its record's partition number.

    A missing topic whose number of partitions nobody knows is in no part of the plan.
    """
    make: list[TopicSpec] = []
    grow: list[TopicSpec] = []
    existing: list[TopicSpec] = []
    for spec in specs:
        info = infos.get(spec.name)
        if info is None:
            if spec.partitions is not None:
                make.append(spec)
        elif spec.role is TopicRole.REPLAY and _has_too_few_partitions(spec, info):
            grow.append(spec)
        else:
            existing.append(spec)
    return Plan(tuple(make), tuple(grow), tuple(existing))


def _has_too_few_partitions(spec: TopicSpec, info: TopicInfo | None) -> bool:
    """Return whether a topic exists with fewer partitions than it needs."""
    return info is not None and spec.partitions is not None and info.partitions < spec.partitions


def missing_topic_finding(spec: TopicSpec) -> Finding:
    """Return the finding of a topic that does not exist, with who makes it or who needs it."""
    if spec.only_for:
        text = f"does not exist: {spec.only_for} need it; run `windhover topics create`"
        return Finding(spec.name, Level.WARNING, text)
    if spec.partitions is not None:
        text = "does not exist; run `windhover topics create`"
    # without a number of partitions `windhover topics create` cannot make it
    elif spec.role is TopicRole.SOURCE:
        text = f"does not exist; create it, or give {spec.key.removesuffix('topic')}partitions"
    else:
        text = f"does not exist; it is made once the source of {spec.key} is there"
    return Finding(spec.name, Level.ERROR, text)


def topic_findings(spec: TopicSpec, info: TopicInfo) -> list[Finding]:
    """Return in what a topic is not as it must be: errors and warnings."""
    settings = info.settings
    findings = [*_partition_findings(spec, info), *_replica_findings(spec, info)]
    for name, value in spec.settings.items():
        why = MUST_BE.get((spec.role, name))
        if why and settings.get(name, value) != value:
            setting = f"{name}={value}"
            findings.append(_error(spec, f"has {name}={settings[name]}: {why}; set {setting}", setting))
    if settings.get("unclean.leader.election.enable") == "true":
        text = "has unclean.leader.election.enable=true: acknowledged records can vanish; set it to false"
        level = Level.WARNING if spec.role is TopicRole.SOURCE else Level.ERROR
        findings.append(Finding(spec.name, level, text, "unclean.leader.election.enable=false"))
    findings += _size_findings(spec, settings)
    findings += _time_findings(spec, settings)
    findings += _writer_time_findings(spec, settings)
    return findings


def _writer_time_findings(spec: TopicSpec, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a warning where an ack topic takes the time of each writer, and that can do harm."""
    time_type = settings.get(_TIME_TYPE, _APPEND_TIME)
    if spec.role not in (TopicRole.LOG, TopicRole.TABLE) or time_type == _APPEND_TIME:
        return
    limits_set = [name for name in _TIME_LIMITS if _limits_time(settings, name)]
    harms = []
    if spec.has_clocks:
        harms.append(
            "ackers compare a session's clock and epoch with the time of its record, which its writer chooses"
        )
    if limits_set:
        limits_text = ", ".join(f"{name}={settings[name]}" for name in limits_set)
        harms.append(
            f"with {limits_text} it refuses what a machine with a wrong clock writes, which ends there"
        )
    if harms:
        setting = f"{_TIME_TYPE}={_APPEND_TIME}"
        text = f"has {_TIME_TYPE}={time_type}: {'; '.join(harms)}; set {setting}"
        yield _warning(spec, text, setting)


def _error(spec: TopicSpec, text: str, setting: str = "") -> Finding:
    """Return an error of a topic; `setting` puts it right, empty: none does."""
    return Finding(spec.name, Level.ERROR, text, setting)


def _warning(spec: TopicSpec, text: str, setting: str = "") -> Finding:
    """Return a warning of a topic; `setting` puts it right, empty: none does."""
    return Finding(spec.name, Level.WARNING, text, setting)


def _partition_findings(spec: TopicSpec, info: TopicInfo) -> Iterator[Finding]:
    """Yield what is wrong with how many partitions a topic has."""
    if spec.partitions is None or spec.partitions == info.partitions:
        return
    has_text = f"has {info.partitions} partitions"
    if spec.role in (TopicRole.LOG, TopicRole.TABLE):
        yield _error(
            spec,
            f"{has_text}, acker.partitions is {spec.partitions}: a root's place is computed"
            f" from N, so N never changes; give acker.partitions: {info.partitions} if that is what"
            " the others have, else drain all groups and begin with another acker.topic_prefix",
        )
    elif spec.role is TopicRole.REPLAY and _has_too_few_partitions(spec, info):
        text = (
            f"{has_text}, its source {spec.partitions}: a copy keeps its partition; run"
            " `windhover topics create`"
        )
        yield _error(spec, text)
    elif spec.role is TopicRole.SOURCE:
        cure = "correct the file"
        if _has_too_few_partitions(spec, info):
            cure += "; or add partitions by Kafka's own tool, then run `windhover topics create` again"
        yield _warning(spec, f"{has_text}, topics.yaml says {spec.partitions}; {cure}")


def _replica_findings(spec: TopicSpec, info: TopicInfo) -> Iterator[Finding]:
    """Yield what is wrong with how many replicas of each partition a topic has."""
    in_sync_min = int(info.settings.get("min.insync.replicas", "1"))
    replicas_text = "one copy" if info.replication == 1 else f"{info.replication} copies"
    if in_sync_min > info.replication:
        text = (
            f"has min.insync.replicas={in_sync_min} and {replicas_text}: Kafka 3.6 and earlier take no"
            " write then, later ones take it when every copy has it; lower it"
        )
        yield _warning(spec, text, f"min.insync.replicas={max(1, info.replication - 1)}")
    if info.replication < spec.replication:
        text = f"has {info.replication} copies, acker.replication_factor is {spec.replication}; reassign it"
        yield Finding(spec.name, Level.WARNING, text, replicas=spec.replication)
    elif info.replication == 1 and spec.replication != 1:
        text = "one copy: a lost disk loses records; give acker.replication_factor: 3"
        yield Finding(spec.name, Level.WARNING, text, replicas=REPLICATION_SAFE)
    elif info.replication >= REPLICATION_SAFE and in_sync_min == 1:
        text = "has min.insync.replicas=1: a write that only one broker has can be lost; set it to 2"
        yield _warning(spec, text, "min.insync.replicas=2")


def _size_findings(spec: TopicSpec, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with how large a record of a topic may be."""
    has_bytes = int(settings.get("max.message.bytes", MESSAGE_BYTES))
    if spec.role in (TopicRole.LOG, TopicRole.TABLE) and has_bytes < MESSAGE_BYTES_MIN:
        setting = f"max.message.bytes={MESSAGE_BYTES}"
        text = (
            f"has max.message.bytes={has_bytes}: records have up to 900,000 bytes; set it to {MESSAGE_BYTES}"
        )
        yield _error(spec, text, setting)
    if spec.role is TopicRole.SOURCE and has_bytes < MARKER_BYTES:
        text = (
            f"has max.message.bytes={has_bytes}: no transaction can end there, since its mark has"
            f" {MARKER_BYTES} bytes, and what is written behind one is never read; set it to"
            f" {MESSAGE_BYTES}"
        )
        yield _warning(spec, text, f"max.message.bytes={MESSAGE_BYTES}")
    if spec.role in (TopicRole.REPLAY, TopicRole.DEAD_LETTER):
        # room for a record of the source and our headers
        needs_bytes = int(spec.settings["max.message.bytes"])
        setting = f"max.message.bytes={needs_bytes}"
        if has_bytes < needs_bytes - COPY_HEADERS_BYTES:
            text = (
                f"has max.message.bytes={has_bytes}, less than its source: copies are refused; set it to"
                f" {needs_bytes}"
            )
            yield _error(spec, text, setting)
        elif has_bytes < needs_bytes:
            text = (
                f"has max.message.bytes={has_bytes}: the largest records of its source do not fit with their"
                " history, and become dead letters, without payload where that topic is as small; set it to"
                f" {needs_bytes}"
            )
            yield _warning(spec, text, setting)


def _time_findings(spec: TopicSpec, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with how long a topic keeps records, and which times it takes."""
    if spec.role in (TopicRole.REPLAY, TopicRole.DEAD_LETTER):
        for name in ("retention.ms", "retention.bytes"):
            if settings.get(name, FOR_EVER) != FOR_EVER:
                why = "a copy keeps its record's time, so it may be deleted before it is read"
                text = f"has {name}={settings[name]}: {why}; set it to -1"
                level = Level.ERROR if spec.role is TopicRole.REPLAY else Level.WARNING
                yield Finding(spec.name, level, text, f"{name}=-1")
        yield from _refused_time_findings(spec, settings)
        yield from _schema_findings(spec, settings)
    if spec.role is TopicRole.REPLAY and settings.get(_TIME_TYPE) == _APPEND_TIME:
        text = (
            f"has {_TIME_TYPE}={_APPEND_TIME}: a copy has its record's time in a header alone, which other"
            " readers of the topic do not know"
        )
        yield _warning(spec, text, f"{_TIME_TYPE}=CreateTime")
    if spec.role is TopicRole.SOURCE and "compact" in settings.get("cleanup.policy", ""):
        text = (
            "is compacted: a record that fails can be gone before it is replayed, and is then a dead letter "
            "without payload; raise min.compaction.lag.ms above timeout and back-off"
        )
        yield _warning(spec, text)


def _refused_time_findings(spec: TopicSpec, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield warnings on limits by which a topic refuses the time of a copy or dead letter.

    A copy has the time of its record, and a dead letter that of its writing.
    """
    if settings.get(_TIME_TYPE) == _APPEND_TIME:
        return  # then the broker refuses no time
    if spec.role is TopicRole.DEAD_LETTER:
        for name in _TIME_LIMITS:
            if _limits_time(settings, name):
                cure = f"{name}={NO_LIMIT}"
                text = (
                    f"has {name}={settings[name]}: a dead letter has the time of a replay worker, whose clock"
                    f" may differ by more; set {cure}"
                )
                yield _warning(spec, text, cure)
    # a source that sets the time itself has none that is ahead
    elif spec.source_settings.get(_TIME_TYPE) != _APPEND_TIME:
        limit_ms = _time_limit_ms(settings, _AHEAD_LIMIT)
        source_limit_ms = _time_limit_ms(spec.source_settings, _AHEAD_LIMIT)
        if limit_ms < source_limit_ms:
            cure = f"{_AHEAD_LIMIT}={NO_LIMIT}"
            text = (
                f"has {_AHEAD_LIMIT}={limit_ms}, its source {source_limit_ms}: a copy of a record"
                f" that is dated further ahead is refused, and the record becomes a dead letter; set {cure}"
            )
            yield _warning(spec, text, cure)


def _schema_findings(spec: TopicSpec, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the settings by which a topic refuses records that have no schema of it."""
    for name, value in settings.items():
        if name.endswith(_SCHEMA_CHECK) and value == "true":
            text = f"has {name}=true: what has no schema of this topic is refused; set {name}=false"
            yield _warning(spec, text, f"{name}=false")


def _time_limit_ms(settings: Mapping[str, str], name: str) -> int:
    """Return a limit of time, in ms; where none is set, one that no record reaches."""
    return int(settings.get(name, NO_LIMIT))


def _limits_time(settings: Mapping[str, str], name: str) -> bool:
    """Return whether a limit of time is set, to less than `NO_LIMIT`."""
    return _time_limit_ms(settings, name) < int(NO_LIMIT)


def refused_by_client(spec: TopicSpec, kafka: Mapping[str, str]) -> list[Finding]:
    """Return a warning if our own client refuses a copy or dead letter that its topic takes.

    `kafka` is the section of topics.yaml; without a limit there the client takes all that a topic
    does.
    """
    name = "message.max.bytes"
    client_bytes = kafka.get(name)
    if spec.role not in (TopicRole.REPLAY, TopicRole.DEAD_LETTER) or client_bytes is None:
        return []
    needed_bytes = int(spec.settings["max.message.bytes"])
    if int(client_bytes) >= needed_bytes:
        return []
    why = f"copies and dead letters of up to {needed_bytes} bytes are refused by our own client"
    return [_warning(spec, f"kafka.{name} in topics.yaml is {client_bytes}: {why}; leave {name} out")]

"""topics.yaml: what an installation reads, tracks and keeps, as one frozen value.

Everything that is wrong with a file comes in one `ConfigError`, a line for each problem, naming file, line,
key path, value and cure. ``acker.provisioning.provision`` compares it with the broker.

Source: docs/design/protocol.md, sections 2 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import PlainValidator, ValidationError, model_validator

from acker.config import problems
from acker.config.kafka_settings import KafkaSettings, kafka_settings
from acker.config.keys import FROM_FILE, NAME_KEY, Section, key
from acker.config.limits import AckerLimits, ReplayLimits, ReplaySettings
from acker.config.problems import Problem, problems_of, unknown_key
from acker.config.retry_settings import CauseRule, Retry
from acker.config.settings import AckerSettings, AckTopics, DeadLetter, Input
from acker.config.yaml_text import FILE_BYTES_MAX, read_yaml
from acker.errors import UsageError
from acker.redaction import SecretValues, variable_secrets

__all__ = [
    "AckTopics",
    "AckerSettings",
    "CauseRule",
    "DeadLetter",
    "Input",
    "ReplaySettings",
    "Retry",
    "Topics",
    "load_topics",
    "parse",
]

M = TypeVar("M", bound=Section)

AS_WRITTEN: Final = ("kafka",)
"""Sections whose values are text as they stand: they are librdkafka's to read, not YAML's."""


def _settings(value: Any) -> KafkaSettings:
    if isinstance(value, KafkaSettings):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("must be a section of Kafka client settings")
    settings, found = kafka_settings(value)
    if found:
        raise ValueError("; ".join(f"{problem.path[-1]} {problem.text}" for problem in found))
    return settings


class Topics(Section):
    """A whole file; `spout.load` returns it. Its text form shows names of Kafka settings, never their values.

    >>> topics = spout.load("topics.yaml")
    >>> topics.input("sentences").replay_topic, topics.input("sentences").retry.attempts
    ('sentences.word-count.replay', 5)
    """

    kafka: Annotated[Mapping[str, str], PlainValidator(_settings)] = key(
        range="librdkafka's settings, those that would switch a guarantee off excepted",
        example='{bootstrap.servers: "kafka-1:9092,kafka-2:9092", security.protocol: SSL}',
        default_factory=dict,
        repr=False,
    )
    """The settings of every Kafka client of Windhover, as librdkafka names them."""
    acker: AckerSettings = key(range="a section", default_factory=AckerSettings)
    """What all processes of the installation share."""
    replay: ReplaySettings = key(range="a section", default_factory=ReplaySettings)
    """What holds for every replay worker."""
    inputs: Mapping[str, Input] = key(range="a section with a section for each input", default_factory=dict)
    """Inputs by name."""

    @model_validator(mode="after")
    def _agrees(self) -> Topics:
        wrong = [name for name, found in self.inputs.items() if found.name != name]
        found = [Problem(("inputs", name), "is kept under another name") for name in wrong]
        found += list(conflicts(self.acker, self.inputs))
        if found:
            raise ValueError("; ".join(f"{'.'.join(item.path)} {item.text}" for item in found))
        return self

    @property
    def ack_topics(self) -> AckTopics:
        return self.acker.topics

    def input(self, name: str) -> Input:
        """Return the input of a name; `UsageError` if there is none."""
        found = self.inputs.get(name)
        if found is None:
            names = ", ".join(self.inputs) or "none"
            raise UsageError(f"there is no input {name!r} in topics.yaml; its inputs are: {names}")
        return found

    def inputs_of(self, group: str) -> tuple[Input, ...]:
        """Return the inputs that a group reads, in the order of the file."""
        return tuple(found for found in self.inputs.values() if found.group == group)


def load_topics(
    path: Path, environ: Mapping[str, str], warn: Callable[[str], None] = lambda _line: None
) -> Topics:
    """Read a file, UTF-8; ``${NAME}`` in it is a variable of `environ`.

    `warn` is called with a line for each key that means nothing any more.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        ConfigError: something in it is wrong; one line for each problem.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name a topics.yaml") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.refuse([Problem((), f"is not UTF-8 at byte {error.start}; save it as UTF-8")], str(path), {})
    return parse(text, file=str(path), environ=environ, warn=warn)


def parse(
    text: str, *, file: str, environ: Mapping[str, str], warn: Callable[[str], None] = lambda _line: None
) -> Topics:
    """Read a text of YAML, as `load_topics` does; `file` is its name in messages."""
    document = read_yaml(text, environ, AS_WRITTEN)
    hide = SecretValues(variable_secrets(text, environ)).hide
    if document.data is None and document.problems:
        problems.refuse(document.problems, file, document.lines, hide)
    ignored: list[Problem] = []
    found, parts = _validate(document.data, ignored)
    refused = {problem.path for problem in document.problems}
    found = [problem for problem in found if problem.path not in refused] + document.problems
    problems.refuse(found, file, document.lines, hide)
    for problem in ignored:
        warn(problem.line(file, document.lines, hide))
    return Topics(**parts)


def _validate(data: Any, ignored: list[Problem]) -> tuple[list[Problem], dict[str, Any]]:
    """Validate each section on its own, then what they say of each other, so that all problems show."""
    found: list[Problem] = []
    root = _section(data, (), found)
    sections = problems.section_keys(Topics)
    found += [unknown_key((name,), sections) for name in root if name not in sections]
    kafka, wrong = kafka_settings(_section(root.get("kafka"), ("kafka",), found))
    found += wrong
    shared = {"acker": _section(root.get("acker"), ("acker",), found)}
    shared["replay"] = _section(root.get("replay"), ("replay",), found)
    for part, model in (("acker", AckerLimits), ("replay", ReplayLimits)):
        shared[part], unused = _without_constants(model, shared[part], (part, "limits"))
        ignored += unused
    acker = _model(AckerSettings, shared["acker"], ("acker",), found)
    replay = _model(ReplaySettings, shared["replay"], ("replay",), found)
    inputs: dict[str, Input] = {}
    for name, body in _section(root.get("inputs"), ("inputs",), found).items():
        path = ("inputs", name)
        section = _section(body, path, found)
        if NAME_KEY in section:
            found.append(unknown_key((*path, NAME_KEY), problems.section_keys(Input)))
        one = _model(Input, {**section, NAME_KEY: name}, path, found) if section or not body else None
        if one is not None:
            inputs[name] = one
    found += conflicts(acker or AckerSettings(), inputs)
    return found, {"kafka": kafka, "acker": acker, "replay": replay, "inputs": inputs}


def _without_constants(
    model: type[Section], section: dict[str, Any], path: problems.Path
) -> tuple[dict[str, Any], list[Problem]]:
    limits = section.get("limits")
    if not isinstance(limits, dict):
        return section, []
    unused = problems.constants(model, limits, path)
    names = {problem.path[-1] for problem in unused}
    return {**section, "limits": {k: v for k, v in limits.items() if k not in names}}, unused


def _section(value: Any, path: problems.Path, found: list[Problem]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if value is not None:
        # The value is not shown: below kafka it may be a secret.
        found.append(Problem(path, "must be a section: keys with values, indented below it"))
    return {}


def _model(model: type[M], data: dict[str, Any], path: problems.Path, found: list[Problem]) -> M | None:
    try:
        return model.model_validate(data, context=FROM_FILE, by_alias=True, by_name=False)
    except ValidationError as error:
        found += problems_of(error, model, data, path)
        return None


Inputs = Mapping[str, Input]
_TOPICS = ("topic", "replay_topic", "dead_letter.topic")


def conflicts(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Yield each problem at the key of the later of the two sections."""
    yield from _ids(inputs)
    yield from _groups(acker, inputs)
    yield from _readers(inputs)
    yield from _roles(acker, inputs)
    yield from _circles(inputs)
    yield from _collisions(acker, inputs)


def _repeated(inputs: Inputs, *keys: str) -> Iterator[tuple[Input, Input]]:
    """Yield (first, later) for each input that says the same in these keys as an earlier one."""
    first: dict[Hashable, Input] = {}
    for found in inputs.values():
        other = first.setdefault(attrgetter(*keys)(found), found)
        if other is not found:
            yield other, found


def _at(found: Input, key: str, text: str) -> Problem:
    return Problem(("inputs", found.name, *key.split(".")), text, repr(attrgetter(key)(found)))


def _ids(inputs: Inputs) -> Iterator[Problem]:
    for first, later in _repeated(inputs, "id"):
        unused = max(found.id for found in inputs.values()) + 1
        cure = f"give an id that was never used, such as {unused}"
        yield _at(later, "id", f"is the id of {first.name} already; {cure}")


def _groups(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    if acker.group == acker.replay_group:
        text = "is the group of the ackers already; give the replay workers their own"
        yield Problem(("acker", "replay_group"), text, repr(acker.replay_group))
    for found in inputs.values():
        if found.group in (acker.group, acker.replay_group):
            yield _at(found, "group", "is a group of Windhover's own; give another")


def _readers(inputs: Inputs) -> Iterator[Problem]:
    for first, later in _repeated(inputs, "group", "topic"):
        text = (
            f"is read by group {later.group} as input {first.name} already; remove one, or give another group"
        )
        yield _at(later, "topic", text)
    partitioned = {name: found for name, found in inputs.items() if found.partitions is not None}
    for first, later in _repeated(partitioned, "topic"):
        if first.partitions != later.partitions:
            text = f"differs from inputs.{first.name}.partitions of the same topic; give {first.partitions}"
            yield _at(later, "partitions", text)


def _roles(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    own = acker.topics.names()
    sources = {found.topic: found for found in inputs.values()}
    replays = {found.replay_topic: found for found in inputs.values()}
    for found in inputs.values():
        for name in _TOPICS:
            if attrgetter(name)(found) in own:
                yield _at(found, name, "is an ack topic; give another topic, or another acker.topic_prefix")
        if found.replay_topic in sources:
            text = (
                f"is the topic that {sources[found.replay_topic].name} reads; give one that only holds copies"
            )
            yield _at(found, "replay_topic", text)
        if found.dead_letter.topic in replays:
            text = f"is the replay topic of {replays[found.dead_letter.topic].name}; give another topic"
            yield _at(found, "dead_letter.topic", text)
    for first, later in _repeated(inputs, "replay_topic"):
        text = f"is the replay topic of {first.name} already; give each input its own"
        yield _at(later, "replay_topic", text)
    for first, later in _repeated(inputs, "dead_letter.topic"):
        text = f"is the dead-letter topic of {first.name} already; give each input its own"
        yield _at(later, "dead_letter.topic", text)


def _circles(inputs: Inputs) -> Iterator[Problem]:
    """Find dead letters that come back to the input they left, directly or through others."""
    for found in inputs.values():
        reached = {found.dead_letter.topic}
        while more := {each.dead_letter.topic for each in inputs.values() if each.topic in reached} - reached:
            reached |= more
        if found.topic in reached:
            text = "leads its dead letters back to the topic they come from; give a topic that no input reads"
            yield _at(found, "dead_letter.topic", text)


def _collisions(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Find names that Kafka takes for one in its metrics: it creates only the first of them."""
    seen = {name.replace(".", "_"): name for name in acker.topics.names()}
    for found in inputs.values():
        for name in _TOPICS:
            topic = attrgetter(name)(found)
            other = seen.setdefault(topic.replace(".", "_"), topic)
            if other != topic:
                text = f"differs from {other} only in dots and underscores, which Kafka refuses; rename one"
                yield _at(found, name, text)

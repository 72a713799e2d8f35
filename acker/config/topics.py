"""topics.yaml: what an installation reads, tracks and keeps, as one frozen value.

Everything that is wrong with a file comes in one `ConfigError`, a line for each problem, naming
file, line, key path, value and cure. ``acker.provisioning.provision`` compares it with the broker.

Source: docs/design/protocol.md, sections 2 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
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
    """Return Kafka's client settings as a value.

    Raises `ValueError` with all that is wrong with them.
    """
    if isinstance(value, KafkaSettings):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("must be a section of Kafka client settings")
    settings, refused = kafka_settings(value)
    if refused:
        raise ValueError("; ".join(f"{problem.path[-1]} {problem.text}" for problem in refused))
    return settings


class Topics(Section):
    """A whole file.

    `spout.load` returns it. Its text form shows names of Kafka settings, never their values.

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
    def _require_no_conflict(self) -> Topics:
        """Return the topics; raise `ValueError` with all that their sections contradict each other in."""
        refused: list[Problem] = []
        for name, input in self.inputs.items():
            if input.name != name:
                refused.append(Problem(("inputs", name), "is kept under another name"))
        refused += conflicts(self.acker, self.inputs)
        if refused:
            raise ValueError("; ".join(f"{'.'.join(problem.path)} {problem.text}" for problem in refused))
        return self

    @property
    def ack_topics(self) -> AckTopics:
        """The names of the ack topics."""
        return self.acker.topics

    def input(self, name: str) -> Input:
        """Return the input of a name; `UsageError` if there is none."""
        input = self.inputs.get(name)
        if input is None:
            names = ", ".join(self.inputs) or "none"
            raise UsageError(f"there is no input {name!r} in topics.yaml; its inputs are: {names}")
        return input

    def inputs_of(self, group: str) -> tuple[Input, ...]:
        """Return the inputs that a group reads, in the order of the file."""
        return tuple(input for input in self.inputs.values() if input.group == group)


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
    # 1. read the YAML
    document = read_yaml(text, environ, AS_WRITTEN)
    hide = SecretValues(variable_secrets(text, environ)).hide
    # nothing of the file could be read: refuse that alone, since every section would seem to be
    # missing
    if document.data is None and document.problems:
        problems.refuse(document.problems, file, document.lines, hide)
    # 2. refuse what is wrong with it, all at once. A value that YAML refused is None in `data`, so
    # that `_validate` may refuse it a second time. Of two problems of one path YAML's counts.
    validated = _validate(document.data)
    paths_of_yaml = {problem.path for problem in document.problems}
    of_values = [problem for problem in validated.refused if problem.path not in paths_of_yaml]
    problems.refuse(of_values + document.problems, file, document.lines, hide)
    # 3. warn of keys that mean nothing any more
    for problem in validated.without_effect:
        warn(problem.line(file, document.lines, hide))
    return Topics(**validated.sections)


@dataclass(slots=True)
class _Validated:
    """What is wrong in a file, which keys mean nothing any more, and its sections as values.

    A section that was refused is None, and an input that was refused is missing.
    """

    refused: list[Problem] = field(default_factory=list)
    without_effect: list[Problem] = field(default_factory=list)
    sections: dict[str, Any] = field(default_factory=dict)


def _validate(data: Any) -> _Validated:
    """Validate each section on its own, then what they say of each other, so that all problems show."""
    validated = _Validated()
    refused = validated.refused
    # 1. the file as a whole: its sections
    file_sections = _as_section(data, (), refused)
    section_names = problems.section_keys(Topics)
    refused += [unknown_key((name,), section_names) for name in file_sections if name not in section_names]
    # 2. each section on its own
    kafka_section = _as_section(file_sections.get("kafka"), ("kafka",), refused)
    kafka, refused_settings = kafka_settings(kafka_section)
    refused += refused_settings
    service_sections = {
        name: _as_section(file_sections.get(name), (name,), refused) for name in ("acker", "replay")
    }
    for name, limits_model in (("acker", AckerLimits), ("replay", ReplayLimits)):
        service_sections[name], constants = _without_constants(
            limits_model, service_sections[name], (name, "limits")
        )
        validated.without_effect += constants
    acker = _validated_section(AckerSettings, service_sections["acker"], ("acker",), refused)
    replay = _validated_section(ReplaySettings, service_sections["replay"], ("replay",), refused)
    inputs = _inputs(_as_section(file_sections.get("inputs"), ("inputs",), refused), refused)
    # 3. what they say of each other; a section that was refused counts as its defaults
    refused += conflicts(acker or AckerSettings(), inputs)
    validated.sections = {"kafka": kafka, "acker": acker, "replay": replay, "inputs": inputs}
    return validated


def _inputs(sections: dict[str, Any], refused: list[Problem]) -> dict[str, Input]:
    """Return the inputs that are valid, by name; add what is wrong with the others to `refused`.

    `sections` are those below ``inputs``, by their names.
    """
    inputs: dict[str, Input] = {}
    for name, body in sections.items():
        path = ("inputs", name)
        section = _as_section(body, path, refused)
        if NAME_KEY in section:
            refused.append(unknown_key((*path, NAME_KEY), problems.section_keys(Input)))
        if body and not section:  # it is no section, which is in `refused` by now
            continue
        input = _validated_section(Input, {**section, NAME_KEY: name}, path, refused)
        if input is not None:
            inputs[name] = input
    return inputs


def _without_constants(
    limits_model: type[Section], section: dict[str, Any], limits_path: problems.Path
) -> tuple[dict[str, Any], list[Problem]]:
    """Return a section without those keys of its ``limits`` that are constants now, and a problem
    for each.

    `limits_model` is the class of the limits, and `limits_path` their path in the file.
    """
    limits = section.get("limits")
    if not isinstance(limits, dict):
        return section, []
    constants = problems.constants(limits_model, limits, limits_path)
    constant_keys = {problem.path[-1] for problem in constants}
    settable = {key: value for key, value in limits.items() if key not in constant_keys}
    return {**section, "limits": settable}, constants


def _as_section(value: Any, path: problems.Path, refused: list[Problem]) -> dict[str, Any]:
    """Return a value of the file as a section; empty for None, and for what is no section.

    The latter is added to `refused`, as a problem at `path`.
    """
    if isinstance(value, dict):
        return value
    if value is not None:
        # The value is not shown: below kafka it may be a secret.
        refused.append(Problem(path, "must be a section: keys with values, indented below it"))
    return {}


def _validated_section(
    model: type[M], data: dict[str, Any], path: problems.Path, refused: list[Problem]
) -> M | None:
    """Return a section of the file as a value of the class `model`.

    None: something in it is wrong, which is added to `refused`.
    """
    try:
        return model.model_validate(data, context=FROM_FILE, by_alias=True, by_name=False)
    except ValidationError as error:
        refused += problems_of(error, model, data, path)
        return None


Inputs = Mapping[str, Input]
_TOPIC_KEYS = ("topic", "replay_topic", "dead_letter.topic")
"""The keys of an input that name a topic, as `attrgetter` and the file have them."""


def conflicts(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Yield what sections contradict each other in, each at the key of the later of the two."""
    yield from _repeated_ids(inputs)
    yield from _groups_of_services(acker, inputs)
    yield from _topics_read_twice(inputs)
    yield from _topics_with_two_roles(acker, inputs)
    yield from _circles(inputs)
    yield from _names_alike(acker, inputs)


def _repeated(inputs: Inputs, *keys: str) -> Iterator[tuple[Input, Input]]:
    """Yield pairs of inputs, earlier and later in the file, that have the same in all these keys."""
    first_by_values: dict[Hashable, Input] = {}
    for input in inputs.values():
        earlier = first_by_values.setdefault(attrgetter(*keys)(input), input)
        if earlier is not input:
            yield earlier, input


def _problem_of(input: Input, key: str, text: str) -> Problem:
    """Return a problem at a key of an input, such as ``dead_letter.topic``, with the value that it has."""
    return Problem(("inputs", input.name, *key.split(".")), text, repr(attrgetter(key)(input)))


def _repeated_ids(inputs: Inputs) -> Iterator[Problem]:
    """Yield a problem for each input whose id an earlier one has."""
    for earlier, later in _repeated(inputs, "id"):
        unused_id = max(input.id for input in inputs.values()) + 1
        cure = f"give an id that was never used, such as {unused_id}"
        yield _problem_of(later, "id", f"is the id of {earlier.name} already; {cure}")


def _groups_of_services(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Yield a problem for each group that ackers or replay workers have, and somebody else, too."""
    if acker.group == acker.replay_group:
        text = "is the group of the ackers already; give the replay workers their own"
        yield Problem(("acker", "replay_group"), text, repr(acker.replay_group))
    for input in inputs.values():
        if input.group in (acker.group, acker.replay_group):
            yield _problem_of(input, "group", "is a group of Windhover's own; give another")


def _topics_read_twice(inputs: Inputs) -> Iterator[Problem]:
    """Yield a problem for each input that reads a topic that an earlier one reads, too.

    Two groups may read one topic; one group may not read it twice, and all must name the same
    number of partitions.
    """
    for earlier, later in _repeated(inputs, "group", "topic"):
        text = (
            f"is read by group {later.group} as input {earlier.name} already; remove one, or give another"
            " group"
        )
        yield _problem_of(later, "topic", text)
    # an input without a count takes what the topic has, so it cannot contradict another one
    partitioned = {name: input for name, input in inputs.items() if input.partitions is not None}
    for earlier, later in _repeated(partitioned, "topic"):
        if earlier.partitions != later.partitions:
            text = (
                f"differs from inputs.{earlier.name}.partitions of the same topic; give {earlier.partitions}"
            )
            yield _problem_of(later, "partitions", text)


def _topics_with_two_roles(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Yield a problem for each topic that would have two roles: ack, input, replay or dead-letter
    topic.
    """
    ack_topics = acker.topics.names()
    input_by_topic = {input.topic: input.name for input in inputs.values()}
    input_by_replay_topic = {input.replay_topic: input.name for input in inputs.values()}
    for input in inputs.values():
        for topic_key in _TOPIC_KEYS:
            if attrgetter(topic_key)(input) in ack_topics:
                text = "is an ack topic; give another topic, or another acker.topic_prefix"
                yield _problem_of(input, topic_key, text)
        if input.replay_topic in input_by_topic:
            reader = input_by_topic[input.replay_topic]
            text = f"is the topic that {reader} reads; give one that only holds copies"
            yield _problem_of(input, "replay_topic", text)
        if input.dead_letter.topic in input_by_replay_topic:
            name = input_by_replay_topic[input.dead_letter.topic]
            text = f"is the replay topic of {name}; give another topic"
            yield _problem_of(input, "dead_letter.topic", text)
    for earlier, later in _repeated(inputs, "replay_topic"):
        text = f"is the replay topic of {earlier.name} already; give each input its own"
        yield _problem_of(later, "replay_topic", text)
    for earlier, later in _repeated(inputs, "dead_letter.topic"):
        text = f"is the dead-letter topic of {earlier.name} already; give each input its own"
        yield _problem_of(later, "dead_letter.topic", text)


def _circles(inputs: Inputs) -> Iterator[Problem]:
    """Yield a problem for each input whose dead letters come back to it, directly or through
    other inputs.
    """
    for input in inputs.values():
        reached: set[str] = set()
        newly_reached = {input.dead_letter.topic}
        # follow the dead letters from input to input; it ends where a round reaches no new topic
        while newly_reached:
            reached |= newly_reached
            readers = [reader for reader in inputs.values() if reader.topic in newly_reached]
            newly_reached = {reader.dead_letter.topic for reader in readers} - reached
        if input.topic in reached:
            text = "leads its dead letters back to the topic they come from; give a topic that no input reads"
            yield _problem_of(input, "dead_letter.topic", text)


def _names_alike(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Yield a problem for each topic that differs from an earlier one only in dots and underscores.

    Kafka's metrics have one name for both, so Kafka creates only the first of them.
    """
    # by the name that Kafka's metrics have, the topic that has it
    topic_by_metric_name = {name.replace(".", "_"): name for name in acker.topics.names()}
    for input in inputs.values():
        for topic_key in _TOPIC_KEYS:
            topic = attrgetter(topic_key)(input)
            earlier = topic_by_metric_name.setdefault(topic.replace(".", "_"), topic)
            if earlier != topic:
                text = f"differs from {earlier} only in dots and underscores, which Kafka refuses; rename one"
                yield _problem_of(input, topic_key, text)

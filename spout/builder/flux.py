"""A topology from a YAML file, like Storm's Flux; ``windhover submit`` runs one.

::

    name: word-count
    topics: topics.yaml                      # beside this file
    spouts:
      - {id: lines, inputs: [sentences], options: {startingOffsets: earliest}}
    bolts:
      - {id: split, className: "examples.word_count:SplitSentence"}
      - {id: count, className: "examples.word_count:CountWords", parallelism: 2}
    streams:
      - {from: lines, to: split, grouping: {type: shuffle}}
      - {from: split, to: count, grouping: {type: fields, args: [word]}}
    sink: "jobs.tables:write_words"
    checkpoint: /var/lib/word-count

A class is written as its module and its name, with a colon between. All problems of a file are reported at
once, a line for each, with its place and its cure; nothing is imported before the keys are right.

Source: Storm's ``flux-core``; ``acker.config.topics`` for how problems are reported.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from acker.config import problems, topics
from acker.config.keys import FROM_FILE, Section, WholeOrNone, key
from acker.config.problems import Problem, problems_of, unknown_key
from acker.config.yaml_text import VariableText, read_yaml
from acker.errors import UsageError, WindhoverError
from acker.redaction import SecretValues, variable_secrets
from acker.untrusted import Untrusted
from spout.builder.compiled import SinkFunctions
from spout.builder.topology import TopologyBuilder, names_only
from spout.topology.graph import Kind, Subscription
from spout.tuples.tuple import DEFAULT_STREAM, StreamId

S = TypeVar("S", bound=Section)

AS_WRITTEN: Final = ("spark",)
"""Sections whose values are text as they stand: they are Spark's to read, not YAML's."""


class SpoutSection(Section):
    """A spout."""

    id: str = key(range="a name")
    inputs: tuple[str, ...] = key(range="a list of names")
    """Inputs of topics.yaml, of one group."""
    options: Mapping[str, Any] = key(range="a section of options", default_factory=dict)


class BoltSection(Section):
    """A bolt."""

    id: str = key(range="a name")
    class_name: str = key(range="module:Class", alias="className")
    arguments: tuple[Any, ...] | Mapping[str, Any] = key(
        range="a list, or a section of named ones", alias="constructorArgs", default=()
    )
    """What its constructor gets."""
    parallelism: WholeOrNone = key(range="1 or more", default=None)
    """Tasks behind a grouping that moves tuples."""


class GroupingSection(Section):
    """How tuples find the tasks of a bolt."""

    type: Literal[
        "shuffle", "fields", "partial_key", "all", "global", "none", "local_or_shuffle", "direct"
    ] = key(range="shuffle, fields, partial_key, all, global, none, local_or_shuffle or direct")
    args: tuple[str, ...] = key(range="a list of fields", default=())
    stream_id: str = key(range="a stream", alias="streamId", default=DEFAULT_STREAM)


class StreamSection(Section):
    """A subscription."""

    from_: str = key(range="the id of a spout or bolt", alias="from")
    to: str = key(range="the id of a bolt")
    name: str = key(range="any text", default="")
    """For the reader of the file."""
    grouping: GroupingSection = key(range="a section with type")
    """How tuples find its tasks."""


class FileSection(Section):
    """The file's own keys; lists of components are parsed one by one."""

    name: str = key(range="a name")
    topics: str = key(range="a path", default="topics.yaml")
    """A topics.yaml, beside this file."""
    sink: str | Mapping[str, str] | None = key(
        range="module:function, or a section of component: module:function", default=None
    )
    """Gets what no bolt reads."""
    checkpoint: str | None = key(range="a path", default=None)
    """Folder of the query's checkpoint."""
    trigger: Mapping[str, Any] = key(range="a section, as availableNow: true", default_factory=dict)
    deterministic: bool = key(range="true or false", default=False)
    """See spout.sink."""
    spark: Mapping[str, Any] = key(range="a section of settings", default_factory=dict)
    """Settings of the Spark session."""


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A parsed file, ready to be submitted."""

    builder: TopologyBuilder
    sink: SinkFunctions
    about: FileSection

    @property
    def options(self) -> dict[str, Any]:
        options = {"name": self.about.name, "deterministic": self.about.deterministic}
        chosen = {"checkpoint": self.about.checkpoint, "trigger": _options(self.about.trigger)}
        return {**options, **{name: value for name, value in chosen.items() if value}}


def load_topology(path: Path, environ: Mapping[str, str]) -> TopologyFile:
    """Read a file, import the classes and functions in it, and build its topology.

    Raises:
        UsageError: it cannot be read.
        ConfigError: something in it, or in its topics.yaml, is wrong; one line for each problem.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{path}: cannot be read: {reason}; name a topology's YAML file") from error
    document = read_yaml(text, environ, AS_WRITTEN)
    hide = SecretValues(variable_secrets(text, environ)).hide
    reader = _Reader(list(document.problems))
    data = document.data if isinstance(document.data, dict) else {}
    if not data and not document.problems:
        reader.problem((), "is empty; it needs name, spouts, bolts and streams")
    about = reader.file(data)
    spouts = reader.list("spouts", SpoutSection, data)
    bolts = reader.list("bolts", BoltSection, data)
    streams = reader.list("streams", StreamSection, data)
    problems.refuse(reader.found, str(path), document.lines, hide)
    if about is None:
        raise UsageError(f"{path}: has no keys")
    instances = [reader.instance(("bolts", str(n)), bolt) for n, bolt in enumerate(bolts)]
    sink = reader.sink(about.sink)
    problems.refuse(reader.found, str(path), document.lines, hide)
    read = topics.load_topics(path.parent / about.topics, environ)
    builder = reader.build(read, spouts, bolts, instances, streams)
    problems.refuse(reader.found, str(path), document.lines, hide)
    return TopologyFile(builder, sink, about)


class _Reader:
    """Parses sections and builds a topology of them; what is refused becomes a problem at its place."""

    def __init__(self, found: list[Problem]) -> None:
        self.found = found

    def problem(self, path: problems.Path, text: str, value: object = None) -> None:
        self.found.append(Problem(path, text, None if value is None else repr(value)))

    def file(self, data: Mapping[str, Any]) -> FileSection | None:
        keys = problems.section_keys(FileSection)
        allowed = [*keys, "spouts", "bolts", "streams"]
        self.found += [unknown_key((name,), allowed) for name in data if name not in allowed]
        return self.section(FileSection, {name: data[name] for name in data if name in keys}, ())

    def list(self, name: str, model: type[S], data: Mapping[str, Any]) -> list[S]:
        listed = data.get(name)
        if not isinstance(listed, list) or not listed:
            if listed is not None or name != "bolts":
                self.problem((name,), f"must be a list of {name}, each with its keys")
            return []
        sections = [self.section(model, each, (name, str(n))) for n, each in enumerate(listed)]
        return [each for each in sections if each is not None]

    def section(self, model: type[S], data: Any, path: problems.Path) -> S | None:
        if not isinstance(data, dict):
            self.problem(path, "must be a section: keys with values")
            return None
        try:
            return model.model_validate(data, context=FROM_FILE)
        except ValidationError as error:
            self.found += problems_of(error, model, data, path)
            return None

    def imported(self, path: problems.Path, named: str) -> Any:
        """Import an object by ``module:name``; None, and a problem, when that fails."""
        module, colon, name = named.partition(":")
        if not colon or not module or not name:
            self.problem(path, "names no module and name; write module:Name", named)
            return None
        try:
            found = import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported at its key, whatever it is
            cure = "; is its folder on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
            self.problem(path, f"cannot be imported: {_raised(error)}{cure}", named)
            return None
        if not hasattr(found, name):
            self.problem(path, f"is not there: module {module} has no {name}", named)
        return getattr(found, name, None)

    def instance(self, path: problems.Path, bolt: BoltSection) -> Any:
        factory = self.imported((*path, "className"), bolt.class_name)
        if factory is None:
            return None
        positional: Sequence[Any] = () if isinstance(bolt.arguments, Mapping) else bolt.arguments
        named = bolt.arguments if isinstance(bolt.arguments, Mapping) else {}
        try:
            positional, named = _arguments(factory, positional, named)
        except ValueError as error:
            self.problem((*path, "constructorArgs"), str(error))
            return None
        try:
            return factory(*positional, **named)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported at its key, whatever it is
            text = f"cannot be made: {_raised(error)}; see constructorArgs"
            self.problem((*path, "className"), text, bolt.class_name)
            return None

    def sink(self, named: str | Mapping[str, str] | None) -> SinkFunctions:
        if named is None:
            return None
        if isinstance(named, str):
            found: SinkFunctions = self.imported(("sink",), named)
            return found
        functions: dict[Any, Any] = {}
        for stream, function in named.items():
            component, slash, name = stream.partition("/")
            functions[(component, name) if slash else component] = self.imported(("sink", stream), function)
        return functions

    def build(
        self,
        read: topics.Topics,
        spouts: Sequence[SpoutSection],
        bolts: Sequence[BoltSection],
        instances: Sequence[Any],
        streams: Sequence[StreamSection],
    ) -> TopologyBuilder:
        builder = TopologyBuilder()
        declarers: dict[str, Any] = {}
        for n, spout in enumerate(spouts):
            with self._problem_at("spouts", str(n)):
                for name in spout.inputs:
                    read.input(name)
                builder.set_spout(spout.id, read, spout.inputs, **_options(spout.options))
        for n, (bolt, instance) in enumerate(zip(bolts, instances, strict=True)):
            declarers[bolt.id] = None
            with self._problem_at("bolts", str(n)):
                declarers[bolt.id] = builder.set_bolt(bolt.id, instance, bolt.parallelism)
        for n, stream in enumerate(streams):
            self._subscribe(("streams", str(n)), declarers, stream)
        if not self.found:
            graph, _ = builder.declared(names_only)
            for n, stream in enumerate(streams):
                with self._problem_at("streams", str(n)):
                    graph.check(_subscription(stream))
        return builder

    @contextmanager
    def _problem_at(self, *path: str) -> Iterator[None]:
        try:
            yield
        except WindhoverError as error:
            self.problem(path, str(error))

    def _subscribe(self, path: problems.Path, declarers: Mapping[str, Any], stream: StreamSection) -> None:
        declarer = declarers.get(stream.to)
        if declarer is None:
            names = ", ".join(declarers) or "none"
            self.problem((*path, "to"), f"is no bolt of this file; there are: {names}", stream.to)
            return
        grouping = stream.grouping
        if grouping.args and grouping.type not in ("fields", "partial_key"):
            self.problem((*path, "grouping", "args"), f"means nothing to {grouping.type}; leave it out")
            return
        group = getattr(declarer, f"{grouping.type}_grouping")
        group(stream.from_, *grouping.args, stream=grouping.stream_id)


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which a variable's text is the number, or the true or false, that it spells.

    An option that wants text takes none that would spell one of these.
    """
    return {name: _spelled(value) for name, value in options.items()}


def _spelled(value: Any) -> Any:
    if not isinstance(value, VariableText):
        return value
    for meaning in (value.whole, value.fraction, value.truth):
        with suppress(ValueError):
            return meaning()
    return str(value)


def _arguments(
    factory: Any, positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return a bolt's arguments; a variable's text is a number where the constructor's annotation wants one.

    Raises `ValueError`: it wants one, and the text is none.
    """
    parameters: Mapping[str, Parameter]
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError):  # a class of another language has none; then text stays text
        parameters = {}
    in_order = [parameter for parameter in parameters.values() if parameter.kind in _POSITIONAL]
    annotations = [parameter.annotation for parameter in in_order] + [str] * len(positional)
    values = [
        _argument(value, annotation) for value, annotation in zip(positional, annotations, strict=False)
    ]
    by_name = {
        name: _argument(value, parameters[name].annotation if name in parameters else str)
        for name, value in named.items()
    }
    return values, by_name


def _argument(value: Any, annotation: Any) -> Any:
    if not isinstance(value, VariableText):
        return value
    if annotation in (int, "int"):
        return value.whole()
    if annotation in (float, "float"):
        return value.fraction()
    if annotation in (bool, "bool"):
        return value.truth()
    return str(value)


_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _subscription(stream: StreamSection) -> Subscription:
    producer = StreamId(stream.from_, stream.grouping.stream_id)
    return Subscription(producer, stream.to, Kind(stream.grouping.type), stream.grouping.args)


def _raised(error: BaseException) -> str:
    """Describe in one line what was raised, and where in the user's code: nobody is shown a traceback."""
    text = Untrusted(" ".join(str(error).split()))
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, ImportError | SyntaxError):  # their messages have the place
        return what
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != __file__ and "importlib" not in frame.filename:
            return f"{what} ({Path(frame.filename).name}:{frame.lineno})"
    return what

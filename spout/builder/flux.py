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

A class is written as its module and its name, with a colon between. All problems of a file are
reported at once, a line for each, with its place and its cure; nothing is imported before the
keys are right.

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
from spout.builder.topology import BoltDeclarer, TopologyBuilder, names_only
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
    """A parsed file, ready to be submitted.

    Attributes:
        builder: has the components.
        sink: the imported functions; None: the file names none.
        file_section: the file's own keys.
    """

    builder: TopologyBuilder
    sink: SinkFunctions
    file_section: FileSection

    @property
    def options(self) -> dict[str, Any]:
        """Return the options for `TopologyBuilder.submit`."""
        options: dict[str, Any] = {
            "name": self.file_section.name,
            "deterministic": self.file_section.deterministic,
        }
        if self.file_section.checkpoint:
            options["checkpoint"] = self.file_section.checkpoint
        trigger = _read_variables(self.file_section.trigger)
        if trigger:
            options["trigger"] = trigger
        return options


def load_topology(path: Path, environ: Mapping[str, str]) -> TopologyFile:
    """Read a file, import the classes and functions in it, and build its topology.

    Each of the three steps ends with all problems that could be seen so far.

    Raises:
        UsageError: it cannot be read.
        ConfigError: something in it, or in its topics.yaml, is wrong; one line for each problem.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        cure = "name a topology's YAML file"
        raise UsageError(f"{path}: cannot be read: {reason}; {cure}") from error
    document = read_yaml(text, environ, AS_WRITTEN)
    # problems show the name of a variable in place of a secret in it
    hide = SecretValues(variable_secrets(text, environ)).hide
    parser = _FileParser(list(document.problems))
    data = document.data if isinstance(document.data, dict) else {}
    # 1. the keys, before anything is imported
    if not data and not document.problems:
        parser.add_problem((), "is empty; it needs name, spouts, bolts and streams")
    file_section = parser.file_section(data)
    spouts = parser.component_sections("spouts", SpoutSection, data)
    bolts = parser.component_sections("bolts", BoltSection, data)
    streams = parser.component_sections("streams", StreamSection, data)
    problems.refuse(parser.problems_seen, str(path), document.lines, hide)
    if file_section is None:
        raise UsageError(f"{path}: has no keys")
    # 2. what is imported
    instances: list[Any] = []  # of the bolts' classes
    for number, bolt in enumerate(bolts):
        instances.append(parser.make_bolt(("bolts", str(number)), bolt))
    sink = parser.import_sink(file_section.sink)
    problems.refuse(parser.problems_seen, str(path), document.lines, hide)
    # 3. the graph
    loaded_topics = topics.load_topics(path.parent / file_section.topics, environ)
    builder = parser.build_topology(loaded_topics, spouts, bolts, instances, streams)
    problems.refuse(parser.problems_seen, str(path), document.lines, hide)
    return TopologyFile(builder, sink, file_section)


class _FileParser:
    """Parses sections and builds a topology of them.

    It raises nothing for what it refuses, but adds a problem with the place in the file.

    Attributes:
        problems_seen: all problems so far.
    """

    def __init__(self, problems_seen: list[Problem]) -> None:
        """Begin with the problems of the YAML text."""
        self.problems_seen = problems_seen

    def add_problem(self, path: problems.Path, text: str, value: object = None) -> None:
        """Add a problem at a place of the file; `value`: what is written there, None: not shown."""
        value_text = None if value is None else repr(value)
        self.problems_seen.append(Problem(path, text, value_text))

    def file_section(self, data: Mapping[str, Any]) -> FileSection | None:
        """Return the file's own keys; add a problem and return None where they cannot be read."""
        own_keys = problems.section_keys(FileSection)
        allowed_keys = [*own_keys, "spouts", "bolts", "streams"]
        for name in data:
            if name not in allowed_keys:
                self.problems_seen.append(unknown_key((name,), allowed_keys))
        own_data = {name: value for name, value in data.items() if name in own_keys}
        return self.section(FileSection, own_data, ())

    def component_sections(self, name: str, model: type[S], data: Mapping[str, Any]) -> list[S]:
        """Return the sections of a list of components, without those that cannot be read.

        `name` of the list: ``spouts``, ``bolts`` or ``streams``; `model` of each section. What
        cannot be read becomes a problem.
        """
        items = data.get(name)
        is_left_out = items is None
        if is_left_out and name == "bolts":  # a topology may do without bolts
            return []
        if not isinstance(items, list) or not items:
            self.add_problem((name,), f"must be a list of {name}, each with its keys")
            return []
        sections: list[S] = []
        for number, item in enumerate(items):
            section = self.section(model, item, (name, str(number)))
            if section is not None:
                sections.append(section)
        return sections

    def section(self, model: type[S], data: Any, path: problems.Path) -> S | None:
        """Return a section; add a problem and return None where it cannot be read."""
        if not isinstance(data, dict):
            self.add_problem(path, "must be a section: keys with values")
            return None
        try:
            return model.model_validate(data, context=FROM_FILE)
        except ValidationError as error:
            self.problems_seen += problems_of(error, model, data, path)
            return None

    def import_object(self, path: problems.Path, reference: str) -> Any:
        """Import an object by ``module:name`` and return it.

        Add a problem and return None if that fails.
        """
        module_name, colon, name = reference.partition(":")
        if not colon or not module_name or not name:
            self.add_problem(path, "names no module and name; write module:Name", reference)
            return None
        try:
            module = import_module(module_name)
            # a module may have a function `__getattr__`, which may raise anything
            has_name = hasattr(module, name)
            named_object = getattr(module, name, None)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported, whatever it is
            is_missing = isinstance(error, ModuleNotFoundError)
            cure = "; is its folder on PYTHONPATH?" if is_missing else ""
            self.add_problem(path, f"cannot be imported: {_raised_text(error)}{cure}", reference)
            return None
        if not has_name:
            self.add_problem(path, f"is not there: module {module_name} has no {name}", reference)
        return named_object

    def make_bolt(self, path: problems.Path, bolt: BoltSection) -> Any:
        """Return a new bolt of a section; add a problem and return None where it cannot be made."""
        bolt_class = self.import_object((*path, "className"), bolt.class_name)
        if bolt_class is None:
            return None
        # the file has arguments in order, or by name
        positional: Sequence[Any] = ()
        by_name: Mapping[str, Any] = {}
        if isinstance(bolt.arguments, Mapping):
            by_name = bolt.arguments
        else:
            positional = bolt.arguments
        try:
            positional, by_name = _typed_arguments(bolt_class, positional, by_name)
        except ValueError as error:
            self.add_problem((*path, "constructorArgs"), str(error))
            return None
        try:
            return bolt_class(*positional, **by_name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported, whatever it is
            text = f"cannot be made: {_raised_text(error)}; see constructorArgs"
            self.add_problem((*path, "className"), text, bolt.class_name)
            return None

    def import_sink(self, references: str | Mapping[str, str] | None) -> SinkFunctions:
        """Return the sink's function, or one for each stream, imported; None: the file names none.

        A stream is written as ``bolt`` or ``bolt/stream``.
        """
        if references is None:
            return None
        if isinstance(references, str):
            write: SinkFunctions = self.import_object(("sink",), references)
            return write
        functions_by_stream: dict[Any, Any] = {}  # by component, or (component, stream)
        for stream, reference in references.items():
            component, slash, name = stream.partition("/")
            stream_key = (component, name) if slash else component
            functions_by_stream[stream_key] = self.import_object(("sink", stream), reference)
        return functions_by_stream

    def build_topology(
        self,
        loaded_topics: topics.Topics,
        spouts: Sequence[SpoutSection],
        bolts: Sequence[BoltSection],
        instances: Sequence[Any],
        streams: Sequence[StreamSection],
    ) -> TopologyBuilder:
        """Return a builder with all components; what it refuses becomes a problem.

        `instances` are those of `bolts`, one for one.
        """
        builder = TopologyBuilder()
        # by the bolt's id; None: the builder has refused the bolt, and the problem is added
        declarer_by_bolt: dict[str, BoltDeclarer | None] = {}
        for number, spout in enumerate(spouts):
            with self._problem_at("spouts", str(number)):
                for name in spout.inputs:
                    loaded_topics.input(name)  # raises where there is none
                options = _read_variables(spout.options)
                builder.set_spout(spout.id, loaded_topics, spout.inputs, **options)
        for number, (bolt, instance) in enumerate(zip(bolts, instances, strict=True)):
            declarer_by_bolt[bolt.id] = None
            with self._problem_at("bolts", str(number)):
                declarer_by_bolt[bolt.id] = builder.set_bolt(bolt.id, instance, bolt.parallelism)
        for number, stream in enumerate(streams):
            self._subscribe(("streams", str(number)), declarer_by_bolt, stream)
        # Groupings are checked only where nothing else is wrong: else each stream would name again
        # a bolt that is missing.
        if not self.problems_seen:
            graph, _schemas = builder.unchecked_graph(names_only)
            for number, stream in enumerate(streams):
                with self._problem_at("streams", str(number)):
                    graph.check(_subscription(stream))
        return builder

    @contextmanager
    def _problem_at(self, *path: str) -> Iterator[None]:
        """Catch an error that the body raises, and add it as a problem at a place of the file."""
        try:
            yield
        except WindhoverError as error:
            self.add_problem(path, str(error))

    def _subscribe(
        self,
        path: problems.Path,
        declarer_by_bolt: Mapping[str, BoltDeclarer | None],
        stream: StreamSection,
    ) -> None:
        """Subscribe a bolt to a stream; a bolt that is not there becomes a problem."""
        declarer = declarer_by_bolt.get(stream.to)
        if declarer is None:
            names = ", ".join(declarer_by_bolt) or "none"
            text = f"is no bolt of this file; there are: {names}"
            self.add_problem((*path, "to"), text, stream.to)
            return
        grouping = stream.grouping
        if grouping.args and grouping.type not in ("fields", "partial_key"):
            text = f"means nothing to {grouping.type}; leave it out"
            self.add_problem((*path, "grouping", "args"), text)
            return
        subscribe = getattr(declarer, f"{grouping.type}_grouping")
        subscribe(stream.from_, *grouping.args, stream=grouping.stream_id)


def _read_variables(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in which the text of an environment variable has become what it spells.

    The type that an option wants is not known here. None that wants text has values that spell a
    number, true or false.
    """
    return {name: _what_it_spells(value) for name, value in options.items()}


def _what_it_spells(value: Any) -> Any:
    """Return the int, float or bool that a variable's text spells, or the text.

    Other values as they are.
    """
    if not isinstance(value, VariableText):
        return value
    for read in (value.whole, value.fraction, value.truth):
        with suppress(ValueError):
            return read()
    return str(value)


def _typed_arguments(
    bolt_class: Any, positional: Sequence[Any], by_name: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return a bolt's arguments, in order and by name, as the constructor's annotations want them.

    That concerns the texts of environment variables; other values have a type in the file. Raises
    `ValueError`: a number or bool is wanted, and the text is none.
    """
    parameters: Mapping[str, Parameter]
    try:
        parameters = signature(bolt_class).parameters
    except (TypeError, ValueError):  # a class of another language has none; then text stays text
        parameters = {}
    positional_parameters = filter(_is_positional, parameters.values())
    annotations = [parameter.annotation for parameter in positional_parameters]
    # arguments that are too many stay text, and the constructor refuses them
    annotations += [str] * len(positional)
    typed_positional = list(map(_typed, positional, annotations))
    typed_by_name: dict[str, Any] = {}
    for name, value in by_name.items():
        annotation = parameters[name].annotation if name in parameters else str
        typed_by_name[name] = _typed(value, annotation)
    return typed_positional, typed_by_name


def _typed(value: Any, annotation: Any) -> Any:
    """Return a variable's text as its parameter wants it; any other value as it is."""
    if not isinstance(value, VariableText):
        return value
    if annotation in (int, "int"):
        return value.whole()
    if annotation in (float, "float"):
        return value.fraction()
    if annotation in (bool, "bool"):
        return value.truth()
    return str(value)


def _is_positional(parameter: Parameter) -> bool:
    """Return whether a parameter takes an argument by its position."""
    return parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _subscription(stream: StreamSection) -> Subscription:
    """Return the subscription that a section describes."""
    producer = StreamId(stream.from_, stream.grouping.stream_id)
    return Subscription(producer, stream.to, Kind(stream.grouping.type), stream.grouping.args)


def _raised_text(error: BaseException) -> str:
    """Return one line about what was raised, and where in the user's code: nobody is shown a
    traceback.
    """
    message = Untrusted(" ".join(str(error).split()))
    text = type(error).__name__
    if message:
        text += f": {message}"
    if isinstance(error, ImportError | SyntaxError):  # their messages have the place
        return text
    for frame in traceback.extract_tb(error.__traceback__):
        # the first frame of the user: neither this file nor Python's import
        if frame.filename != __file__ and "importlib" not in frame.filename:
            return f"{text} ({Path(frame.filename).name}:{frame.lineno})"
    return text

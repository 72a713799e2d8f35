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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from acker.config import problems, topics
from acker.config.keys import FROM_FILE, Section, Whole, key
from acker.config.problems import Problem, problems_of, unknown_key
from acker.config.yaml_text import read_yaml
from acker.errors import UsageError, WindhoverError
from spout.builder.compiled import Sink
from spout.builder.topology import TopologyBuilder
from spout.tuples.tuple import DEFAULT_STREAM

S = TypeVar("S", bound=Section)


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
    parallelism: Whole | None = key(range="1 or more", default=None)
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


LISTS: Mapping[str, type[Section]] = MappingProxyType(
    {"spouts": SpoutSection, "bolts": BoltSection, "streams": StreamSection}
)


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A parsed file, ready to be submitted."""

    builder: TopologyBuilder
    sink: Sink
    about: FileSection

    @property
    def options(self) -> dict[str, Any]:
        options = {"name": self.about.name, "deterministic": self.about.deterministic}
        chosen = {"checkpoint": self.about.checkpoint, "trigger": dict(self.about.trigger)}
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
    document = read_yaml(text, environ)
    reader = _Reader(list(document.problems))
    data = document.data if isinstance(document.data, dict) else {}
    if not data and not document.problems:
        reader.problem((), "is empty; it needs name, spouts, bolts and streams")
    about = reader.file(data)
    lists = {name: reader.list(name, model, data.get(name)) for name, model in LISTS.items()}
    problems.refuse(reader.found, str(path), document.lines)
    if about is None:
        raise UsageError(f"{path}: has no keys")
    bolts = {n: reader.instance(("bolts", str(n)), bolt) for n, bolt in enumerate(lists["bolts"])}
    sink = reader.sink(about.sink)
    problems.refuse(reader.found, str(path), document.lines)
    read = topics.load_topics(path.parent / about.topics, environ)
    builder = _Assembly(reader, read).build(lists, bolts)
    problems.refuse(reader.found, str(path), document.lines)
    return TopologyFile(builder, sink, about)


class _Reader:
    """Parses sections, and collects the problems."""

    def __init__(self, found: list[Problem]) -> None:
        self.found = found

    def problem(self, path: problems.Path, text: str, value: object = None) -> None:
        self.found.append(Problem(path, text, None if value is None else problems.show(value)))

    def file(self, data: Mapping[str, Any]) -> FileSection | None:
        allowed = [*problems.section_keys(FileSection), *LISTS]
        self.found += [unknown_key((name,), allowed) for name in data if name not in allowed]
        own = {name: value for name, value in data.items() if name in problems.section_keys(FileSection)}
        return self.section(FileSection, own, ())

    def list(self, name: str, model: type[S], data: Any) -> list[S]:
        if not isinstance(data, list) or not data:
            missing = data is None and name == "bolts"
            if not missing:
                self.problem((name,), f"must be a list of {name}, each with its keys")
            return []
        sections = [self.section(model, each, (name, str(n))) for n, each in enumerate(data)]
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

    def instance(self, path: problems.Path, bolt: Section) -> Any:
        if not isinstance(bolt, BoltSection):
            return None
        factory = self.imported((*path, "className"), bolt.class_name)
        if factory is None:
            return None
        positional: Sequence[Any] = () if isinstance(bolt.arguments, Mapping) else bolt.arguments
        named = bolt.arguments if isinstance(bolt.arguments, Mapping) else {}
        try:
            return factory(*positional, **named)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - reported at its key, whatever it is
            text = f"cannot be made: {_raised(error)}; see constructorArgs"
            self.problem((*path, "className"), text, bolt.class_name)
            return None

    def sink(self, named: str | Mapping[str, str] | None) -> Sink:
        if named is None:
            return None
        if isinstance(named, str):
            found: Sink = self.imported(("sink",), named)
            return found
        return {
            _stream_key(stream): self.imported(("sink", stream), function)
            for stream, function in named.items()
        }


def _raised(error: BaseException) -> str:
    """Describe in one line what was raised, and where in the user's code: nobody is shown a traceback."""
    text = " ".join(str(error).split())
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, ImportError | SyntaxError):  # their messages have the place
        return what
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename != __file__ and "importlib" not in frame.filename:
            return f"{what} ({Path(frame.filename).name}:{frame.lineno})"
    return what


def _stream_key(named: str) -> str | tuple[str, str]:
    """Parse ``component`` or ``component/stream``."""
    component, slash, stream = named.partition("/")
    return (component, stream) if slash else component


class _Assembly:
    """Builds a topology; a component that the builder refuses becomes a problem at its place in the file."""

    def __init__(self, reader: _Reader, read: topics.Topics) -> None:
        self._reader = reader
        self._topics = read

    def build(self, lists: Mapping[str, Sequence[Section]], bolts: Mapping[int, Any]) -> TopologyBuilder:
        builder = TopologyBuilder()
        declarers: dict[str, Any] = {}
        for n, spout in enumerate(lists["spouts"]):
            if isinstance(spout, SpoutSection):
                self._set(("spouts", str(n)), lambda each=spout: self._spout(builder, each))
        for n, bolt in enumerate(lists["bolts"]):
            if isinstance(bolt, BoltSection):
                declarers[bolt.id] = self._set(
                    ("bolts", str(n)),
                    lambda each=bolt, at=n: builder.set_bolt(each.id, bolts[at], each.parallelism),
                )
        for n, stream in enumerate(lists["streams"]):
            if isinstance(stream, StreamSection):
                self._subscribe(("streams", str(n)), declarers, stream)
        return builder

    def _spout(self, builder: TopologyBuilder, spout: SpoutSection) -> None:
        for name in spout.inputs:
            self._topics.input(name)
        builder.set_spout(spout.id, self._topics, spout.inputs, **spout.options)

    def _set(self, path: problems.Path, act: Any) -> Any:
        try:
            return act()
        except WindhoverError as error:
            self._reader.problem(path, str(error))
            return None

    def _subscribe(self, path: problems.Path, declarers: Mapping[str, Any], stream: StreamSection) -> None:
        declarer = declarers.get(stream.to)
        if declarer is None:
            names = ", ".join(declarers) or "none"
            self._reader.problem((*path, "to"), f"is no bolt of this file; there are: {names}", stream.to)
            return
        grouping = stream.grouping
        if grouping.args and grouping.type not in ("fields", "partial_key"):
            self._reader.problem(
                (*path, "grouping", "args"), f"means nothing to {grouping.type}; leave it out"
            )
            return
        group = getattr(declarer, f"{grouping.type}_grouping")
        group(stream.from_, *grouping.args, stream=grouping.stream_id)

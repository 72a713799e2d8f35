"""Explains the keys of topics.yaml, for `windhover explain` and docs/reference/topics.md.

All of it is read from the models that validate a file: unit, range, example and Storm's name are
arguments of `acker.config.keys.key`, the text is the docstring below the field, and what a change
asks is in `acker.config.effects`. So a key that is explained wrongly is validated wrongly.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from acker.config.effects import effect_of
from acker.config.keys import Section
from acker.config.limits import ReplaySettings
from acker.config.problems import section_keys, section_of_items
from acker.config.settings import AckerSettings, Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.untrusted import UntrustedName

COMPUTED_DEFAULTS: Final[Mapping[str, str]] = {
    "kafka": "`{bootstrap.servers: 127.0.0.1:9092}`",
    "acker.group": "`<topic_prefix>windhover-acker`",
    "acker.replay_group": "`<topic_prefix>windhover-replay`",
    "inputs.<name>.topic": "the name of the input",
    "inputs.<name>.replay_topic": "`<topic>.<group>.replay`",
    "inputs.<name>.dead_letter.topic": "`<topic>.<group>.dlq`",
}
"""Defaults that a model makes of other keys."""

NEAREST_MAX: Final = 3
"""A key that does not exist brings this many keys that look like it."""


@dataclass(frozen=True, slots=True)
class KeyText:
    """What a person wants to know of one key; all texts may have code between backticks.

    Attributes:
        path: the key with its sections; ``<name>`` is the name of an input, ``[]`` each rule of a
            list.
        text: what it does, in sentences.
        default: its value if a file lacks it; ``required`` if every file must have it.
        unit: of the value; empty: it has none.
        range: what a file may say.
        storm: what Storm calls it; empty: Storm has no such thing.
        change: what a change of it asks, in sentences.
        example: another value than the default, as a file writes it.
    """

    path: str
    text: str
    default: str
    unit: str
    range: str
    storm: str
    change: str
    example: str

    def lines(self) -> Iterator[str]:
        """Yield the text, then one line for each fact."""
        yield self.text
        yield ""
        yield f"- Default: {self.default}"
        if self.unit:
            yield f"- Unit: {self.unit}"
        yield f"- Range: {self.range}"
        if self.storm:
            yield f"- In Storm: {self.storm}"
        yield f"- After a change: {self.change}"
        yield f"- Example: `{self.last_part}: {self.example}`"

    @property
    def last_part(self) -> str:
        """The key as it stands in its section."""
        return self.path.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """The first sentence of the text."""
        return self.text.partition(". ")[0].rstrip(".")


def key_texts() -> Iterator[KeyText]:
    """Yield every key, in the order of the models; the rules of a list come after the list."""
    kafka = Topics.model_fields["kafka"]
    yield _key_text("kafka", kafka, _docstrings(Topics)["kafka"])
    yield from _texts_of_section(AckerSettings, "acker.")
    yield from _texts_of_section(ReplaySettings, "replay.")
    yield from _texts_of_section(Input, "inputs.<name>.")


def key_texts_named(name: str) -> list[KeyText]:
    """Return the keys that a person means, such as ``timeout`` or ``inputs.orders.timeout``.

    The name of an input stands for ``<name>``, and the number of a rule for ``[]``. A name without
    its sections means every key that ends with it. What stands below ``kafka`` is one key. The name
    of a section means all keys in it.

    Raises:
        UsageError: there is no such key; the message has those that look like it.
    """
    texts = list(key_texts())
    pattern = _pattern_of(name, texts)
    if not pattern:
        raise UsageError("the name of the key is empty; `windhover explain` lists all keys")
    text_by_path = {text.path: text for text in texts}
    if pattern in text_by_path:
        return [text_by_path[pattern]]
    matches = [text for text in texts if f".{text.path}".endswith(f".{pattern}")]
    if not matches:
        # a section, such as retry or dead_letter: all keys in it
        matches = [text for text in texts if f".{pattern}." in f".{text.path}"]
    if not matches:
        raise UsageError(_no_such_key(name, pattern, text_by_path))
    return matches


def _pattern_of(name: str, texts: Iterable[KeyText]) -> str:
    """Return the path of a key, or its end, as `KeyText.path` writes it.

    >>> _pattern_of("inputs.my.orders.retry.causes.0.error", key_texts())
    'inputs.<name>.retry.causes[].error'
    """
    path = name.strip()
    if path == "kafka" or path.startswith("kafka."):
        return "kafka"
    # the number of a rule: causes.0.error and causes[0].error are causes[].error
    path = re.sub(r"\bcauses(\.[0-9]+|\[[0-9]*\])", "causes[]", path)
    if path.startswith("inputs."):
        return _with_any_name(path, texts)
    return path


def _with_any_name(path: str, texts: Iterable[KeyText]) -> str:
    """Return a path below ``inputs`` with ``<name>`` for the input; its name may have dots, too."""
    # what may stand behind the name: a key, as .dead_letter.topic, or a section, as .dead_letter
    key_ends = {text.path.removeprefix("inputs.<name>") for text in texts if "<name>" in text.path}
    section_ends = {key_end.rpartition(".")[0] for key_end in key_ends} - {""}
    # the longest end that leaves a name: of inputs.a.dead_letter.topic it is not .topic
    for end in sorted(key_ends | section_ends, key=len, reverse=True):
        leaves_name = len(path) > len("inputs.") + len(end)
        if path.endswith(end) and leaves_name:
            return f"inputs.<name>{end}"
    return path


def _no_such_key(name: str, pattern: str, paths: Iterable[str]) -> str:
    """Return what to say of a name that is no key, with those that look like it."""
    # reversed, so that of several keys with the same last part the first one stays
    path_by_last_part = {path.rpartition(".")[2]: path for path in reversed(list(paths))}
    last_part = pattern.rpartition(".")[2]
    near_parts = get_close_matches(last_part, path_by_last_part, n=NEAREST_MAX)
    near = [path_by_last_part[part] for part in near_parts]
    if not near:
        near = get_close_matches(pattern, path_by_last_part.values(), n=NEAREST_MAX)
    cure = f"the nearest are {', '.join(near)}" if near else "`windhover explain` lists all keys"
    return f"topics.yaml has no key {UntrustedName(name)}; {cure}"


def _texts_of_section(model: type[BaseModel], above: str) -> Iterator[KeyText]:
    """Yield the texts of all keys of a section, and of sections in it; `above` begins their paths."""
    docstrings = _docstrings(model)
    # a key of the file is the alias of an attribute, where Python has no such name
    attributes = {field.alias or name: name for name, field in model.model_fields.items()}
    for key, field in section_keys(model).items():
        path = f"{above}{key}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _texts_of_section(field.annotation, f"{path}.")
            continue
        yield _key_text(path, field, docstrings[attributes[key]])
        # a key that is a list of sections, such as the rules of `causes`, also has the keys of one
        # section
        rule_model = section_of_items(field)
        if rule_model is not None:
            yield from _texts_of_section(rule_model, f"{path}[].")


def _key_text(path: str, field: FieldInfo, text: str) -> KeyText:
    """Return the text of one key, of its docstring `text` and of what its field says."""
    extra = field.json_schema_extra  # what `acker.config.keys.key` was called with
    facts: dict[str, str] = {}
    if isinstance(extra, dict):
        facts = {name: str(value) for name, value in extra.items()}
    return KeyText(
        path,
        text,
        _default_text(path, field),
        facts["unit"],
        facts["range"],
        facts["storm"],
        " ".join(effect_of(path).sentences()),
        facts["example"],
    )


def _default_text(path: str, field: FieldInfo) -> str:
    """Return a key's default, as a page shows it."""
    if path in COMPUTED_DEFAULTS:
        return COMPUTED_DEFAULTS[path]
    if field.is_required():
        return "required"
    default = field.default
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if default == "":
        return '`""`'
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


@cache
def _docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring below each field of a section, inherited ones too, on one line."""
    docstrings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, Section):
            continue
        for statement, statement_below in _neighbours(inspect.getsource(base)):
            match statement, statement_below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    docstrings[name] = " ".join(text.split())
    return docstrings


def _neighbours(class_source: str) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Yield each statement of a class, with the one below it."""
    for node in ast.parse(class_source).body:
        if isinstance(node, ast.ClassDef):
            yield from pairwise(node.body)

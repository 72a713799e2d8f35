"""YAML as plain data: bounded, without duplicate keys, with variables of the environment.

Nothing in a file is executed and no object is made but text, numbers, booleans, lists and
mappings. Keys are always text. A file that is too large or too deep, or whose aliases unfold to
too much, is refused before any of it is built.

``${NAME}`` in a value stands for a variable of the environment, ``${NAME:-default}`` falls back
where it is unset or empty, and ``$${`` is a literal ``${``. What a variable holds is never read as
YAML: a value with a variable in it is text (`VariableText`), and a key that wants a number reads a
decimal number out of it.

Plain scalars are numbers and booleans as in JSON: ``8``, ``0.5``, ``true``. YAML 1.1 has more of
them, which nobody means who writes them: ``010`` is 8 there, ``12:30`` is 750, ``yes`` is true.
Here they are text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from acker.config.problems import Path, Problem

FILE_BYTES_MAX: Final = 1_000_000
"""A file may have this many bytes; 16,383 inputs in short form need less."""

DEPTH_MAX: Final = 16
"""A value may lie this many levels deep; topics.yaml uses four."""

NODES_MAX: Final = 200_000
"""A file may hold this many values, counted with every alias unfolded."""

_TAG: Final = "tag:yaml.org,2002:"
_SUBSTITUTE: Final = re.compile(
    r"\$\$\{|\$\{(?P<variable>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<has_default>:-)(?P<default>[^{}]*))?\}|\$\{"
)
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")

_WHOLE: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FRACTION: Final = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE
)
_TRUTH: Final = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL: Final = re.compile(r"null|Null|NULL|~|")
_MERGE: Final = re.compile(r"<<")
_PATTERN_BY_KIND: Final = {
    "null": _NULL,
    "bool": _TRUTH,
    "int": _WHOLE,
    "float": _FRACTION,
    "merge": _MERGE,
}
"""By the last part of a tag, the texts that may stand behind it; any text may behind ``!!str``."""

DIGITS_MAX: Final = 18
"""A decimal number of a variable may have so many digits.

Every range of topics.yaml ends far below.
"""


class VariableText(str):
    """The text of a value that holds variables of the environment, and which."""

    variables: tuple[str, ...]

    def __new__(cls, text: str, variables: Collection[str]) -> VariableText:
        value = super().__new__(cls, text)
        value.variables = tuple(variables)
        return value

    def __reduce__(self) -> tuple[type[VariableText], tuple[str, tuple[str, ...]]]:
        return VariableText, (str(self), self.variables)

    def whole(self) -> int:
        """Return it as a whole number; `ValueError`, with the variables' names, if it is none."""
        if not _WHOLE.fullmatch(self) or len(self) > DIGITS_MAX:
            raise ValueError(f"{self._origin}, and no decimal number")
        return int(self)

    def fraction(self) -> float:
        """Return it as a number; `ValueError`, with the variables' names, if it is none."""
        if not _FRACTION.fullmatch(self):
            raise ValueError(f"{self._origin}, and no decimal number")
        return _float(self)

    def truth(self) -> bool:
        """Return it as true or false; `ValueError`, with the variables' names, if it is neither."""
        if not _TRUTH.fullmatch(self):
            raise ValueError(f"{self._origin}, and neither true nor false")
        return self.lower() == "true"

    @property
    def _origin(self) -> str:
        return f"is the text of {', '.join(f'${{{name}}}' for name in self.variables)}"


def _float(text: str) -> float:
    """Return a number as YAML writes it: ``.inf`` and ``.nan`` have a dot before them."""
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if text[-1:].isalpha() else float(text)


@dataclass(slots=True)
class Document:
    """A file as plain data, the line of each key path, and what was wrong with it."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, environ: Mapping[str, str], as_written: Collection[str] = ()) -> Document:
    """Read one YAML document; a value that was refused is None in `data`.

    Values in the sections of `as_written` are text, as they stand in the file: ``0123``, ``yes``,
    ``12:30``.
    """
    document = Document()
    try:
        if len(text) > FILE_BYTES_MAX or len(text.encode("utf-8", "replace")) > FILE_BYTES_MAX:
            raise _Refused(f"is larger than {FILE_BYTES_MAX:,} bytes; split it into several files")
        loader = _BoundedLoader(text)
        root = loader.get_single_node()
        if root is not None:
            document.data = _Builder(loader, environ, document, as_written).build(root, ())
    except _Refused as error:
        document.problems.append(Problem((), str(error)))
    except yaml.MarkedYAMLError as error:
        document.problems.append(Problem((), _syntax_problem(error)))
    except yaml.YAMLError as error:
        document.problems.append(Problem((), f"is not YAML text: {type(error).__name__}"))
    return document


class _Refused(Exception):
    """The file as a whole cannot be read."""


def _syntax_problem(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong with the syntax, and where, without a quotation: the line may hold a
    secret.
    """

    def hide(match: re.Match[str]) -> str:
        quoted = str(match[1] or match[2] or "")
        # PyYAML quotes a character, such as ':', and a kind of token, such as '<block end>': its
        # own words
        is_of_yaml = len(quoted) < 2 or quoted.startswith("<")
        return match[0] if is_of_yaml else "…"

    mark = error.problem_mark or error.context_mark
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    problem = _QUOTED.sub(hide, error.problem or "unreadable")
    return f"is not YAML{where}: {problem}; check indentation, and put values that hold {{ or : in quotes"


class _BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which recurses once a level, so the depth is bounded here."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node as PyYAML does, and count its depth."""
        if self.depth > DEPTH_MAX:
            raise _Refused(f"is nested deeper than {DEPTH_MAX} levels; topics.yaml needs four")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


# Without this the loader has YAML 1.1's: octal, base 60, underscores, `yes` and `no`, dates.
_BoundedLoader.yaml_implicit_resolvers = {}
for _kind, _pattern in _PATTERN_BY_KIND.items():
    _BoundedLoader.add_implicit_resolver(
        _TAG + _kind, re.compile(rf"(?:{_pattern.pattern})$", _pattern.flags), None
    )


def _tag_problem(tag: str, text: str) -> str:
    """Return what is wrong with the tag of a text; empty: nothing.

    A tag is written (``!!int``), or a plain text has it by its form. Only a written one can be
    wrong: it has no plain value, or is before a text that it is not for.
    """
    kind = tag.removeprefix(_TAG)
    if kind == "str":
        return ""
    pattern = _PATTERN_BY_KIND.get(kind)
    if pattern is None:
        return "has a tag; only plain values are read, so leave the ! out"
    return "" if pattern.fullmatch(text) else f"is no value of its tag !!{kind}; leave the tag out"


class _Builder:
    """Builds plain data of YAML's nodes, and adds what is wrong with them to the document's problems."""

    def __init__(
        self,
        loader: yaml.SafeLoader,
        environ: Mapping[str, str],
        document: Document,
        as_written: Collection[str],
    ) -> None:
        """Build for a document; the other arguments are as for `read_yaml`."""
        self._loader = loader
        self._as_written = as_written
        self._environ = environ
        self._document = document
        self._node_count = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        """Return the data of a node of YAML, None if it is refused.

        Records the line of each key below it. `path` is the path of keys to
        it.
        """
        self._node_count += 1
        if self._node_count > NODES_MAX:
            raise _Refused(f"holds more than {NODES_MAX:,} values when its aliases are unfolded")
        if len(path) > DEPTH_MAX:  # an alias that contains itself
            raise _Refused(f"is nested deeper than {DEPTH_MAX} levels; topics.yaml needs four")
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.build(item, (*path, str(n))) for n, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._refuse(path, "has a tag; only plain values are read, so leave the ! out")

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        """Return a mapping of YAML as a dict.

        Records the line of each key, and refuses what is no key. Keys that
        ``<<`` merges into it from an anchor give way to its own.
        """
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(path, "has a key that is not text; write one key: value to a line")
            elif problem := _tag_problem(key.tag, key.value):
                self._refuse((*path, key.value), f"is a key that {problem}")
            elif key.tag == _TAG + "merge":
                self._add_merged(merged, self.build(value, (*path, "<<")), path)
            elif key.value in values:
                self._refuse(
                    (*path, key.value), f"stands twice, again in line {key.start_mark.line + 1}; remove one"
                )
            else:
                self._document.lines[(*path, key.value)] = key.start_mark.line + 1
                values[key.value] = self.build(value, (*path, key.value))
        return merged | values

    def _add_merged(self, merged: dict[str, Any], sections: Any, path: Path) -> None:
        """Add the keys of one anchor, or of a list of them (`sections`), to `merged`.

        Of a key that several have the first one counts.
        """
        sections = sections if isinstance(sections, list) else [sections]
        for section in sections:
            if not isinstance(section, dict):
                self._refuse((*path, "<<"), "merges what is no section; name the anchor of one")
                continue
            for key, value in section.items():
                merged.setdefault(key, value)

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        """Return the value of a scalar of YAML: text, number, truth or None.

        What is none of these is refused. A text with a variable of the environment stays a text,
        and so do values in the sections that are taken as written. In those sections an empty
        value is None all the same. `path` is the path of keys to the scalar, for problems.
        """
        text = self._substitute(node.value, path)
        # "null", "bool", "int", "float" or "merge" by the form of the text; or the name of a tag
        # that stands before the text in the file
        kind = node.tag.removeprefix(_TAG)
        if problem := _tag_problem(node.tag, text):
            return self._refuse(path, problem)
        # merge: the text <<, used as a value
        if isinstance(text, VariableText) or kind in ("str", "merge"):
            return text
        is_as_written = len(path) > 1 and path[0] in self._as_written
        if is_as_written and text and kind in ("null", "bool", "int", "float"):
            return text
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int":
            return self._whole_number(text, path)
        return _float(text.lower()) if kind == "float" else None

    def _whole_number(self, text: str, path: Path) -> Any:
        try:
            return int(text)
        except ValueError:  # Python reads 4,300 digits at most
            return self._refuse(path, "is no number; put it in quotes if it is meant as text")

    def _substitute(self, text: str, path: Path) -> str:
        """Return a text with the values of the environment's variables in it, a `VariableText` if
        it has any.

        A variable that is not set and has no default is refused, as a problem at `path`.
        """
        if "${" not in text:
            return text
        variables: list[str] = []  # their names

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name = match["variable"]
            if name is None:
                self._refuse(
                    path, "holds ${ without a name and }; write ${NAME}, ${NAME:-default}, or $${ for ${"
                )
                return ""
            variables.append(name)
            value = self._environ.get(name)
            if match["has_default"]:  # it stands for an empty variable, too, as in a shell
                return value or str(match["default"])
            if value is None:
                self._refuse(path, f"needs the variable {name}; set it, or write ${{{name}:-default}}")
            return value or ""

        filled = _SUBSTITUTE.sub(replace, text)
        return VariableText(filled, variables) if variables else filled

    def _refuse(self, path: Path, text: str) -> None:
        """Add a problem; it returns None, which stands for the value that was refused."""
        self._document.problems.append(Problem(path, text))

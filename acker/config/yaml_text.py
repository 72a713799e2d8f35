"""YAML as plain data: bounded, without duplicate keys, with variables of the environment.

Nothing in a file is executed and no object is made but text, numbers, booleans, lists and mappings. Keys
are always text. A file that is too large or too deep, or whose aliases unfold to too much, is refused
before any of it is built.

``${NAME}`` in a value stands for a variable of the environment, ``${NAME:-default}`` falls back where it is
unset or empty, and ``$${`` is a literal ``${``. A plain scalar is read as YAML reads it *after* that, so
``${N:-4}`` is a number; a quoted one stays text. What a variable holds is never read as YAML syntax.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
_SUBSTITUTE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:-)([^{}]*))?\}|\$\{")
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@dataclass(slots=True)
class Document:
    """A file as plain data, the line of each key path, and what was wrong with it."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, environ: Mapping[str, str]) -> Document:
    """Read one YAML document; a value that was refused is None in `data`."""
    document = Document()
    try:
        if len(text) > FILE_BYTES_MAX or len(text.encode("utf-8", "replace")) > FILE_BYTES_MAX:
            raise _Refused(f"is larger than {FILE_BYTES_MAX:,} bytes; split it into several files")
        loader = _BoundedLoader(text)
        root = loader.get_single_node()
        if root is not None:
            document.data = _Builder(loader, environ, document).build(root, ())
    except _Refused as error:
        document.problems.append(Problem((), str(error)))
    except yaml.MarkedYAMLError as error:
        document.problems.append(Problem((), _syntax(error)))
    except yaml.YAMLError as error:
        document.problems.append(Problem((), f"is not YAML text: {type(error).__name__}"))
    return document


class _Refused(Exception):
    """The file as a whole cannot be read."""


def _syntax(error: yaml.MarkedYAMLError) -> str:
    """Say where the syntax is wrong, without quoting the file: the line may hold a secret."""

    def hide(match: re.Match[str]) -> str:
        quoted = str(match[1] or match[2] or "")
        return match[0] if len(quoted) < 2 or quoted.startswith("<") else "…"

    mark = error.problem_mark or error.context_mark
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    what = _QUOTED.sub(hide, error.problem or "unreadable")
    return f"is not YAML{where}: {what}; check indentation, and put values that hold {{ or : in quotes"


class _BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which recurses once a level, so the depth is bounded here."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.depth > DEPTH_MAX:
            raise _Refused(f"is nested deeper than {DEPTH_MAX} levels; topics.yaml needs four")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Builder:
    def __init__(self, loader: yaml.SafeLoader, environ: Mapping[str, str], document: Document) -> None:
        self._loader = loader
        self._environ = environ
        self._document = document
        self._nodes = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        self._nodes += 1
        if self._nodes > NODES_MAX:
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
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(path, "has a key that is not text; write one key: value to a line")
            elif key.tag == _TAG + "merge":
                self._merge(merged, self.build(value, (*path, "<<")), path)
            elif key.value in own:
                self._refuse(
                    (*path, key.value), f"stands twice, again in line {key.start_mark.line + 1}; remove one"
                )
            else:
                self._document.lines[(*path, key.value)] = key.start_mark.line + 1
                own[key.value] = self.build(value, (*path, key.value))
        return merged | own

    def _merge(self, merged: dict[str, Any], found: Any, path: Path) -> None:
        for part in found if isinstance(found, list) else [found]:
            if isinstance(part, dict):
                merged.update({key: value for key, value in part.items() if key not in merged})
            else:
                self._refuse((*path, "<<"), "merges what is no section; name the anchor of one")

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = self._substitute(node.value, path)
        tag = node.tag
        if text != node.value and node.style is None:
            tag = self._loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it bare
        kind = tag.removeprefix(_TAG)
        if kind in ("str", "timestamp", "value", "merge"):
            return text
        if kind not in ("int", "float", "bool", "null"):
            return self._refuse(path, "has a tag; only plain values are read, so leave the ! out")
        plain = yaml.ScalarNode(tag, text, node.start_mark, node.end_mark)
        try:
            return self._loader.construct_object(plain)
        except (ValueError, KeyError, IndexError, OverflowError):
            # YAML 1.1 resolves texts such as 1:99:: or !!int x to numbers that do not exist.
            return self._refuse(path, "is no number; put it in quotes if it is meant as text")

    def _substitute(self, text: str, path: Path) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            if match[1] is None:
                self._refuse(
                    path, "holds ${ without a name and }; write ${NAME}, ${NAME:-default}, or $${ for ${"
                )
                return ""
            value = self._environ.get(match[1])
            if match[2]:
                return value or str(match[3])
            if value is None:
                self._refuse(
                    path, f"needs the variable {match[1]}; set it, or write ${{{match[1]}:-default}}"
                )
            return value or ""

        return _SUBSTITUTE.sub(replace, text) if "${" in text else text

    def _refuse(self, path: Path, text: str) -> None:
        self._document.problems.append(Problem(path, text))

"""Fill docs/reference/api.md from the docstrings, when mkdocs builds the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import spout

MARKER = "<!-- every public name -->"
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
ITEM = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*)$")


def on_page_markdown(markdown: str, **_context: Any) -> str:
    """Put an entry for each public name in place of the marker."""
    if MARKER not in markdown:
        return markdown
    return markdown.replace(MARKER, "\n".join(line for name in spout.__all__ for line in entry(name)))


def entry(name: str) -> Iterator[str]:
    """Yield the lines of one public name: its signature, its docstring, and its methods."""
    found = getattr(spout, name)
    yield f"## {name}"
    yield ""
    yield from signature(name, found)
    yield from described(inspect.getdoc(found) or "")
    if not inspect.isclass(found):
        return
    for method, function in inspect.getmembers(found, inspect.isfunction):
        if method.startswith("_") or method not in vars(found):
            continue
        yield f"### {name}.{method}"
        yield ""
        yield from signature(method, function)
        yield from described(inspect.getdoc(function) or "")


def signature(name: str, found: Any) -> Iterator[str]:
    """Yield a call as Python writes it; nothing for what cannot be called."""
    try:
        text = f"{name}{inspect.signature(found)}"
    except (TypeError, ValueError):
        return
    yield from ("```python", re.sub(r"'|\bself(?:, )?", "", text), "```", "")


def described(docstring: str) -> Iterator[str]:
    """Yield a docstring as Markdown: examples as blocks, arguments as lists."""
    for paragraph in docstring.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].lstrip().startswith(">>> "):
            yield from ("```python", inspect.cleandoc(paragraph), "```")
        elif lines and SECTION.match(lines[0]):
            yield f"**{lines[0].removesuffix(':')}**"
            yield ""
            listed = lines[0] not in ("Returns:", "Yields:")
            for line in lines[1:]:
                item = ITEM.match(line) if listed else None
                yield f"- `{item[1]}`: {item[2]}" if item else f"  {line.strip()}" if listed else line.strip()
        else:
            yield paragraph
        yield ""

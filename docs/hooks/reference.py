"""Fill pages of docs/reference/ from the code when mkdocs builds the site: public names, and all options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

import spout
from spout.cli.main import app

MARKERS = "<!-- every public name -->", "<!-- every option -->"
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
ITEM = re.compile(r"^ {4}(\w+(?:, \w+)*): (.*)$")


def on_page_markdown(markdown: str, **_context: Any) -> str:
    """Put entries in place of the markers."""
    names, options = MARKERS
    if names in markdown:
        markdown = markdown.replace(names, "\n".join(line for name in spout.__all__ for line in entry(name)))
    if options in markdown:
        markdown = markdown.replace(options, "\n".join(commands(typer.main.get_command(app), "windhover")))
    return markdown


def commands(group: Any, called: str) -> Iterator[str]:
    """Yield the lines of all commands of a group: what each does, and its arguments and options."""
    for name, command in sorted(group.commands.items()):
        words = f"{called} {name}"
        if hasattr(command, "commands"):
            yield from commands(command, words)
            continue
        yield from (f"### {words}", "", inspect.cleandoc(command.help or ""), "")
        parameters = [each for each in command.params if each.name != "help"]
        if not parameters:
            continue
        yield from ("| argument or option | default | meaning |", "|---|---|---|")
        for each in parameters:
            shown = ", ".join(f"`{text}`" for text in (*each.opts, *each.secondary_opts))
            if each.param_type_name == "argument":
                shown = f"`{(each.metavar or each.name or '').upper()}`"
            has_none = each.default in (None, False, (), "") or callable(each.default)
            default = "required" if each.required else "" if has_none else f"`{each.default}`"
            yield f"| {shown} | {default} | {getattr(each, 'help', '') or ''} |"
        yield ""


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

"""Write the generated parts of pages: `uv run python docs/hooks/keys.py`.

They stand in the pages, between two comments, so that they can be read on any site. A test compares them with
the models (tests/unit/acker/config/test_readme_topics.py), or with the tables of a picture
(tests/unit/spout/picture/test_picture_reference.py), and names this command where they differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from acker.config.effects import ADDED, EFFECTS, REMOVED, RENAMED, Effect
from acker.provisioning.key_texts import key_texts
from spout.picture.schema import reference_lines

DOCS: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = "uv run python docs/hooks/keys.py"
BEGIN: Final = f"<!-- written by `{COMMAND}` from here -->"
END: Final = "<!-- to here -->"


def key_blocks() -> Iterator[str]:
    """Yield one block for each key: its heading, its text, and one line for each fact."""
    for text in key_texts():
        yield f"### `{text.path}`"
        yield ""
        yield from text.lines()
        yield ""


def change_rows() -> Iterator[str]:
    """Yield a table: who must start again for which keys; those with the same answer share a row."""
    keys_by_effect: dict[Effect, list[str]] = {}
    for key, effect in EFFECTS.items():
        keys_by_effect.setdefault(effect, []).append(f"`{key.removeprefix('inputs.<name>.')}`")
    keys_by_effect[ADDED] = ["a new input"]
    keys_by_effect[REMOVED] = ["an input is removed"]
    keys_by_effect[RENAMED] = ["an input gets another name"]
    yield "| what changes | restart | SIGHUP is enough | what else |"
    yield "|---|---|---|---|"
    for effect, keys in keys_by_effect.items():
        nobody = "" if effect.reload or effect.why_refused else "nobody"
        start = ", ".join(effect.start) or nobody
        more = f"**never** in use: {effect.why_refused}" if effect.why_refused else effect.also
        cells = (", ".join(keys), start, ", ".join(effect.reload), more)
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


PARTS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "reference/topics.md": key_blocks,
    "operate/restarts.md": change_rows,
    "reference/picture.md": lambda: iter(reference_lines()),
}
"""By page: what stands between the two comments."""


def with_part(page: str, lines: Iterator[str]) -> str:
    """Return the text of a page with its generated part replaced."""
    text = "\n".join([BEGIN, "", *lines]).rstrip() + f"\n\n{END}"
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.S)
    if not pattern.search(page):
        raise ValueError(f"the page has no {BEGIN}")
    return pattern.sub(lambda _part: text, page)


def main() -> None:
    for name, lines in PARTS.items():
        path = DOCS / name
        path.write_text(with_part(path.read_text(encoding="utf-8"), lines()), encoding="utf-8")


if __name__ == "__main__":
    main()

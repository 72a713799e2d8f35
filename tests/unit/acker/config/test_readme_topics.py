"""The table of keys in docs/reference/topics.md says what the models say."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from acker.config.effects import effect_of
from acker.config.limits import ReplaySettings
from acker.config.problems import items_of, section_keys
from acker.config.settings import AckerSettings, Input
from acker.config.topics import Topics

PROJECT = Path(__file__).resolve().parents[4]
PAGE = "docs/reference/topics.md"
HEADING = "## All keys"
HEADER = "| key | default | unit | range | Storm | what it does | who takes a change |"

COMPUTED = {
    "kafka": "`bootstrap.servers: 127.0.0.1:9092`",
    "acker.group": "`<topic_prefix>windhover-acker`",
    "acker.replay_group": "`<topic_prefix>windhover-replay`",
    "inputs.<name>.topic": "the input's name",
    "inputs.<name>.replay_topic": "`<topic>.<group>.replay`",
    "inputs.<name>.dead_letter.topic": "`<topic>.<group>.dlq`",
}


@cache
def described(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring below each field of a model, and of those that it inherits, on one line."""
    found: dict[str, str] = {}
    for each in (one for one in reversed(model.__mro__) if one.__module__.startswith("acker.")):
        (of_class,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(of_class, ast.ClassDef)
        for statement, below in pairwise(of_class.body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = " ".join(text.split()).split(" Default: ")[0]
    return found


def rows(model: type[BaseModel], above: str) -> Iterator[str]:
    """Yield a row of the table for each key of a section and of those within it."""
    for key, field in section_keys(model).items():
        path = f"{above}{key}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from rows(field.annotation, f"{path}.")
            continue
        if (item := items_of(field)) is not None:
            yield from rows(item, f"{path}[].")
        extra = field.json_schema_extra
        assert isinstance(extra, dict), f"{path} says neither unit nor range"
        what = described(model).get(next(name for name, one in model.model_fields.items() if one is field))
        assert what, f"{path} is not described"
        required = field.is_required() and path not in COMPUTED
        default = "required" if required else COMPUTED.get(path, f"`{_written(field.default)}`")
        after = effect_of(path).text()
        cells = (f"`{path}`", default, extra["unit"], extra["range"], extra["storm"], what, after)
        yield f"| {' | '.join(str(cell) for cell in cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def table() -> list[str]:
    """Return the whole table, as the page has it."""
    kafka = Topics.model_fields["kafka"]
    extra = kafka.json_schema_extra
    assert isinstance(extra, dict)
    what, after = described(Topics)["kafka"], effect_of("kafka").text()
    first = f"| `kafka` | {COMPUTED['kafka']} | | {extra['range']} | | {what} | {after} |"
    return [
        HEADER,
        "|---|---|---|---|---|---|---|",
        first,
        *rows(AckerSettings, "acker."),
        *rows(ReplaySettings, "replay."),
        *rows(Input, "inputs.<name>."),
    ]


def _written(default: object) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return '""' if default == "" else f"{default:g}" if isinstance(default, float) else str(default)


def test_the_page_lists_every_key_with_unit_default_and_range() -> None:
    page = (PROJECT / PAGE).read_text(encoding="utf-8")
    assert HEADING in page, f"{PAGE} has no section of all keys"
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]

    missing = [row for row in table() if row not in section.splitlines()]
    assert missing == []
    unknown = [line for line in section.splitlines() if line.startswith("| `") and line not in table()]
    assert unknown == []

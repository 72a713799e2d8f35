"""What code and pages refer to exists: pages, sections, rules, cases and files. Each word is there once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Fails, Init, Take, Taken, Tick, Verdicts
from tests.simulation.ablations.ablations import ABLATIONS
from tests.support.documented import ROOT

CODE = sorted(
    path
    for part in ("acker", "replay", "spout", "tests", "benchmarks", "examples")
    for path in (ROOT / part).rglob("*.py")
)
PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
PROTOCOL = "docs/design/protocol.md"
GLOSSARY_WORDS_MAX = 50
CODE_WORDS_MAX = 30

PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b|\b[A-Z]+\.md\b")
REFERENCE = re.compile(r'(docs/[\w/-]+\.md)(?!")((?:(?!docs/|"""|\.\s[A-Z]|;|\n\s*\n).)*)', re.DOTALL)
"""A page in prose, and what follows it up to the end of its sentence or of its part of one."""
RULES = re.compile(r"\brules? ([0-9]+(?:(?:, | and | to )[0-9]+)*)")
SECTIONS = re.compile(r"(?:\bsections?|,|\band) ([0-9](?:\.[0-9])?)\b")
LETTER = re.compile(r"\bsections? ([A-Z])\b")
CASE = re.compile(r"\b[SP][0-9]{1,3}\b")
QUOTED = re.compile(r'"([^"]+)"')
FILE = re.compile(r"`((?:acker|replay|spout|tests|benchmarks|examples)/[\w/.-]+)`")


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def references() -> Iterator[tuple[str, str, str]]:
    """Yield the file, the page that it names, and what it says of the page."""
    for path in CODE:
        for page, rest in REFERENCE.findall(path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT).as_posix(), page, one_line(rest)


@cache
def text_of(page: str) -> str:
    return one_line((ROOT / page).read_text(encoding="utf-8"))


@cache
def headings(page: str) -> list[str]:
    return re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)


def wrong_in(page: str, rest: str) -> list[str]:
    """Return what a reference names that its page does not have."""
    text, titles = text_of(page), headings(page)
    wrong = [f"rule {rule}" for rules in RULES.findall(rest) for rule in re.findall("[0-9]+", rules)
             if not re.search(rf" {rule}\. \*\*", text)]  # fmt: skip
    bare = RULES.sub("", QUOTED.sub("", rest))
    numbers = SECTIONS.findall(bare) if re.search(r"\bsections? ", bare) else []
    wrong += [
        f"section {number}"
        for number in (*numbers, *LETTER.findall(bare))
        if not any(re.match(rf"{re.escape(number)}\.? ", title) for title in titles)
    ]
    wrong += [f"case {case}" for case in CASE.findall(bare) if f"**{case}**" not in text]
    return wrong + [f'"{quoted}"' for quoted in QUOTED.findall(rest) if quoted not in text]


def test_the_code_refers_to_many_places() -> None:
    """So that the next test is worth something."""
    found = list(references())
    assert len(found) > 150
    assert {page for _, page, _ in found} >= {PROTOCOL, "docs/design/conformance.md"}


def test_a_reference_names_a_place_that_exists() -> None:
    wrong = [
        f"{path}: {page} has no {name}" for path, page, rest in references() for name in wrong_in(page, rest)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("rest", "wrong"),
    [
        (", sections 3 (rules 5 and 13) and 5.1", ["rule 13"]),
        (", section 4, and 5.9", ["section 5.9"]),
        (', section 4, "Take and Taken" and "Give and Take"', ['"Give and Take"']),
        (", section 3 rule 10", []),
    ],
)
def test_a_reference_to_nothing_is_found(rest: str, wrong: list[str]) -> None:
    assert wrong_in(PROTOCOL, rest) == wrong


def test_a_page_that_the_code_names_lies_in_the_project() -> None:
    """Whoever has the project alone can read all that its code refers to."""
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in CODE
        for name in PAGE.findall(path.read_text(encoding="utf-8"))
    }
    assert {(path, name) for path, name in named if not (ROOT / name).is_file()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_of_the_design_names_files_that_exist(page: Path) -> None:
    named = FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "kind", [Take, Init, Tick, Acks, Fails, Verdicts, Taken], ids=lambda kind: kind.__name__
)
def test_the_protocol_has_the_header_of_each_record(kind: type) -> None:
    """Another program begins its records with these bytes."""
    header = wire_codec().header(kind).hex(" ").upper()
    assert re.search(
        rf"\| `{kind.__name__}` \| `\w+` \| {header} \|", (ROOT / PROTOCOL).read_text(encoding="utf-8")
    )


def test_the_page_of_guarantees_has_each_ablation_in_both_tables() -> None:
    """Once beside the guarantee that falls without it, and once with the checker that sees it fall."""
    text = (ROOT / "docs/design/guarantees.md").read_text(encoding="utf-8")
    first, _, second = text.partition("## Ablations")
    beside = [
        name for row in re.findall(r"^\|.*\| (.*?) ?\|$", first, re.MULTILINE) for name in row.split(", ")
    ]
    fell = re.findall(
        r"^\| ([a-z-]+)(?: \(with [a-z-]+\))? \| (.*) \| (\w+) \| [0-9]+ \|$", second, re.MULTILINE
    )
    assert sorted(set(beside) - {"", "ablation", "---"}) == sorted(ABLATIONS)
    assert [(name, removes) for name, removes, _ in fell] == [
        (n, each.removes) for n, each in ABLATIONS.items()
    ]
    assert [name for name, _, checker in fell if checker not in ABLATIONS[name].falls] == []


def glossary_words(text: str) -> list[str]:
    """Return the words of the rows of a text."""
    return [word for word in re.findall(r"^\| (.*?) \| .* \|$", text, re.MULTILINE) if word != "word"]


def test_the_glossary_has_few_words_each_once() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for_users, for_developers = page.split("## In the code")
    assert len(glossary_words(for_users)) <= GLOSSARY_WORDS_MAX
    assert len(glossary_words(for_developers)) <= CODE_WORDS_MAX
    words = glossary_words(page)
    assert len(words) == len(set(words))

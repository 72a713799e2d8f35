"""README.md, docs/ and the words of the code: short enough, in plain words, and with examples that work.

A Python example is one of three kinds. One that begins with ``>>>`` runs here, with the names of
`tests.support.documented`. Others are excerpts of a file in examples/, which tests/e2e/test_examples_run.py
runs. A whole program (it has a line ``spark = ...``) is README's first pipeline, or that of the tutorial:
their bolts run here, and they start their queries by the same lines.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

import spout
from acker import errors
from acker.config.topics import parse
from spout.cli import main as cli
from tests.support.documented import ROOT, kestrel_names, plain_names
from tests.support.metric_families import every_family

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
BASES = ("WindhoverError", "SessionError", "LogError")
"""Errors that are raised by their subclasses alone."""
README_LINES_MAX = 200
README_WORDS_MAX = 1_800

RETIRED = (
    "appetite", "burial", "buried", "bury", "but for", "comes to", "deed", "desk", "ground", "heard",
    "hungry", "in vain", "is at(?! or | most| least)", "sheet", "shelf", "stir", "told",
)  # fmt: skip
"""Words that once stood for several things each, and say nothing that a plainer word does not."""

RETIRED_NAMES = {
    "appetite", "asked", "burial", "buried", "bury", "deed", "desk", "given", "ground", "heard", "hungry",
    "known", "look", "made", "post", "said", "sheet", "shelf", "stir", "told", "wanted",
}  # fmt: skip
"""Words that no name in the code has as a part. In a sentence some of them are plain English."""

NAMES_KEPT = {
    "connection_made": "a method of asyncio's protocols",
    "asked_by": "a field of `Taken` on the wire",
    "given_up": "to give a record up is the word of the glossary",
    "look": "a verb: to read the clock, or the signs of life",
    "post_init__": "`__post_init__`, a name of dataclasses",
}
"""Names that have a retired word as a part, and why they keep it; a leading underscore changes nothing."""

CODE = sorted(path for package in ("acker", "replay", "spout") for path in (ROOT / package).rglob("*.py"))

USERS_ROOMS = ("guide", "operate", "reference")
USERS_PAGES = [
    DOCS / "tutorial.md", *(page for room in USERS_ROOMS for page in sorted((DOCS / room).rglob("*.md"))),
]  # fmt: skip
SENTENCE_WORDS_MAX = 32

OWN_WORDS = {"root": "roots?", "settle": "settle[ds]?", "State": "State"}
"""Words of the glossary that mean something else everywhere else, with their forms."""

RUNBOOK_PAGES = sorted((DOCS / "operate" / "runbook").glob("*.md"))
SCREEN_LINES_MAX = 35

FORMER_ANCHORS = [
    "an-acker", "a-replay-worker", "a-process-hung", "the-query-or-its-driver",
    "a-query-emits-nothing-at-its-start", "the-checkpoint-is-lost",
    "the-checkpoint-is-older-than-the-query", "a-second-query-of-a-group", "a-query-is-gone-for-good",
    "the-page-or-the-metrics-do-not-answer", "the-broker", "a-process-waits", "a-stranger-in-the-group",
    "a-quota-slows-it-down", "a-broker-is-missing", "a-partition-stands-or-has-no-leader",
    "a-clock-is-wrong", "a-disk-is-full", "a-process-with-a-kafkaspout",
    "a-stream-is-written-past-the-guarantee", "records-left-the-log", "a-batch-is-damaged",
    "an-acker-partition-is-full", "what-no-reader-can-handle", "a-log-was-cut",
    "a-topic-was-re-created", "an-ack-topic-got-partitions", "the-cluster-is-another-one",
    "a-source-topic-got-partitions", "the-cluster-refuses-settings-of-topics",
    "garbage-in-the-ack-topics", "a-stranger-wrote-to-the-ack-topics", "a-bolt-fails-a-record",
    "a-bolt-leaves-records-open", "a-bolt-ends-the-query", "a-record-kills-its-worker",
    "too-much-of-an-input-dies", "an-input-cannot-go-on", "a-topic-refuses-records",
    "a-record-waits-for-another-one", "windhoverstatusunknown", "windhovernosession",
    "windhoveroldestpastdeadline", "windhovercommitblocked", "windhoverpendingatlimit",
    "windhovernotdonegrows", "windhovertimeoutsdominate", "windhoverreplaystorm",
    "windhovernewdeadletters", "windhoverbreakernear", "windhoverackerdown", "windhoverretentionclose",
    "windhovermetricsabsent",
]  # fmt: skip
"""Sections of the runbook when it was one page."""

LISTS = ("docs/design/conformance.md", "docs/design/guarantees.md")
"""Pages that list what the code and its sources say, in their words."""

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
KEY_ROW = re.compile(r"^\| `(?:kafka|acker|replay|inputs)\b.*$", re.M)
"""A row of the table of keys, which the models write."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[str]:
    return [text for of, text in BLOCK.findall(page.read_text(encoding="utf-8")) if of == kind]


def prose(page: Path) -> str:
    """Return a page without blocks, code and the table of keys."""
    text = KEY_ROW.sub("", BLOCK.sub("", page.read_text(encoding="utf-8")))
    return re.sub(r"`[^`]*`", "", text)


def stripped(text: str) -> str:
    """Return lines without indentation and without empty ones, which ruff sets in pages as it likes."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def is_program(block: str) -> bool:
    return re.search(r"^spark = ", block, re.M) is not None


def program(page: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what the program of a page defines, and the lines that start its query."""
    (block,) = filter(is_program, blocks(page, "python"))
    definitions, start = block.split("spark = ", 1)
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(definitions, name_of(page), "exec"), names)
    return names, start.splitlines()


def emitted(bolt: spout.BasicBolt, value: bytes) -> list[tuple[Any, ...]]:
    """Return what a bolt emits for a record."""
    rows: list[tuple[Any, ...]] = []
    record: Any = type("Record", (dict,), {"message_id": SimpleNamespace(origin="orders/0@1")})(value=value)
    bolt.execute(record, spout.BasicCollector(rows.append))
    return rows


def test_the_readme_is_read_in_five_minutes() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= README_LINES_MAX
    assert len(text.split()) <= README_WORDS_MAX


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in LISTS], ids=name_of)
def test_a_page_uses_no_retired_word(page: Path) -> None:
    text = prose(page)
    assert [word for word in RETIRED if re.search(rf"\b{word}\b", text, re.I)] == []


def test_a_retired_word_is_found(tmp_path: Path) -> None:
    """So the test above is worth something."""
    page = tmp_path / "page.md"
    page.write_text("It is told `told`.\n\n```\ntold\n```\n")
    assert prose(page).count("told") == 1


def retired_words(code: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each retired word: as a part of a name, or in a string, a docstring or a comment."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and token.string.lstrip("_") not in NAMES_KEPT:
            parts = {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", token.string)}
            yield from ((line, token.string) for _ in parts & RETIRED_NAMES)
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from ((line, word) for word in RETIRED if re.search(rf"\b{word}\b", token.string, re.I))


def test_the_code_uses_no_retired_word() -> None:
    """In names, messages, log events, docstrings and comments."""
    found = {name_of(path): list(retired_words(path.read_text(encoding="utf-8"))) for path in CODE}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_retired_word_is_found_in_code() -> None:
    code = '''
def read_told(asked_by, Wanted):
    """What was heard."""
    knownness = f"it is told {asked_by}"  # comes to rest
    LOOK_EVERY_MS = _given_up = 1
'''
    assert list(retired_words(code)) == [
        (2, "read_told"), (2, "Wanted"), (3, "heard"), (4, "told"), (4, "comes to"), (5, "LOOK_EVERY_MS"),
    ]  # fmt: skip


def sections(text: str, mark: str) -> dict[str, str]:
    """Return the sections of a text by their headings."""
    parts = re.split(rf"^{mark} (.+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("page", RUNBOOK_PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_runbook_is_one_screen_of_four_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= SCREEN_LINES_MAX
    assert re.findall(r"^# .+$", text, re.M) == [text.splitlines()[0]]
    parts = sections(text, "##")
    assert list(parts) == [
        "What you see", "What it means", "What to do", "How to know that it worked",
    ]  # fmt: skip
    assert all(part.strip() for part in parts.values())


def rows_of_the_runbook() -> Iterator[tuple[str, str, str]]:
    """Yield the anchor, the words and the page of each row of the index."""
    text = (DOCS / "operate" / "runbook.md").read_text(encoding="utf-8")
    yield from re.findall(r'^\| <a id="([\w-]+)"></a>(.+) \| \[.+\]\(runbook/([\w-]+)\.md\) \|$', text, re.M)


def test_the_index_of_the_runbook_has_each_page_once_with_what_people_see() -> None:
    rows = list(rows_of_the_runbook())
    assert sorted(page for _anchor, _words, page in rows) == sorted(page.stem for page in RUNBOOK_PAGES)
    assert [anchor for anchor, _words, page in rows if anchor != page] == []
    assert [page for _anchor, words, page in rows if not words.strip()] == []


def test_the_words_of_the_index_stand_on_their_page() -> None:
    """Whoever searches for a word of a log line finds both."""
    missing = []
    for _anchor, words, page in rows_of_the_runbook():
        text = " ".join((DOCS / "operate" / "runbook" / f"{page}.md").read_text(encoding="utf-8").split())
        missing += [(page, word) for word in re.findall(r"`([^`]+)`", words) if word not in text]
    assert missing == []


def test_a_former_address_of_the_runbook_leads_to_its_page() -> None:
    """It was one long page once, and alerts that people have deployed link to its sections."""
    pages_by_anchor = {anchor: page for anchor, _words, page in rows_of_the_runbook()}
    assert [anchor for anchor in FORMER_ANCHORS if pages_by_anchor.get(anchor) != anchor] == []
    text = (DOCS / "operate" / "runbook.md").read_text(encoding="utf-8")
    assert {"## When an alert fires", "## We do this to ourselves"} <= set(text.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_page_for_users_has_what_they_need_and_sends_nobody_to_the_design() -> None:
    """The glossary and the first page may name it, for those who want to know why."""
    links = [
        (name_of(page), link)
        for page in USERS_PAGES
        for link in re.findall(r"\]\(([^)]*\bdesign/[^)]*)\)", page.read_text(encoding="utf-8"))
    ]
    assert len(USERS_PAGES) > 80
    assert links == []


def words_not_explained(text: str) -> list[str]:
    """Return the words of Windhover's own that a page uses and explains nowhere: it has none in italics."""
    plain = re.sub(r"`[^`]*`", "", BLOCK.sub("", text))
    return [
        word
        for word, forms in OWN_WORDS.items()
        if re.search(rf"(?<![*\w])({forms})\b(?!\*)", plain) and not re.search(rf"\*({forms})\*", text)
    ]


@pytest.mark.parametrize("page", USERS_PAGES, ids=name_of)
def test_a_page_for_users_explains_the_words_that_nobody_can_know(page: Path) -> None:
    """Write the word in italics where it is first used, with what it is."""
    assert words_not_explained(page.read_text(encoding="utf-8")) == []


def test_a_word_that_is_not_explained_is_found() -> None:
    assert words_not_explained("The roots are settled.") == ["root", "settle"]
    assert words_not_explained("A *root* is an emission. Roots, and a `State`.") == []


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page, cells and items; a colon or a semicolon ends one, code is one word."""
    for part in (r"<!-- written by .*?<!-- to here -->", r"<picture>.*?</picture>"):
        text = re.sub(part, "", text, flags=re.S)
    text = re.sub(r"^ {4,}\$ .*$", "", BLOCK.sub("", text), flags=re.M)
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"\]\([^)]*\)", "]", text))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. )|\|", text):
        yield from re.split(r"(?<=[.!?:;])\)?\s+", " ".join(paragraph.split()))


@pytest.mark.parametrize("page", [README, *USERS_PAGES], ids=name_of)
def test_a_sentence_of_a_page_for_users_is_short(page: Path) -> None:
    """Its readers learned English at school, and are tired."""
    text = page.read_text(encoding="utf-8")
    long = [sentence for sentence in sentences(text) if len(sentence.split()) > SENTENCE_WORDS_MAX]
    assert long == []


def test_a_long_sentence_is_found() -> None:
    assert list(sentences("| a `b c` | d; e f |\n\nG h.\nI [j](k l)\n- m")) == [
        "", "a CODE", "d;", "e f", "", "G h.", "I [j]", "- m",
    ]  # fmt: skip


@pytest.mark.parametrize("page", [page for page in PAGES if ">>> " in page.read_text()], ids=name_of)
def test_the_examples_of_a_page_do_what_they_say(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names = {"__name__": "__main__", **plain_names(), **kestrel_names()}
    for block in blocks(page, "python"):
        if not block.startswith(">>> "):
            continue
        said: list[str] = []
        test = doctest.DocTestParser().get_doctest(block, names, name_of(page), name_of(page), 0)
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
        assert not said, "".join(said)


def test_all_other_examples_are_excerpts_of_files_that_tests_run() -> None:
    files = [stripped(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "examples").rglob("*.py"))]
    fix = stripped(blocks(DOCS / "tutorial.md", "python")[-1])
    unknown = [
        f"{name_of(page)}:\n{block}"
        for page in PAGES
        for block in blocks(page, "python")
        if not block.startswith(">>> ")
        and not is_program(block)
        and stripped(block) != fix
        and not any(stripped(block) in file for file in files)
    ]
    assert not unknown, "\n".join(unknown)


def test_the_bolt_of_the_first_pipeline_splits_a_line() -> None:
    names, _ = program(README)
    assert emitted(names["SplitSentence"](), b"the hawk") == [
        ("the", "orders/0@1#0"),
        ("hawk", "orders/0@1#1"),
    ]


def test_the_tutorials_bolt_fails_by_the_record_and_line_that_it_names_and_its_fix_works() -> None:
    page = DOCS / "tutorial.md"
    names, _ = program(page)
    assert emitted(names["Total"](), b"ada 3.50") == [("ada", 3.5, "orders/0@1")]
    with pytest.raises(ValueError, match="'4,20'") as failed:
        emitted(names["Total"](), b"bob 4,20")
    assert f"{failed.value} (pipeline.py:{failed.traceback[-1].lineno + 1})" in page.read_text(
        encoding="utf-8"
    )

    *_, whole, fix = blocks(page, "python")
    (line,) = (each for each in whole.splitlines() if "collector.emit" in each)
    mended: dict[str, Any] = {"__name__": "program"}
    exec(whole.replace(line, fix.rstrip()).split("spark = ", 1)[0], mended)
    assert emitted(mended["Total"](), b"bob 4,20") == [("bob", 4.2, "orders/0@1")]


def test_the_tutorial_starts_its_query_as_the_readme_does() -> None:
    _, first = program(README)
    _, own = program(DOCS / "tutorial.md")
    text = "\n".join(first)
    for old, new in (("sentences", "orders"), ("SplitSentence", "Total"), ("words", "rows")):
        text = text.replace(old, new)
    assert "\n".join(own) == text
    ast.parse("spark = " + text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_example_of_topics_yaml_is_accepted(page: Path) -> None:
    for block in blocks(page, "yaml"):
        if "inputs" not in yaml.safe_load(block) or "spouts" in yaml.safe_load(block):
            continue
        environ = {"KAFKA_USER": "u", "KAFKA_PASSWORD": "p"}
        assert parse(block, file="topics.yaml", environ=environ).inputs


def test_the_page_of_metrics_names_every_metric_with_its_labels_and_no_other() -> None:
    text = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    found: dict[str, set[str]] = {"windhover_build_info": {"version"}}
    for section in text.split("\n## ")[1:]:
        for names, *parts, labels in re.findall(
            r"^\| (`[^|]*`) \| (?:([a-z, ]+) \| )?(?:counter|gauge|summary|histogram) \| ([^|]*?)\|",
            section,
            re.M,
        ):
            of = [f"windhover_{part}_" for part in parts[0].split(", ") if part] or [""]
            shared = {"group"} if of != [""] else set()
            for name in re.findall(r"`(\w+)`", names):
                found |= {f"{prefix}{name}": {*re.findall(r"`(\w+)`", labels), *shared} for prefix in of}
    there = {
        f"{each.name}_total" if each.type == "counter" else each.name: set(each._labelnames)  # type: ignore[attr-defined]
        for families in every_family().values()
        for each in families
    }
    assert found == there


def test_the_page_of_errors_has_every_error_with_its_exit_code() -> None:
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8").split("\n## ", 1)[0]
    rows = re.findall(r"^\| (`.*?) \| (\d+) \|", text, re.M)
    found = {name: int(code) for names, code in rows for name in re.findall(r"`(\w+)`", names)}
    there = {
        name: each.exit_code
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, errors.WindhoverError) and name not in BASES
    }
    assert found == there


def test_the_page_of_commands_names_every_command() -> None:
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    named: set[str] = set()
    for row in re.findall(r"^\| (`windhover .*?) \|", text, re.M):
        first, *more = re.findall(r"`([^`]*)`", row)
        words = [word for word in first.split()[1:] if word.islower()]
        named |= {" ".join(words), *(" ".join([*words[:-1], last]) for last in more)}
    assert named == set(commands_of(typer.main.get_command(cli.app)))


def test_the_page_of_public_names_is_filled_from_their_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "hooks")
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    filled = import_module("reference").on_page_markdown(page)
    assert re.findall(r"^## (\w+)$", filled, re.M) == list(spout.__all__)
    assert "- `partitions`: how many tasks share the values" in filled


def test_the_page_of_commands_is_filled_with_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS / "hooks")
    page = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    filled = import_module("reference").on_page_markdown(page)
    found = re.findall(r"^### windhover (.*)$", filled, re.M)
    assert sorted(found) == sorted(commands_of(typer.main.get_command(cli.app)))
    assert "| `--records` | `1000000` | Lines of text, 1 or more. |" in filled


def commands_of(command: Any, above: str = "") -> Iterator[str]:
    """Yield each command with its words."""
    for name, each in getattr(command, "commands", {}).items():
        if hasattr(each, "commands"):
            yield from commands_of(each, f"{above}{name} ")
        else:
            yield f"{above}{name}"

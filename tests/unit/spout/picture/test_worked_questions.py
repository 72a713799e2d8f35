"""The questions of the guide: each is asked of a recorded morning, and has the answer of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spout.cli.picture import NULL, _distinct
from spout.inspect.tables import Column, OutputFormat, write
from spout.picture.query import Query
from tests.support.pictures import picture_of
from tests.support.worlds.orders_world import morning

PAGE = Path(__file__).resolve().parents[4] / "docs/guide/questions.md"
EXAMPLE = re.compile(r"^```sql\n(.*?)^```\n\n```text\n(.*?)^```$", re.S | re.M)


def questions() -> dict[str, tuple[str, str]]:
    """Return by heading the query and the answer of each section that has them."""
    found: dict[str, tuple[str, str]] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, text = section.split("\n", 1)
        for sql, answer in EXAMPLE.findall(text):
            found[heading] = (sql, answer)
    return found


QUESTIONS = questions()


@pytest.fixture(scope="module")
def query() -> Iterator[Query]:
    """Ask the picture of a morning, as `windhover sql` does."""
    world = morning()
    with closing(picture_of(world.log, world.topics, world.now_ms)) as made:
        yield Query(made.connection, lambda: 0)


def test_the_page_has_ten_questions() -> None:
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize("heading", QUESTIONS)
def test_a_question_of_the_guide_has_the_answer_that_stands_there(
    heading: str, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    sql, expected = QUESTIONS[heading]
    answer = query.ask(sql)
    names = _distinct(answer.columns)
    rows = [dict(zip(names, row, strict=True)) for row in answer.rows]
    write(rows, [Column(name, name, str, NULL) for name in names], OutputFormat.TABLE)
    assert capsys.readouterr().out.strip() == expected.strip()

"""The rows of limits.md: which version passed what."""

from __future__ import annotations

import pytest

from tests.matrix.rows import PAGE, PRODUCTS, with_row
from tests.matrix.versions import Outcome

HEADER = "| version | tests on it | run |\n|---|---|---|\n"
BEFORE, BEHIND = "# Limits\n\n", "\nText.\n\n| other | table |\n|---|---|\n| Python 3.12 | stays |\n"
ROWS = {
    name: f"| {name} | 10 passed | 2026-11-01 |\n"
    for name in (
        "PySpark 4.0.5",
        "PySpark 4.2.1",
        "Python 3.9.1",
        "Python 3.12.1",
        "Kafka 2.8.2",
        "Kafka 4.0.2",
    )
}
"""The rows of a page by product and version, in their order."""


def page_of(*rows: str) -> str:
    return BEFORE + HEADER + "".join(rows) + BEHIND


def row(product: str, version: str) -> str:
    return f"| {product} {version} | 13 passed | 2026-12-01 |\n"


@pytest.mark.parametrize(
    ("product", "version", "replaced", "behind"),
    [
        ("PySpark", "4.0.6", "PySpark 4.0.5", None),
        ("PySpark", "4.1.4", None, "PySpark 4.0.5"),
        ("PySpark", "4.3.0", None, "PySpark 4.2.1"),
        ("Python", "3.9.9", "Python 3.9.1", "PySpark 4.2.1"),
        ("Python", "3.10.2", None, "Python 3.9.1"),
        ("Python", "3.13.0", None, "Python 3.12.1"),
        ("Kafka", "0.11.0", None, "Python 3.12.1"),
        ("Kafka", "3.9.2", None, "Kafka 2.8.2"),
        ("Kafka", "4.0.3", "Kafka 4.0.2", "Kafka 2.8.2"),
        ("Kafka", "4.10.0", None, "Kafka 4.0.2"),
    ],
)
def test_a_version_has_one_row_of_its_release_in_order(
    product: str, version: str, replaced: str | None, behind: str | None
) -> None:
    names = [name for name in ROWS if name != replaced]
    place = names.index(behind) + 1 if behind is not None else 0
    rows = [ROWS[name] for name in names]
    rows.insert(place, row(product, version))
    outcome = Outcome(version, "13 passed", 0)
    assert with_row(page_of(*ROWS.values()), product, outcome, "2026-12-01") == page_of(*rows)


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_first_row_of_a_table_is_written_and_a_page_without_one_is_an_error(product: str) -> None:
    outcome = Outcome("3.13.0", "13 passed", 0)
    assert with_row(page_of(), product, outcome, "2026-12-01") == page_of(row(product, "3.13.0"))
    with pytest.raises(ValueError, match="no table"):
        with_row(BEFORE + BEHIND, product, outcome, "2026-12-01")


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_page_has_the_table(product: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    outcome = Outcome("9.9.9", "1 passed", 0)
    assert f"| {product} 9.9.9 | 1 passed | today |\n" in with_row(page, product, outcome, "today")

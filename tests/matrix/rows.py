"""The rows of limits.md: what passed on which version, by product and release."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from tests.matrix.versions import PROJECT, Outcome

PAGE: Final = PROJECT / "docs" / "reference" / "limits.md"
PRODUCTS: Final = ("PySpark", "Python", "Kafka")
"""What has rows in the table, in this order."""

_TABLE: Final = re.compile(r"^(\| version \| tests .*\n\|[-|]+\n)((?:\|.*\n)*)", re.MULTILINE)


def write_row(product: str, outcome: Outcome) -> None:
    """Write the row of a version into the page, with the date of today."""
    page = PAGE.read_text(encoding="utf-8")
    date = datetime.now(UTC).date().isoformat()
    PAGE.write_text(with_row(page, product, outcome, date), encoding="utf-8")


def with_row(page: str, product: str, outcome: Outcome, date: str) -> str:
    """Return the page with the row of a version, in place of the one of the same release.

    Rows stand in the order of `PRODUCTS`, and those of a product in the order of their releases.
    """
    table = _TABLE.search(page)
    if table is None:
        raise ValueError(f"{PAGE.name} has no table with the columns version and tests")
    header, rows = table.groups()
    new_row = f"| {product} {outcome.version} | {outcome.counts} | {date} |\n"
    rows_by_release = {_release_of(row): row for row in [*rows.splitlines(keepends=True), new_row]}
    sorted_rows = "".join(rows_by_release[release] for release in sorted(rows_by_release))
    return page[: table.start()] + header + sorted_rows + page[table.end() :]


def _release_of(row: str) -> tuple[int, int, int]:
    """Return the place of a row's product, and the first two numbers of its version.

    >>> _release_of("| Python 3.9.1 | 9 passed | 2026-11-01 |")
    (1, 3, 9)
    """
    product, version = row.split()[1:3]
    major, minor = version.split(".")[:2]
    return PRODUCTS.index(product), int(major), int(minor)

"""The headers of a record. The wire knows no client of Kafka, so their type has its name here."""

from __future__ import annotations

from collections.abc import Iterable

Headers = tuple[tuple[str, bytes | None], ...]


def first_value(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the value of the first header of a name; None: there is none, or it has no value."""
    return next((value for header_name, value in headers if header_name == name), None)

"""The type of a record's headers; the wire knows no client of Kafka, so it has a name of its own for it."""

from __future__ import annotations

Headers = tuple[tuple[str, bytes | None], ...]

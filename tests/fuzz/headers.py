"""Fuzzes what is read from headers and from Spark's checkpoint: lineage, history, journalled offsets."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import atheris

with atheris.instrument_imports(include=["acker", "replay", "spout"]):
    from acker.errors import Disagreement
    from replay.records.due import HISTORY_MAX, history_json, parse_history
    from replay.records.headers import build_headers, parse_lineage
    from spout.planning.journal import journal_of

from tests.fuzz.harness import run
from tests.support.garbage import HEADERS, HISTORY, JOURNAL

NAMES = [name for name, _ in HEADERS]


def one(data: bytes, journal: Callable[[Any], object] = journal_of) -> None:
    """Read an input as the values of all headers, as a history and, by `journal`, as an offset."""
    lines = data.split(b"\n")
    lineage = parse_lineage(tuple(zip(NAMES, lines, strict=False)), "sentences", 3, 1042)
    if parse_lineage(build_headers(lineage), "sentences", 3, 1042).attempt != lineage.attempt:
        raise AssertionError(f"{lineage} is not what its headers say")
    history = parse_history(data)
    if len(history) > HISTORY_MAX or parse_history(history_json(history)) != history:
        raise AssertionError(f"{history} is not what its header says")
    try:
        offset = json.loads(data)
    except (ValueError, RecursionError):  # Spark parses the JSON, not we
        return
    with suppress(Disagreement):
        journal(offset)


if __name__ == "__main__":
    run(one, [b"\n".join(value for _, value in HEADERS), HISTORY, json.dumps(JOURNAL).encode()])

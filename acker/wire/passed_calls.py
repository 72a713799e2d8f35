"""A note of calls of bolts that hung or ended their process and passed when they came again.

No root fails for such a call, so no verdict says anything of it. The driver writes a note into a
header of the first record of the batch for each acker with such a root, of `_ack_ack`, or of
`_ack_fail` where the batch acks nothing; else of its first record. The acker that applies the
record writes the same note behind its verdicts, as it does with `acker.wire.lateness`. No verdict
depends on it, and a reader of another version passes over it.

The header's value is a list in JSON: the lane (one writer's sequence of batches), the number of the
batch in it, and a list of calls, each with bolt, error, an explanation, and runs of positions
``[source, start, end]``.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from acker.untrusted import is_whole_number
from acker.wire.causes import clipped
from acker.wire.events import SourceRun
from acker.wire.headers import first_value

PASSED_CALLS: Final = "windhover.passed-calls"
"""The header, of records of `_ack_ack`, `_ack_fail` and `_ack_verdict`."""

CALLS_MAX: Final = 20
"""So many calls of a batch are noted; all are in the driver's log."""

RUNS_MAX: Final = 50
"""So many runs of positions of one call are noted."""

NOTE_BYTES_MAX: Final = 72_000
"""A longer header is none of ours: 20 calls of 50 runs, each of three numbers, have at most 70 kB."""

_TEXT_BYTES_MAX: Final = 200
_POSITION_END: Final = 1 << 63


class PassedCall(NamedTuple):
    """A call of a bolt that hung, or ended its process, and passed when its rows came again.

    `error` is ``HUNG`` or the like, and `explanation` says it in words, both as in the cause of a
    tuple whose call does so each time.
    """

    bolt: str
    error: str
    explanation: str
    runs: tuple[SourceRun, ...]


class PassedCalls(NamedTuple):
    """Those of one batch; `lane` and `seq` name it, so that who reads the note twice counts it once."""

    lane: str
    seq: int
    calls: tuple[PassedCall, ...]


def passed_calls_header(lane: str, seq: int, calls: Iterable[PassedCall]) -> tuple[tuple[str, bytes], ...]:
    """Return the header with the first `CALLS_MAX` calls of a batch.

    Without a call it is empty.
    """
    rows = [_row_of(call) for call in list(calls)[:CALLS_MAX]]
    return ((PASSED_CALLS, json.dumps([lane, seq, rows]).encode()),) if rows else ()


def _row_of(call: PassedCall) -> list[object]:
    """Return a call as the list in the header, with its texts and runs cut to their limits."""
    texts = [clipped(text, _TEXT_BYTES_MAX) for text in (call.bolt, call.error, call.explanation)]
    runs = [list(run) for run in call.runs[:RUNS_MAX]]
    return [*texts, runs]


def read_passed_calls(headers: Iterable[tuple[str, bytes | None]]) -> PassedCalls | None:
    """Return the bolt calls that first hung or ended their process, and passed when their rows
    came again.

    They are from the headers of a record. None: there is no such header, or no program of ours
    wrote it.
    """
    value = first_value(headers, PASSED_CALLS)
    if not value or len(value) > NOTE_BYTES_MAX:
        return None
    # The parts may be of any type until they are checked below. `seq` is the number of a batch in
    # its lane.
    try:
        lane, seq, rows = json.loads(value)
        calls = tuple(
            PassedCall(bolt, error, explanation, tuple(SourceRun(*run) for run in runs))
            for bolt, error, explanation, runs in rows
        )
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(lane, str) or not _is_count(seq):
        return None
    if len(calls) > CALLS_MAX or not all(map(_is_as_written, calls)):
        return None
    return PassedCalls(lane, seq, calls)


def _is_as_written(call: PassedCall) -> bool:
    """Return whether the parts of a call have the types and sizes that `passed_calls_header` gives them."""
    if not all(isinstance(text, str) for text in (call.bolt, call.error, call.explanation)):
        return False
    return len(call.runs) <= RUNS_MAX and all(map(_is_run, call.runs))


def _is_run(run: SourceRun) -> bool:
    """Return whether a run has three numbers as we write them, and at least one position."""
    return all(map(_is_count, run)) and run.start < run.end


def _is_count(number: object) -> bool:
    """Return whether a value is a whole number that 63 bits can hold; JSON's ``true`` is none."""
    return is_whole_number(number, 0, _POSITION_END)

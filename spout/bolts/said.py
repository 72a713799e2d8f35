"""The column by which a keyed bolt reports to the next step, which acks: a text beside a row's anchors.

==============  =================================================  =======================
the text        meaning of the row                                 its anchors
==============  =================================================  =======================
null            the bolt emitted this row                          none
empty           an ack                                             are acked
``reset``       resets timeouts                                    stay held
a JSON list     a fail, with its cause                             are failed by the cause
list of lists   tracebacks, for the log                            none
a JSON object   counts of one call, under ``counts``               none
==============  =================================================  =======================

Counts travel in a row because Spark runs a keyed bolt where nothing can report to the ledger; the next step
can. So if Spark evaluates rows without a result that counts, the counts in them do not count either.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spout.tuples.collector import Cause, StreamId
from spout.tuples.counts import Counted, Counts, Measure, What
from spout.tuples.raised import Raised

SAID = "_windhover_said"
"""The column."""

ACKS = ""
RESETS = "reset"


def failing(cause: Cause) -> str:
    """Return the text for a cause of failed tuples."""
    return json.dumps(cause)


def raising(raised: Iterable[Raised]) -> str:
    """Return the text for the tracebacks of a call."""
    return json.dumps(list(raised))


def counting(counts: Counts) -> str:
    """Return the text for the counts of a call."""
    return json.dumps({"counts": list(counts.items())})


class Heard(NamedTuple):
    """What the texts of a batch of rows mean; rows that emit and rows that ack are in no list.

    Attributes:
        failed: row numbers of fails, with their causes.
        reset: row numbers of tuples that stay held and whose timeouts are reset.
        counted: the counts of calls.
        raised: tracebacks of exceptions in calls.
    """

    failed: list[tuple[int, Cause]]
    reset: list[int]
    counted: list[Counts]
    raised: list[Raised]


def heard(column: pa.Array) -> Heard:
    """Read the texts of rows."""
    found = Heard([], [], [], [])
    rows = pc.indices_nonzero(pc.is_valid(column))
    for row, text in zip(rows.to_pylist(), column.take(rows).to_pylist(), strict=True):
        if text == RESETS:
            found.reset.append(row)
        elif text != ACKS:
            _hear(found, row, json.loads(text))
    return found


def _hear(found: Heard, row: int, told: Any) -> None:
    if isinstance(told, dict):
        found.counted.append(
            {
                Counted(What(what), bolt, StreamId(*stream)): Measure(*measure)
                for (what, bolt, stream), measure in told["counts"]
            }
        )
    elif isinstance(told[0], list):
        found.raised.extend(Raised(*each) for each in told)
    else:
        found.failed.append((row, Cause(*told)))

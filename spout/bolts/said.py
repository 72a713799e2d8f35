"""What the rows say that a keyed bolt hands to the step that acks: a text beside the anchors they carry.

==============  ==============================================  =====================
the text        the row                                         its anchors
==============  ==============================================  =====================
null            was emitted                                     none
empty           only acks                                       are acked
``reset``       only resets timeouts                            are held on
a JSON list     is a cause                                      failed by it
one of lists    has tracebacks, which belong into the log       none
a JSON object   counts what one call did: tuples and ns, each   none
==============  ==============================================  =====================

A call counts in a row, since Spark runs it where nothing may report to the ledger by itself; the next step
does. Rows of an evaluation that does not count are not counted either.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spout.tuples.collector import SPARK, Cause
from spout.tuples.counts import Counted, Counts, Measure, What, added
from spout.tuples.raised import Raised

SAID = "_windhover_said"
"""The column."""

ACKS = ""
RESETS = "reset"

Work = Mapping[What, Measure]
"""What one call of a keyed bolt did, counted."""


def failing(cause: Cause) -> str:
    """Say why tuples failed."""
    return json.dumps(cause)


def raising(raised: Iterable[Raised]) -> str:
    """Say what a call raised."""
    return json.dumps(list(raised))


def counting(work: Work) -> str:
    """Say what a call did."""
    return json.dumps({what.value: measure for what, measure in work.items()})


class Heard(NamedTuple):
    """What rows said, by the rows' numbers; those that emit and those that ack stand in neither.

    Attributes:
        failed: rows whose tuples failed, with their causes.
        reset: rows whose tuples are held on, their timeouts reset.
        counted: what their calls did.
        raised: tracebacks of what they raised.
    """

    failed: list[tuple[int, Cause]]
    reset: list[int]
    counted: list[Work]
    raised: list[Raised]

    def counts(self, bolt: str) -> Counts:
        """Return what the calls of the bolt of this name did, in all."""
        return added(_named(bolt, self.counted))


def _named(bolt: str, every: Iterable[Work]) -> Iterable[Counts]:
    """Name the bolt whose calls did it; Spark's operator stands before it."""
    return ({Counted(what, bolt, SPARK): measure for what, measure in work.items()} for work in every)


def heard(column: pa.Array) -> Heard:
    """Read what rows say."""
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
        found.counted.append({What(what): Measure(*measure) for what, measure in told.items()})
    elif isinstance(told[0], list):
        found.raised.extend(Raised(*each) for each in told)
    else:
        found.failed.append((row, Cause(*told)))

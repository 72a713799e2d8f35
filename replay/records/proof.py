"""Whether what is known of a lost root proves that it was a record, and no marker and no aborted record.

The log alone cannot tell: a topic that is no longer compacted shows a hole where compaction took a record,
and the same hole where a marker stands. A record that a bolt has seen is not lost without a trace for that:
one dead letter too many is better.

These prove it:

- A failure that names who failed it: a bolt, or the line that it waits in, has read it.
- An emission before this one, by attempt or history: only what was read is emitted again.
- A root of a replay topic that is in `_ack_due`: its headers were read when it was taken over.

These do not: a timeout and a takeover, which also meet what was announced and never read; a failure without
an operator; a batch that the sink skipped, since its roots may be failed without having been read again.

Source: docs/design/protocol.md, section 3 rule 5.
"""

from __future__ import annotations

from typing import Final

from acker.identity import is_replay
from acker.wire.events import Reason
from replay.records.due import Due

BATCH_SKIPPED: Final = ("sink", "BATCH_SKIPPED")
"""Operator and error of all roots of a batch that the sink skipped."""


def was_read(reason: Reason, operator: str, error: str) -> bool:
    """Tell whether a loss proves that somebody has read the record.

    Args:
        reason: why it was lost.
        operator: who failed it; empty when nobody did.
        error: the exception's class.
    """
    return reason is Reason.FAILED and operator != "" and (operator, error) != BATCH_SKIPPED


def was_a_record(due: Due) -> bool:
    """Tell whether what waits was a record."""
    if is_replay(due.source) or due.attempt > 1 or len(due.history) > 1:
        return True
    return any(was_read(loss.reason, loss.operator, loss.error) for loss in due.history)

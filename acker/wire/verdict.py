"""The five verdicts: what can become of a root. Every root gets one of them, once.

========= ================================================== ===================================
verdict   what happened                                      what follows
========= ================================================== ===================================
ACKED     every tuple of its tree was acked                  nothing: the record is processed
ABSENT    the log holds no such record, or none can read it  nothing: there is nothing to process
FAILED    a bolt failed a tuple of it, or Windhover did      lost: one copy, or one dead letter
TIMED_OUT its session's clock reached its deadline           lost, too; nobody knows which bolt
ABANDONED another session took its group over                lost, too; it is not the record's fault
========= ================================================== ===================================

Where several are due in one step of an acker, FAILED goes before ABSENT, and ABSENT before ACKED;
what times out or is abandoned by that step comes after all three. The first one is the verdict.
What arrives later is counted as late and changes nothing.

A lost root has a cause beside its verdict (`acker.wire.causes`). A blocked record is FAILED, and
its cause is `HELD`: it waits behind another one, and no bolt has failed it.

To add a verdict, add it to `Verdict`, and to `DoneVerdict` or `LostVerdict`; mypy names every
place that has to know it. A lost one also needs a new version of the schemas of `Verdicts` and of
`_ack_due`, a done one a list of its own in `Verdicts`.

Source: docs/design/protocol.md, section 3, rules 2, 4, 5 and 9.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, assert_never


class Verdict(StrEnum):
    """What became of a root.

    The value is its name on the wire, in headers, and wherever people read it.
    """

    ACKED = "ACKED"
    ABSENT = "ABSENT"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    ABANDONED = "ABANDONED"


DoneVerdict = Literal[Verdict.ACKED, Verdict.ABSENT]
"""After one of these nothing follows."""

LostVerdict = Literal[Verdict.FAILED, Verdict.TIMED_OUT, Verdict.ABANDONED]
"""After one of these a replay worker writes a copy or a dead letter."""

DONE_VERDICTS: Final[tuple[DoneVerdict, ...]] = (Verdict.ACKED, Verdict.ABSENT)
LOST_VERDICTS: Final[tuple[LostVerdict, ...]] = (Verdict.FAILED, Verdict.TIMED_OUT, Verdict.ABANDONED)
"""In the order in which an acker writes the lost roots of a step."""


def lost_verdict(name: str) -> LostVerdict:
    """Return the verdict of a lost root by its name.

    Raises `ValueError`: it names no verdict, or one of a root that is not lost.
    """
    verdict = Verdict(name)
    match verdict:
        case Verdict.FAILED | Verdict.TIMED_OUT | Verdict.ABANDONED:
            return verdict
        case Verdict.ACKED | Verdict.ABSENT:
            raise ValueError(f"a root that is {name} is not lost")
        case _:
            assert_never(verdict)

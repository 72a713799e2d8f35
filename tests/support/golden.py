"""One record of every kind on the wire, with the bytes that it must have for ever.

``python -m tests.support.golden`` writes ``tests/data/golden.json`` anew; do that only when a version is
added, and never to make a test pass: other programs have the old bytes in their logs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from acker.identity import position_at, source_of
from acker.service.state import (
    Carried,
    CarriedRange,
    State,
    StatePart,
    StoredEmission,
    StoredLane,
    StoredPending,
    StoredRange,
    StoredSession,
    StoredSource,
    pack_ranges,
    state_codec,
)
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    FailCause,
    Fails,
    Init,
    Lost,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakenSource,
    TakeSource,
    Tick,
    Verdicts,
    pack_positions,
    pack_values,
)
from acker.wire.lateness import TooLate, too_late_codec
from acker.wire.verdict import Verdict

PATH = Path(__file__).parents[1] / "data" / "golden.json"
SOURCE = source_of(1, 3)
COPY = source_of(1, 3, replay=True)
AT = position_at(2, 32_768)


def _positions(*named: int) -> bytes:
    return pack_positions(np.array(named, np.int64))


WIRE = {
    "take": Take(
        "word-count", "s-1", 3, 1_700_000_000_000, 4, (TakeSource(SOURCE, "sentences", "id", 2, AT),)
    ),
    "taken": Taken(
        "word-count", "s-1", 3, "s-2", "", 0, 2, 5, (TakenSource(COPY, "id", 0, 0, 7),),
        (SourceRun(SOURCE, AT, AT + 9),),
    ),
    "init": Init(
        "word-count", "s-1", 3, 17, 1_700_000_000_000, 30_000, 4, "sentences", "id",
        (SourceRun(SOURCE, AT, AT + 100), SourceRun(COPY, 0, 1)),
    ),
    "tick": Tick("word-count", "s-1", 3, 500),
    "acks": Acks(
        "query/s-1", 12, "word-count", "s-1", 3, SOURCE, AT >> 15,
        (PositionRun(AT, AT + 5), PositionRun(AT + 7, AT + 8)),
        _positions(AT + 5, AT + 9), pack_values(np.array([1, (1 << 64) - 1], np.uint64)),
        (PositionRun(AT + 6, AT + 7),), _positions(AT + 9), 17,
    ),
    "fails": Fails(
        "query/s-1", 12, "word-count", "s-1", 3, SOURCE, AT >> 15,
        (FailCause("split", "ValueError", "n\u00e3o", _positions(AT + 6)),),
    ),
    "verdicts": Verdicts(
        (SourceRun(SOURCE, AT, AT + 5),), (SourceRun(SOURCE, AT + 6, AT + 7),),
        (
            Lost(
                Verdict.TIMED_OUT, "word-count", "sentences", "id", "", "", "", 17, 1_700_000_000_000,
                30_017, SOURCE, _positions(AT + 9),
            ),
        ),
    ),
}  # fmt: skip

STORED = {
    "state_part": StatePart(3, 0, 1, b"body"),
    "state": State(
        3, 4, 10, 20, 30, 15, 7,
        (StoredSource(SOURCE, "word-count", "sentences", "id", 2, AT, AT + 100),),
        (StoredSession("word-count", 3, "s-1", True, True, 17, 500),),
        (StoredPending(0, True, 0, -1), StoredPending(0, False, 500, -1)),
        (StoredLane(0, "query/s-1", 12, b"\1\0\0\0", b"\2" + bytes(7), b"\3\0\0\0"),),
        (),
        (StoredEmission(0, "sentences", "id", 17, 1_700_000_000_000, 30_000),),
        pack_ranges([StoredRange(0, SOURCE, -1, 100, AT, 12)]),
    ),
    "carried": Carried((CarriedRange(SOURCE, AT, b"\1\0\0\0", bytes(8), b"", b""),)),
}  # fmt: skip


NOTE = TooLate(
    "word-count", "query/s-1", 12, True, 1_700_000_000_000, 1_924_991_990_000, 8, 1_924_992_000_000,
    (SourceRun(SOURCE, AT, AT + 1),), (SourceRun(COPY, AT + 2, AT + 5),), (SourceRun(SOURCE, AT, AT + 9),),
)  # fmt: skip
"""What a header says."""


def encoded() -> Mapping[str, str]:
    """Return the bytes of every record, as they are now, in hex."""
    wire, stored = wire_codec(), state_codec()
    return {
        **{name: wire.encode(record).hex() for name, record in WIRE.items()},
        **{name: stored.encode(record).hex() for name, record in STORED.items()},
        "too_late": too_late_codec().encode(NOTE).hex(),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(encoded(), indent=1) + "\n", encoding="utf-8")

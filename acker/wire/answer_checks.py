"""Records of ``_ack_verdict`` that decode and are wrong all the same.

Only ackers write there, so such a record is none of theirs: its readers pass over it whole. Each check
returns what is wrong, in a few words, or an empty text.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable

from acker.errors import CodecError
from acker.identity import GENERATION_MAX
from acker.wire.checks import NUMBER_MAX, wrong_source
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun, Taken, Verdicts, positions


def read_verdicts(value: bytes | None) -> Verdicts | None:
    """Return the verdicts of a record, for who only looks; None for an answer, and for what cannot be read.

    Garbage and records of a newer version are passed over: who works by them tells of them.
    """
    try:
        event = wire_codec().decode(value)
    except CodecError:
        return None
    return event if isinstance(event, Verdicts) and not wrong_verdicts(event) else None


def wrong_verdicts(verdicts: Verdicts) -> str:
    """Tell what is wrong with verdicts."""
    found = _wrong_runs(verdicts.acked) or _wrong_runs(verdicts.absent)
    for lost in verdicts.lost:
        found = found or wrong_source(lost.source)
        if len(lost.positions) % 8:
            return found or f"{len(lost.positions)} bytes of positions are no whole number of them"
        if lost.positions and int(positions(lost.positions).min()) < 0:
            return found or f"a position of source {lost.source} is below 0"
    return found


def wrong_taken(taken: Taken) -> str:
    """Tell what is wrong with an answer to a take."""
    if not 0 <= taken.part < taken.parts:
        return f"part {taken.part} of {taken.parts}"
    if abs(taken.clock) > NUMBER_MAX or abs(taken.epoch) > NUMBER_MAX:
        return "its clock or epoch is none"
    for source in taken.sources:
        if not 0 <= source.generation <= GENERATION_MAX or min(source.from_, source.next) < 0:
            return f"source {source.source} is in generation {source.generation}"
    return _wrong_runs(taken.open)


def _wrong_runs(runs: Iterable[SourceRun]) -> str:
    for source, start, end in runs:
        found = wrong_source(source)
        if found or not 0 <= start <= end:
            return found or f"a run of source {source} goes from {start} to {end}"
    return ""

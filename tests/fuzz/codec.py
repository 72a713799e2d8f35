"""Fuzzes the codecs of the wire, of State and of `_ack_due`, and the quick decoder of contributions."""

from __future__ import annotations

from contextlib import suppress

import atheris

with atheris.instrument_imports(include=["acker", "replay"]):
    from acker.errors import CodecError
    from acker.ledger.contribution import Contribution
    from acker.service.state import StatePart, state_codec, unpack_carried, unpack_ranges, unpack_state
    from acker.wire import checks
    from acker.wire.codec import read_acks, wire_codec
    from acker.wire.events import Acks, Event, Fails, Init, Take, Taken, Tick, Verdicts
    from replay.records.due import due_codec, flaw_of

from tests.fuzz.harness import run
from tests.support.garbage import golden_records

PARTITIONS = 1
ROOTS_MAX = 1_000_000
WRITTEN_MS = 1_800_000_000_000

wire, stored, dues = wire_codec(), state_codec(), due_codec()
acks_header = wire.header(Acks)


def one(data: bytes) -> None:
    """Read an input as every reader of the ack topics would."""
    with suppress(CodecError):
        look(read_acks(data, acks_header) or wire.decode(data))
    with suppress(CodecError):
        part = stored.decode(data)
        if isinstance(part, StatePart):
            state = unpack_state(stored, {0: part})
            if state is not None:
                list(unpack_ranges(state.ranges))
            unpack_carried(stored, part)
    with suppress(CodecError):
        flaw_of(data[:12], dues.decode(data))


def look(event: Event) -> None:
    """Check a record as its reader does before it applies it."""
    if isinstance(event, Acks):
        if not checks.wrong_acks(event, 0, PARTITIONS) and not checks.wrong_touch(event, WRITTEN_MS):
            Contribution(event)
    elif isinstance(event, Fails):
        checks.wrong_fails(event, 0, PARTITIONS)
    elif isinstance(event, Init):
        checks.wrong_init(event, 0, PARTITIONS, ROOTS_MAX, WRITTEN_MS)
    elif isinstance(event, Take | Tick):
        checks.wrong_take(event, WRITTEN_MS)
    elif isinstance(event, Taken):
        checks.wrong_taken(event)
    elif isinstance(event, Verdicts):
        checks.wrong_verdicts(event)


if __name__ == "__main__":
    run(one, golden_records().values())

"""What `_ack_init` says: which sessions gave signs of life, and which roots they emitted.

Ackers delete what they have read of it, so it reaches back a minute or two. The roots that are
open are in the ackers' State, however old they are (`spout.picture.acker_tables`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from acker.config.settings import AckerSettings
from acker.errors import CodecError
from acker.kafka.port import Record
from acker.ledger.cohort import Session
from acker.root_sets.root_set import RootSet
from acker.wire.checks import emission_wall, wrong_init, wrong_take
from acker.wire.codec import wire_codec
from acker.wire.events import Event, Init, Take, Tick
from spout.group.presence import LEAVES_HEADER, Who
from spout.picture.database import Row, RowGroup
from spout.picture.holes import Hole, Holes
from spout.picture.places import SourceNames

TABLES_OF_INITS: Final = "emissions, sessions"

INITS_MAX: Final = 5_000
"""So many of the newest emissions are kept of each acker partition, beside those that are open."""


@dataclass(slots=True)
class Signs:
    """The signs of life of one session, wall times in ms, and the process that gave the newest one.

    Attributes:
        left_ms: when it ended in order; None: it did not.
    """

    began_ms: int
    seen_ms: int
    left_ms: int | None = None
    who: Who | None = None


class SeenInit(NamedTuple):
    """An init, which names roots that were emitted, and the offset of its record in `_ack_init`."""

    offset: int
    init: Init


class AckerProgress(NamedTuple):
    """An acker partition has read the inits below `next_init`; `open_roots` are open of them."""

    next_init: int
    open_roots: RootSet


class InitTables:
    """Keeps what both tables need of the records of `_ack_init`, each of which it gets once."""

    def __init__(self, names: SourceNames, holes: Holes, acker: AckerSettings) -> None:
        """Begin without a record; `acker` has how many acker partitions there are."""
        self._names = names
        self._holes = holes
        self._partitions = acker.partitions
        self._roots_max = acker.limits.init_roots
        self._codec = wire_codec()
        self._signs_by_session: dict[Session, Signs] = {}
        # by acker partition, in the order of the log
        self._inits: dict[int, deque[SeenInit]] = {}
        self._forgotten_count = 0

    def put(self, record: Record) -> None:
        """Keep what a record says of sessions and emissions; a wrong one is a row of `unknown`."""
        try:
            event = self._codec.decode(record.value)
        except CodecError as error:
            self._holes.note_record(TABLES_OF_INITS, record, str(error))
            return
        flaw = self._flaw_of(event, record)
        if flaw or not isinstance(event, Take | Init | Tick):
            self._holes.note_record(TABLES_OF_INITS, record, flaw)
            return
        if event.epoch <= 0:
            return  # a question to the ackers, by which nobody takes a group
        self._put_sign(event, record)
        if isinstance(event, Init):
            inits = self._inits.setdefault(record.partition, deque())
            emitted = replace(event, wall=emission_wall(event, record.timestamp_ms))
            inits.append(SeenInit(record.offset, emitted))
            if len(inits) > INITS_MAX:
                inits.popleft()
                self._forgotten_count += 1

    def _flaw_of(self, event: Event, record: Record) -> str:
        """Return why an acker would apply nothing of a record; empty: it would."""
        match event:
            case Take() | Tick():
                return wrong_take(event, record.timestamp_ms)
            case Init():
                return wrong_init(
                    event,
                    record.partition,
                    self._partitions,
                    self._roots_max,
                    written_ms=record.timestamp_ms,
                )
            case _:
                return f"{type(event).__name__} does not belong into this topic"

    def _put_sign(self, event: Take | Init | Tick, record: Record) -> None:
        """Record that a session lived when a record was written."""
        session = Session(event.group, event.epoch, event.session)
        at_ms = record.timestamp_ms
        signs = self._signs_by_session.setdefault(session, Signs(began_ms=at_ms, seen_ms=at_ms))
        signs.began_ms = min(signs.began_ms, at_ms)
        # partitions are not read in the order of time
        if at_ms >= signs.seen_ms:
            signs.seen_ms = at_ms
            # a former version does not name its process
            signs.who = Who.read(record.headers) or signs.who
            # with this header the session has ended in order
            signs.left_ms = at_ms if LEAVES_HEADER in dict(record.headers) else None

    def session_rows(self, owners: Iterable[Session], *, has_owners: bool) -> list[Row]:
        """Return the rows of `sessions`: those that gave a sign of life, and the silent owners.

        `owners` own their groups. `has_owners`: whether any acker partition has said who does; if
        none has, it is unknown of each session.
        """
        groups = {input.group for input in self._names.inputs}
        owner_names = {owner for owner in owners if owner.group in groups}
        rows: list[Row] = []
        for name in sorted(self._signs_by_session.keys() | owner_names):
            if name.group not in groups:
                continue
            signs = self._signs_by_session.get(name)
            rows.append(
                {
                    "consumer_group": name.group,
                    "epoch": name.epoch,
                    "session": name.id,
                    "is_owner": name in owner_names if has_owners else None,
                    **({} if signs is None else _signs_row(signs)),
                }
            )
        return rows

    def emission_rows(self, progress_by_acker: Mapping[int, AckerProgress]) -> list[RowGroup]:
        """Return the rows of `emissions` about roots that are not open.

        Those of a group differ in `RUN_COLUMNS`.

        Of an acker partition without progress, since nobody could read its State, it is unknown
        whether roots are settled.
        """
        if self._forgotten_count:
            why = f"of {self._forgotten_count:,} emissions too many only the open roots are here"
            self._holes.note(Hole("emissions", why))
        groups: list[RowGroup] = []
        for acker, inits in self._inits.items():
            progress = progress_by_acker.get(acker)
            for seen in inits:
                state = None  # it is not known
                roots = RootSet.of_runs(seen.init.runs)
                if progress is not None:
                    # what the acker has read and does not hold open has a verdict
                    state = "settled" if seen.offset < progress.next_init else "announced"
                    roots -= progress.open_roots
                groups += self._rows_of(seen.init, roots, state, acker)
        return groups

    def _rows_of(
        self,
        init: Init,
        roots: RootSet,
        state: str | None,
        acker: int,
    ) -> Iterable[RowGroup]:
        """Yield the rows of `emissions` about roots that an init has emitted.

        `state` is "settled" or "announced"; None: it is not known.
        """
        for runs in self._names.rows_of_roots(roots):
            emission: Row = {
                "state": state,
                "consumer_group": init.group,
                "epoch": init.epoch,
                "session": init.session,
                "emitted_at": init.wall,
                "acker": acker,
            }
            yield runs.with_columns(emission)


def _signs_row(signs: Signs) -> Row:
    """Return the columns of signs of life; a former version does not name its process."""
    row: dict[str, str | int | None] = {
        "began_at": signs.began_ms,
        "seen_at": signs.seen_ms,
        "left_at": signs.left_ms,
    }
    if signs.who is not None:
        row |= {
            "application": signs.who.application,
            "host": signs.who.host,
            "process": signs.who.pid,
        }
    return row

"""The table `ackers`, and what the ackers' State says of open roots and of the owners of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import WindhoverError
from acker.hot_paths import as_array
from acker.identity import I64
from acker.kafka.port import Log
from acker.ledger.cohort import Session
from acker.root_sets.root_set import RootSet
from acker.service.view import NO_STATE, AckerView, OpenRange, ViewReader
from spout.picture.database import AlikeRows, Row
from spout.picture.holes import Hole, Holes
from spout.picture.init_tables import AckerProgress
from spout.picture.places import SourceNames
from spout.picture.reading import LogReading

TABLES_OF_STATE: Final = "ackers, emissions"


class AckerTables(NamedTuple):
    """What the States of all acker partitions say.

    Attributes:
        acker_rows: of the table `ackers`.
        open_emissions: for the table `emissions`, with `RUN_COLUMNS`.
        progress: of each acker partition that has a State.
        owners: the sessions that own groups.
    """

    acker_rows: Sequence[Row]
    open_emissions: Sequence[AlikeRows]
    progress: dict[int, AckerProgress]
    owners: frozenset[Session]


class AckerTablesReader:
    """Reads the States of the acker partitions; the next reading goes on behind this one."""

    def __init__(self, log: Log, topics: Topics, names: SourceNames, holes: Holes) -> None:
        acker = topics.acker
        self._topics = topics
        self._names = names
        self._holes = holes
        self._views = ViewReader(log, acker.topics, acker.partitions, acker.limits)

    def read(self, reading: LogReading, process_by_acker: Mapping[int, str]) -> AckerTables:
        """Read what there is; what cannot be read is a hole of this reading.

        `process_by_acker` are the ackers that have the partitions, as far as that is known.
        """
        acker_rows: list[Row] = []
        open_emissions: list[AlikeRows] = []
        progress: dict[int, AckerProgress] = {}
        owners: set[Session] = set()
        for number in range(self._views.partitions):
            row: Row = {"acker": number, "process": process_by_acker.get(number)}
            view = self._view(number, reading)
            if view is None:
                acker_rows.append(row)
                continue
            open_parts: list[tuple[int, I64]] = []
            for open_range in view.open_ranges():
                open_positions = open_range.start + as_array(open_range.at)
                open_parts.append((open_range.source, open_positions))
                open_emissions += self._emissions(open_range, open_positions, number)
            open_roots = RootSet.of_parts(open_parts)
            acker_rows.append({**row, **_state_row(view), "open_roots": len(open_roots)})
            progress[number] = AckerProgress(view.next_init, open_roots)
            owners |= set(_owners_of(view, self._names.inputs))
        return AckerTables(acker_rows, open_emissions, progress, frozenset(owners))

    def _view(self, acker: int, reading: LogReading) -> AckerView | None:
        """Read the State of an acker partition; None: there is none, or it cannot be read."""
        topic = self._topics.ack_topics.state
        try:
            view = self._views.view(acker)
        except WindhoverError as error:
            reading.note_error(Hole(TABLES_OF_STATE, str(error), topic, acker), error)
            return None
        if view is None:
            self._holes.note(Hole(TABLES_OF_STATE, NO_STATE.format(acker), topic, acker))
        return view

    def _emissions(
        self,
        emitted: OpenRange,
        open_positions: I64,
        acker: int,
    ) -> Iterator[AlikeRows]:
        """Yield the rows of a range's open roots; none: the picture is not about their input."""
        open_roots = RootSet.of_positions(emitted.source, open_positions)
        for runs in self._names.rows_of_roots(open_roots):
            row: Row = {
                **runs.row,
                "state": "open",
                "consumer_group": emitted.group,
                "epoch": emitted.epoch,
                "session": emitted.session,
                "emitted_at": emitted.emitted_ms,
                "times_out_at": emitted.deadline_ms,
                "is_held": emitted.in_state,
                "acker": acker,
            }
            yield AlikeRows(row, runs.own_values)


def members_by_partition(log: Log, group: str, what: str, holes: Holes) -> dict[int, str]:
    """Return the member of a group that has each partition; if nobody says it, `what` is a hole."""
    try:
        members = log.members(group)
    except WindhoverError as error:
        holes.note(Hole(what, str(error)))
        return {}
    name_by_partition: dict[int, str] = {}
    for member in members:
        if member.partitions is None:
            holes.note(Hole(what, f"group {group} shares its partitions out anew: ask again"))
            return {}
        name_by_partition |= dict.fromkeys(member.partitions, member.name)
    return name_by_partition


def _state_row(view: AckerView) -> Row:
    """Return what the State of an acker partition says of itself."""
    restored = view.restored
    return {
        "state_at": view.at_ms,
        "is_behind": view.is_behind,
        "state_bytes": view.size.bytes,
        "restored_at": None if restored is None else restored.at_ms,
        "restored_ms": None if restored is None else restored.took_ms,
    }


def _owners_of(view: AckerView, inputs: Sequence[Input]) -> Iterator[Session]:
    """Yield the sessions that own the groups of some inputs, as one acker partition knows it."""
    for group in {input.group for input in inputs}:
        owner = view.owner(group)
        if owner is not None:
            yield Session(group, owner.epoch, owner.id)

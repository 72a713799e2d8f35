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
from spout.picture.database import Row, RowGroup
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
    open_emissions: Sequence[RowGroup]
    progress: dict[int, AckerProgress]
    owners: frozenset[Session]


class AckerTablesReader:
    """Reads the States of the acker partitions; the next reading goes on behind this one."""

    def __init__(self, log: Log, topics: Topics, names: SourceNames, holes: Holes) -> None:
        acker = topics.acker
        self._topics = topics
        self._names = names
        self._holes = holes
        self._view_reader = ViewReader(log, acker.topics, acker.partitions, acker.limits)

    def read(self, reading: LogReading, process_by_acker: Mapping[int, str]) -> AckerTables:
        """Read the last State of each acker partition; `unknown` says which cannot be read.

        `process_by_acker` names the acker process that has each acker partition, if that is known.
        """
        acker_rows: list[Row] = []
        open_emissions: list[RowGroup] = []
        progress: dict[int, AckerProgress] = {}
        owners: set[Session] = set()
        for acker in range(self._view_reader.partitions):
            row: Row = {"acker": acker, "process": process_by_acker.get(acker)}
            view = self._view(acker, reading)
            if view is None:
                acker_rows.append(row)
                continue
            open_parts: list[tuple[int, I64]] = []
            for open_range in view.open_ranges():
                # a range has the distances of its open positions from its start
                open_positions = open_range.start + as_array(open_range.at)
                open_parts.append((open_range.source, open_positions))
                open_emissions += self._emissions(open_range, open_positions, acker)
            open_roots = RootSet.of_parts(open_parts)
            acker_rows.append({**row, **_state_row(view), "open_roots": len(open_roots)})
            progress[acker] = AckerProgress(view.next_init, open_roots)
            owners |= set(_owners_of(view, self._names.inputs))
        return AckerTables(acker_rows, open_emissions, progress, frozenset(owners))

    def _view(self, acker: int, reading: LogReading) -> AckerView | None:
        """Read the State of an acker partition; None: there is none, or it cannot be read."""
        topic = self._topics.ack_topics.state
        try:
            view = self._view_reader.view(acker)
        except WindhoverError as error:
            reading.note_error(Hole(TABLES_OF_STATE, str(error), topic, acker), error)
            return None
        if view is None:
            self._holes.note(Hole(TABLES_OF_STATE, NO_STATE.format(acker), topic, acker))
        return view

    def _emissions(
        self,
        open_range: OpenRange,
        open_positions: I64,
        acker: int,
    ) -> Iterator[RowGroup]:
        """Yield the rows of `emissions` about roots that were emitted together, and are open.

        None: the picture is not about their input.
        """
        open_roots = RootSet.of_positions(open_range.source, open_positions)
        for runs in self._names.rows_of_roots(open_roots):
            emission: Row = {
                "state": "open",
                "consumer_group": open_range.group,
                "epoch": open_range.epoch,
                "session": open_range.session,
                "emitted_at": open_range.emitted_ms,
                "times_out_at": open_range.deadline_ms,
                "is_held": open_range.in_state,
                "acker": acker,
            }
            yield runs.with_columns(emission)


def members_by_partition(log: Log, group: str, column: str, holes: Holes) -> dict[int, str]:
    """Return by partition the name of the member of a group that has it.

    Empty: nobody says it, and `unknown` has a row about `column`, such as "ackers.process".
    """
    try:
        members = log.members(group)
    except WindhoverError as error:
        holes.note(Hole(column, str(error)))
        return {}
    name_by_partition: dict[int, str] = {}
    for member in members:
        if member.partitions is None:
            holes.note(Hole(column, f"group {group} shares its partitions out anew: ask again"))
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

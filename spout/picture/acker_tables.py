"""The table `ackers`, and what the ackers' State says of open roots and of the owners of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import WindhoverError
from acker.hot_paths import as_array
from acker.identity import I64, OFFSET_BITS, generation_of
from acker.kafka.port import Log
from acker.ledger.cohort import Session
from acker.root_sets.root_set import RootSet
from acker.service.view import AckerView, OpenRange, ViewReader
from acker.wire.events import PositionRun, SourceRun
from spout.picture.database import Row
from spout.picture.holes import Hole, Holes
from spout.picture.init_tables import AckerProgress
from spout.picture.places import SourceNames
from spout.picture.reading import LogReading

TABLES_OF_STATE: Final = "ackers, emissions"

NO_STATE_YET: Final = (
    "acker partition {} has no State yet: start an acker and a query, whichever does not run"
)


class OpenEmission(NamedTuple):
    """Open roots that were emitted together.

    Attributes:
        row: what their rows of `emissions` have in common: all columns but the offsets.
        offset_runs: `offset` and `end_offset` of each row.
    """

    row: Row
    offset_runs: Sequence[PositionRun]


class AckerTables(NamedTuple):
    """What the States of all acker partitions say.

    Attributes:
        acker_rows: of the table `ackers`.
        open_emissions: for the table `emissions`.
        progress: of each acker partition that has a State.
        owners: the sessions that own groups.
    """

    acker_rows: Sequence[Row]
    open_emissions: Sequence[OpenEmission]
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
        open_emissions: list[OpenEmission] = []
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
                emission = self._emission(open_range, open_positions, number)
                if emission is not None:
                    open_emissions.append(emission)
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
            self._holes.note(Hole(TABLES_OF_STATE, NO_STATE_YET.format(acker), topic, acker))
        return view

    def _emission(self, emitted: OpenRange, open_positions: I64, acker: int) -> OpenEmission | None:
        """Return the open roots of a range; None: the picture is not about their input."""
        source = emitted.source
        first_position, last_position = int(open_positions[0]), int(open_positions[-1])
        place = self._names.run_row(SourceRun(source, first_position, last_position + 1))
        if place is None:
            return None
        row: dict[str, str | int | bool | None] = {
            **place,
            "state": "open",
            "consumer_group": emitted.group,
            "epoch": emitted.epoch,
            "session": emitted.session,
            "emitted_at": emitted.emitted_ms,
            "times_out_at": emitted.deadline_ms,
            "is_held": emitted.in_state,
            "acker": acker,
        }
        # they are of one generation, so their offsets are neighbours as the positions are
        del row["offset"], row["end_offset"]
        open_offsets = open_positions - (generation_of(first_position) << OFFSET_BITS)
        runs = RootSet.of_positions(source, open_offsets).runs_of_source(source)
        return OpenEmission(row, runs)


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

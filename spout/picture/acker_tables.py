"""The table `ackers`, and what the ackers' State says of open roots and of the owners of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import WindhoverError
from acker.hot_paths import as_array
from acker.kafka.port import Log
from acker.ledger.cohort import Session
from acker.root_sets.root_set import RootSet
from acker.service.view import AckerView, OpenRange, ViewReader
from acker.wire.events import SourceRun
from spout.picture.database import Row
from spout.picture.holes import Hole, Holes
from spout.picture.init_tables import AckerProgress
from spout.picture.places import SourceNames

TABLES_OF_STATE: Final = "ackers, emissions"

NO_STATE_YET: Final = (
    "acker partition {} has no State yet: start an acker and a query, whichever does not run"
)


class AckerTables(NamedTuple):
    """What the States of all acker partitions say.

    Attributes:
        acker_rows: of the table `ackers`.
        open_rows: of the table `emissions`, for the open roots.
        progress: of each acker partition that has a State.
        owners: the sessions that own groups.
    """

    acker_rows: Sequence[Row]
    open_rows: Sequence[Row]
    progress: dict[int, AckerProgress]
    owners: frozenset[Session]


class AckerTablesReader:
    """Reads the States of the acker partitions; the next reading goes on behind this one."""

    def __init__(self, log: Log, topics: Topics, names: SourceNames, holes: Holes) -> None:
        acker = topics.acker
        self._log = log
        self._topics = topics
        self._names = names
        self._holes = holes
        self._views = ViewReader(log, acker.topics, acker.partitions, acker.limits)

    def read(self) -> AckerTables:
        """Read what there is; what cannot be read is a hole."""
        process_by_acker = members_by_partition(
            self._log, self._topics.acker.group, "ackers.process", self._holes
        )
        acker_rows: list[Row] = []
        open_rows: list[Row] = []
        progress: dict[int, AckerProgress] = {}
        owners: set[Session] = set()
        for number in range(self._views.partitions):
            row: Row = {"acker": number, "process": process_by_acker.get(number)}
            view = self._view(number)
            if view is None:
                acker_rows.append(row)
                continue
            open_runs: list[SourceRun] = []
            for open_range in view.open_ranges():
                runs = _runs_of(open_range)
                open_runs += runs
                open_rows += self._open_rows(open_range, runs, number)
            open_roots = RootSet.of_runs(open_runs)
            acker_rows.append({**row, **_state_row(view), "open_roots": len(open_roots)})
            progress[number] = AckerProgress(view.next_init, open_roots)
            owners |= set(_owners_of(view, self._names.inputs))
        return AckerTables(acker_rows, open_rows, progress, frozenset(owners))

    def _view(self, acker: int) -> AckerView | None:
        """Read the State of an acker partition; None: there is none, or it cannot be read."""
        try:
            view = self._views.view(acker)
            why = "" if view is not None else NO_STATE_YET.format(acker)
        except WindhoverError as error:
            view, why = None, str(error)
        if view is None:
            self._holes.note(Hole(TABLES_OF_STATE, why, self._topics.ack_topics.state, acker))
        return view

    def _open_rows(self, emitted: OpenRange, runs: list[SourceRun], acker: int) -> Iterator[Row]:
        """Yield a row for each run of open roots that were emitted together."""
        for run in runs:
            place = self._names.run_row(run)
            if place is not None:
                yield {
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


def _runs_of(open_range: OpenRange) -> list[SourceRun]:
    """Return the open roots of a range as runs."""
    open_positions = open_range.start + as_array(open_range.at)
    return RootSet.of_positions(open_range.source, open_positions).runs()


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

"""The tables `verdicts` and `failures`: what `_ack_verdict` says became of roots.

It also says which lost roots no replay worker has accepted yet: they wait, and have no entry in
`_ack_due`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from acker.errors import CodecError
from acker.identity import I64, OFFSET_BITS, OFFSET_MAX
from acker.kafka.port import Record
from acker.root_sets.root_set import RootSet
from acker.wire.causes import EXPLICIT, HELD
from acker.wire.checks import wrong_verdicts
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Taken, Verdicts, positions
from acker.wire.verdict import Verdict
from replay.records.due import Progress
from spout.picture.database import ROWS_BUFFERED, Picture, Row, RowGroup
from spout.picture.holes import Holes
from spout.picture.places import RUN_COLUMNS, SourceNames, run_rows

TABLES_OF_VERDICTS: Final = "verdicts, failures"

_ROOT_COLUMNS: Final = ("offset", "generation")
"""The columns in which rows of `waiting` differ that are about roots that were lost together."""


@dataclass(slots=True)
class UnacceptedRoots:
    """Roots that were lost together, and that no replay worker has accepted.

    A million of them take eight megabytes here; their rows are in the database only.

    Attributes:
        verdict_offset: of the record in `_ack_verdict` that says so.
        first_index: the index of the first of them among all lost roots of that record.
        positions: in the order of the record.
        common_row: what their rows of `waiting` have in common.
        first_rowid: of these rows, which are neighbours; None: the table does not have them.
    """

    verdict_offset: int
    first_index: int
    positions: I64
    common_row: Row
    first_rowid: int | None = None

    def accepted_count(self, progress: Progress) -> int:
        """Return how many of the first of them a worker has accepted.

        With `next` 7 and `skip` 2 the roots 0 and 1 of the record at offset 7 are accepted, and
        root 2 is not.
        """
        if self.verdict_offset != progress.next:
            return len(self.positions) if self.verdict_offset < progress.next else 0
        return min(len(self.positions), max(0, progress.skip - self.first_index))


class VerdictTables:
    """Fills `verdicts` and `failures` from the records of `_ack_verdict`; it gets each once."""

    def __init__(self, picture: Picture, names: SourceNames, holes: Holes) -> None:
        """Begin without a row; `names` names the sources, `holes` collects what cannot be read."""
        self._picture = picture
        self._names = names
        self._holes = holes
        self._codec = wire_codec()
        self._verdict_rows: list[RowGroup] = []
        self._failure_rows: list[RowGroup] = []
        self._collected_row_count = 0  # in both of them; at ROWS_BUFFERED they are written
        # by partition of _ack_verdict: lost roots that no replay worker has accepted, in the order of its log
        self._unaccepted_by_partition: dict[int, deque[UnacceptedRoots]] = {}

    def put(self, record: Record, progress: Progress | None) -> None:
        """Collect the rows of a record of verdicts; a wrong record is a row of `unknown`.

        `progress` says up to where a replay worker has accepted the lost roots of its partition;
        None: it is unknown.
        """
        try:
            event = self._codec.decode(record.value)
        except CodecError as error:
            self._holes.note_record(TABLES_OF_VERDICTS, record, str(error))
            return
        if isinstance(event, Taken):
            return  # the answer to a session that takes its group
        if not isinstance(event, Verdicts):
            self._holes.note_record(TABLES_OF_VERDICTS, record, "it has no verdicts")
            return
        flaw = wrong_verdicts(event)
        if flaw:
            self._holes.note_record(TABLES_OF_VERDICTS, record, flaw)
            return
        for verdict, runs in event.done():
            # neighbouring runs of one source become one group of rows
            for source, runs_of_source in groupby(runs, itemgetter(0)):
                source_columns = self._names.source_row(source)
                _sources, starts, ends = np.array(list(runs_of_source), np.int64).T
                has_roots = starts < ends  # a stranger may have written an empty run
                if source_columns is not None:
                    differing_values = run_rows(starts[has_roots], ends[has_roots])
                    self._put_runs(record, RowGroup(source_columns, differing_values), verdict)
        first_index = 0
        for lost in event.lost:
            self._put_lost(record, lost)
            self._put_new_roots(record, lost, first_index, progress)
            first_index += len(positions(lost.positions))
        if self._collected_row_count >= ROWS_BUFFERED:
            self.flush()

    def _put_runs(self, record: Record, runs: RowGroup, verdict: Verdict) -> RowGroup:
        """Collect rows of `verdicts` about runs of one source that got a verdict; return them."""
        verdict_row: Row = {
            "verdict": verdict.value,
            "decided_at": record.timestamp_ms,
            "acker": record.partition,
        }
        verdict_rows = runs.with_columns(verdict_row)
        self._verdict_rows.append(verdict_rows)
        self._collected_row_count += len(runs.differing_values)
        return verdict_rows

    def _put_lost(self, record: Record, lost: Lost) -> None:
        """Collect the rows of `verdicts` and `failures` about roots that were lost together.

        A run of neighbouring roots is one row.
        """
        lost_roots = RootSet.of_positions(lost.source, positions(lost.positions))
        for runs in self._names.rows_of_roots(lost_roots):
            verdict_rows = self._put_runs(record, runs, lost.reason)
            failure_row: Row = {
                **_cause_row(lost),
                "is_blocked": lost.error == HELD,
                "emitted_at": lost.emitted_wall,
                "age_ms": lost.decided_at - lost.emitted_at,  # by the clock of the session
            }
            # a row of failures has the columns of its verdict, too
            self._failure_rows.append(verdict_rows.with_columns(failure_row))
            self._collected_row_count += len(runs.differing_values)

    def _put_new_roots(
        self,
        record: Record,
        lost: Lost,
        first_index: int,
        progress: Progress | None,
    ) -> None:
        """Write rows of `waiting` about those of `lost` that no replay worker has accepted.

        Without `progress` it is unknown which these are: all are kept, and `write_new_roots` decides.

        Args:
            lost: roots that were lost together.
            first_index: the index of the first of them among all lost roots of the record.
            progress: as in `put`.
        """
        lost_positions = positions(lost.positions)
        if not len(lost_positions):
            return
        source_columns = self._names.source_row(lost.source)
        if source_columns is None:
            return  # the picture is not about its input
        common_row: Row = {
            **source_columns,
            **_cause_row(lost),
            "verdict": lost.reason.value,
            "is_blocked": lost.error == HELD,
            "is_aside": False,  # only an accepted root can be put aside
            "lost_at": record.timestamp_ms,
            "acker": record.partition,
        }
        new_roots = UnacceptedRoots(record.offset, first_index, lost_positions, common_row)
        if progress is not None:
            self._forget_accepted(new_roots, progress)
            if not len(new_roots.positions):
                return
            self._write_rows(new_roots)
        self._unaccepted_by_partition.setdefault(record.partition, deque()).append(new_roots)

    def write_new_roots(self, progress_by_partition: Mapping[int, Progress]) -> None:
        """Bring `waiting` up to date: it has the lost roots that are not accepted.

        Those that are accepted are forgotten. Of a partition whose progress is unknown it has none.
        """
        for partition, all_new_roots in self._unaccepted_by_partition.items():
            progress = progress_by_partition.get(partition)
            if progress is None:
                for new_roots in all_new_roots:
                    self._delete_all_rows(new_roots)
                continue
            # workers accept in the order of the log, so accepted roots are the first ones
            while all_new_roots:
                self._forget_accepted(all_new_roots[0], progress)
                if len(all_new_roots[0].positions):
                    break
                all_new_roots.popleft()
            for new_roots in all_new_roots:
                self._write_rows(new_roots)

    def _forget_accepted(self, new_roots: UnacceptedRoots, progress: Progress) -> None:
        """Remove the first of `new_roots`, which a worker has accepted, here and in the table `waiting`."""
        accepted_count = new_roots.accepted_count(progress)
        self._delete_rows(new_roots, accepted_count)
        new_roots.first_index += accepted_count
        new_roots.positions = new_roots.positions[accepted_count:]
        if new_roots.first_rowid is not None:  # None: the table has no rows of them
            new_roots.first_rowid += accepted_count

    def _write_rows(self, new_roots: UnacceptedRoots) -> None:
        """Write the rows of new roots, unless the table has them."""
        if new_roots.first_rowid is not None:
            return
        newest = "SELECT coalesce(max(rowid), 0) FROM waiting"
        (newest_rowid,) = self._picture.connection.execute(newest).fetchone()
        offsets = new_roots.positions & OFFSET_MAX
        generations = new_roots.positions >> OFFSET_BITS
        differing_values = np.column_stack([offsets, generations]).tolist()
        rows = RowGroup(new_roots.common_row, differing_values)
        self._picture.insert_groups("waiting", _ROOT_COLUMNS, [rows])
        # SQLite gives a row the number behind the highest that the table has
        new_roots.first_rowid = newest_rowid + 1

    def _delete_all_rows(self, new_roots: UnacceptedRoots) -> None:
        """Delete the rows of new roots, which are kept, so that they can be written again."""
        self._delete_rows(new_roots, len(new_roots.positions))
        new_roots.first_rowid = None

    def _delete_rows(self, new_roots: UnacceptedRoots, count: int) -> None:
        """Delete the first `count` rows of new roots, if the table has them."""
        if new_roots.first_rowid is not None and count:
            bounds = (new_roots.first_rowid, new_roots.first_rowid + count)
            delete = "DELETE FROM waiting WHERE rowid >= ? AND rowid < ?"
            self._picture.connection.execute(delete, bounds)

    def flush(self) -> None:
        """Write the rows that were collected."""
        self._picture.insert_groups("verdicts", RUN_COLUMNS, self._verdict_rows)
        self._picture.insert_groups("failures", RUN_COLUMNS, self._failure_rows)
        self._verdict_rows = []
        self._failure_rows = []
        self._collected_row_count = 0


def _cause_row(lost: Lost) -> Row:
    """Return the columns of a cause; an explicit fail has no class, and counts as `FailTuple`."""
    error = lost.error
    if not error and lost.reason is Verdict.FAILED:
        error = EXPLICIT
    return {"operator": lost.operator, "error": error, "message": lost.message}

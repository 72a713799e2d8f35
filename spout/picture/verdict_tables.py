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
from spout.picture.database import ROWS_BUFFERED, AlikeRows, Picture, Row
from spout.picture.holes import Holes
from spout.picture.places import RUN_COLUMNS, SourceNames, run_values

TABLES_OF_VERDICTS: Final = "verdicts, failures"

_OWN_COLUMNS: Final = ("offset", "generation")
"""In these, rows of `waiting` differ that are about roots that were lost together."""


@dataclass(slots=True)
class NewRoots:
    """Roots that were lost together, and that no replay worker has accepted.

    A million of them take eight megabytes here; their rows are in the database only.

    Attributes:
        verdict_offset: of the record in `_ack_verdict` that says so.
        number: of the first of them in that record.
        positions: in the order of the record.
        row: what their rows of `waiting` have in common.
        first_rowid: of these rows, which are neighbours; None: the table does not have them.
    """

    verdict_offset: int
    number: int
    positions: I64
    row: Row
    first_rowid: int | None = None

    def accepted_count(self, progress: Progress) -> int:
        """Return how many of the first of them a worker has accepted.

        With `next` 7 and `skip` 2 the roots 0 and 1 of the record at offset 7 are accepted, and
        root 2 is not.
        """
        if self.verdict_offset != progress.next:
            return len(self.positions) if self.verdict_offset < progress.next else 0
        return min(len(self.positions), max(0, progress.skip - self.number))


class VerdictTables:
    """Fills both tables from the records of `_ack_verdict`, each of which it gets once."""

    def __init__(self, picture: Picture, names: SourceNames, holes: Holes) -> None:
        self._picture = picture
        self._names = names
        self._holes = holes
        self._codec = wire_codec()
        self._verdict_rows: list[AlikeRows] = []
        self._failure_rows: list[AlikeRows] = []
        self._row_count = 0  # in both of them
        # by partition of the topic, in the order of its log
        self._new_roots: dict[int, deque[NewRoots]] = {}

    def put(self, record: Record, progress: Progress | None) -> None:
        """Take in a record; its verdicts are accepted up to `progress`, None: that is not known."""
        try:
            event = self._codec.decode(record.value)
        except CodecError as error:
            self._holes.note_record(TABLES_OF_VERDICTS, record, str(error))
            return
        if isinstance(event, Taken):
            return  # the answer to a session that takes its group
        flaw = wrong_verdicts(event) if isinstance(event, Verdicts) else "it has no verdicts"
        if flaw or not isinstance(event, Verdicts):
            self._holes.note_record(TABLES_OF_VERDICTS, record, flaw)
            return
        for verdict, runs in event.done():
            for source, runs_of_source in groupby(runs, itemgetter(0)):
                place = self._names.source_row(source)
                _sources, starts, ends = np.array(list(runs_of_source), np.int64).T
                has_roots = starts < ends
                if place is not None:
                    own_values = run_values(starts[has_roots], ends[has_roots])
                    self._put_runs(record, AlikeRows(place, own_values), verdict)
        number = 0
        for lost in event.lost:
            self._put_lost(record, lost)
            self._put_new_roots(record, lost, number, progress)
            number += len(positions(lost.positions))
        if self._row_count >= ROWS_BUFFERED:
            self.flush()

    def _put_runs(self, record: Record, runs: AlikeRows, verdict: Verdict) -> AlikeRows:
        """Add runs of one source that got a verdict, and return their rows of `verdicts`."""
        row: Row = {
            **runs.row,
            "verdict": verdict.value,
            "decided_at": record.timestamp_ms,
            "acker": record.partition,
        }
        verdict_rows = AlikeRows(row, runs.own_values)
        self._verdict_rows.append(verdict_rows)
        self._row_count += len(runs.own_values)
        return verdict_rows

    def _put_lost(self, record: Record, lost: Lost) -> None:
        """Add roots that were lost together: neighbours are one row."""
        lost_roots = RootSet.of_positions(lost.source, positions(lost.positions))
        for runs in self._names.rows_of_roots(lost_roots):
            verdict_rows = self._put_runs(record, runs, lost.reason)
            failure_row: Row = {
                **verdict_rows.row,
                **_cause_row(lost),
                "is_blocked": lost.error == HELD,
                "emitted_at": lost.emitted_wall,
                "age_ms": lost.decided_at - lost.emitted_at,
            }
            self._failure_rows.append(AlikeRows(failure_row, runs.own_values))
            self._row_count += len(runs.own_values)

    def _put_new_roots(
        self,
        record: Record,
        lost: Lost,
        number: int,
        progress: Progress | None,
    ) -> None:
        """Add the lost roots that no worker has accepted; the first is root `number` there.

        If nobody knows up to where they are accepted, they are kept until somebody does.
        """
        lost_positions = positions(lost.positions)
        if not len(lost_positions):
            return
        place = self._names.source_row(lost.source)
        if place is None:
            return
        row: Row = {
            **place,
            **_cause_row(lost),
            "verdict": lost.reason.value,
            "is_blocked": lost.error == HELD,
            "is_aside": False,
            "lost_at": record.timestamp_ms,
            "acker": record.partition,
        }
        new_roots = NewRoots(record.offset, number, lost_positions, row)
        if progress is not None:
            self._forget_accepted(new_roots, progress)
            if not len(new_roots.positions):
                return
            self._show(new_roots)
        self._new_roots.setdefault(record.partition, deque()).append(new_roots)

    def write_new_roots(self, progress_by_partition: Mapping[int, Progress]) -> None:
        """Bring `waiting` up to date: it has the lost roots that are not accepted.

        Those that are accepted are forgotten. Of a partition whose progress is unknown it has none.
        """
        for partition, all_new_roots in self._new_roots.items():
            progress = progress_by_partition.get(partition)
            if progress is None:
                for new_roots in all_new_roots:
                    self._hide(new_roots)
                continue
            while all_new_roots:
                self._forget_accepted(all_new_roots[0], progress)
                if len(all_new_roots[0].positions):
                    break
                all_new_roots.popleft()
            for new_roots in all_new_roots:
                self._show(new_roots)

    def _forget_accepted(self, new_roots: NewRoots, progress: Progress) -> None:
        """Leave of new roots those that are not accepted; their rows, too."""
        accepted_count = new_roots.accepted_count(progress)
        self._delete_rows(new_roots, accepted_count)
        new_roots.number += accepted_count
        new_roots.positions = new_roots.positions[accepted_count:]
        if new_roots.first_rowid is not None:
            new_roots.first_rowid += accepted_count

    def _show(self, new_roots: NewRoots) -> None:
        """Write the rows of new roots, unless the table has them."""
        if new_roots.first_rowid is not None:
            return
        newest = "SELECT coalesce(max(rowid), 0) FROM waiting"
        (newest_rowid,) = self._picture.connection.execute(newest).fetchone()
        offsets = new_roots.positions & OFFSET_MAX
        generations = new_roots.positions >> OFFSET_BITS
        own_values = np.column_stack([offsets, generations]).tolist()
        alike_rows = AlikeRows(new_roots.row, own_values)
        self._picture.insert_alike("waiting", _OWN_COLUMNS, [alike_rows])
        # SQLite gives a row the number behind the highest that the table has
        new_roots.first_rowid = newest_rowid + 1

    def _hide(self, new_roots: NewRoots) -> None:
        """Delete the rows of new roots; they are written again some time."""
        self._delete_rows(new_roots, len(new_roots.positions))
        new_roots.first_rowid = None

    def _delete_rows(self, new_roots: NewRoots, count: int) -> None:
        """Delete the first rows of new roots, if the table has them."""
        if new_roots.first_rowid is not None and count:
            bounds = (new_roots.first_rowid, new_roots.first_rowid + count)
            delete = "DELETE FROM waiting WHERE rowid >= ? AND rowid < ?"
            self._picture.connection.execute(delete, bounds)

    def flush(self) -> None:
        """Write the rows that were collected."""
        self._picture.insert_alike("verdicts", RUN_COLUMNS, self._verdict_rows)
        self._picture.insert_alike("failures", RUN_COLUMNS, self._failure_rows)
        self._verdict_rows = []
        self._failure_rows = []
        self._row_count = 0


def _cause_row(lost: Lost) -> Row:
    """Return the columns of a cause; an explicit fail has no class, and counts as `FailTuple`."""
    error = lost.error
    if not error and lost.reason is Verdict.FAILED:
        error = EXPLICIT
    return {"operator": lost.operator, "error": error, "message": lost.message}

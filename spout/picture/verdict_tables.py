"""The tables `verdicts` and `failures`: what `_ack_verdict` says became of roots.

It also says which lost roots no replay worker has accepted yet: they wait, and have no entry in
`_ack_due`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from acker.errors import CodecError
from acker.kafka.port import Record
from acker.root_sets.root_set import RootSet
from acker.wire.causes import EXPLICIT, HELD
from acker.wire.checks import wrong_verdicts
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, SourceRun, Taken, Verdicts, positions
from acker.wire.verdict import Verdict
from replay.records.due import Progress
from spout.picture.database import ROWS_BUFFERED, Picture, Row
from spout.picture.holes import Holes
from spout.picture.places import SourceNames

TABLES_OF_VERDICTS: Final = "verdicts, failures"


class NewRoot(NamedTuple):
    """A lost root that no replay worker has accepted.

    Attributes:
        verdict_offset: of the record in `_ack_verdict` that says so; `number`: of the root in it.
        row: of the table `waiting`.
    """

    verdict_offset: int
    number: int
    row: Row


class VerdictTables:
    """Fills both tables from the records of `_ack_verdict`, each of which it gets once."""

    def __init__(self, picture: Picture, names: SourceNames, holes: Holes) -> None:
        self._picture = picture
        self._names = names
        self._holes = holes
        self._codec = wire_codec()
        self._verdict_rows: list[Row] = []
        self._failure_rows: list[Row] = []
        # by partition of the topic, in the order of its log
        self._new_roots: dict[int, deque[NewRoot]] = {}

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
            for run in runs:
                self._put_run(record, run, verdict)
        number = 0
        for lost in event.lost:
            self._put_lost(record, lost)
            if progress is not None:
                self._put_new_roots(record, lost, number, progress)
            number += len(positions(lost.positions))
        if len(self._verdict_rows) + len(self._failure_rows) >= ROWS_BUFFERED:
            self.flush()

    def _put_run(self, record: Record, run: SourceRun, verdict: Verdict) -> Row | None:
        """Add a run of roots that got a verdict; return its row, None: it is of no wanted input."""
        place = self._names.run_row(run)
        if place is None:
            return None
        row: Row = {
            **place,
            "verdict": verdict.value,
            "decided_at": record.timestamp_ms,
            "acker": record.partition,
        }
        self._verdict_rows.append(row)
        return row

    def _put_lost(self, record: Record, lost: Lost) -> None:
        """Add roots that were lost together: neighbours are one row."""
        for run in RootSet.of_positions(lost.source, positions(lost.positions)).runs():
            row = self._put_run(record, run, lost.reason)
            if row is None:
                continue
            self._failure_rows.append(
                {
                    **row,
                    **_cause_row(lost),
                    "is_blocked": lost.error == HELD,
                    "emitted_at": lost.emitted_wall,
                    "age_ms": lost.decided_at - lost.emitted_at,
                }
            )

    def _put_new_roots(self, record: Record, lost: Lost, number: int, progress: Progress) -> None:
        """Keep the lost roots that no worker has accepted; the first is root `number` there.

        With `next` 7 and `skip` 2 the roots 0 and 1 of the record at offset 7 are accepted, and
        root 2 is not.
        """
        first_new = (progress.next, progress.skip)
        new_roots = self._new_roots.setdefault(record.partition, deque())
        for index, position in enumerate(positions(lost.positions).tolist(), start=number):
            place = self._names.root_row(lost.source, position)
            if place is None or (record.offset, index) < first_new:
                continue
            row: Row = {
                **place,
                **_cause_row(lost),
                "verdict": lost.reason.value,
                "is_blocked": lost.error == HELD,
                "is_aside": False,
                "lost_at": record.timestamp_ms,
                "acker": record.partition,
            }
            new_roots.append(NewRoot(record.offset, index, row))

    def new_rows(self, progress_by_partition: Mapping[int, Progress]) -> list[Row]:
        """Return the rows of `waiting` for roots that are not accepted; forget those that are."""
        rows: list[Row] = []
        for partition, new_roots in self._new_roots.items():
            progress = progress_by_partition.get(partition)
            if progress is None:
                continue
            first_new = (progress.next, progress.skip)
            while new_roots and (new_roots[0].verdict_offset, new_roots[0].number) < first_new:
                new_roots.popleft()
            rows += [new_root.row for new_root in new_roots]
        return rows

    def flush(self) -> None:
        """Write the rows that were collected."""
        self._picture.insert("verdicts", self._verdict_rows)
        self._picture.insert("failures", self._failure_rows)
        self._verdict_rows = []
        self._failure_rows = []


def _cause_row(lost: Lost) -> Row:
    """Return the columns of a cause; an explicit fail has no class, and counts as `FailTuple`."""
    error = lost.error
    if not error and lost.reason is Verdict.FAILED:
        error = EXPLICIT
    return {"operator": lost.operator, "error": error, "message": lost.message}

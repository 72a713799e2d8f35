"""What a task does for bolts behind a grouping, Spark's operators, or another stage.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acker.errors import TrackingError
from acker.hot_paths import distinct
from acker.identity import I64
from spout.isolation.safety import Safety
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.publishing.report_accumulator import add_report
from spout.topology.stage_pass import Frame, StagePass
from spout.tuples.anchors import AnchorForm, Anchors
from spout.tuples.columns import ANCHOR
from spout.tuples.rows import ArrowRows


@dataclass(frozen=True, slots=True)
class MapTask:
    """The function that Spark's `mapInArrow` calls.

    Without `stream_id` and `accumulator` nothing is tracked.
    """

    stage: StagePass
    stream_id: str = ""
    accumulator: Any = None
    safety: Safety = field(default_factory=Safety)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the bolts over the rows of one task, and yield what they emit.

        Adds its report after the last row was taken.
        """
        with no_garbage_collection(), running_stage(self.stage, self.safety) as run:
            frame = self.stage.frame
            # Where roots themselves arrive, Spark's operators may bring one twice, which is
            # refused. None: the tuples that arrive are of bolts, or nothing is tracked.
            received: Received | None = None
            if frame is not None and frame.roots_arrive:
                received = Received(self.stage.name)
            arriving_batches = chain.from_iterable(map(self.stage.arriving_rows, batches))
            for arriving in arriving_batches:
                anchors: Anchors | None = None
                if frame is None:
                    # in a topology each tuple has its place in its trees beside it
                    rows = ArrowRows(arriving.rows, places=arriving.places)
                else:
                    rows, anchors = self._split_anchors(frame, arriving.rows)
                if received is not None and anchors is not None:
                    received.mark(anchors.roots())
                yield run.feed(rows, anchors)
            yield from run.finish()
            if self.accumulator is not None:
                received_marks = None if received is None else received.marks()
                add_report(
                    self.accumulator,
                    self.stream_id,
                    replace(
                        run.report(),
                        received=received_marks,
                    ),
                )

    def _split_anchors(self, frame: Frame, batch: pa.RecordBatch) -> tuple[ArrowRows, Anchors | None]:
        """Return the rows without the hidden column, and the anchors that were in it.

        None: nothing is tracked. Raises `TrackingError`: some rows have no anchors.
        """
        column_index = batch.schema.get_field_index(ANCHOR)
        if column_index < 0:
            return ArrowRows(batch, came_from=frame.came_from), None
        column = batch.column(column_index)
        rows = ArrowRows(batch.remove_column(column_index), came_from=frame.came_from)
        if frame.arriving_form is AnchorForm.NONE:
            return rows, None
        if frame.arriving_form is not AnchorForm.HOPS and column.null_count:
            raise TrackingError(
                f"bolt {self.stage.name!r} received rows without anchors. Where an outer join"
                " or a union with another stream stands before it, put the bolt before that;"
                " where the query ran with tracked=False and ended in this batch, run it so"
                " once more until the batch is written"
            )
        return rows, Anchors(frame.arriving_form, column, frame.subscriptions)


class Received:
    """The roots that a first bolt has received in one task.

    A root is its index in the batch's plan.
    """

    def __init__(self, operator: str) -> None:
        """`operator` is the bolt's name, for errors."""
        self._operator = operator
        # by root; it grows as higher ones come
        self._marks: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def mark(self, roots: I64) -> None:
        """Mark roots, `(n,) int64`, as received.

        Raises `TrackingError`: one of them was received before.
        """
        if not len(roots):
            return
        highest = int(roots.max())
        if highest >= len(self._marks):
            # at least twice as long: else each batch would copy all marks
            size = max(highest + 1, 2 * len(self._marks))
            new_marks = np.zeros(size - len(self._marks), np.bool_)
            self._marks = np.concatenate([self._marks, new_marks])
        if self._marks[roots].any() or len(distinct(roots)) != len(roots):
            raise TrackingError(
                f"bolt {self._operator!r} received a root twice: explode, union or two branches"
                " stand before it; put the bolt directly behind read_stream, and the operator"
                " behind the bolt"
            )
        self._marks[roots] = True

    def marks(self) -> npt.NDArray[np.bool_]:
        """Return, by root, whether it was received, up to the highest that was; empty: none was."""
        marked_roots = np.flatnonzero(self._marks)
        if not len(marked_roots):
            return self._marks[:0]
        return self._marks[: int(marked_roots[-1]) + 1]

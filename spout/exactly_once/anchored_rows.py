"""Rows as Spark brings them to the driver, and the roots that their hidden column names.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from acker.errors import TrackingError
from acker.identity import I64
from spout.exactly_once.rooted_rows import RootedRows
from spout.planning.plan import BatchPlan
from spout.tuples.anchors import AnchorForm, Anchors
from spout.tuples.columns import ANCHOR


def rooted_rows(table: pa.Table, anchor_form: AnchorForm, plan: BatchPlan) -> RootedRows:
    """Return the rows of a batch with their roots, and without the hidden column.

    Args:
        table: the rows, with the hidden column.
        anchor_form: the form of that column: PACKED has one root's index in each row, HOPS the
        paths of
            several anchors.
        plan: of the batch; the indices count its roots.

    Raises `TrackingError`: a row has no root, or several.
    """
    column = table.column(ANCHOR).combine_chunks()
    if column.null_count:
        raise _without_one_root("has none: the hidden column is null")
    if anchor_form is AnchorForm.HOPS:
        indices = _indices_in_paths(column)
    else:
        indices = Anchors(anchor_form, column).roots()
    sources, positions = plan.index().sources_and_positions(indices)
    return RootedRows(table.drop_columns([ANCHOR]), sources, positions)


def _indices_in_paths(paths_by_row: pa.Array) -> I64:
    """Return the root's index of each row of a HOPS column, `(n,) int64`.

    A row may be anchored on several tuples, as long as all of them are of one root: then each of
    its paths begins with the same index.
    """
    path_counts: I64 = np.asarray(paths_by_row.value_lengths(), dtype=np.int64)
    if len(path_counts) and not path_counts.min():
        raise _without_one_root("has none: its bolt emitted it without anchors")
    paths = paths_by_row.flatten()
    path_lengths: I64 = np.asarray(paths.value_lengths(), dtype=np.int64)
    numbers_of_paths: I64 = np.asarray(paths.flatten(), dtype=np.int64)
    # paths of 1, 3 and 2 numbers begin at 0, 1 and 4: there stand the roots
    roots_of_paths = numbers_of_paths[np.cumsum(path_lengths) - path_lengths]
    # rows of 2 and 1 paths have the paths 0 and 2 as their first ones
    first_paths = np.cumsum(path_counts) - path_counts
    indices: I64 = roots_of_paths[first_paths]
    if (np.repeat(indices, path_counts) != roots_of_paths).any():
        raise _without_one_root("has several: its bolt anchored it on tuples of several records")
    return indices


def _without_one_root(what_it_has: str) -> TrackingError:
    return TrackingError(
        f"a row that is to be written exactly once belongs to one record, and one {what_it_has}."
        " Emit each row on tuples of one record, or write the query with spout.sink"
    )

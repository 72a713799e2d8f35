"""A task's report as bytes, small enough to travel in an accumulator: usually some hundred bytes.

Plain builtins are pickled and deflated. Few marks are among them. More than `COMPRESSED_ROWS`
follow as they are, since to deflate them would take longer than all else, and edges are random.
Only the tasks of our own queries write blobs, and only the driver that started them reads them.

Source: docs/design/protocol.md, section 5.2 ("The ledger goes beside the data").
"""

from __future__ import annotations

import io
import pickle
import zlib
from typing import Any

import numpy as np

from acker.errors import TrackingError
from acker.identity import I64
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.planning.order import LinedRecords
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import HighestTime
from spout.publishing.fold import Missing, TaskId, TaskReport
from spout.publishing.root_marks import COMPRESSED_ROWS, RootMarks, steps_of
from spout.tuples.anchors import Fingerprint
from spout.tuples.counts import Counted, Measure, What
from spout.tuples.failures import Cause
from spout.tuples.raised import Raised
from spout.tuples.tuple import StreamId

VERSION = 23

REPORT_BYTES_MAX = 1 << 30
"""Most unpacked bytes of a report, besides many marks: ten numbers of each of ten million
records."""

_Steps = tuple[int, str, bytes]
"""A packed column: its first number, NumPy's name of the type of its differences, and these."""

# What the standard library raises on bytes that are no pickle of ours, and what comes of one that
# is wrong.
_GARBAGE = (
    zlib.error,
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    MemoryError,
)


def encode(report: TaskReport) -> bytes:
    """Return a report as bytes: deflated builtins, then many marks."""
    # `_report` reads the fields in this order; another order, or other fields, is another `VERSION`
    plan, missing = report.plan, report.missing
    marks = report.marks.packed()
    is_small = len(report.marks) <= COMPRESSED_ROWS
    content = (
        VERSION,
        report.operator,
        report.upstream,
        report.consumer,
        tuple(report.task),
        plan
        and (
            *(plan.group, plan.session, plan.epoch, plan.partitions, plan.now, plan.timeout_ms, plan.tracked),
            [tuple(run) for run in plan.ranges],
        ),
        [tuple(run) for run in report.ranges],
        None if report.received is None else (len(report.received), np.packbits(report.received).tobytes()),
        [(path, list(map(_steps, rows.T))) for path, rows in report.outstanding.items()],
        tuple(report.received_fingerprint),
        tuple(report.sent_fingerprint),
        [
            (str(counted.what), counted.component, tuple(counted.stream), tuple(measure))
            for counted, measure in report.counts.items()
        ],
        [tuple(error) for error in report.errors],
        [_lined_fields(lined_records) for lined_records in report.lined_records],
        [tuple(raised) for raised in report.raised],
        (len(marks), marks if is_small else b""),
        (
            [tuple(run) for run in missing.absent],
            missing.lost_count,
            [tuple(run) for run in missing.damaged],
        ),
        [(name, at_ms, tuple(run)) for name, at_ms, run, _ in report.highest_times],
    )
    # the fastest level: bitmaps and ascending indices shrink well at any
    pickled = io.BytesIO()
    _PlainTexts(pickled, protocol=5).dump(content)
    deflated = zlib.compress(pickled.getbuffer(), level=1)
    return deflated if is_small else deflated + marks


def decode(blob: bytes) -> TaskReport:
    """Return the report that `encode` wrote.

    Raises `TrackingError`: executor and driver run different versions, or the bytes are something
    else.
    """
    try:
        inflate = zlib.decompressobj()
        inflated = inflate.decompress(blob, REPORT_BYTES_MAX)
        if not inflate.eof:
            raise EOFError(f"it was cut off, or unpacks to more than {REPORT_BYTES_MAX:,} bytes")
        version, *content = _Builtins(io.BytesIO(inflated)).load()
        if version != VERSION:
            raise TrackingError(
                f"a task reported in version {version}, the driver reads {VERSION}: install one"
            )
        return _report(content, inflate.unused_data)
    except _GARBAGE as error:
        raise TrackingError(
            f"a task's report cannot be read ({type(error).__name__}: {error}); install one version of"
            " Windhover on driver and executors"
        ) from error


class _PlainTexts(pickle.Pickler):
    """Pickles a member of an enumeration, as a bolt or a stream may be called, as a plain text."""

    def reducer_override(self, value: Any) -> Any:
        return (str, (str.__str__(value),)) if isinstance(value, str) else NotImplemented


class _Builtins(pickle.Unpickler):
    """Unpickles builtins alone: a report names no class but `str`, so no code can come with one."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "str"):
            return str
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a report")


def _report(content: list[Any], many_marks: bytes) -> TaskReport:
    """Return a report from its fields, in the order of `encode`, and the marks behind them."""
    operator, upstream, consumer, task, plan, *content = content
    ranges, received, outstanding, received_fingerprint, sent_fingerprint, *content = content
    counts, errors, lined_records, raised, marks, missing, times = content
    absent, lost_count, damaged = missing
    marks_bytes, few_marks = marks
    # few marks are among the fields, and nothing follows; many ones follow
    packed_marks = few_marks + many_marks
    if len(packed_marks) != marks_bytes:
        raise ValueError(f"{len(packed_marks):,} bytes of marks, which are {marks_bytes:,}")
    is_received = None
    if received is not None:
        count, packed_bits = received
        is_received = np.unpackbits(np.frombuffer(packed_bits, np.uint8), count=count).view(np.bool_)
    return TaskReport(
        operator=operator,
        upstream=upstream,
        consumer=consumer,
        task=TaskId(*task),
        plan=plan and BatchPlan(*(*plan[:-1], tuple(SourceRun(*run) for run in plan[-1]))),
        ranges=tuple(SourceRun(*run) for run in ranges),
        received=is_received,
        outstanding={path: _columns(steps) for path, steps in outstanding},
        received_fingerprint=Fingerprint(*received_fingerprint),
        sent_fingerprint=Fingerprint(*sent_fingerprint),
        counts={
            Counted(What(what), component, StreamId(*stream)): Measure(*measure)
            for what, component, stream, measure in counts
        },
        errors=tuple(Cause(*error) for error in errors),
        lined_records=tuple(_lined(*fields) for fields in lined_records),
        raised=tuple(Raised(*fields) for fields in raised),
        marks=RootMarks.unpacked(packed_marks),
        missing=Missing(
            absent=tuple(SourceRun(*run) for run in absent),
            lost_count=lost_count,
            damaged=tuple(DamagedRun(*run) for run in damaged),
        ),
        highest_times=tuple(HighestTime(name, ms, SourceRun(*run)) for name, ms, run in times),
    )


def _lined_fields(lined_records: LinedRecords) -> tuple[str, str, _Steps, bytes, _Steps]:
    """Return the fields of `LinedRecords` as builtins: which record of a partition is in which line.

    Its rows have three columns: the record's index in the plan, its line (a hash of its key), and
    the offset of its first emission.
    """
    indices, lines, origins = lined_records.rows.T
    # Indices and origins mostly ascend by one: as differences they shrink to nothing, and deflate
    # takes a third of the time. Differences of hashes are as random as these.
    return lined_records.place, lined_records.operator, _steps(indices), _pack(lines), _steps(origins)


def _lined(place: str, operator: str, indices: _Steps, lines: bytes, origins: _Steps) -> LinedRecords:
    """Return the `LinedRecords` of which `_lined_fields` made these builtins."""
    columns = [_from_steps(*indices), _unpack(lines), _from_steps(*origins)]
    return LinedRecords(place, operator, np.stack(columns, axis=1))


def _steps(column: I64) -> _Steps:
    """Pack a column as its first number and its differences, in the narrowest type that fits.

    The first difference is 0: the column 7, 8, 10 becomes 7, "<i1" and the bytes of 0, 1, 2.
    """
    steps = steps_of(column)
    return int(column[0]) if len(column) else 0, steps.dtype.str, steps.tobytes()


def _columns(steps_of_columns: list[_Steps]) -> I64:
    """Return the table whose columns `_steps` has packed, ``(n, columns)``."""
    return np.stack([_from_steps(*steps) for steps in steps_of_columns], axis=1)


def _from_steps(first_number: int, width: str, packed: bytes) -> I64:
    """Return the column that `_steps` has packed; `ValueError`: the type is none of differences."""
    if np.dtype(width).kind != "i":
        raise ValueError(f"{width!r:.40} is no type of differences")
    column = np.cumsum(np.frombuffer(packed, width), dtype=np.int64)
    column += first_number
    return column


def _pack(array: I64) -> bytes:
    """Return the numbers of an array, row by row, 8 bytes each, the lowest byte first."""
    return array.astype("<i8", copy=False).tobytes()


def _unpack(packed: bytes) -> I64:
    """Return the numbers that `_pack` wrote, as one row."""
    return np.frombuffer(packed, "<i8").astype(np.int64, copy=False)

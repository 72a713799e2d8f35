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
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from acker.errors import TrackingError
from acker.identity import I64
from acker.kafka.port import DamagedRun
from acker.root_sets.root_set import RootSet
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


class _Content(NamedTuple):
    """The fields of a report as builtins, in the order in which they are pickled.

    Another order, or other fields, is another `VERSION`. They are named as in `TaskReport`, where
    what they mean is said; a named tuple of the report is a plain tuple or list here.

    Attributes:
        plan: the fields of `BatchPlan` but its ranges, and last a list of these; None: no read
            task.
        received: how many flags there are, and the flags as bits, packed; None: there are none.
        outstanding: pairs of a path and the columns of its rows, each as `_steps` packs it.
        counts: what was counted, the component, its stream and the measure.
        marks: how many bytes of packed marks there are, and these, if they are few; else no bytes.
        missing: `absent`, `lost_count` and `damaged`.
        highest_times: name, time and run; a task reports only times that are not of a `hold`.
    """

    operator: Any
    upstream: Any
    consumer: Any
    task: Any
    plan: Any
    ranges: Any
    received: Any
    outstanding: Any
    received_fingerprint: Any
    sent_fingerprint: Any
    counts: Any
    errors: Any
    lined_records: Any
    raised: Any
    marks: Any
    missing: Any
    highest_times: Any


def encode(report: TaskReport) -> bytes:
    """Return a report as bytes: deflated builtins, then many marks."""
    missing = report.missing
    packed_marks = report.marks.packed()
    has_few_marks = len(report.marks) <= COMPRESSED_ROWS
    received = None
    if report.received is not None:
        received = len(report.received), np.packbits(report.received).tobytes()
    content = _Content(
        operator=report.operator,
        upstream=report.upstream,
        consumer=report.consumer,
        task=tuple(report.task),
        plan=None if report.plan is None else _plan_fields(report.plan),
        ranges=[tuple(run) for run in report.ranges],
        received=received,
        outstanding=[(path, list(map(_steps, rows.T))) for path, rows in report.outstanding.items()],
        received_fingerprint=tuple(report.received_fingerprint),
        sent_fingerprint=tuple(report.sent_fingerprint),
        counts=[
            (str(counted.what), counted.component, tuple(counted.stream), tuple(measure))
            for counted, measure in report.counts.items()
        ],
        errors=[tuple(error) for error in report.errors],
        lined_records=[_lined_fields(lined_records) for lined_records in report.lined_records],
        raised=[tuple(raised) for raised in report.raised],
        marks=(len(packed_marks), packed_marks if has_few_marks else b""),
        missing=(
            missing.absent.table.tolist(),
            missing.lost_count,
            [tuple(run) for run in missing.damaged],
        ),
        highest_times=[(highest.name, highest.at_ms, tuple(highest.run)) for highest in report.highest_times],
    )
    pickled = io.BytesIO()
    _PlainTexts(pickled, protocol=5).dump((VERSION, *content))
    # the fastest level: bitmaps and ascending indices shrink well at any
    deflated = zlib.compress(pickled.getbuffer(), level=1)
    return deflated if has_few_marks else deflated + packed_marks


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
        version, *fields = _Builtins(io.BytesIO(inflated)).load()
        if version != VERSION:
            raise TrackingError(
                f"a task reported in version {version}, the driver reads {VERSION}: install one"
            )
        return _report(_Content(*fields), many_marks=inflate.unused_data)
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


def _report(content: _Content, many_marks: bytes) -> TaskReport:
    """Return a report from its fields; `many_marks` are the bytes behind them, if they are many."""
    marks_bytes, few_marks = content.marks
    # few marks are among the fields, and nothing follows; many ones follow
    packed_marks = few_marks + many_marks
    if len(packed_marks) != marks_bytes:
        raise ValueError(f"{len(packed_marks):,} bytes of marks, which are {marks_bytes:,}")
    is_received = None
    if content.received is not None:
        count, packed_bits = content.received
        is_received = np.unpackbits(np.frombuffer(packed_bits, np.uint8), count=count).view(np.bool_)
    absent, lost_count, damaged = content.missing
    return TaskReport(
        operator=content.operator,
        upstream=content.upstream,
        consumer=content.consumer,
        task=TaskId(*content.task),
        plan=None if content.plan is None else _plan(content.plan),
        ranges=_runs(content.ranges),
        received=is_received,
        outstanding={path: _columns(steps) for path, steps in content.outstanding},
        received_fingerprint=Fingerprint(*content.received_fingerprint),
        sent_fingerprint=Fingerprint(*content.sent_fingerprint),
        counts={
            Counted(What(what), component, StreamId(*stream)): Measure(*measure)
            for what, component, stream, measure in content.counts
        },
        errors=tuple(Cause(*error) for error in content.errors),
        lined_records=tuple(_lined_records(*fields) for fields in content.lined_records),
        raised=tuple(Raised(*fields) for fields in content.raised),
        marks=RootMarks.unpacked(packed_marks),
        missing=Missing(
            absent=RootSet.of_runs(absent),
            lost_count=lost_count,
            damaged=tuple(DamagedRun(*run) for run in damaged),
        ),
        highest_times=tuple(
            HighestTime(name, at_ms, SourceRun(*run)) for name, at_ms, run in content.highest_times
        ),
    )


def _plan_fields(plan: BatchPlan) -> tuple[str, str, int, int, int, int, bool, list[tuple[int, int, int]]]:
    """Return the fields of a plan as builtins, in the order of `BatchPlan`."""
    return (
        plan.group,
        plan.session,
        plan.epoch,
        plan.partitions,
        plan.now,
        plan.timeout_ms,
        plan.tracked,
        [(run.source, run.start, run.end) for run in plan.ranges],
    )


def _plan(fields: Sequence[Any]) -> BatchPlan:
    """Return the plan of which `_plan_fields` made these builtins."""
    *fields_before_ranges, ranges = fields
    return BatchPlan(*(*fields_before_ranges, _runs(ranges)))


def _runs(fields_of_runs: Iterable[tuple[int, int, int]]) -> tuple[SourceRun, ...]:
    """Return runs of positions, each from its fields as a plain tuple."""
    return tuple(SourceRun(*fields) for fields in fields_of_runs)


def _lined_fields(lined_records: LinedRecords) -> tuple[str, str, _Steps, bytes, _Steps]:
    """Return as builtins which records of a partition are in which line (`spout.planning.order`).

    A record is its index in the plan, its line (a hash of its key), and its origin, the offset of
    its first emission.
    """
    # Indices and origins mostly ascend by one: as differences they shrink to nothing, and deflate
    # takes a third of the time. Differences of hashes are as random as these.
    return (
        lined_records.place,
        lined_records.operator,
        _steps(lined_records.indices),
        _pack(lined_records.lines),
        _steps(lined_records.origins),
    )


def _lined_records(place: str, operator: str, indices: _Steps, lines: bytes, origins: _Steps) -> LinedRecords:
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

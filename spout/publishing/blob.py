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
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

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
from spout.tuples.counts import Counted, Counts, Measure, What
from spout.tuples.failures import Cause
from spout.tuples.raised import Raised
from spout.tuples.tuple import StreamId

VERSION = 24
"""Of the layout; other fields, or another order of them, is another one."""

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
    packed_fields = [codec.pack(getattr(report, name)) for name, codec in _CODECS.items()]
    packed_marks = report.marks.packed()
    has_few_marks = len(report.marks) <= COMPRESSED_ROWS
    few_marks = packed_marks if has_few_marks else b""
    pickled = io.BytesIO()
    content = VERSION, packed_fields, len(packed_marks), few_marks
    _PlainTexts(pickled, protocol=5).dump(content)
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
        version, *content = _Builtins(io.BytesIO(inflated)).load()
        if version != VERSION:
            raise TrackingError(
                f"a task reported in version {version}, the driver reads {VERSION}: install one"
            )
        packed_fields, marks_bytes, few_marks = content
        return _report(packed_fields, marks_bytes, few_marks + inflate.unused_data)
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


def _report(packed_fields: Sequence[Any], marks_bytes: int, packed_marks: bytes) -> TaskReport:
    """Return a report from its fields as builtins, and from its marks, of `marks_bytes` bytes."""
    if len(packed_marks) != marks_bytes:
        raise ValueError(f"{len(packed_marks):,} bytes of marks, which are {marks_bytes:,}")
    fields: dict[str, Any] = {}
    for (name, codec), packed_field in zip(_CODECS.items(), packed_fields, strict=True):
        fields[name] = codec.unpack(packed_field)
    return TaskReport(**fields, marks=RootMarks.unpacked(packed_marks))


def _is_received(packed: tuple[int, bytes]) -> npt.NDArray[np.bool_]:
    """Return a flag for each root, from how many there are, and the flags as bits."""
    count, packed_bits = packed
    return np.unpackbits(np.frombuffer(packed_bits, np.uint8), count=count).view(np.bool_)


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


def _packed_counts(counts: Counts) -> list[tuple[Any, ...]]:
    """Return of each count what was counted, the component, its stream and the measure, as
    builtins.
    """
    return [
        (str(counted.what), counted.component, tuple(counted.stream), tuple(measure))
        for counted, measure in counts.items()
    ]


def _counts(packed: Iterable[tuple[Any, ...]]) -> Counts:
    """Return the counts of which `_packed_counts` made these builtins."""
    counts: dict[Counted, Measure] = {}
    for what, component, stream, measure in packed:
        counts[Counted(What(what), component, StreamId(*stream))] = Measure(*measure)
    return counts


def _missing_fields(missing: Missing) -> tuple[Any, ...]:
    """Return the fields of what was missing as builtins, in the order of `Missing`."""
    return missing.absent.table.tolist(), missing.lost_count, list(map(tuple, missing.damaged))


def _missing(fields: tuple[Any, ...]) -> Missing:
    """Return what was missing, of which `_missing_fields` made these builtins."""
    absent, lost_count, damaged = fields
    damaged_runs = tuple(DamagedRun(*run) for run in damaged)
    return Missing(RootSet.of_runs(absent), lost_count, damaged_runs)


def _lined_fields(lined_records: LinedRecords) -> tuple[str, str, _Steps, bytes, _Steps]:
    """Return as builtins which records of a partition are in which line (`spout.planning.order`).

    A record is its index in the plan, its line (a hash of its key), and its origin, the offset of
    its first emission.
    """
    # Indices and origins mostly ascend by one: as differences they shrink to nothing, and deflate
    # takes a third of the time. Differences of hashes are as random as these.
    return (
        lined_records.partition_name,
        lined_records.operator,
        _steps(lined_records.indices),
        _pack(lined_records.lines),
        _steps(lined_records.origins),
    )


def _lined_records(
    partition_name: str, operator: str, indices: _Steps, lines: bytes, origins: _Steps
) -> LinedRecords:
    """Return the `LinedRecords` of which `_lined_fields` made these builtins."""
    columns = [_from_steps(*indices), _unpack(lines), _from_steps(*origins)]
    return LinedRecords(partition_name, operator, np.stack(columns, axis=1))


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


class _Codec(NamedTuple):
    """How a field of a report becomes builtins, and how these become the field again."""

    pack: Callable[[Any], object]
    unpack: Callable[[Any], object]


_TEXT: Final = _Codec(lambda text: text, lambda text: text)


def _optional(codec: _Codec) -> _Codec:
    """Return the codec of a field that may be None."""
    return _Codec(
        lambda field: None if field is None else codec.pack(field),
        lambda packed: None if packed is None else codec.unpack(packed),
    )


def _named_tuples(kind: Callable[..., object]) -> _Codec:
    """Return the codec of a tuple of named tuples of one kind."""
    return _Codec(
        lambda members: list(map(tuple, members)),
        lambda packed: tuple(kind(*fields) for fields in packed),
    )


_CODECS: Final = {
    "operator": _TEXT,
    "upstream": _TEXT,
    "consumer": _TEXT,
    "task": _Codec(tuple, lambda fields: TaskId(*fields)),
    "plan": _optional(_Codec(_plan_fields, _plan)),
    "ranges": _named_tuples(SourceRun),
    # how many flags there are, and the flags as bits
    "received": _optional(_Codec(lambda flags: (len(flags), np.packbits(flags).tobytes()), _is_received)),
    # pairs of a path and the columns of its rows
    "outstanding": _Codec(
        lambda rows_by_path: [(path, list(map(_steps, rows.T))) for path, rows in rows_by_path.items()],
        lambda packed: {path: _columns(steps) for path, steps in packed},
    ),
    "received_fingerprint": _Codec(tuple, lambda fields: Fingerprint(*fields)),
    "sent_fingerprint": _Codec(tuple, lambda fields: Fingerprint(*fields)),
    "counts": _Codec(_packed_counts, _counts),
    "errors": _named_tuples(Cause),
    "lined_records": _Codec(
        lambda partitions: list(map(_lined_fields, partitions)),
        lambda packed: tuple(_lined_records(*fields) for fields in packed),
    ),
    "raised": _named_tuples(Raised),
    "missing": _Codec(_missing_fields, _missing),
    "highest_times": _Codec(
        lambda times: [(highest.name, highest.at_ms, tuple(highest.run)) for highest in times],
        lambda packed: tuple(HighestTime(name, at_ms, SourceRun(*run)) for name, at_ms, run in packed),
    ),
}
"""The fields of `TaskReport` but its marks, in the order in which they are pickled.

A task reports only highest times that are not of a `hold`.
"""

"""A task's report as bytes, small enough to travel in an accumulator: usually some hundred bytes.

Plain builtins are pickled and deflated. Only the tasks of our own queries write blobs, and only the driver
that started them reads them.

Source: DESIGN.md, section 5.2 ("The ledger goes beside the data").
"""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import numpy as np

from acker.errors import TrackingError
from acker.events import SourceRun
from acker.identity import I64
from spout.collector import Cause
from spout.fold import Fingerprint, TaskReport
from spout.plan import BatchPlan

VERSION = 1
_LEVEL = 1  # the fastest: bitmaps and ascending indices shrink well at any level


def encode(report: TaskReport) -> bytes:
    """Encode a task's report."""
    plan = report.plan
    content = (
        VERSION,
        report.operator,
        report.upstream,
        report.consumer,
        plan and _plan_fields(plan),
        [tuple(run) for run in report.ranges],
        [tuple(run) for run in report.absent],
        None if report.received is None else (len(report.received), np.packbits(report.received).tobytes()),
        [(tuple(cause), _pack(indices)) for cause, indices in report.failures],
        [(path, _pack(rows)) for path, rows in report.outstanding.items()],
        _pack(report.touched),
        tuple(report.took),
        tuple(report.gave),
    )
    return zlib.compress(pickle.dumps(content, protocol=5), _LEVEL)


def decode(blob: bytes) -> TaskReport:
    """Decode a task's report.

    Raises:
        TrackingError: executor and driver run different versions of Windhover.
    """
    version, *content = pickle.loads(zlib.decompress(blob))
    if version != VERSION:
        raise TrackingError(f"a task reported in version {version}, the driver reads {VERSION}: install one")
    operator, upstream, consumer, plan, ranges, absent, received, failures, outstanding, touched, *prints = (
        content
    )
    took, gave = prints
    return TaskReport(
        operator=operator,
        upstream=upstream,
        consumer=consumer,
        plan=plan and _plan(plan),
        ranges=tuple(SourceRun(*run) for run in ranges),
        absent=tuple(SourceRun(*run) for run in absent),
        received=received and np.unpackbits(_bytes(received[1]), count=received[0]).view(np.bool_),
        failures=tuple((Cause(*cause), _unpack(packed)) for cause, packed in failures),
        outstanding={path: _unpack(packed).reshape(-1, 1 + len(path)) for path, packed in outstanding},
        touched=_unpack(touched),
        took=Fingerprint(*took),
        gave=Fingerprint(*gave),
    )


def _plan_fields(plan: BatchPlan) -> tuple[Any, ...]:
    return (
        plan.group,
        plan.session,
        plan.epoch,
        plan.partitions,
        plan.now,
        plan.timeout_ms,
        plan.tracked,
        [tuple(run) for run in plan.ranges],
    )


def _plan(fields: tuple[Any, ...]) -> BatchPlan:
    *named, ranges = fields
    return BatchPlan(*named, ranges=tuple(SourceRun(*run) for run in ranges))  # type: ignore[misc]


def _pack(array: I64) -> bytes:
    return array.astype("<i8", copy=False).tobytes()


def _unpack(packed: bytes) -> I64:
    return np.frombuffer(packed, "<i8").astype(np.int64, copy=False)


def _bytes(packed: bytes) -> np.typing.NDArray[np.uint8]:
    return np.frombuffer(packed, np.uint8)

"""What a source needs to know, as one value that travels in one data source option.

`spout.read_stream` builds it in the driver; the planning process and every read task find it in the
option ``windhover``. It carries objects (bolts, an accumulator), which Spark's string options cannot, so
it is pickled and base64 encoded. It comes from the driver's own session only, never from Kafka.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from acker.errors import UsageError
from acker.topics import Input, Topics

if TYPE_CHECKING:
    from spout.passes import Pass

OPTION = "windhover"
"""Name of the data source option that holds the encoded value."""

SOURCE_COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""Columns of `read_stream`, as Spark's Kafka connector has them; ``headers`` follows on request."""

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
ANCHOR = "_windhover"
"""The hidden column that ties a row to its root; see `spout.anchors`."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything that one `read_stream` call decided.

    Attributes:
        topics: topics.yaml as it was read, with Kafka's client settings.
        inputs: names of the inputs to read; all of one group.
        stream: id of this `read_stream` call within its application; blobs name it.
        starting_offsets: where a group without history begins: ``earliest``, ``latest``, an ISO 8601 time,
            or None for the `start` of each input.
        max_offsets_per_trigger: most records in a micro-batch, or None.
        min_partitions: fewest read tasks in a micro-batch, or None.
        parallelism: cores that run read tasks, or None for those of the driver's machine.
        include_headers: whether the rows have a ``headers`` column.
        fail_on_data_loss: overrides every input's `on_data_loss`, or None.
        tracked: whether this query takes part in the guarantee.
        take_over: whether a refused checkpoint is kept and a new session drawn.
        status_path: file to which the planning process writes its status, or None.
        sink_folder: where the sink leaves the marks of what it has published; see `spout.sink_watch`.
        schema: Spark DDL of the rows that a read task returns.
        columns: names of the source's columns that it returns when no bolt runs inside it.
        anchored: whether the hidden anchor column ends each row.
        narrow: the bolts that run inside the read task, or None.
        ledger: the accumulator to which a tracked read task adds its blob, or None.
    """

    topics: Topics
    inputs: tuple[str, ...]
    stream: str
    starting_offsets: str | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    parallelism: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool | None = None
    tracked: bool = True
    take_over: bool = False
    status_path: str | None = None
    sink_folder: str = ""
    schema: str = ""
    columns: tuple[str, ...] = tuple(SOURCE_COLUMNS)
    anchored: bool = False
    narrow: Pass | None = None
    ledger: Any = field(default=None, repr=False)

    @property
    def read(self) -> tuple[Input, ...]:
        """The inputs to read, in the order in which they were named."""
        return tuple(self.topics.inputs[name] for name in self.inputs)

    @property
    def group(self) -> str:
        """The group whose offsets this source settles."""
        return self.read[0].group


def encode(options: SourceOptions) -> str:
    """Encode options as the text of one data source option."""
    pickled: bytes = cloudpickle.dumps(options)  # type: ignore[no-untyped-call]
    return base64.b64encode(pickled).decode("ascii")


def decode(options: Mapping[str, str]) -> SourceOptions:
    """Find and decode the value among a data source's options.

    Raises:
        UsageError: the option is not there or is not ours: the source was not made by `read_stream`.
    """
    text = options.get(OPTION)
    if text is None:
        raise UsageError(
            'format("windhover") is built by spout.read_stream(spark, topics, "input"); call that'
        )
    value = pickle.loads(base64.b64decode(text))
    if not isinstance(value, SourceOptions):
        raise UsageError(
            f"the option {OPTION!r} holds a {type(value).__name__}, not what read_stream encodes"
        )
    return value

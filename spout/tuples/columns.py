"""Names of columns: of those that a user sees, and of the hidden ones."""

from __future__ import annotations

from collections.abc import Mapping

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
"""The hidden column that ties a row to its root; see `spout.tuples.anchors`."""

TO = "_to"
"""Between two stages: the streams that a row is for; see `spout.topology.stage_pass`."""

TASK = "_task"
"""Between two stages: the task that a row goes to."""

COLUMN = "s{}"
"""Name of the column with the tuples of the stream of this number."""

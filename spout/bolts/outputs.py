"""The output that a bolt declares, as a Spark schema and as an Arrow schema."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from acker.errors import UsageError
from spout.bolts.bolts import AnyBolt, OutputDeclarer
from spout.spark.private import arrow_schema_of
from spout.tuples.columns import ANCHOR, TASK, TO
from spout.tuples.tuple import DEFAULT_STREAM


def parse_output(bolt: str, output: str) -> StructType:
    """Read the fields of a stream; `UsageError`: no valid DDL, no fields, or a name that none may have."""
    try:
        parsed = StructType.fromDDL(output)
    except PySparkException as error:
        raise UsageError(f"bolt {bolt!r}: output = {output!r} is no schema: {error}") from error
    if not isinstance(parsed, StructType) or not parsed.names or _has_no_name_of_its_own(parsed.names):
        raise UsageError(
            f'bolt {bolt!r}: output = {output!r}; name fields and types, as "word string", each once, and'
            f" none {TASK} or {TO}, or with a name that begins with {ANCHOR}"
        )
    return parsed


def _has_no_name_of_its_own(names: Sequence[str]) -> bool:
    is_taken = any(name in (TASK, TO) or name.startswith(ANCHOR) for name in names)
    return is_taken or len(set(names)) < len(names)


def output_schema(bolt: str, instance: AnyBolt) -> pa.Schema:
    """Return the Arrow schema of the output of a bolt that is used without a `TopologyBuilder`.

    Raises `UsageError`: see `parse_output`; or it does not declare exactly the default stream, or as direct.
    """
    declarer = OutputDeclarer()
    instance.declare(declarer)
    output, direct = declarer.streams.get(DEFAULT_STREAM, ("", False))
    if direct or declarer.streams.keys() != {DEFAULT_STREAM}:
        found = ", ".join(declarer.streams) or "no stream"
        raise UsageError(
            f"bolt {bolt!r} declares {found}; on a DataFrame a bolt has the stream {DEFAULT_STREAM!r} alone,"
            " not direct: put it into a spout.TopologyBuilder"
        )
    return arrow_schema_of(parse_output(bolt, output))

"""The records of a publication as bytes that a store keeps, and back.

The bytes are a stream of Arrow's, one row for each record, in the order in which they are written.
A later version may read the store, so the schema carries a number.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acker.errors import TrackingError
from acker.kafka.port import Headers, Outgoing
from spout.publishing.publish import PublicationRecords

VERSION: Final = b"1"
VERSION_KEY: Final = b"windhover.publication"

_HEADER: Final = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
_SCHEMA: Final = pa.schema(
    [
        ("is_fail", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("value", pa.binary()),
        ("headers", pa.list_(_HEADER)),
    ],
    metadata={VERSION_KEY: VERSION},
)


def packed_publication(records: PublicationRecords) -> bytes:
    """Return the bytes from which `unpacked_publication` makes the same records."""
    fails_then_acks = [*records.fails, *records.acks]
    columns = {
        "is_fail": [True] * len(records.fails) + [False] * len(records.acks),
        "topic": [record.topic for record in fails_then_acks],
        "partition": [record.partition for record in fails_then_acks],
        "value": [record.value for record in fails_then_acks],
        "headers": [_header_structs(record.headers) for record in fails_then_acks],
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_table(pa.table(columns, schema=_SCHEMA))
    return bytes(sink.getvalue())


def unpacked_publication(packed: bytes) -> PublicationRecords:
    """Return the records of a publication from the bytes of `packed_publication`.

    Raises `TrackingError`: the bytes are something else, or of another version.
    """
    try:
        table = pa.ipc.open_stream(packed).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(f"{type(error).__name__}: {error}") from error
    if not table.schema.equals(_SCHEMA, check_metadata=True):
        raise _unreadable("it is of another version, or no publication")
    if any(table.column(name).null_count for name in ("is_fail", "topic", "partition")):
        raise _unreadable("a record lacks its place")
    fails: list[Outgoing] = []
    acks: list[Outgoing] = []
    columns = [table.column(name).to_pylist() for name in _SCHEMA.names]
    for is_fail, topic, partition, value, headers in zip(*columns, strict=True):
        record = Outgoing(topic, partition, value, headers=_headers_of(headers))
        records = fails if is_fail else acks
        records.append(record)
    return PublicationRecords(tuple(fails), tuple(acks))


def _header_structs(headers: Headers) -> list[dict[str, str | bytes | None]]:
    return [{"name": name, "value": value} for name, value in headers]


def _headers_of(headers: list[dict[str, bytes]] | None) -> Headers:
    return tuple((str(header["name"]), header["value"]) for header in headers or ())


def _unreadable(why: str) -> TrackingError:
    return TrackingError(
        f"the store's last publication cannot be read ({why}); go on with the version of Windhover"
        " that wrote it"
    )

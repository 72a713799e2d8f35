"""A publication in a store: it comes back as it was, or not at all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import TrackingError
from acker.kafka.port import Outgoing
from spout.exactly_once.publication_bytes import packed_publication, unpacked_publication
from spout.publishing.publish import PublicationRecords

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(
        Outgoing,
        topic=st.sampled_from(["_ack_ack", "_ack_fail", "é._ack_ack"]),
        partition=st.integers(0, 1023),
        value=st.none() | st.binary(max_size=20),
        key=st.none(),
        timestamp_ms=st.none(),
        headers=HEADERS,
    ),
    max_size=4,
).map(tuple)


@given(RECORDS, RECORDS)
def test_a_publication_comes_back_in_its_order(
    fails: tuple[Outgoing, ...], acks: tuple[Outgoing, ...]
) -> None:
    records = PublicationRecords(fails, acks)

    assert unpacked_publication(packed_publication(records)) == records


PACKED = packed_publication(PublicationRecords((), (Outgoing("_ack_ack", 0, b"1"),)))


def _with_column(name: str, column: pa.Array) -> bytes:
    """Return a publication in which one column is another one."""
    table = pa.ipc.open_stream(PACKED).read_all()
    number = table.column_names.index(name)
    return _written(table.set_column(number, table.schema.field(number), column))


def _without_number() -> bytes:
    table = pa.ipc.open_stream(PACKED).read_all()
    return _written(table.replace_schema_metadata({"windhover.publication": "2"}))


def _written(table: pa.Table) -> bytes:
    """Return a table as Arrow's bytes, whatever is in it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"garbage",
        packed_publication(PublicationRecords((), ()))[:-40],
        _without_number(),
        _with_column("topic", pa.array([b"\xff"], pa.binary()).view(pa.string())),
        _with_column("is_fail", pa.array([None], pa.bool_())),
        _with_column("topic", pa.array([None], pa.string())),
        _with_column("partition", pa.array([None], pa.int32())),
    ],
    ids=[
        "nothing",
        "garbage",
        "cut short",
        "another version",
        "no text",
        "no kind",
        "no topic",
        "no partition",
    ],
)
def test_what_is_no_publication_of_this_version_is_refused(packed: bytes) -> None:
    with pytest.raises(TrackingError, match=r"cannot be read.*go on with the version of Windhover"):
        unpacked_publication(packed)

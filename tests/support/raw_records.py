"""Records written byte by byte, past every client: what other clients may write, and ours cannot.

A batch is encoded here (version 2 of Kafka's record format, KIP-98) and sent in a Produce request over a
plain socket. So a header's name may be any bytes, a timestamp any number, and the codec any that there is.

Source: kafka.apache.org/protocol, "Record Batch" and "Produce API".
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from acker.kafka.port import TopicPartition
from tests.support.waiting import eventually

HEAD: Final = struct.Struct(">qiibIhiqqqhii")
"""A batch before its records: base offset, length, leader's epoch, magic, checksum, attributes, last offset's
delta, first and last timestamp, producer's id, its epoch, its first sequence, number of records."""

CHECKED_FROM: Final = 21
"""The checksum is of all that follows it; the four fields before it may change without a word."""

LENGTH_FROM: Final = 12
"""The length counts what follows it."""

_CORRELATION: Final = 7
_PRODUCE: Final = 0
_PRODUCE_VERSION: Final = 7
_ACKS_ALL: Final = -1
_TIMEOUT_S: Final = 20.0
_NO_LEADER_YET: Final = frozenset({3, 5, 6})
"""UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER."""


class Codec(IntEnum):
    """How the records of a batch are compressed, as its attributes say."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    def compress(self, data: bytes) -> bytes:
        """Compress the records of a batch."""
        if self is Codec.NONE:
            return data
        packed: bytes = pa.Codec(self.name.lower()).compress(data, asbytes=True)
        return packed


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record, all of it bytes. `timestamp_ms` None: now."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        """Bytes of its parts."""
        parts = [self.value, self.key, *(part for header in self.headers for part in header)]
        return sum(len(part) for part in parts if part is not None)


class Refused(Exception):
    """The broker did not take a batch; `code` is Kafka's number of the error."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the broker refused the batch with error {code}")
        self.code = code


def encode_batch(records: Sequence[RawRecord], codec: Codec = Codec.NONE) -> bytes:
    """Return one batch of records, as a producer without transactions writes it."""
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
    encoded = [
        _encode_record(record, number, time_ms - times[0])
        for number, (record, time_ms) in enumerate(zip(records, times, strict=True))
    ]
    body = codec.compress(b"".join(encoded))
    fields = (codec, len(records) - 1, times[0], max(times), -1, -1, -1, len(records))
    head = HEAD.pack(0, HEAD.size - LENGTH_FROM + len(body), 0, 2, 0, *fields)
    return with_checksum(head + body)


def with_checksum(batch: bytes) -> bytes:
    """Return a batch with the checksum that its present bytes have."""
    return batch[: CHECKED_FROM - 4] + struct.pack(">I", crc32c(batch[CHECKED_FROM:])) + batch[CHECKED_FROM:]


def produce(bootstrap: str, place: TopicPartition, batch: bytes) -> int:
    """Send a batch to the broker that leads its partition; return the offset of its first record.

    A topic that was created a moment ago may not have its leaders yet: it is sent again then.

    Raises:
        Refused: the broker does not take it.
    """
    placed: list[int] = []

    def is_taken() -> bool:
        try:
            placed.append(_produce_once(bootstrap, place, batch))
        except Refused as error:
            if error.code not in _NO_LEADER_YET:
                raise
        return bool(placed)

    eventually(is_taken)
    return placed[0]


def produce_at_any(addresses: Iterable[str], place: TopicPartition, batch: bytes) -> int | None:
    """Offer a batch to one broker after the other; return its offset, None if none said that it took it.

    A broker that dies meanwhile may have taken it all the same.
    """
    for address in addresses:
        try:
            return _produce_once(address, place, batch)
        except (Refused, OSError):
            continue
    return None


def _produce_once(bootstrap: str, place: TopicPartition, batch: bytes) -> int:
    topic = place.topic.encode()
    body = b"".join(
        (
            struct.pack(">hhih", _PRODUCE, _PRODUCE_VERSION, _CORRELATION, -1),  # no client id
            struct.pack(">hhi", -1, _ACKS_ALL, int(_TIMEOUT_S * 1000)),  # no transactional id
            struct.pack(">ih", 1, len(topic)), topic,
            struct.pack(">iii", 1, place.partition, len(batch)), batch,
        )
    )  # fmt: skip
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    # correlation id, number of topics, the topic's name, number of partitions, the partition's number
    partition_from = 4 + 4 + 2 + len(topic) + 4 + 4
    code, offset = struct.unpack_from(">hq", answer, partition_from)
    if code:
        raise Refused(code)
    return int(offset)


def produce_each(bootstrap: str, place: TopicPartition, records: Iterable[RawRecord]) -> list[int]:
    """Send records in batches of one; return their offsets."""
    return [produce(bootstrap, place, encode_batch([record])) for record in records]


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes, with which Kafka guards a batch."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_TABLE: Final = [_table_entry(byte) for byte in range(256)]


def _encode_record(record: RawRecord, offset_delta: int, time_delta_ms: int) -> bytes:
    parts = [b"\x00", _varint(time_delta_ms), _varint(offset_delta)]
    parts += [_nullable(record.key), _nullable(record.value), _varint(len(record.headers))]
    for name, value in record.headers:
        parts += [_nullable(name), _nullable(value)]
    body = b"".join(parts)
    return _varint(len(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Encode a number as Kafka does: zigzag, seven bits a byte, the lowest first."""
    left = ((number << 1) ^ (number >> 63)) & 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while left > 0x7F:
        encoded.append((left & 0x7F) | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError(f"the broker hung up after {len(received)} of {size} bytes")
        received += piece
    return bytes(received)

"""Damage to what a broker has on disk: bytes of one batch of a partition are changed where they lie.

The broker may run meanwhile: it sends what the file holds. What it checked when the batch was written it
does not check again, so a reader is the first who can notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from acker.kafka.port import TopicPartition
from tests.support.raw_records import HEAD, LENGTH_FROM, with_checksum

_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CHECKSUM_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_LAST_DELTA_AT: Final = 23


class Batch(NamedTuple):
    """A batch of a segment: the file, where it lies in it, and the offsets [start, end) of its records."""

    file: Path
    at: int
    size: int
    start: int
    end: int


class Damage(StrEnum):
    """What was done to a batch."""

    VALUE = "a byte of a record was changed"
    CHECKSUM = "the checksum was changed"
    ZEROS = "all of it is zero"
    PACKED = "a byte of the records was changed, and the checksum made to fit"
    CODEC = "it names a codec that there is none of, and the checksum fits"
    LAST_OFFSET = "it says that its records go on further than they do"
    SHORT_LENGTH = "it says that it is shorter than its own head"
    LONG_LENGTH = "it says that it is longer than the file"
    MAGIC = "it is of a version that there is none of"


def _changed(batch: bytes, at: int) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 0x55]) + batch[at + 1 :]


def _replaced(batch: bytes, at: int, put: bytes) -> bytes:
    return batch[:at] + put + batch[at + len(put) :]


def _packed(batch: bytes) -> bytes:
    """Spoil the first quarter of the records, so that they neither unpack nor can be read one by one."""
    for at in range(HEAD.size, HEAD.size + max(1, (len(batch) - HEAD.size) // 4)):
        batch = _changed(batch, at)
    return with_checksum(batch)


DAMAGES: Final[Mapping[Damage, Callable[[bytes], bytes]]] = MappingProxyType(
    {
        Damage.VALUE: lambda batch: _changed(batch, (HEAD.size + len(batch)) // 2),
        Damage.CHECKSUM: lambda batch: _changed(batch, _CHECKSUM_AT),
        Damage.ZEROS: lambda batch: bytes(len(batch)),
        Damage.PACKED: _packed,
        Damage.CODEC: lambda batch: with_checksum(_replaced(batch, _ATTRIBUTES_AT, b"\x00\x07")),
        Damage.LAST_OFFSET: lambda batch: _replaced(batch, _LAST_DELTA_AT, b"\x00\x00\x0f\xff"),
        Damage.SHORT_LENGTH: lambda batch: _replaced(batch, _LENGTH_AT, b"\x00\x00\x00\x05"),
        Damage.LONG_LENGTH: lambda batch: _replaced(batch, _LENGTH_AT, b"\x00\x7f\xff\xff"),
        Damage.MAGIC: lambda batch: _replaced(batch, _MAGIC_AT, b"\x09"),
    }
)
"""What each kind makes of a batch's bytes."""


def batches(data: Path, place: TopicPartition) -> list[Batch]:
    """Return the batches of a partition in a broker's data folder, in order; none may be damaged yet."""
    folder = data / f"{place.topic}-{place.partition}"
    listed: list[Batch] = []
    for file in sorted(folder.glob("*.log")):
        content = file.read_bytes()
        at = 0
        while at + HEAD.size <= len(content):
            start, length, *_ = HEAD.unpack_from(content, at)
            last_delta = HEAD.unpack_from(content, at)[6]
            listed.append(Batch(file, at, LENGTH_FROM + length, start, start + last_delta + 1))
            at += LENGTH_FROM + length
    return listed


def spoil(batch: Batch, damage: Damage) -> None:
    """Damage a batch where it lies."""
    with batch.file.open("r+b") as file:
        file.seek(batch.at)
        content = file.read(batch.size)
        file.seek(batch.at)
        file.write(DAMAGES[damage](content))

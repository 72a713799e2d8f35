"""What a batch of a source topic may unpack to, and whether those who read it have the memory; pure.

A topic bounds a batch as it is packed (`max.message.bytes`), and no client but that of zstd bounds what comes
out of it. Whoever may write to a topic can so take memory from all that read it.

Source: the formats' own limits, and librdkafka 2.16, `rdgz.c`, `rdkafka_lz4.c`, `rdkafka_zstd.c`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from acker.config.topics import Topics
from acker.kafka.port import TopicInfo
from acker.provisioning.topic_specs import MESSAGE_BYTES, Finding, Level

COMPRESSION: Final = "compression.type"
"""The broker packs batches anew that are packed otherwise; under `producer` they stay as they came."""

RATIOS: Final[Mapping[str, int]] = MappingProxyType(
    {"producer": 1032, "gzip": 1032, "lz4": 255, "snappy": 22, "zstd": 1032, "uncompressed": 1}
)
"""How many bytes may come out of one, at most; of `producer`, as of the codec that packs most."""

ZSTD_BYTES_MAX: Final = 100_000_000
"""The client unpacks no more of zstd (`receive.message.max.bytes`): a batch of more counts as damaged."""

HELD_TWICE: Final = 2
"""The client has what it has unpacked, and a record is copied out of it."""

READER_BYTES: Final = 2_560 << 20
"""Memory of a replay worker and of a page in ``deploy/``: twice what a megabyte of gzip unpacks to, and room
for the process itself."""

OWN_BYTES: Final = 256 << 20
"""What a process needs besides."""


def unpacked_bytes_max(settings: Mapping[str, str]) -> int:
    """Return what one batch of a topic with these settings may unpack to, in bytes."""
    codec = settings.get(COMPRESSION, "producer")
    packed = int(settings.get("max.message.bytes", MESSAGE_BYTES))
    unpacked = packed * RATIOS.get(codec, RATIOS["producer"])
    return min(unpacked, ZSTD_BYTES_MAX) if codec == "zstd" else unpacked


def large_batches(topics: Topics, infos: Mapping[str, TopicInfo]) -> Iterator[Finding]:
    """Yield a warning for each source topic of which one batch may take more memory than readers have."""
    for name in dict.fromkeys(input.topic for input in topics.inputs.values()):
        info = infos.get(name)
        if info is None:
            continue
        needed_bytes = HELD_TWICE * unpacked_bytes_max(info.settings) + OWN_BYTES
        if needed_bytes <= READER_BYTES:
            continue
        has = info.settings.get("max.message.bytes", str(MESSAGE_BYTES))
        codec = info.settings.get(COMPRESSION, "producer")
        text = (
            f"has max.message.bytes={has} and {COMPRESSION}={codec}: somebody who may write there can write a"
            f" batch that takes {needed_bytes >> 20:,} MiB of each process that reads it, and deploy/ gives"
            f" {READER_BYTES >> 20:,}: lower max.message.bytes, give readers that much, or let the broker"
            f" unpack it, in its heap ({COMPRESSION}=zstd)"
        )
        yield Finding(name, Level.WARNING, text)

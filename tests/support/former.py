"""What former commits of this repository left in Kafka and in a checkpoint, read from tests/data/former."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fastavro

from acker.kafka.port import Outgoing, TopicPartition
from tests.support.memory.cluster import MemoryCluster

FOLDER: Final = Path(__file__).parents[1] / "data" / "former"
COMMITS: Final = ("69f5969", "8a65839", "89734f5")
"""The first with acker and spout; the first with Storm's API; the last before the code was cut into rooms."""

_OWNER: Final = "former"


@dataclass(frozen=True, slots=True)
class FormerInstallation:
    """Everything of an installation that outlives its processes.

    Attributes:
        cluster: its topics, with the offsets that its groups have committed.
        text: its topics.yaml.
        offsets: what Spark journalled of its query, the oldest first.
        schemas: the Avro schemas of that commit, in their canonical form.
    """

    cluster: MemoryCluster
    text: str
    offsets: Sequence[Mapping[str, Any]]
    schemas: Sequence[str]


def former_installation(commit: str) -> FormerInstallation:
    with (FOLDER / f"{commit}.avro").open("rb") as stored:
        reader = fastavro.reader(stored)
        records: list[dict[str, Any]] = [dict(record) for record in reader]  # type: ignore[call-overload]
        metadata = reader.metadata
    cluster = MemoryCluster(int(metadata["now_ms"]))
    ids: dict[str, str] = json.loads(metadata["ids"])
    partitions = dict.fromkeys(ids, 2)  # of every topic in the files
    for name in sorted(ids, key=lambda name: int(ids[name].rpartition("-")[2])):
        cluster.create_topic(name, partitions[name])
    if {name: info.id for name, info in cluster.infos(ids).items()} != ids:
        raise AssertionError(f"topics of {commit} cannot have their ids here: {ids}")
    for at, record in enumerate(records):
        _append(
            cluster, record, is_last_of_transaction=at + 1 < len(records) and records[at + 1]["is_marker"]
        )
    for group, offsets in json.loads(metadata["committed"]).items():
        for topic, partition, offset, text in offsets:
            cluster.commit(group, {TopicPartition(topic, partition): offset}, text, {})
    loaded = [json.loads(metadata[name]) for name in ("journals", "schemas")]
    return FormerInstallation(cluster, metadata["topics.yaml"], loaded[0], loaded[1])


def _append(cluster: MemoryCluster, record: Mapping[str, Any], *, is_last_of_transaction: bool) -> None:
    """Append a record, or a marker, so that every record has the offset that it had."""
    place = TopicPartition(record["topic"], record["partition"])
    partition = cluster.partition(place)
    if record["is_marker"]:
        partition.end_transaction(_OWNER, record["timestamp_ms"], committed=True)
    else:
        headers = tuple(record["headers"].items())
        written = Outgoing(*place, record["value"], record["key"], headers, record["timestamp_ms"])
        partition.append(written, record["timestamp_ms"], _OWNER if is_last_of_transaction else None)
    if partition.end != record["offset"] + 1:
        raise AssertionError(f"{place} ends at {partition.end} behind offset {record['offset']}")

"""What a query of the benchmarks reads, by whom, and whether with the guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import Topics


class How(Enum):
    """Who reads the topic, and whether with the guarantee."""

    TRACKED = "tracked"
    UNTRACKED = "untracked"
    CONNECTOR = "connector"
    """Spark's own source, ``format("kafka")``, and the functions of the bolts in its ``mapInArrow``."""


@dataclass(frozen=True, slots=True)
class Contest:
    """What a query of the benchmark reads, and how."""

    spark: SparkSession
    topics: Topics
    input_name: str
    how: How
    checkpoint: Path
    batch_records: int
    status: Path | None = None
    starting: str = "earliest"
    database: str = ""
    """The connection string of a PostgreSQL, for a pipeline that writes into it."""


def read_records(contest: Contest, *, delayed_acks: bool = False) -> DataFrame:
    if contest.how is How.CONNECTOR:
        source = contest.topics.input(contest.input_name)
        reader = contest.spark.readStream.format("kafka").option("subscribe", source.topic)
        reader = reader.option("kafka.bootstrap.servers", contest.topics.kafka["bootstrap.servers"])
        reader = reader.option("maxOffsetsPerTrigger", contest.batch_records)
        return reader.option("startingOffsets", contest.starting).load()
    return spout.read_stream(
        contest.spark,
        contest.topics,
        contest.input_name,
        startingOffsets=contest.starting,
        maxOffsetsPerTrigger=contest.batch_records,
        tracked=contest.how is How.TRACKED,
        delayed_acks=delayed_acks,
        status_path=contest.status,
    )

"""What a demo runs on: its options, and the broker, processes, topics and Spark that it sets up."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from acker import provision
from acker.errors import UsageError
from acker.kafka_log import KafkaLog
from acker.log import Log, TopicPartition
from acker.topics import Input, Topics, load
from spout.child import Child
from spout.demo.counts import WordTable
from spout.demo.spark import local_session, warm_up
from spout.embedded import EmbeddedBroker
from spout.up import BOOTSTRAP

INPUT = "sentences"
READY_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says. `rate` is in records per second; None: as fast as it goes.

    `port` is that of the embedded broker; None: a free one.
    """

    records: int = 50_000
    input: Path | None = None
    rate: float | None = None
    json: bool = False
    keep: bool = False
    bootstrap: str | None = None
    port: int | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            UsageError: a value is out of its range.
        """
        if self.records < 1:
            raise UsageError(f"--records {self.records}: there must be at least 1 record")
        if self.rate is not None and self.rate <= 0:
            raise UsageError(f"--rate {self.rate}: must be more than 0 records per second")
        if self.port is not None and self.bootstrap is not None:
            raise UsageError(
                f"--port {self.port} is for the demo's own broker, and --bootstrap names another; give one"
            )


@dataclass(slots=True)
class Stage:
    """What a running demo consists of."""

    options: DemoOptions
    config: Path
    topics: Topics
    bootstrap: str
    log: Log
    folder: Path
    acker: Child | None
    console: Console
    words: WordTable
    status_path: Path
    acker_kills: int = 0
    failures: list[BaseException] = field(default_factory=list)

    @property
    def source(self) -> Input:
        """The demo's one input."""
        return self.topics.inputs[INPUT]

    def partitions(self) -> list[TopicPartition]:
        """List the partitions of the source topic."""
        count = self.log.topics([self.source.topic])[self.source.topic].partitions
        return [TopicPartition(self.source.topic, number) for number in range(count)]


def default_config() -> Path:
    """Return the topics.yaml that the demo runs: the one in the package, else the project's own."""
    here = Path(__file__).resolve()
    for candidate in (here.with_name("topics.yaml"), here.parents[2] / "topics.yaml"):
        if candidate.is_file():
            return candidate
    raise UsageError("the demo's topics.yaml is not beside the package; name one with --config")


def set_up(options: DemoOptions, environ: Mapping[str, str], console: Console, stack: ExitStack) -> Stage:
    """Start a broker unless there is one, the topics, an acker and a replay worker; `stack` ends them."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windhover-demo-")))
    config = options.config or default_config()
    bootstrap = options.bootstrap
    if bootstrap is None:
        broker = stack.enter_context(EmbeddedBroker(folder / "kafka", options.port, progress=console.print))
        bootstrap = broker.bootstrap
    environ = {**environ, BOOTSTRAP: bootstrap}  # what the topics.yaml of the demo refers to
    topics = load(config, environ)
    if INPUT not in topics.inputs:
        raise UsageError(f"{config} has no input {INPUT!r}; the demo runs that one")
    log = KafkaLog(topics.kafka)
    stack.callback(log.close)
    provision.create_topics(topics)
    acker = None if options.bootstrap else _start_children(config, environ, console, stack)
    words = WordTable(folder / "words.sqlite")
    stack.callback(words.close)
    return Stage(
        options, config, topics, bootstrap, log, folder, acker, console, words, folder / "status.json"
    )


def _start_children(config: Path, environ: Mapping[str, str], console: Console, stack: ExitStack) -> Child:
    """Start an acker and a replay worker, and return the acker."""
    acker = stack.enter_context(Child("acker", config, environ=environ))
    replay = stack.enter_context(Child("replay", config, environ=environ))
    for child in (acker, replay):
        child.wait_ready(READY_SECONDS_MAX)
    console.print("an acker and a replay worker are running")
    return acker


def start_spark(stage: Stage, stack: ExitStack) -> SparkSession:
    """Start Spark, warm; `stack` stops it."""
    stage.console.print("starting Spark")
    spark = local_session("windhover-demo", stage.folder / "spark")
    stack.callback(spark.stop)
    warm_up(spark)
    return spark

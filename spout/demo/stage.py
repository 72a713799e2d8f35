"""The demo's options, and the broker, processes, topics and Spark that it starts."""

from __future__ import annotations

import math
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from acker.config.topics import Input, Topics, load_topics
from acker.errors import UsageError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, TopicPartition
from acker.provisioning import provision
from spout.demo.words import WordTable
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker, free_port, require_free
from spout.local.spark_session import local_session, warm_up
from spout.local.up import BOOTSTRAP, announce_page, start_page, topics_of_own_broker
from spout.runtime.child import Child

INPUT = "sentences"
READY_SECONDS_MAX = 60.0

SESSION = "KAFKA_SESSION_MS"
"""Environment variable in the demo's topics.yaml: how soon a killed acker's partitions move, in ms."""

SESSION_MS = "6000"
"""The shortest that a broker allows; the default gives a cluster time to replace a broker."""

TIMEOUT_JOBS = 12
"""The records' timeout is at least this many times the time of a small job in the warm Spark; a
micro-batch takes about two. With a shorter one nothing would ever be acked on a slow machine.
"""

SPARK_LOG = "spark.log"
"""The file with Spark's output, in the demo's folder."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command line.

    `rate` is in records per second; None: as fast as possible. `port` is that of the embedded
    broker; None: a free one. `input` None: the text that Python has.
    """

    records: int = 1_000_000
    input: Path | None = None
    rate: float | None = None
    json: bool = False
    keep: bool = False
    bootstrap: str | None = None
    port: int | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value that is not possible, or options that exclude each other."""
        if self.records < 1:
            raise UsageError(f"--records {self.records}: there must be at least 1 record")
        if self.rate is not None and self.rate <= 0:
            raise UsageError(f"--rate {self.rate}: must be more than 0 records per second")
        if self.port is not None and self.bootstrap is not None:
            raise UsageError(
                f"--port {self.port} is for the demo's own broker, and --bootstrap names another; give one"
            )


@dataclass(slots=True)
class RunningDemo:
    """The parts of a running demo.

    Attributes:
        folder: for all files of the demo; it is removed at the end.
        acker: the process of the demo's acker; None: it uses somebody's cluster, which has its own.
        words: what the query has written.
        metrics_socket: keeps the port at which the driver is going to serve its metrics, for the
            page.
        acker_kills: how often the demo killed the acker.
        failures: what the thread that writes the lines raised.
    """

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
    metrics_socket: socket.socket
    acker_kills: int = 0
    failures: list[BaseException] = field(default_factory=list)

    @property
    def input(self) -> Input:
        """The input that the demo writes and reads."""
        return self.topics.inputs[INPUT]

    @property
    def metrics_address(self) -> str:
        """Return where the driver serves its metrics, ``host:port``."""
        port = self.metrics_socket.getsockname()[1]
        return f"{HOST}:{port}"

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of the input's topic, as the broker has them."""
        topic = self.input.topic
        count = self.log.topics([topic])[topic].partitions
        return [TopicPartition(topic, number) for number in range(count)]


def default_config() -> Path:
    """Return the demo's topics.yaml: the one in the package, else the project's own.

    Raises `UsageError`: neither is there.
    """
    own_path = Path(__file__).resolve()
    for candidate in (own_path.with_name("topics.yaml"), own_path.parents[2] / "topics.yaml"):
        if candidate.is_file():
            return candidate
    raise UsageError("the demo's topics.yaml is not beside the package; name one with --config")


def set_up(
    options: DemoOptions, environ: Mapping[str, str], console: Console, stack: ExitStack
) -> RunningDemo:
    """Start a broker, an acker, a replay worker and the page; `stack` ends them.

    1. Read topics.yaml; a port in use and a wrong file are refused before anything is printed.
    2. Start Kafka, unless ``--bootstrap`` names a cluster. Only then Kafka has a port,
       so topics.yaml is read again.
    3. Create the topics.
    4. Start acker and replay worker, unless the cluster is another's, which has its own.
    5. Start the page, which gets the address of the driver's metrics.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windhover-demo-")))
    config = options.config or default_config()

    def print_line(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    # 1. topics.yaml
    require_free(options.port)
    # without a named port 0 stands for the one that Kafka gets in step 2
    bootstrap = options.bootstrap or f"{HOST}:{options.port or 0}"
    # variables to which the demo's topics.yaml refers; who has set the first one overrides ours
    environ = {SESSION: SESSION_MS, **environ, BOOTSTRAP: bootstrap}
    if options.bootstrap:
        topics = load_topics(config, environ)
    else:
        topics = topics_of_own_broker(config, environ, bootstrap, "demo")
    if INPUT not in topics.inputs:
        raise UsageError(f"{config} has no input {INPUT!r}; the demo runs that one")
    page_port = announce_page(print_line)
    # 2. Kafka
    if not options.bootstrap:
        with phase(console, "Kafka started"):
            kafka = EmbeddedBroker(folder / "kafka", options.port, progress=console.print)
            bootstrap = stack.enter_context(kafka).bootstrap
        environ[BOOTSTRAP] = bootstrap
        topics = load_topics(config, environ)
    # 3. the topics
    log = KafkaLog(topics.kafka)
    stack.callback(log.close)
    with phase(console, "topics made"):
        provision.create_topics(topics)
    refuse_records(log, topics.inputs[INPUT], bootstrap)
    # 4. acker and replay worker
    acker = None
    if not options.bootstrap:
        with phase(console, "acker and replay worker started"):
            acker = stack.enter_context(Child("acker", config, environ=environ))
            replay = stack.enter_context(Child("replay", config, environ=environ))
            for child in (acker, replay):
                child.wait_ready(READY_SECONDS_MAX)
    # 5. the page
    demo = RunningDemo(
        options=options,
        config=config,
        topics=topics,
        bootstrap=bootstrap,
        log=log,
        folder=folder,
        acker=acker,
        console=console,
        words=WordTable(),
        status_path=folder / "status.json",
        metrics_socket=stack.enter_context(closing(reserved_port())),
    )
    start_page(stack, page_port, config, environ, print_line, [demo.metrics_address])
    return demo


def refuse_records(log: Log, demo_input: Input, bootstrap: str) -> None:
    """Raise `UsageError` if a topic of the demo's input has records, or had some.

    The demo judges by all records of its input, so they all have to be its own.
    """
    for name, info in log.topics(demo_input.topic_names()).items():
        partitions = [TopicPartition(name, number) for number in range(info.partitions)]
        # the ends count records that were deleted, too
        record_count = sum(log.ends(partitions).values())
        if record_count:
            raise UsageError(
                f"topic {name} at {bootstrap} has had {record_count:,} records, of an earlier demo or of"
                " others, and the demo can judge its own alone; give another broker, or by --config a"
                f" topics.yaml whose input {INPUT} has a topic, a group and an id that were never used"
            )


def reserved_port() -> socket.socket:
    """Return a socket at a port that no server can take until it is closed.

    Nobody can connect to it.
    """
    while True:
        reserved = socket.socket()
        try:
            reserved.bind((HOST, free_port()))
        except OSError:  # another process was faster
            reserved.close()
            continue
        return reserved


@contextmanager
def phase(console: Console, what: str) -> Iterator[None]:
    """Print that `what` was done, and in how many seconds, when the body has ended.

    `what` is as "Kafka started". On a terminal it is shown while the body runs, too.
    """
    began_s = time.monotonic()
    with console.status(f"waiting: {what}") if console.is_terminal else nullcontext():
        yield
    elapsed_s = time.monotonic() - began_s
    console.print(f"{what}: {elapsed_s:.1f} s", highlight=False)


def start_spark(demo: RunningDemo, stack: ExitStack) -> SparkSession:
    """Start Spark and warm it up; return its session, which `stack` stops.

    Where small jobs are slow, the timeout of records in `demo.topics` becomes longer, unless
    ``--config`` names a file.
    """
    # 1. the session
    with phase(demo.console, "Spark started"):
        with _stderr_into(demo.folder / SPARK_LOG):
            spark = local_session("windhover-demo", demo.folder / "spark")
        stack.callback(spark.stop)
        warm_up(spark)
        # the second job is measured: the first one loads classes
        began_s = time.monotonic()
        warm_up(spark)
        job_s = time.monotonic() - began_s
    # 2. the timeout
    if demo.options.config is not None:
        return spark
    timeout_ms = longer_timeout_ms(demo.input.timeout_ms, job_s)
    if timeout_ms:
        demo.console.print(
            f"a small job takes {job_s:.1f} s here: records time out after {timeout_ms / 1000:g} s,"
            f" not after {demo.input.timeout_ms / 1000:g} s",
            highlight=False,
        )
        # settings are values: a changed input makes changed inputs, and these changed topics
        changed_input = demo.input.model_copy(update={"timeout_ms": timeout_ms})
        changed_inputs = {**demo.topics.inputs, INPUT: changed_input}
        demo.topics = demo.topics.model_copy(update={"inputs": changed_inputs})
    return spark


def longer_timeout_ms(timeout_ms: int, job_s: float) -> int:
    """Return the timeout where a small job takes `job_s`; 0: `timeout_ms` is enough.

    With jobs of 3.5 s records need 42 s. A `timeout_ms` of 0 is enough: records never time out.
    """
    needed_ms = math.ceil(TIMEOUT_JOBS * job_s) * 1000
    is_too_short = 0 < timeout_ms < needed_ms
    return needed_ms if is_too_short else 0


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """Redirect the standard error of this process, and of all that the body starts, into a file.

    Spark closes its Python workers' sockets when it stops a query. Then each worker prints a
    traceback (BrokenPipeError), though nothing went wrong. A real error comes as an exception of
    the query.
    """
    own_stderr = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(own_stderr, 2)
        os.close(own_stderr)

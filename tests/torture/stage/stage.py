"""What a torture runs on: brokers, proxies, clocks, a disk, two ackers, two replay workers, Spark."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from acker.config.topics import Input, Topics, load_topics
from acker.errors import UsageError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log
from acker.provisioning import provision
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker
from spout.local.embedded_cluster import EmbeddedCluster
from spout.local.up import BOOTSTRAP
from spout.runtime.child import Child, Kind
from tests.torture.exact.stores import TorturedStore, tortured_store
from tests.torture.exact.struck_store import SINKS
from tests.torture.judging.witness import Witness
from tests.torture.schedule import ACKERS, SERVICES, Victim
from tests.torture.stage.brokers import Brokers
from tests.torture.stage.clock import SteppedClock
from tests.torture.stage.disk import SmallDisk, small_disk
from tests.torture.stage.driver import INPUT, UPSERT
from tests.torture.stage.operator import Operator
from tests.torture.stage.parts import Driver, Part
from tests.torture.stage.proxy import Proxy
from tests.torture.stage.spark_cluster import SparkCluster
from tests.torture.stage.strangers import TEMPORARY, Joined, Strangers

TOPICS_YAML: Final = """\
kafka: {{bootstrap.servers: "${{KAFKA_BOOTSTRAP}}"}}
inputs:
  torture:
    id: 1
    group: torture
    partitions: 4
    timeout: {timeout}
    # nothing is given up but what fails on purpose, however often a driver dies
    retry: {{attempts: 8, initial: 200ms, max: 2s, max_abandoned: 1000}}
    dead_letter: {{max_ratio: 1, max_consecutive: 1000000}}
"""

_DOORS: Final = {
    Victim.ACKER_1: "ACKERONE",
    Victim.ACKER_2: "ACKERTWO",
    Victim.REPLAY_1: "REPLAYONE",
    Victim.REPLAY_2: "REPLAYTWO",
    Victim.DRIVER: "DRIVER",
}
"""Listeners of the broker, one for each part, so that the network of each can be cut by itself."""

_CHECKOUT: Final = Path(__file__).parents[3]
_BROKER: Final = {"log.message.timestamp.type": "LogAppendTime"}
"""The broker's own clock orders what different processes wrote; see `tests.torture.judging.evidence`."""

READY_SECONDS_MAX: Final = 600.0
WITNESS_LOOK_MS: Final = 200


@dataclass(frozen=True, slots=True)
class TortureOptions:
    """What the command line says."""

    minutes: float = 5.0
    seed: int = 0
    records_per_second: float = 60.0
    json: bool = False
    keep: Path | None = None
    brokers: int = 1
    spark_workers: int = 0
    missing_minutes: float = 0.0
    sink: str = UPSERT
    pace: float = 1.0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            UsageError: a value is out of its range.
        """
        _require_positive("--minutes", self.minutes, "5 for five minutes")
        _require_positive("--records-per-second", self.records_per_second, "60 for one each 17 ms")
        _require_positive("--pace", self.pace, "3 for a machine that is three times slower")
        if self.brokers not in (1, 3):
            raise UsageError(f"--brokers {self.brokers}: must be 1, or 3 for a cluster that may lose one")
        if self.missing_minutes:
            _require_positive("--missing", self.missing_minutes, "10 for ten minutes")
        if self.missing_minutes and self.brokers == 1:
            raise UsageError(f"--missing {self.missing_minutes} comes with --brokers 3; give both")
        if self.spark_workers not in (0, 2):
            raise UsageError(
                f"--spark-workers {self.spark_workers}: must be 0, or 2 of which one may be lost"
            )
        if self.spark_workers and self.brokers == 1:
            raise UsageError(f"--spark-workers {self.spark_workers} comes with --brokers 3; give both")
        if self.sink not in (UPSERT, *SINKS):
            raise UsageError(f"--sink {self.sink}: must be one of {', '.join((UPSERT, *SINKS))}")
        if self.sink != UPSERT and self.brokers > 1:
            raise UsageError(f"--sink {self.sink} comes with one broker; leave --brokers out")

    @property
    def on_cluster(self) -> bool:
        """Whether there are several brokers: other blows fall then."""
        return self.brokers > 1


def _require_positive(option: str, value: float, example: str) -> None:
    if not math.isfinite(value):
        raise UsageError(f"{option} {value}: must be a number; give {example}")
    if value <= 0:
        raise UsageError(f"{option} {value}: must be more than 0")


@dataclass(slots=True)
class Stage:
    """What is running."""

    options: TortureOptions
    topics: Topics
    brokers: Brokers
    spark: SparkCluster | None
    log: Log
    folder: Path
    parts: dict[Victim, Part]
    driver: Driver
    disk: SmallDisk | None
    strangers: Strangers
    console: Console
    witness: Witness
    operator: Operator | None = None
    store: TorturedStore | None = None

    @property
    def source(self) -> Input:
        """The one input."""
        return self.topics.inputs[INPUT]


def set_up(options: TortureOptions, environ: Mapping[str, str], console: Console, stack: ExitStack) -> Stage:
    """Start everything; `stack` ends it.

    Raises:
        Unreachable: the broker, or a part, does not come up.
    """
    folder = options.keep or Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="windhover-torture-"))
    )
    folder.mkdir(parents=True, exist_ok=True)
    # the driver, and Spark's workers, work elsewhere than in the checkout, and import its bolts
    path = os.pathsep.join(filter(None, (str(_CHECKOUT), environ.get("PYTHONPATH"))))
    environ = {**environ, "PYTHONPATH": path}
    config = folder / "topics.yaml"
    # on a cluster nothing is replayed because of a failover, which takes 15 s
    timeout = "30s" if options.on_cluster else "15s"
    config.write_text(TOPICS_YAML.format(timeout=timeout), encoding="utf-8")
    around = _Surroundings(config, folder, environ)
    if options.on_cluster:
        brokers = _start_cluster(around, options.brokers, console, stack)
    else:
        brokers = _start_broker(around, console, stack)
    disk = None if options.on_cluster else stack.enter_context(small_disk(folder / "checkpoints"))
    if options.spark_workers:
        cluster = SparkCluster(folder / "spark-cluster", options.spark_workers, environ)
        around.spark = stack.enter_context(cluster)
    topics = load_topics(config, {**environ, BOOTSTRAP: around.bootstrap})
    log = KafkaLog(topics.kafka, client_id="windhover-torture")
    stack.callback(log.close)
    provision.create_topics(topics)
    store = None
    if options.sink != UPSERT:
        store = stack.enter_context(tortured_store(options.sink, topics, folder))
        around.sink = store.argument
    services = {victim: around.service(victim) for victim in SERVICES}
    source = topics.inputs[INPUT]
    strangers = Strangers(folder, Joined(around.bootstrap, source.group, source.topic), environ)
    driver = around.driver()
    witness = Witness(log, topics, source)
    stack.callback(witness.close)
    _start(services, driver, witness, console, stack)
    parts = {**services, Victim.DRIVER: driver}
    operator = None
    if options.missing_minutes:
        operator = Operator(config, folder, {**environ, BOOTSTRAP: around.bootstrap}, wall_ms)
        stack.callback(operator.close)
    return Stage(
        options, topics, Brokers(brokers), around.spark, log, folder, parts, driver, disk, strangers,
        console, witness, operator, store,
    )  # fmt: skip


def _start_broker(around: _Surroundings, console: Console, stack: ExitStack) -> tuple[EmbeddedBroker, ...]:
    """Start one broker, to which each part has a way of its own."""
    around.proxies = proxies = {victim: stack.enter_context(Proxy()) for victim in _DOORS}
    doors = {_DOORS[victim]: proxy.port for victim, proxy in proxies.items()}
    broker = stack.enter_context(
        EmbeddedBroker(around.folder / "kafka", progress=console.print, listeners=doors, settings=_BROKER)
    )
    for victim, proxy in proxies.items():
        proxy.connect_to(broker.listener_port(_DOORS[victim]))
    around.bootstrap = broker.bootstrap
    return (broker,)


def _start_cluster(
    around: _Surroundings, brokers: int, console: Console, stack: ExitStack
) -> tuple[EmbeddedBroker, ...]:
    """Start several brokers, to which all parts have the same way."""
    folder = around.folder / "kafka"
    cluster = stack.enter_context(EmbeddedCluster(folder, brokers, progress=console.print, settings=_BROKER))
    around.bootstrap = cluster.bootstrap
    return cluster.brokers


def _start(
    services: Mapping[Victim, Part], driver: Driver, witness: Witness, console: Console, stack: ExitStack
) -> None:
    """Start the parts and wait until they work."""
    stack.callback(driver.stop)
    for part in services.values():
        stack.enter_context(part.child)
    for part in services.values():
        part.child.wait_ready(READY_SECONDS_MAX)
    driver.start()
    console.print("two ackers and two replay workers are running; waiting for the Spark driver")
    with _reading(witness):
        driver.child.wait_ready(READY_SECONDS_MAX)


@contextmanager
def _reading(witness: Witness) -> Iterator[None]:
    """Let the witness read while something else is waited for: ackers soon delete what they need no more.

    Raises:
        OutOfRange: as `Witness.step`.
    """
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            witness.step(WITNESS_LOOK_MS)

    with ThreadPoolExecutor(1, thread_name_prefix="windhover-witness") as threads:
        reading = threads.submit(read)
        try:
            yield
        finally:
            over.set()
        reading.result()


@dataclass(slots=True)
class _Surroundings:
    """Makes parts, once the brokers are there and Spark's workers, if there shall be some."""

    config: Path
    folder: Path
    environ: Mapping[str, str]
    bootstrap: str = ""
    proxies: Mapping[Victim, Proxy] = field(default_factory=dict)
    spark: SparkCluster | None = None
    sink: str = UPSERT

    def service(self, victim: Victim) -> Part:
        kind: Kind = "acker" if victim in ACKERS else "replay"
        clock, environ = self._environ(victim)
        child = Child(kind, self.config, log=self._log(victim.value), environ=environ)
        return Part(victim, child, self.proxies.get(victim), clock)

    def driver(self) -> Driver:
        clock, environ = self._environ(Victim.DRIVER)
        (self.folder / "spark").mkdir(exist_ok=True)
        # of its own, so that a cleaner finds nothing of anybody else's there
        (self.folder / TEMPORARY).mkdir(exist_ok=True)
        environ["TMPDIR"] = str(self.folder / TEMPORARY)
        checkpoints = self.folder / "checkpoints"
        make = self._driver_maker(environ)
        proxy = self.proxies.get(Victim.DRIVER)
        return Driver(
            Victim.DRIVER, make(checkpoints / "1"), proxy, clock, make=make, checkpoints=checkpoints
        )

    def _driver_maker(self, environ: Mapping[str, str]) -> Callable[[Path], Child]:
        lives = iter(range(1, 1_000_000))

        def make(checkpoint: Path) -> Child:
            program = [
                "-m",
                "tests.torture.stage.driver",
                str(self.config),
                str(self.folder),
                str(checkpoint),
                self.sink,
            ]
            if self.spark is not None:
                program.append(self.spark.master)
            log = self._log(f"driver {next(lives)}")
            return Child("driver", self.config, log=log, environ=environ, program=program)

        return make

    def _environ(self, victim: Victim) -> tuple[SteppedClock, dict[str, str]]:
        clock = SteppedClock(self.folder / f"{victim.value}.skew")
        proxy = self.proxies.get(victim)
        bootstrap = self.bootstrap if proxy is None else f"{HOST}:{proxy.port}"
        return clock, clock.environ({**self.environ, BOOTSTRAP: bootstrap})

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"


def wall_ms() -> int:
    """Return wall time, ms."""
    return time.time_ns() // 1_000_000

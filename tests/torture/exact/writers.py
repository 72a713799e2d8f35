"""Writers without Spark: real stores, real processes, some hundred of them that are killed or stopped.

    python -m tests.torture.exact --sink kafka --strikes 100 --seed 1

A driver of Spark takes ten seconds to come back, so few of them die in an hour. Here a process is a fork,
which opens the store and commits within moments. It uses the product's `ExactWriter` and a real store. In
place of ackers there is a file, the *log*: each start appends its epoch (as its `Take`), and each publication
the roots that it acks. Acks of a lower epoch than the last one that was taken do not count: their roots are
put back.

1. Strike the writer, within a commit or at any moment; start another one. So on.
2. Open the store once more, which publishes the last batch. Judge the store by the log.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from acker.config.topics import Topics, load_topics
from acker.errors import StoreFenced, WindhoverError
from acker.identity import I64, source_of
from acker.provisioning import provision
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, SourceRun
from spout.demo.judge import Emission
from spout.exactly_once.rooted_rows import RootedRows
from spout.exactly_once.writer import ExactWriter, SettledBatch
from spout.local.embedded import EmbeddedBroker
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome
from spout.publishing.publish import PublicationRecords
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause
from tests.torture.exact.rows import COLUMNS, ROWS_MAX, RowFaults, row_faults
from tests.torture.exact.stores import TorturedStore, tortured_store
from tests.torture.exact.struck_store import KAFKA, Order, StruckStore, store_of
from tests.torture.stage.family import is_stopped

GROUP: Final = "torture"
SOURCE: Final = source_of(1, 0)
BATCH_ROOTS: Final = 40

FORKS: Final = multiprocessing.get_context("forkserver")
"""A client of Kafka does not survive a fork, so writers are forked by a process that never had one."""

FAILING_EVERY: Final = 17
"""Of so many roots one fails always."""

TOPICS_YAML: Final = """\
kafka: {{bootstrap.servers: "{bootstrap}", transaction.timeout.ms: 15000}}
inputs:
  torture: {{id: 1, group: torture, partitions: 1}}
"""

FENCED: Final = 3
REFUSED: Final = 4
"""Exit codes of a writer: a later start has opened the store; the store took nothing, for another reason."""

ENDS_S_MAX: Final = 120.0
BEGINS_S_MAX: Final = 120.0
LOOK_S: Final = 0.005


class Strike(StrEnum):
    """What is done to a writer; after each one another writer is started."""

    KILL_IN_COMMIT = "SIGKILL within a commit"
    KILL = "SIGKILL"
    ZOMBIE = "SIGSTOP within a commit, while another one writes"
    FREEZE = "SIGSTOP within a commit"
    REFUSE = "the store refuses commits"
    BROKER = "SIGKILL of the broker"


WEIGHTS: Final = {
    Strike.KILL_IN_COMMIT: 40,
    Strike.KILL: 20,
    Strike.ZOMBIE: 25,
    Strike.FREEZE: 5,
    Strike.REFUSE: 10,
}


class AckLog:
    """The file that stands for the ack topics; entries are appended whole."""

    def __init__(self, path: Path) -> None:
        """Keep where it is."""
        self._path = path
        path.touch()

    def take(self, epoch: int) -> None:
        """Put back what lower epochs have open."""
        self._append({"take": epoch})

    def publish(self, records: PublicationRecords) -> None:
        """Append which roots a publication completes, as the epoch of its batch."""
        for record in records.acks:
            acks = wire_codec().decode(record.value)
            assert isinstance(acks, Acks)
            self._append({"acks": acks.epoch, "runs": [list(run) for run in acks.runs]})

    def read(self) -> tuple[int, set[int]]:
        """Return the highest epoch that was taken, and all positions that are acked."""
        epoch, acked = 0, set[int]()
        for line in self._path.read_bytes().splitlines():
            entry = json.loads(line)
            if "take" in entry:
                epoch = max(epoch, entry["take"])
            elif entry["acks"] >= epoch:
                for start, end in entry["runs"]:
                    acked.update(range(start, end))
        return epoch, acked

    def size(self) -> int:
        """Return how long it is, in bytes."""
        return self._path.stat().st_size

    def _append(self, entry: dict[str, object]) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Scene:
    """What every writer of a run shares."""

    topics: Topics
    folder: Path
    argument: str

    @property
    def log(self) -> AckLog:
        """Return what stands for the ack topics."""
        return AckLog(self.folder / "acks.log")

    @property
    def order(self) -> Order:
        """Return what a writer is told by."""
        return Order(self.folder)


def write(scene: Scene, batches: int | None) -> None:
    """Open the store and commit batch after batch, so many or without end; exit by what ended it."""
    log = scene.log
    store = StruckStore(store_of(scene.argument, scene.topics, scene.folder), scene.order)
    writer = ExactWriter(store, GROUP, scene.topics.ack_topics, log.publish)
    try:
        epoch = writer.open(log.read()[0] + 1)
        log.take(epoch)
        number = 0
        while batches is None or number < batches:
            settled, rows = _evaluated(epoch, number, log.read()[1])
            log.publish(writer.commit(settled, rows))
            number += 1
    except StoreFenced as error:
        sys.stderr.write(f"{os.getpid()}: {error}\n")
        os._exit(FENCED)
    except WindhoverError as error:
        sys.stderr.write(f"{os.getpid()}: {type(error).__name__}: {error}\n")
        os._exit(REFUSED)


def _evaluated(epoch: int, number: int, acked: set[int]) -> tuple[SettledBatch, RootedRows]:
    """Evaluate some roots that are not acked; a tenth fails, a tenth is left open, after their rows."""
    chance = random.SystemRandom()
    not_acked = [position for position in range(len(acked) + 10 * BATCH_ROOTS) if position not in acked]
    positions = sorted(chance.sample(not_acked, BATCH_ROOTS))
    runs = tuple(SourceRun(SOURCE, position, position + 1) for position in positions)
    plan = BatchPlan(GROUP, f"{epoch}-store", epoch, 1, 0, 30_000, True, runs)
    failed, left_open = list[int](), list[int]()
    rows_of_roots = list[tuple[int, tuple[str, int, str, int, int]]]()
    for position in positions:
        evaluation, rows = uuid.uuid4().hex, chance.randint(1, ROWS_MAX)
        for ordinal in range(rows):
            rows_of_roots.append((position, (f"t/0@{position}", 1, evaluation, ordinal, rows)))
        drawn = chance.random()
        if position % FAILING_EVERY == 0 or drawn < 0.1:
            failed.append(position)
        elif drawn < 0.2:
            left_open.append(position)
    marks = RootMarks.together(
        [
            RootMarks.of_roots(RootMark.FAILED, _roots(failed), cause=Cause("split", "Unlucky", "")),
            RootMarks.of_roots(
                RootMark.OPEN,
                _roots(left_open),
                np.ones(len(left_open), np.uint64),
            ),
        ]
    )
    outcome = BatchOutcome(plan, marks)
    columns = list(zip(*(row for _, row in rows_of_roots), strict=True))
    table = pa.table(dict(zip(COLUMNS, map(list, columns), strict=True)))
    row_positions = np.array([position for position, _ in rows_of_roots], np.int64)
    rooted = RootedRows(table, np.full(len(row_positions), SOURCE), row_positions)
    return SettledBatch("q", number, outcome), rooted


def _roots(positions: list[int]) -> tuple[I64, I64]:
    array = np.array(positions, np.int64)
    return np.full(len(array), SOURCE, np.int64), array


@dataclass
class Strikes:
    """Strikes one writer after the other.

    Attributes:
        fell: how often each strike fell.
        exits: how often a writer ended with each code.
        wrong: zombies that did not end, and writers that ended by what nobody knows.
    """

    scene: Scene
    store: TorturedStore
    broker: EmbeddedBroker | None
    dice: random.Random
    fell: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def strike(self) -> None:
        """Start a writer, let it work, and strike it once."""
        weights = dict(WEIGHTS)
        if self.broker is not None:
            weights[Strike.BROKER] = 3
        (deed,) = self.dice.choices(list(weights), list(weights.values()))
        writer = self._working()
        if writer is None:
            return
        match deed:
            case Strike.KILL_IN_COMMIT:
                self.scene.order.give(signal.SIGKILL)
                fell = self._until(lambda: not writer.is_alive())
            case Strike.KILL:
                time.sleep(self.dice.uniform(0, 0.2))
                writer.kill()
                fell = True
            case Strike.ZOMBIE | Strike.FREEZE:
                self.scene.order.give(signal.SIGSTOP)
                fell = self._until(lambda: is_stopped(writer.pid or 0) or not writer.is_alive())
                self._wake(writer, beside_another=deed is Strike.ZOMBIE)
            case Strike.REFUSE:
                self.store.refuse()
                fell = self._until(lambda: not writer.is_alive())
                self._until(self.store.accept)
            case Strike.BROKER if self.broker is not None:
                self.broker.kill()
                time.sleep(self.dice.uniform(0, 1))
                self.broker.restart()
                fell = True
            case _:
                fell = False
        self.scene.order.withdraw()
        self.fell[str(deed)] += fell
        self._end(writer)

    def finish(self) -> None:
        """Open the store once more, so that the last batch is published, and commit one more."""
        last = self._start(batches=1)
        last.join(ENDS_S_MAX)
        if last.exitcode != 0:
            self.wrong.append(f"the last writer ended with {last.exitcode}")

    def _working(self) -> ForkServerProcess | None:
        """Start a writer and wait until it has published something; None: it could not begin."""
        before = self.scene.log.size()
        writer = self._start()
        self._until(lambda: self.scene.log.size() > before + 100 or not writer.is_alive())
        if writer.is_alive():
            return writer
        self._end(writer)
        return None

    def _start(self, batches: int | None = None) -> ForkServerProcess:
        writer = FORKS.Process(target=write, args=(self.scene, batches))
        writer.start()
        return writer

    def _wake(self, zombie: ForkServerProcess, *, beside_another: bool) -> None:
        """Let a stopped writer go on; beside another one that works it must end by itself."""
        rival = self._working() if beside_another else None
        if zombie.is_alive() and zombie.pid is not None:
            os.kill(zombie.pid, signal.SIGCONT)
        if rival is None:
            return
        zombie.join(ENDS_S_MAX)
        if zombie.is_alive():
            self.wrong.append("a zombie went on writing beside another writer")
        rival.kill()
        self._end(rival)

    def _end(self, writer: ForkServerProcess) -> None:
        """Kill a writer that lives, and count how it ended."""
        if writer.is_alive():
            writer.kill()
        writer.join(ENDS_S_MAX)
        code = writer.exitcode
        names = {FENCED: "fenced", REFUSED: "refused or cut off", -signal.SIGKILL: "killed"}
        if code not in names:
            self.wrong.append(f"a writer ended with {code}")
        self.exits[names.get(code or 0, str(code))] += 1

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition, and return whether it came true in time."""
        deadline_s = time.monotonic() + BEGINS_S_MAX
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(LOOK_S)
        return True


@dataclass(frozen=True, slots=True)
class WritersReport:
    """What a run ends with."""

    strikes: Strikes
    acked: int
    rows: int
    faults: RowFaults

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON can hold it."""
        return {
            "held": self.held,
            "strikes": sum(self.strikes.fell.values()),
            "fell": dict(self.strikes.fell),
            "writers_ended": dict(self.strikes.exits),
            "acked": self.acked,
            "rows": self.rows,
            **self.faults.counts(),
            "wrong": self.strikes.wrong,
            "first_faults": [*self.faults.missing[:1], *self.faults.twice[:1], *self.faults.not_acked[:1]],
        }

    @property
    def held(self) -> bool:
        """Whether all is right."""
        return not self.strikes.wrong and all(check.passed for check in self.faults.checks())


def torture_writers(sink: str, strikes: int, minutes: float, seed: int, folder: Path) -> WritersReport:
    """Strike writers of a store, so often or for so long, and judge it by what was published."""
    ends_s = time.monotonic() + minutes * 60
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(folder / "kafka")) if sink == KAFKA else None
        config = folder / "topics.yaml"
        bootstrap = "127.0.0.1:1" if broker is None else broker.bootstrap
        config.write_text(TOPICS_YAML.format(bootstrap=bootstrap), encoding="utf-8")
        topics = load_topics(config, {})
        if broker is not None:
            provision.create_topics(topics)
        store = stack.enter_context(tortured_store(sink, topics, folder))
        FORKS.set_forkserver_preload([__name__])
        scene = Scene(topics, folder, store.argument)
        struck = Strikes(scene, store, broker, random.Random(seed))
        while sum(struck.fell.values()) < strikes and not struck.wrong and time.monotonic() < ends_s:
            struck.strike()
        struck.finish()
        _, acked = scene.log.read()
        rows = store.rows()
        emissions = {Emission(f"t/0@{position}", 1) for position in acked}
        return WritersReport(struck, len(acked), len(rows), row_faults(emissions, rows))

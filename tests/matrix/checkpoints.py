"""One checkpoint that goes from one version of Spark to the next, and back.

A step on a version, with `one_run.py` of its environment:

1. Lines are written: one for `plain`, and for `pairs` the second half of the pair before and the
   first half of the next.
2. Both queries run until all is done. A batch that the version before left open runs first.
3. One more line is written for each. The queries' sinks fail, so the batch stays open.

At the end each line is a row once, each pair is whole, and nothing was replayed: with a batch that
was open and a half that was held at each change of the version.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from tests.matrix.one_run import PAIRS, PLAIN
from tests.matrix.versions import PROJECT
from tests.support.brokers import EMBEDDED, running
from tests.support.waiting import committed
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving

RUN_S_MAX = 300.0
"""How long a run of both queries may take."""


@dataclass(frozen=True, slots=True)
class Chain:
    """What went wrong on one checkpoint; empty: nothing did."""

    faults: list[str]
    rows: int
    """How many rows both queries wrote."""


def run_chain(pythons: Sequence[Path], folder: Path) -> Chain:
    """Run both queries by the Python of one environment after the other, on the same checkpoints.

    The output of each run goes into a log in the folder.

    Raises:
        RuntimeError: a run ended with an error, or did not end; it names the log.
    """
    with running(EMBEDDED) as broker:
        config = config_of(folder, broker, (PLAIN, PAIRS))
        topics = load_topics(config, {})
        log = KafkaLog(topics.kafka)
        plain: list[str] = []
        pairs: list[str] = []

        def write(line: str, *pair_halves: str) -> None:
            plain.append(line)
            pairs.extend(pair_halves)
            produce_lines(log, topics.input(PLAIN).topic, [line])
            produce_lines(log, topics.input(PAIRS).topic, pair_halves)

        with serving(config, "acker", "replay"):
            for step, python in enumerate(pythons):
                second_half = [f"over{step} 2"] if step else []
                write(f"line {step}", *second_half, f"over{step + 1} 1")
                _run(python, config, folder, step)
                # both halves are in the batch that stays open
                write(f"open line {step}", f"open{step} 1", f"open{step} 2")
                _run(python, config, folder, step, "--broken")
            write(f"line {len(pythons)}", f"over{len(pythons)} 2")
            _run(pythons[0], config, folder, len(pythons))
            faults = _faults(log, topics, folder, plain, pairs)
        log.close()
    return Chain(faults, sum(_rows(folder, name).total() for name in (PLAIN, PAIRS)))


def _run(python: Path, config: Path, folder: Path, step: int, *options: str) -> None:
    """Run both queries once by a Python; raise `RuntimeError` if they do not end as they must."""
    log = folder / f"step-{step}{''.join(options)}.log"
    command = [str(python), "-m", "tests.matrix.one_run", str(config), str(folder), *options]
    with log.open("w", encoding="utf-8") as output:
        ended = subprocess.run(
            command, cwd=PROJECT, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=RUN_S_MAX
        )
    if ended.returncode:
        last_lines = "\n".join(log.read_text(encoding="utf-8").splitlines()[-30:])
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}, see {log}:\n{last_lines}")


def _faults(log: KafkaLog, topics: Topics, folder: Path, plain: list[str], pairs: list[str]) -> list[str]:
    """Compare the rows with the lines that were written; a copy of any line is a fault as well."""
    words = {half.split()[0] for half in pairs}
    expected = {PLAIN: Counter(plain), PAIRS: Counter(f"{word}: 1 2" for word in words)}
    faults = []
    for name, expected_rows in expected.items():
        faults += [f"{name}: {fault}" for fault in faults_of_rows(expected_rows, _rows(folder, name))]
        replays = [TopicPartition(topics.input(name).replay_topic, partition) for partition in range(2)]
        faults += [f"{name}: {copy.value!r} was replayed" for copy in committed(log, replays)]
    return faults


def faults_of_rows(expected: Counter[str], rows: Counter[str]) -> list[str]:
    """Say which rows a sink lacks, and which came too often, each with how many times."""
    missing = [f"{row!r} is missing {times} times" for row, times in (expected - rows).items()]
    return missing + [f"{row!r} came {times} times too often" for row, times in (rows - expected).items()]


def _rows(folder: Path, name: str) -> Counter[str]:
    """Return the rows that a query wrote, and how often."""
    lines = (folder / "rows" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return Counter(json.loads(line)["row"] for line in lines)

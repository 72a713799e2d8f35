"""What the benchmarks share: CPU seconds of a process tree, a wait, medians, and the report.

Figures of different machines, or of one machine at different times, say little; a ratio of two things that
ran in turn in one run says much. So every benchmark alternates, and reports medians and their ratio.
"""

from __future__ import annotations

import json as json_module
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final

from rich.console import Console
from rich.table import Table

from acker.errors import CheckFailed

POLL_SECONDS = 0.01
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """One round of one contestant. `cpu_seconds` is of all processes taking part, the broker too."""

    name: str
    records: int
    seconds: float
    cpu_seconds: float

    @property
    def records_per_second(self) -> float:
        """Throughput of this round."""
        return self.records / self.seconds


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a report: a measured value, its unit, and the aim it is held against, if any."""

    name: str
    value: float
    unit: str
    aim: str = ""


def _stat(pid: int) -> tuple[int, int] | None:
    """Read (parent pid, CPU ticks with those of reaped children) of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the command may hold spaces and parentheses
    return int(fields[1]), sum(int(ticks) for ticks in fields[11:15])


def cpu_seconds_of_tree(root_pid: int) -> float:
    """Sum user and system CPU seconds of a process and all its living and reaped descendants.

    Source: proc(5), /proc/pid/stat, fields utime, stime, cutime, cstime.
    """
    return sum(_cpu_seconds_in_tree(root_pid).values())


def _cpu_seconds_in_tree(root_pid: int) -> dict[int, float]:
    """Return CPU seconds of a process and of each living descendant, by pid.

    Those of children that have ended are their parent's.
    """
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    living = {pid: stat for pid, stat in stats.items() if stat is not None}
    tree, grown = {root_pid}, True
    while grown:
        more = {pid for pid, (parent, _) in living.items() if parent in tree} - tree
        tree |= more
        grown = bool(more)
    return {pid: living[pid][1] / _TICKS_PER_SECOND for pid in tree & living.keys()}


PROGRAMS: Final[Mapping[bytes, str]] = MappingProxyType(
    {
        b"kafka.Kafka": "broker",
        b"org.apache.spark.deploy.SparkSubmit": "Spark's JVM",
        b"python_streaming_source_runner": "planning process",
        b"pyspark.daemon": "Python workers",
        b"spout.cli\0acker": "acker",
        b"spout.cli\0replay": "replay worker",
    }
)
"""Names of the processes of a benchmark, by a part of their command lines."""


def cpu_seconds_by_program(root_pid: int) -> dict[str, float]:
    """Sum CPU seconds of a process and its descendants by the name of their program (`PROGRAMS`).

    Those of no program, as the benchmark itself, are the driver's.
    """
    seconds_by_program: dict[str, float] = {}
    for pid, seconds in _cpu_seconds_in_tree(root_pid).items():
        program = _program_of(pid)
        seconds_by_program[program] = seconds_by_program.get(program, 0.0) + seconds
    return seconds_by_program


def _program_of(pid: int) -> str:
    """Return the name of the program of a process."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        command = b""
    return next((name for part, name in PROGRAMS.items() if part in command), "driver's Python")


def cpu_seconds_of(pid: int) -> float:
    """Sum user and system CPU seconds of one process, and of its descendants that have ended."""
    stat = _stat(pid)
    return 0.0 if stat is None else stat[1] / _TICKS_PER_SECOND


def wait_until(is_so: Callable[[], bool], seconds_max: float, what: str) -> None:
    """Wait for something that a query or a service does; `CheckFailed`: it did not come in time."""
    deadline = time.monotonic() + seconds_max
    while not is_so():
        if time.monotonic() > deadline:
            raise CheckFailed(f"{what} did not come within {seconds_max:.0f} s")
        time.sleep(POLL_SECONDS)


def medians(samples: Iterable[Sample]) -> dict[str, Sample]:
    """Return for each contestant a sample of its medians a record, each column on its own."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    middle = {}
    for name, of in by_name.items():
        records = of[0].records  # rounds need not have the same number
        seconds = median(sample.seconds / sample.records for sample in of)
        cpu_seconds = median(sample.cpu_seconds / sample.records for sample in of)
        middle[name] = Sample(name, records, seconds * records, cpu_seconds * records)
    return middle


def print_samples(console: Console, samples: Sequence[Sample]) -> None:
    """Print the medians of each contestant, and the range its rounds moved in."""
    table = Table("what", "rounds", "records/s (median)", "slowest to fastest", "CPU s per million")
    for name, middle in medians(samples).items():
        rates = sorted(s.records_per_second for s in samples if s.name == name)
        table.add_row(
            name,
            str(len(rates)),
            f"{middle.records_per_second:,.0f}",
            f"{rates[0]:,.0f} to {rates[-1]:,.0f}",
            f"{middle.cpu_seconds / middle.records * 1e6:.2f}",
        )
    console.print(table)


def print_figures(console: Console, figures: Sequence[Figure]) -> None:
    """Print figures beside what they aim at."""
    table = Table("figure", "value", "aim")
    for figure in figures:
        table.add_row(figure.name, f"{figure.value:,.2f} {figure.unit}".rstrip(), figure.aim)
    console.print(table)


def print_report(
    console: Console, figures: Sequence[Figure], samples: Sequence[Sample] = (), *, json: bool
) -> None:
    """Print samples where there are some, then figures; with `json` all of it on standard output too."""
    if samples:
        print_samples(console, samples)
    print_figures(console, figures)
    if json:
        Console().out(as_json(figures, samples), highlight=False)


def as_json(figures: Sequence[Figure], samples: Sequence[Sample] = ()) -> str:
    """Render figures and samples as one JSON object on one line."""
    data: Mapping[str, object] = {
        "figures": {figure.name: round(figure.value, 4) for figure in figures},
        "samples": [asdict(sample) for sample in samples],
    }
    return json_module.dumps(data)

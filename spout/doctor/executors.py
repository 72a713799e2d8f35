"""What a Spark cluster's executors answer, judged: their Python, packages, way to Kafka, and clock; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spout.doctor.codes import (
    EXECUTOR_CLOCKS,
    EXECUTOR_PACKAGES,
    EXECUTOR_PYTHON,
    EXECUTOR_REACH,
    EXECUTORS,
    CheckResult,
)
from spout.doctor.live import judge_skew
from spout.inspect.readings import Reading

SAME: Final = ("windhover", "pyspark")
"""Distributions whose versions must be the driver's; of the others another version is a doubt."""

KAFKA_PORT: Final = 9092

_OTHER_PYTHON: Final = re.compile(r"different version[^0-9]*(\d+\.\d+) than that in driver[^0-9]*(\d+\.\d+)")
_NO_PROGRAM: Final = re.compile(r'Cannot run program "[^"]*".*')
_NO_PYSPARK: Final = re.compile(r"No module named '?(pyspark|py4j)\b")


@dataclass(frozen=True, slots=True)
class ExecutorAnswer:
    """What `spout.doctor.on_executor` found. Times are wall ms by the clock of that machine.

    Attributes:
        packages: of each distribution its version; empty: none is installed.
        broken: of each module that cannot be imported the reason.
        unreachable: of each broker to which no connection is possible the reason.
    """

    python: str
    executable: str
    packages: Mapping[str, str]
    broken: Mapping[str, str]
    unreachable: Mapping[str, str]
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class ExecutorTask:
    """A task: when it was sent and was back by the driver's clock, and its answer, or why it failed."""

    sent_ms: int
    received_ms: int
    answer: ExecutorAnswer | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a cluster answers.

    Attributes:
        master: its address.
        application: what it gave us, as a text; unknown: why it gave no executor.
        driver: the same answer from the driver's machine.
        servers: the addresses of the brokers; unknown: nobody could say them.
        tasks: by executor and machine the tasks that ran there, in their order.
    """

    master: str
    application: Reading[str]
    driver: ExecutorAnswer
    servers: Reading[Sequence[tuple[str, int]]]
    tasks: Mapping[tuple[str, str], Sequence[ExecutorTask]] = field(default_factory=dict)


def judge_executors(facts: ClusterFacts) -> Iterator[CheckResult]:
    others = (EXECUTOR_PYTHON, EXECUTOR_PACKAGES, EXECUTOR_REACH, EXECUTOR_CLOCKS)
    if facts.application.unknown:
        yield EXECUTORS.failed(facts.master, facts.application.unknown, cure=_cure_of_master(facts.master))
        yield from (each.unknown(facts.master, f"{EXECUTORS.code} failed") for each in others)
        return
    yield EXECUTORS.ok(facts.master, facts.application.value or "")
    for (executor, host), tasks in facts.tasks.items():
        subject = f"executor {executor} on {host}"
        answers = [each for each in tasks if each.answer is not None]
        if answers:
            yield from _judge_answers(subject, host, answers, facts)
            continue
        if tasks:
            failed = _judge_failure(subject, host, tasks[0].error, facts)
            yield failed
            reason, codes = f"{failed.code.code} failed", [each for each in others if each != failed.code]
        else:
            reason, codes = "no task ran there in time: other work has its cores", list(others)
        yield from (each.unknown(subject, reason) for each in codes)


def _cure_of_master(master: str) -> str:
    url = shlex.quote(master)
    return f"start-worker.sh {url}" if spark_servers(master) else EXECUTORS.cure.format(master=url)


def _cure_of_packages(host: str, python: str, driver: ExecutorAnswer) -> str:
    version = driver.packages.get("windhover") or "VERSION"
    # not by its name: the windhover of PyPI is another project
    return EXECUTOR_PACKAGES.cure.format(
        host=host, python=python, wheel=f"windhover-{version}-py3-none-any.whl"
    )


def _judge_failure(subject: str, host: str, error: str, facts: ClusterFacts) -> CheckResult:
    python = facts.driver.python.rpartition(".")[0]
    environment = EXECUTOR_PYTHON.cure.format(host=host, python=python)
    if found := _OTHER_PYTHON.search(error):
        text = f"Python {found[1]}, and the driver has {found[2]}"
        return EXECUTOR_PYTHON.failed(subject, text, cure=environment)
    if program := _NO_PROGRAM.search(error):
        return EXECUTOR_PYTHON.failed(subject, program[0], cure=environment)
    if missing := _NO_PYSPARK.search(error):
        cure = _cure_of_packages(host, "PYTHON", facts.driver)
        return EXECUTOR_PACKAGES.failed(subject, f"its Python has no {missing[1]}", cure=cure)
    lines = [line for line in error.splitlines() if line.strip()]
    text = f"its task failed: {lines[0] if lines else 'for an unknown reason'}"
    return EXECUTORS.failed(subject, text, cure=EXECUTORS.cure.format(master=shlex.quote(facts.master)))


def _judge_answers(
    subject: str, host: str, tasks: Sequence[ExecutorTask], facts: ClusterFacts
) -> Iterator[CheckResult]:
    found = next(each.answer for each in tasks if each.answer is not None)
    if found.python.rpartition(".")[0] == facts.driver.python.rpartition(".")[0]:
        yield EXECUTOR_PYTHON.ok(subject, f"{found.python}, {found.executable}")
    else:
        cure = EXECUTOR_PYTHON.cure.format(host=host, python=facts.driver.python.rpartition(".")[0])
        text = f"Python {found.python}, and the driver has {facts.driver.python}"
        yield EXECUTOR_PYTHON.failed(subject, text, cure=cure)
    yield _judge_packages(subject, host, found, facts.driver)
    yield _judge_reach(subject, host, found, facts.servers)
    cure = EXECUTOR_CLOCKS.cure.format(host=host)
    yield judge_skew(EXECUTOR_CLOCKS, subject, skew_of(tasks), "the driver's", cure)


def _judge_packages(subject: str, host: str, found: ExecutorAnswer, driver: ExecutorAnswer) -> CheckResult:
    cure = _cure_of_packages(host, shlex.quote(found.executable), driver)
    if found.broken:
        text = "; ".join(f"{name} cannot be imported: {why}" for name, why in found.broken.items())
        return EXECUTOR_PACKAGES.failed(subject, text, cure=cure)
    other = {
        name: (there, here)
        for name, here in driver.packages.items()
        if here and (there := found.packages.get(name, "")) != here
    }
    named = "; ".join(
        f"{name} {there or 'without a version'}, and the driver has {here}"
        for name, (there, here) in other.items()
    )
    if any(other[name][0] for name in SAME if name in other):
        return EXECUTOR_PACKAGES.failed(subject, named, cure=cure)
    if any(there for there, _ in other.values()):
        return EXECUTOR_PACKAGES.warning(subject, named, cure=cure)
    if named:
        return EXECUTOR_PACKAGES.unknown(subject, f"all can be imported, but {named}")
    versions = ", ".join(f"{name} {version}" for name, version in found.packages.items())
    return EXECUTOR_PACKAGES.ok(subject, versions)


def _judge_reach(
    subject: str, host: str, found: ExecutorAnswer, servers: Reading[Sequence[tuple[str, int]]]
) -> CheckResult:
    if servers.value is None:
        return EXECUTOR_REACH.unknown(subject, servers.unknown)
    if not found.unreachable:
        names = ", ".join(f"{name}:{port}" for name, port in servers.value)
        return EXECUTOR_REACH.ok(subject, f"reaches {names}")
    text = "; ".join(f"{server}: {why}" for server, why in found.unreachable.items())
    server, _, port = next(iter(found.unreachable)).rpartition(":")
    cure = EXECUTOR_REACH.cure.format(host=host, server=server, port=port)
    return EXECUTOR_REACH.failed(subject, text, cure=cure)


def skew_of(tasks: Iterable[ExecutorTask]) -> int:
    """Return by how much an executor's clock is ahead of the driver's at least, in ms; negative: behind."""
    ahead = behind = 0
    for each in tasks:
        if each.answer is not None:
            ahead = max(ahead, each.answer.ended_ms - each.received_ms)
            behind = min(behind, each.answer.began_ms - each.sent_ms)
    return ahead if ahead > -behind else behind


def kafka_servers(text: str) -> list[tuple[str, int]]:
    """Return host and port of each server in `bootstrap.servers`."""
    return [
        _server(each.rpartition("://")[2], KAFKA_PORT) for one in text.split(",") if (each := one.strip())
    ]


def spark_servers(master: str) -> list[tuple[str, int]]:
    """Return host and port of each standalone master in an address; none: it is of another kind."""
    kind, _, rest = master.partition("://")
    return [_server(each.strip(), 7077) for each in rest.split(",")] if kind == "spark" else []


def _server(text: str, default: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        return text.strip("[]"), default
    return host.strip("[]"), int(port)

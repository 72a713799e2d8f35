"""What a Spark cluster's executors answer, judged: Python, packages, way to Kafka, clock; pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spout.distribution import DISTRIBUTION, wheel_name
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

SAME_AS_DRIVER: Final = (DISTRIBUTION, "pyspark")
"""Distributions whose versions must be the driver's; another version of any other is a warning."""

KAFKA_PORT: Final = 9092
MASTER_PORT: Final = 7077
"""Of a standalone master of Spark."""

_EXECUTOR_CODES: Final = (EXECUTOR_PYTHON, EXECUTOR_PACKAGES, EXECUTOR_REACH, EXECUTOR_CLOCKS)
"""What is judged of each executor."""

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
    """A task: when it was sent and came back by the driver's clock, its answer, or its error."""

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
    """Judge whether a cluster gives executors, and then what is on each of them."""
    if facts.application.unknown:
        why = facts.application.unknown
        yield EXECUTORS.failed(facts.master, why, cure=_cure_of_master(facts.master))
        for code in _EXECUTOR_CODES:
            yield code.unknown(facts.master, f"{EXECUTORS.code} failed")
        return
    yield EXECUTORS.ok(facts.master, facts.application.value or "")
    for (executor, host), tasks in facts.tasks.items():
        yield from _judge_executor(f"executor {executor} on {host}", host, tasks, facts)


def _judge_executor(
    subject: str, host: str, tasks: Sequence[ExecutorTask], facts: ClusterFacts
) -> Iterator[CheckResult]:
    """Judge one executor: by what its tasks answered, else by why the first of them failed."""
    if any(task.answer is not None for task in tasks):
        yield from _judge_answers(subject, host, tasks, facts)
        return
    if not tasks:
        reason = "no task ran there in time: other work has its cores"
        yield from (code.unknown(subject, reason) for code in _EXECUTOR_CODES)
        return
    failure = _judge_failure(subject, host, tasks[0].error, facts)
    yield failure
    for code in _EXECUTOR_CODES:
        if code != failure.code:
            yield code.unknown(subject, f"{failure.code.code} failed")


def _cure_of_master(master: str) -> str:
    """Return the command against a cluster without executors: one more, or a job for its log."""
    url = shlex.quote(master)
    return f"start-worker.sh {url}" if spark_servers(master) else EXECUTORS.cure.format(master=url)


def _cure_of_packages(host: str, python: str, driver: ExecutorAnswer) -> str:
    """Return the command that installs the driver's Windhover for an executor's `python`."""
    version = driver.packages.get(DISTRIBUTION) or "VERSION"
    # from a wheel, and not by its name: the windhover of PyPI is another project
    return EXECUTOR_PACKAGES.cure.format(host=host, python=python, wheel=wheel_name(version))


def _judge_failure(subject: str, host: str, error: str, facts: ClusterFacts) -> CheckResult:
    """Judge why a task failed; `error` is Spark's text, often with a long stack."""
    cure_of_python = EXECUTOR_PYTHON.cure.format(host=host, python=_release(facts.driver.python))
    versions = _OTHER_PYTHON.search(error)
    if versions:
        text = f"Python {versions[1]}, and the driver has {versions[2]}"
        return EXECUTOR_PYTHON.failed(subject, text, cure=cure_of_python)
    program = _NO_PROGRAM.search(error)
    if program:
        return EXECUTOR_PYTHON.failed(subject, program[0], cure=cure_of_python)
    missing_module = _NO_PYSPARK.search(error)
    if missing_module:
        cure = _cure_of_packages(host, "PYTHON", facts.driver)
        text = f"its Python has no {missing_module[1]}"
        return EXECUTOR_PACKAGES.failed(subject, text, cure=cure)
    lines = [line for line in error.splitlines() if line.strip()]
    text = f"its task failed: {lines[0] if lines else 'for an unknown reason'}"
    cure = EXECUTORS.cure.format(master=shlex.quote(facts.master))
    return EXECUTORS.failed(subject, text, cure=cure)


def _release(version: str) -> str:
    """Return the first two numbers of a version of Python: "3.12" of "3.12.4"."""
    return version.rpartition(".")[0]


def _judge_answers(
    subject: str, host: str, tasks: Sequence[ExecutorTask], facts: ClusterFacts
) -> Iterator[CheckResult]:
    """Judge one executor: its clock by the answers of all tasks, all else by the first answer."""
    answer = next(task.answer for task in tasks if task.answer is not None)
    driver_release = _release(facts.driver.python)
    if _release(answer.python) == driver_release:
        yield EXECUTOR_PYTHON.ok(subject, f"{answer.python}, {answer.executable}")
    else:
        cure = EXECUTOR_PYTHON.cure.format(host=host, python=driver_release)
        text = f"Python {answer.python}, and the driver has {facts.driver.python}"
        yield EXECUTOR_PYTHON.failed(subject, text, cure=cure)
    yield _judge_packages(subject, host, answer, facts.driver)
    yield _judge_reach(subject, host, answer, facts.servers)
    cure = EXECUTOR_CLOCKS.cure.format(host=host)
    yield judge_skew(EXECUTOR_CLOCKS, subject, skew_of(tasks), "the driver's", cure)


def _judge_packages(subject: str, host: str, answer: ExecutorAnswer, driver: ExecutorAnswer) -> CheckResult:
    """Judge whether an executor's packages can be imported, and have the driver's versions."""
    cure = _cure_of_packages(host, shlex.quote(answer.executable), driver)
    if answer.broken:
        text = "; ".join(f"{name} cannot be imported: {why}" for name, why in answer.broken.items())
        return EXECUTOR_PACKAGES.failed(subject, text, cure=cure)
    differences: list[str] = []
    has_other_version = False
    must_be_same = False  # whether one of these must have the driver's version
    for name, driver_version in driver.packages.items():
        # empty: unknown, as of modules that are shipped without their distribution
        version = answer.packages.get(name, "")
        if not driver_version or version == driver_version:
            continue
        version_text = version or "without a version"
        differences.append(f"{name} {version_text}, and the driver has {driver_version}")
        has_other_version |= bool(version)
        must_be_same |= bool(version) and name in SAME_AS_DRIVER
    text = "; ".join(differences)
    if must_be_same:
        return EXECUTOR_PACKAGES.failed(subject, text, cure=cure)
    if has_other_version:
        return EXECUTOR_PACKAGES.warning(subject, text, cure=cure)
    if differences:
        return EXECUTOR_PACKAGES.unknown(subject, f"all can be imported, but {text}")
    versions = ", ".join(f"{name} {version}" for name, version in answer.packages.items())
    return EXECUTOR_PACKAGES.ok(subject, versions)


def _judge_reach(
    subject: str, host: str, answer: ExecutorAnswer, servers: Reading[Sequence[tuple[str, int]]]
) -> CheckResult:
    """Judge whether an executor reaches all brokers; `servers` are their names and ports."""
    if servers.value is None:
        return EXECUTOR_REACH.unknown(subject, servers.unknown)
    if not answer.unreachable:
        names = ", ".join(f"{name}:{port}" for name, port in servers.value)
        return EXECUTOR_REACH.ok(subject, f"reaches {names}")
    text = "; ".join(f"{server}: {why}" for server, why in answer.unreachable.items())
    server, _, port = next(iter(answer.unreachable)).rpartition(":")
    cure = EXECUTOR_REACH.cure.format(host=host, server=server, port=port)
    return EXECUTOR_REACH.failed(subject, text, cure=cure)


def skew_of(tasks: Iterable[ExecutorTask]) -> int:
    """Return by how many ms at least an executor's clock is ahead of the driver's; below 0: behind.

    A task begins after it was sent and ends before its answer is back. If by the executor's
    clock it ended 3 s after the driver had the answer, that clock is at least 3 s ahead.
    """
    # the clock is ahead by `ahead_ms` at least, or `behind_ms` (0 or below) behind
    ahead_ms = 0
    behind_ms = 0
    for task in tasks:
        if task.answer is not None:
            ahead_ms = max(ahead_ms, task.answer.ended_ms - task.received_ms)
            behind_ms = min(behind_ms, task.answer.began_ms - task.sent_ms)
    # the one that is further from 0; 0: the clocks may agree
    return ahead_ms if ahead_ms > -behind_ms else behind_ms


def kafka_servers(text: str) -> list[tuple[str, int]]:
    """Return host and port of each server in `bootstrap.servers`."""
    addresses = [address.strip() for address in text.split(",")]
    # a listener's name may stand before it: SASL_SSL://host:9092
    return [_server(address.rpartition("://")[2], KAFKA_PORT) for address in addresses if address]


def spark_servers(master: str) -> list[tuple[str, int]]:
    """Return host and port of each standalone master in an address; none: of another kind."""
    kind, _, addresses = master.partition("://")
    if kind != "spark":
        return []
    return [_server(address.strip(), MASTER_PORT) for address in addresses.split(",")]


def _server(address: str, default_port: int) -> tuple[str, int]:
    """Return host and port of an address, as librdkafka reads it.

    A host of IPv6 has brackets before a port. Without a port it may have none: ``::1``.
    """
    host, colon, port = address.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    has_port = bool(colon) and is_number and (":" not in host or host.endswith("]"))
    if not has_port:
        return _without_brackets(address), default_port
    return _without_brackets(host), int(port)


def _without_brackets(host: str) -> str:
    """Return a host without the brackets around it; one bracket alone stays."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host

"""What executors answer, judged from facts; a test of the integration ring causes the faults for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spout.doctor.codes import (
    EXECUTOR_CLOCKS,
    EXECUTOR_PACKAGES,
    EXECUTOR_PYTHON,
    EXECUTOR_REACH,
    EXECUTORS,
    CheckCode,
    CheckHealth,
    CheckResult,
)
from spout.doctor.executors import (
    ClusterFacts,
    ExecutorAnswer,
    ExecutorTask,
    judge_executors,
    kafka_servers,
    skew_of,
    spark_servers,
)
from spout.inspect.readings import Reading

MASTER = "spark://master:7077"
PACKAGES = {"windhover-kafka": "0.2.0", "numpy": "2.1.0", "pyspark": "4.2.0"}
ANSWER = ExecutorAnswer("3.12.1", "/opt/windhover/bin/python", PACKAGES, {}, {}, 1_000, 1_500)
MISMATCH = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has"
    " different version: 3.13 than that in driver: 3.12, PySpark cannot run with different minor versions."
)


def facts_of(*tasks: ExecutorTask) -> ClusterFacts:
    servers = Reading([("kafka", 9092)])
    return ClusterFacts(MASTER, Reading("gave 1 executor"), ANSWER, servers, {("0", "w1"): tasks})


def answered(answer: ExecutorAnswer) -> ClusterFacts:
    return facts_of(ExecutorTask(1_000, 1_500, answer))


def test_a_package_whose_import_ends_by_any_error_is_named(tmp_path: Path) -> None:
    """One that was built for another numpy, say, raises what it likes."""
    (tmp_path / "pyarrow.py").write_text("raise RuntimeError('built for another numpy')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    program = "from spout.doctor.on_executor import answer; print(answer((), 0)['broken'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "'pyarrow': 'RuntimeError: built for another numpy'" in done.stdout, done.stderr


def failed(error: str) -> ClusterFacts:
    return facts_of(ExecutorTask(0, 1, None, error))


def judged(facts: ClusterFacts) -> list[CheckResult]:
    return list(judge_executors(facts))


def wrong(facts: ClusterFacts) -> dict[CheckCode, CheckHealth]:
    return {each.code: each.health for each in judged(facts) if each.health is not CheckHealth.OK}


def result(facts: ClusterFacts, code: CheckCode) -> CheckResult:
    (found,) = [each for each in judged(facts) if each.code is code and each.cure]
    return found


UNKNOWN = CheckHealth.UNKNOWN
PER_EXECUTOR = (EXECUTOR_PYTHON, EXECUTOR_PACKAGES, EXECUTOR_REACH, EXECUTOR_CLOCKS)


def test_an_executor_that_is_as_the_driver_passes_every_check() -> None:
    assert [each.code for each in judged(answered(ANSWER))] == [EXECUTORS, *PER_EXECUTOR]
    assert wrong(answered(ANSWER)) == {}


def test_a_cluster_without_executors_fails_and_all_else_could_not_be_told() -> None:
    facts = replace(answered(ANSWER), application=Reading(unknown="no executor"), tasks={})
    assert wrong(facts) == {EXECUTORS: CheckHealth.FAILED} | dict.fromkeys(PER_EXECUTOR, UNKNOWN)
    assert result(facts, EXECUTORS).cure == f"start-worker.sh {MASTER}"


def test_an_executor_whose_cores_are_taken_could_not_be_told() -> None:
    assert wrong(facts_of()) == dict.fromkeys(PER_EXECUTOR, UNKNOWN)


@pytest.mark.parametrize(
    ("error", "code", "observed"),
    [
        (MISMATCH, EXECUTOR_PYTHON, "Python 3.13, and the driver has 3.12"),
        (
            'IOException: Cannot run program "/opt/python": error=2, No such file or directory\n at x',
            EXECUTOR_PYTHON,
            'Cannot run program "/opt/python": error=2, No such file or directory',
        ),
        ("ModuleNotFoundError: No module named 'pyspark'", EXECUTOR_PACKAGES, "its Python has no pyspark"),
        ("ExecutorLostFailure\n(more)", EXECUTORS, "its task failed: ExecutorLostFailure"),
    ],
)
def test_a_task_that_could_not_answer_has_the_code_of_its_error(
    error: str, code: CheckCode, observed: str
) -> None:
    others = {each: UNKNOWN for each in PER_EXECUTOR if each is not code}
    assert wrong(failed(error)) == {code: CheckHealth.FAILED} | others
    assert result(failed(error), code).observed == observed


def test_the_cure_of_another_python_installs_the_drivers_there() -> None:
    cure = result(failed(MISMATCH), EXECUTOR_PYTHON).cure
    assert cure == "ssh w1 uv venv --clear --python 3.12 /opt/windhover"


@pytest.mark.parametrize(
    ("packages", "health"),
    [
        ({"windhover-kafka": "0.1.0"}, CheckHealth.FAILED),
        ({"pyspark": "4.1.0"}, CheckHealth.FAILED),
        ({"numpy": "2.0.0"}, CheckHealth.WARNING),
        ({"windhover-kafka": ""}, CheckHealth.UNKNOWN),  # its modules were shipped, without a version
    ],
)
def test_another_version_of_a_package_is_as_bad_as_what_it_breaks(
    packages: Mapping[str, str], health: CheckHealth
) -> None:
    facts = answered(replace(ANSWER, packages={**PACKAGES, **packages}))
    assert wrong(facts) == {EXECUTOR_PACKAGES: health}


def test_a_package_that_cannot_be_imported_fails_with_the_command_that_installs_it() -> None:
    facts = answered(replace(ANSWER, broken={"spout.streaming.read_task": "No module named 'spout'"}))
    found = result(facts, EXECUTOR_PACKAGES)
    assert found.health is CheckHealth.FAILED
    wheel = "windhover_kafka-0.2.0-py3-none-any.whl"
    assert found.cure == (
        f"scp dist/{wheel} w1:/tmp/ && ssh w1 uv pip install --python /opt/windhover/bin/python /tmp/{wheel}"
    )


def test_a_broker_that_an_executor_does_not_reach_fails_and_is_named() -> None:
    facts = answered(replace(ANSWER, unreachable={"kafka:9092": "timed out"}))
    found = result(facts, EXECUTOR_REACH)
    assert (found.observed, found.cure) == ("kafka:9092: timed out", "ssh w1 nc -vz kafka 9092")
    facts = replace(facts, servers=Reading(unknown="no topics.yaml"))
    assert wrong(facts) == {EXECUTOR_REACH: UNKNOWN}


@pytest.mark.parametrize("skew_ms", [2_001, -2_001])
def test_an_executor_whose_clock_differs_fails(skew_ms: int) -> None:
    found = replace(ANSWER, began_ms=1_000 + skew_ms, ended_ms=1_500 + skew_ms)
    assert wrong(answered(found)) == {EXECUTOR_CLOCKS: CheckHealth.FAILED}
    near = replace(ANSWER, began_ms=1_000 + skew_ms // 2, ended_ms=1_500 + skew_ms // 2)
    assert wrong(answered(near)) == {}


def test_the_task_that_was_back_soonest_tells_most_of_a_clock() -> None:
    slow = ExecutorTask(0, 9_000, replace(ANSWER, began_ms=5_000, ended_ms=5_500))
    quick = ExecutorTask(10_000, 10_400, replace(ANSWER, began_ms=7_100, ended_ms=7_400))
    assert skew_of([slow]) == 0
    assert skew_of([slow, quick]) == -2_900


def test_addresses_of_servers_have_a_port() -> None:
    assert kafka_servers("a, SSL://b:9093,[::1]:9094") == [("a", 9092), ("b", 9093), ("::1", 9094)]
    assert kafka_servers("a:²") == [("a:²", 9092)], "librdkafka says what is wrong with it"
    # a host of IPv6 without brackets has no port there
    assert kafka_servers("::1,[fe80::2],fe80::1:9093") == [
        ("::1", 9092), ("fe80::2", 9092), ("fe80::1:9093", 9092)
    ]  # fmt: skip
    assert kafka_servers("[::1:9094,a:٩") == [("[::1:9094", 9092), ("a:٩", 9092)]
    assert spark_servers("spark://a:7078,b") == [("a", 7078), ("b", 7077)]
    assert spark_servers("yarn") == spark_servers("local[2]") == spark_servers("k8s://https://a:443") == []

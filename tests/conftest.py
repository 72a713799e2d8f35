"""Fixtures of the rings that need a server: a broker, a Spark session, Docker.

What a machine lacks is skipped with its reason, and fails where CI is set. Marks follow from fixtures:
a test that asks for `broker` is `kafka`, for `spark` is `spark`, for `docker` is `docker`.

Each process of xdist has brokers and a Spark session of its own. The tests of a file, which share what is
dear to start, stay together.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import structlog
from hypothesis import settings
from pyspark.sql import SparkSession

from spout.local.spark_session import local_session
from tests.brokers.ring import LACKS, lack_of
from tests.support import spark_classes
from tests.support.brokers import CONTAINER, EMBEDDED, KINDS, Broker, running
from tests.support.lacking import lacking
from tests.support.turns import beyond_sample, turn_of_day

# the same examples in every run, and no deadline for one: a machine that stands still finds nothing
settings.register_profile("windhover", settings.get_profile("ci"))
settings.load_profile("windhover")

_TESTS = Path(__file__).parent
_MARK_OF_FIXTURE = {"broker": "kafka", "spark": "spark", "docker": "docker"}
_NUMBERS = itertools.count(1)
_TAKES_MINUTES = (
    "e2e/test_exact_sink.py",
    "e2e/test_exact_chain.py",
    "e2e/test_examples_run.py",
    "e2e/test_installed_wheel.py",
    "integration/tools/test_benchmarks.py",
    "containers/test_compose.py",
    "integration/commands/test_readme.py",
    "integration/spark/test_source_spark.py",
    "integration/commands/test_up.py",
    "e2e/test_submit.py",
    "integration/spark/test_any_sink.py",
    "integration/spark/test_bolts_spark.py",
    "integration/spark/test_stream_joins_spark.py",
    "integration/kafka/test_security.py",
    "e2e/test_packed_environment.py",
    "integration/kafka/test_acker_process.py",
    "integration/kafka/test_limits_of_broker.py",
    "integration/spark/test_doctor_executors.py",
    "e2e/test_former_checkpoint.py",
    "integration/commands/test_examples.py",
    "integration/spark/test_keyed_topology_spark.py",
    "integration/spark/test_topology_spark.py",
    "e2e/test_slow_first_batch.py",
    "integration/kafka/test_embedded.py",
    "integration/ui/test_browser.py",
    "integration/ui/test_page_process.py",
    "e2e/test_lost_executor.py",
    "integration/ui/test_killed_processes.py",
    "e2e/test_embedded_cluster.py",
    "e2e/test_moved_coordinator.py",
    "e2e/test_postgres_sink.py",
    "e2e/test_kafka_sink.py",
)
"""Files that take longest, longest first: begun last, one would run alone at the end, beside an idle core."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add two options: the day whose third of the tests marked `by_turns` runs, and the broker."""
    parser.addoption(
        "--day",
        type=int,
        help="of tests marked by_turns run those of this day: a number. Without it all run.",
    )
    parser.addoption(
        "--broker", default=EMBEDDED, choices=KINDS, help="the kind of broker that a test gets as `broker`"
    )


def pytest_configure() -> None:
    """Let every Spark that a test starts, in this process or in another one, start as fast as it can."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", spark_classes.submit_options(os.environ))


def pytest_xdist_auto_num_workers() -> int | None:
    """Run one process more than there are cores: one of them mostly waits for a broker or for Spark."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it
    # macOS has no affinity of a process
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of each kind of client on the embedded broker and on a container, all else on the former.

    What is in the image is the same Kafka, so a second test of the same client would find the same.
    """
    of_default = metafunc.config.getoption("--broker") == EMBEDDED
    if of_default and metafunc.definition.get_closest_marker("both_brokers"):
        container = pytest.param(CONTAINER, marks=[pytest.mark.docker, pytest.mark.slow])
        metafunc.parametrize("broker", [EMBEDDED, container], indirect=True, scope="session")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark tests by the servers that they ask for, before pytest selects by mark; then sort their files.

    Of a function that is marked ``sample(3)`` each third case stays, the others become slow.

    With ``--day`` tests whose turn is another day are deselected, which pytest counts. With
    ``--broker KIND`` a test of what that one lacks must fall.

    xdist keeps the order with ``--no-loadscope-reorder``. Else it begins with the file of most tests.
    """
    for item in items:
        for fixture, mark in _MARK_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
    _mark_beyond_samples(items)
    lacks = LACKS.get(config.getoption("--broker"), {})
    for item in items:
        reason = lack_of(lacks, item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    day: int | None = config.getoption("--day")
    if day is not None:
        by_turns = [item for item in items if item.get_closest_marker("by_turns")]
        of_day = turn_of_day((item.nodeid for item in by_turns), day)
        other_days = {item for item in by_turns if item.nodeid not in of_day}
        config.hook.pytest_deselected(items=[item for item in items if item in other_days])
        items[:] = [item for item in items if item not in other_days]
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        places = {_TESTS / name: place for place, name in enumerate(_TAKES_MINUTES)}
        if gone := [path for path in places if not path.is_file()]:
            raise pytest.UsageError(f"tests/conftest.py sorts files that are not there: {gone}")
        items.sort(key=lambda item: places.get(item.path, len(places)))


def _mark_beyond_samples(items: Sequence[pytest.Item]) -> None:
    """Mark as slow what a ``sample`` mark of a function leaves out."""
    cases_by_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            cases_by_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in cases_by_function.values():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        for place in beyond_sample(len(cases), *mark.args):
            cases[place].add_marker("slow")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo what a test sets up for logging: its stream closes with the test, and libraries log at exit."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def docker() -> None:
    """Skip the test where Docker's engine does not answer or has no Kafka image; in CI, fail."""
    import docker as client  # type: ignore[import-untyped]
    from docker.errors import DockerException, ImageNotFound  # type: ignore[import-untyped]

    from tests.support.servers.kafka_container import IMAGE

    try:
        engine = client.from_env()
        engine.ping()
    except DockerException as error:
        lacking(f"Docker's engine does not answer: {error}")
    try:
        engine.images.get(IMAGE)
    except ImageNotFound:
        try:
            engine.images.pull(IMAGE)
        except DockerException as error:
            lacking(f"the image {IMAGE} is not here and cannot be pulled: {error}")


@pytest.fixture(scope="session")
def brokers() -> Iterator[Callable[[str], Broker]]:
    """The brokers by their kind: each is started when it is first asked for, and runs to the end."""
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(running(kind)))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, brokers: Callable[[str], Broker]) -> Broker:
    """A real broker for all tests of a kind; each test makes topics of its own (`prefix`)."""
    kind = getattr(request, "param", request.config.getoption("--broker"))
    if kind == CONTAINER:
        request.getfixturevalue("docker")
    return brokers(kind)


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """A beginning for names of topics, groups and transactions that no other test uses."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{name}-{next(_NUMBERS)}-"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the tests: two cores, and a task is tried three times as in a cluster."""
    session = local_session("windhover-tests", tmp_path_factory.mktemp("spark"), cores=2)
    yield session
    session.stop()

"""What `read_stream`, `bolt` and a session are refused for, before anything asks Spark."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import spout
from acker.config.topics import parse
from acker.errors import UsageError
from spout.streaming.application import refuse_connect, refuse_workers, require_classic
from spout.streaming.stream import let_workers_be_this_python

TOPICS = parse(
    """
inputs:
  lines: {id: 1, group: g}
  words: {id: 2, group: g}
  other: {id: 3, group: h}
  free: {id: 4, group: g, ackers: 0}
  kept: {id: 5, group: k, ordering: key}
  stopped: {id: 6, group: s, stopped: "until Monday"}
""",
    file="topics.yaml",
    environ={},
)
NO_SESSION: Any = object()


def read(names: Any, topics: Any = TOPICS, **options: Any) -> str:
    """Read inputs without a session; return what `read_stream` is refused for."""
    with pytest.raises(UsageError) as refused:
        spout.read_stream(NO_SESSION, topics, names, **options)
    return str(refused.value)


ALL_IS_WELL = "builtins.object is no classic Spark session"
"""What is said where the inputs and the options are right."""


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ("lines", {}),
        (["lines", "words"], {}),
        ("free", {}),
        ("lines", {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 1, "minPartitions": 1}),
        ("lines", {"startingOffsets": "latest", "tracked": False, "delayed_acks": True}),
        ("lines", {"startingOffsets": "committed", "includeHeaders": None, "failOnDataLoss": True}),
        ("lines", {"startingOffsets": "2026-07-01T00:00:00Z", "maxOffsetsPerTrigger": None}),
        ("lines", {"tracked_when": lambda received: True, "take_over": True, "delayed_acks": None}),
        ("kept", {"tracked": True, "delayed_acks": False}),
    ],
)
def test_what_can_be_read_is_read_from_a_session(names: Any, options: dict[str, Any]) -> None:
    assert read(names, **options).startswith(ALL_IS_WELL)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ((), "read_stream needs the name of an input: lines, words, other, free, kept, stopped"),
        ("stopped", "input stopped is stopped on purpose: until Monday"),
        (["lines", "stopped"], "input stopped is stopped on purpose"),
        (["lines", "other"], "lines, other belong to groups g, h; one call reads one group"),
        (
            ["free", "lines"],
            "free, lines: some have ackers: 0, some have not; read them by two groups",
        ),
    ],
)
def test_inputs_that_do_not_go_together_are_refused(names: Any, says: str) -> None:
    assert says in read(names)


def test_what_is_no_topics_yaml_is_refused_with_what_reads_it() -> None:
    assert 'give it what spout.load("topics.yaml") returns' in read("lines", topics="topics.yaml")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"maxOffsets": 1},
            "read_stream has no option maxOffsets; it has startingOffsets, maxOffsets",
        ),
        ({"b": 1, "a": 1}, "read_stream has no option a, b; it has "),
        ({"maxOffsetsPerTrigger": 0}, "maxOffsetsPerTrigger=0: it is a number of at least 1"),
        ({"minPartitions": -1}, "minPartitions=-1: it is a number of at least 1"),
        ({"minPartitions": True}, "minPartitions=True: it is a number of at least 1"),
        ({"minPartitions": "2"}, "minPartitions='2': it is a number of at least 1"),
        ({"maxOffsetsPerTrigger": 1.5}, "maxOffsetsPerTrigger=1.5: it is a number of at least 1"),
        ({"includeHeaders": "true"}, "includeHeaders='true': it is True or False"),
        ({"failOnDataLoss": 1}, "failOnDataLoss=1: it is True or False"),
        ({"tracked": 0}, "tracked=0: it is True or False"),
        ({"delayed_acks": "no"}, "delayed_acks='no': it is True or False"),
        ({"take_over": 1}, "take_over=1: it is True or False"),
        ({"startingOffsets": "soon"}, "startingOffsets='soon': "),
        ({"startingOffsets": "2026-13-01T00:00:00Z"}, "or a time such as 2026-07-01T00:00:00Z"),
    ],
)
def test_an_option_that_is_not_there_or_has_no_such_value_is_refused(
    options: dict[str, Any], says: str
) -> None:
    assert says in read("lines", **options)


async def never_awaited(received: spout.Tuple) -> bool:
    return True


def test_a_function_whose_code_would_never_run_is_refused() -> None:
    assert "tracked_when is async" in read("lines", tracked_when=never_awaited)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tracked": False}, "tracked=False"),
        ({"delayed_acks": True}, "delayed_acks=True"),
        ({"tracked": False, "delayed_acks": True}, "tracked=False"),
    ],
)
def test_an_input_in_order_does_not_go_with_what_would_break_the_order(
    options: dict[str, Any], named: str
) -> None:
    assert f"input kept has an ordering, which does not go with {named}:" in read("kept", **options)


def test_topics_yaml_takes_its_values_from_what_is_given_or_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.yaml"
    path.write_text('kafka: {bootstrap.servers: "${KAFKA}"}', encoding="utf-8")
    monkeypatch.setenv("KAFKA", "of-the-process:9092")
    assert spout.load(path).kafka["bootstrap.servers"] == "of-the-process:9092"
    topics = spout.load(str(path), {"KAFKA": "of-the-call:9092"})
    assert topics.kafka["bootstrap.servers"] == "of-the-call:9092"


# bolts ------------------------------------------------------------------------------------------------------


class Words(spout.BasicBolt):
    """Emits nothing."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Do nothing."""


class OfKey(spout.KeyedBolt):
    """Is called for keys, which `bolt` has not."""

    output = "word string"

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Do nothing."""


@pytest.mark.parametrize("name", ["", "a+b", "a/b", "+", "/"])
def test_a_bolt_has_a_name_that_a_plan_can_show(name: str) -> None:
    with pytest.raises(UsageError, match=f"a bolt cannot be called '{name}'".replace("+", r"\+")):
        spout.bolt(Words(), name=name)
    assert callable(spout.bolt(Words(), name="a-b"))
    assert callable(spout.bolt(Words()))


@pytest.mark.parametrize(
    ("instance", "hooks", "says"),
    [
        (OfKey(), (), "OfKey is no BasicBolt, Bolt or ArrowBolt"),
        (Words, (), "is a class"),
        (Words(), [object()], "is no hook; derive it from spout.TaskHook"),
    ],
)
def test_what_is_no_bolt_or_no_hook_is_refused_where_it_is_named(
    instance: Any, hooks: Any, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        spout.bolt(instance, hooks=hooks)


# sessions and workers ---------------------------------------------------------------------------------------


def test_what_is_no_classic_session_is_refused_by_its_class() -> None:
    with pytest.raises(UsageError, match=r"SimpleNamespace is no classic Spark session.*Spark Connect does"):
        require_classic(SimpleNamespace())


@pytest.mark.parametrize(
    ("settings", "environ", "says"),
    [
        ({"spark.remote": "sc://host"}, {}, "spark.remote"),
        ({}, {"SPARK_REMOTE": "sc://host"}, "SPARK_REMOTE"),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": ""}, "SPARK_CONNECT_MODE_ENABLED"),
        ({"spark.api.mode": "Connect"}, {}, "spark.api.mode=connect (or SPARK_API_MODE)"),
        ({}, {"SPARK_API_MODE": "connect"}, "spark.api.mode=connect (or SPARK_API_MODE)"),
        (
            {"spark.remote": "sc://host", "spark.api.mode": "connect"},
            {"SPARK_REMOTE": "sc://host"},
            "spark.remote, SPARK_REMOTE, spark.api.mode=connect (or SPARK_API_MODE)",
        ),
    ],
)
def test_what_turns_spark_connect_on_is_named(
    settings: dict[str, str], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_connect(settings, environ)
    assert str(refused.value).startswith(f"{says}: this would be no classic Spark session")


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        ({}, {}),
        ({"spark.api.mode": "classic"}, {"SPARK_API_MODE": "connect"}),
        ({"spark.app.name": "x"}, {}),
    ],
)
def test_what_leaves_spark_connect_off_is_no_trouble(
    settings: dict[str, str], environ: dict[str, str]
) -> None:
    assert refuse_connect(settings, environ) is None  # type: ignore[func-returns-value]  # nothing is raised


@pytest.mark.parametrize("shipped", ["one.whl", "modules.zip,one.whl", "modules.zip, one.whl ,two.whl"])
def test_a_wheel_that_no_worker_would_import_is_refused(shipped: str) -> None:
    with pytest.raises(UsageError, match=r"--py-files *one\.whl *: Spark puts .*and no wheel"):
        refuse_workers("python3", shipped)


def test_a_python_that_this_machine_cannot_run_is_refused(tmp_path: Path) -> None:
    no_program = tmp_path / "python"
    for _ in range(2):
        with pytest.raises(UsageError, match=f"{no_program}, the Python of Spark's workers"):
            refuse_workers(str(no_program), "modules.zip")
        no_program.write_text("")
    no_program.chmod(0o700)
    for python in (str(no_program), sys.executable, "no-such-program", "python3"):
        assert refuse_workers(python, "") is None  # type: ignore[func-returns-value]  # nothing is raised


def context_of(master: str | None, python: str, chosen: str | None = None) -> Any:
    """Return a SparkContext with a master, its Python, and what a setting chooses."""
    settings = {"spark.pyspark.python": chosen}
    return SimpleNamespace(
        master=master, pythonExec=python, getConf=lambda: SimpleNamespace(get=settings.get)
    )


OTHER_PYTHON = "no-such-python"


@pytest.mark.parametrize(
    ("master", "python", "chosen", "variable", "becomes", "is_logged"),
    [
        ("local[2]", OTHER_PYTHON, None, None, sys.executable, True),
        ("local", sys.executable, None, None, sys.executable, False),
        ("local[2]", OTHER_PYTHON, "chosen", None, OTHER_PYTHON, False),
        ("local[2]", OTHER_PYTHON, None, "chosen", OTHER_PYTHON, False),
        ("spark://host", OTHER_PYTHON, None, None, OTHER_PYTHON, False),
        (None, OTHER_PYTHON, None, None, OTHER_PYTHON, False),
    ],
)
def test_workers_on_this_machine_are_this_python_unless_somebody_has_chosen(
    master: str | None,
    python: str,
    chosen: str | None,
    variable: str | None,
    becomes: str,
    is_logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    context = context_of(master, python, chosen)
    with caplog.at_level(logging.WARNING):
        let_workers_be_this_python(context)
    assert context.pythonExec == becomes
    assert ("workers_run_this_python" in caplog.text) is is_logged
    if is_logged:
        assert f"and {python} is not there, not of this environment" in caplog.text


def test_another_name_of_this_environment_s_python_is_taken_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another environment it is named."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    beside = Path(sys.executable).parent
    stranger = tmp_path / "python3"
    stranger.write_text("")
    stranger.chmod(0o700)
    for folder, lines in ((beside, 0), (tmp_path, 1)):
        monkeypatch.setenv("PATH", os.fspath(folder))
        context = context_of("local[*]", "python3")
        let_workers_be_this_python(context)
        assert context.pythonExec == sys.executable
        assert len(caplog.messages) == lines
    assert f"python3 is {stranger}, not of this environment" in caplog.text

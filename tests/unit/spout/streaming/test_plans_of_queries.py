"""What is read from Spark's plans: streams, bolts, stages, shuffles; and rules for bolts that none has."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acker.config.topics import parse
from acker.errors import TrackingError, UsageError
from spout.streaming import query_plan
from spout.streaming.application import Stream
from spout.streaming.query_plan import (
    crosses_stages,
    execution_of_running_query,
    is_stage,
    label,
    may_shuffle,
    new_identity,
    operator_of,
    operators_in,
    refuse_limit,
    refuse_namesakes,
    stays,
    stream_of,
    streams_read,
    trigger_of_reader,
)
from spout.streaming.unfit_rules import log_unfit_rules_of
from spout.tuples.columns import ANCHOR, BUNDLE, TASK, TO
from tests.support.plan_nodes import Node, bolt, reused, source, stage, users
from tests.support.refusals import not_refused


@pytest.mark.parametrize(
    ("plan", "wide"),
    [
        (Node("Project", Node("Filter", source())), False),
        (Node("Project", users(source())), False),
        (Node("Project", bolt(Node("RepartitionByExpression", source()))), False),
        (Node("Project", stage("RepartitionByExpression", source())), False),
        (Node("Join", source(), Node("LocalRelation")), True),
        (Node("Project", users(Node("Repartition", bolt(source())))), True),
        (Node("Union", bolt(source()), Node("Project", Node("Deduplicate", bolt(source())))), True),
        (Node("Union", Node("Project", Node("Deduplicate", bolt(source()))), bolt(source())), True),
        (Node("Join", source(tracked=False), Node("Aggregate", source(tracked=False))), False),
    ],
)
def test_a_query_may_be_shuffled_by_what_stands_behind_its_last_bolt(plan: Node, wide: bool) -> None:
    assert may_shuffle(plan) == wide


SCAN = Node("MicroBatchScan")
TABLE = Node("BroadcastExchange", Node("Scan parquet"))


@pytest.mark.parametrize(
    ("plan", "crosses"),
    [
        (Node("WholeStageCodegen (1)", Node("Filter", Node("InputAdapter", SCAN))), False),
        (Node("AdaptiveSparkPlan", Node("BroadcastHashJoin", SCAN, TABLE)), False),
        (
            Node(
                "AdaptiveSparkPlan",
                Node("BroadcastHashJoin", Node("BroadcastExchange", SCAN), TABLE),
            ),
            True,
        ),
        (
            Node("AdaptiveSparkPlan", Node("SortMergeJoin", Node("Exchange", bolt(SCAN)), TABLE)),
            True,
        ),
        (Node("SortMergeJoin", bolt(SCAN), Node("Exchange", Node("Scan parquet"))), False),
        (Node("Project", bolt(Node("Exchange", SCAN))), False),
        (Node("Project", stage("Exchange", SCAN)), False),
        (Node("Project", users(Node("Exchange", SCAN))), True),
        (Node("Union", bolt(SCAN), Node("Exchange", SCAN)), True),
        (Node("Union", Node("Exchange", SCAN), bolt(SCAN)), True),
        (Node("Union", bolt(Node("Exchange", SCAN)), reused(Node("Exchange", SCAN))), True),
        (Node("HashAggregate", Node("StateStoreSave", Node("Exchange", SCAN))), True),
    ],
)
def test_a_batch_is_shuffled_where_its_rows_leave_the_stage_of_the_last_bolt(
    plan: Node, crosses: bool
) -> None:
    assert crosses_stages(plan) == crosses


def rows_of(plan: Node, planned: Node | None = None) -> Any:
    """Return rows with a logical and a physical plan."""

    def executed_plan() -> Node:
        assert planned is not None, "it takes 7 ms of each batch"
        return planned

    execution = SimpleNamespace(analyzed=lambda: plan, executedPlan=executed_plan)
    return SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))


def test_rows_read_the_tracked_streams_of_all_their_branches() -> None:
    branches = bolt(source(stream="a")), source(tracked=False), Node("Filter", source(stream="b"))
    assert streams_read(rows_of(Node("Union", *branches))) == {"a", "b"}
    assert streams_read(rows_of(Node("LocalRelation"))) == frozenset()


@pytest.mark.parametrize("limit", ["GlobalLimit", "LocalLimit", "Offset", "Tail"])
def test_records_of_a_tracked_stream_are_not_cut_off(limit: str) -> None:
    """Beside the stream, above one that is not tracked and below no stream at all it is nobody's trouble."""
    untracked = source(tracked=False)
    for below in (source(), Node("Filter", bolt(source())), Node("Union", untracked, source())):
        with pytest.raises(UsageError, match=f"^{limit} stands behind a tracked stream: records that it"):
            refuse_limit(Node("Project", Node(limit, below)))
    with not_refused("a limit that cuts no record of a tracked stream off"):
        refuse_limit(Node("Join", source(), Node(limit, Node("LocalRelation"))))
        refuse_limit(Node(limit, untracked))
        refuse_limit(Node("Project", source()))


def test_rows_stay_where_they_are_as_long_as_no_exchange_is_in_their_plan() -> None:
    assert stays(rows_of(Node("LogicalRDD")))
    narrow, wide = (
        Node("Project", Node("Filter", Node("Scan"))),
        Node("Project", Node("Exchange", Node("Scan"))),
    )
    assert stays(rows_of(Node("Project"), narrow))
    assert not stays(rows_of(Node("Project"), wide))
    assert not stays(rows_of(Node("Project"), Node("AdaptiveSparkPlan", wide)))
    assert not stays(rows_of(Node("Project"), Node("Union", narrow, wide)))


def query_of(plan: Node, trigger: str) -> Any:
    """Return a running query by its plan and the class of its trigger."""
    execution = SimpleNamespace(
        analyzedPlan=lambda: plan,
        trigger=lambda: SimpleNamespace(getClass=lambda: SimpleNamespace(getSimpleName=lambda: trigger)),
    )
    return SimpleNamespace(_jsq=SimpleNamespace(streamingQuery=lambda: execution))


def test_the_trigger_is_that_of_the_query_that_reads_the_stream() -> None:
    queries = [
        query_of(bolt(source(tracked=False)), "Continuous"),
        query_of(Node("Union", source(stream="a"), source(stream="b")), "AvailableNowTrigger$"),
        query_of(bolt(source(stream="c")), "ProcessingTimeTrigger"),
    ]
    session: Any = SimpleNamespace(streams=SimpleNamespace(active=queries))
    triggers = [trigger_of_reader(session, stream) for stream in "abcd"]
    assert triggers == ["AvailableNowTrigger", "AvailableNowTrigger", "ProcessingTimeTrigger", ""]


def test_a_query_that_spark_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    executions = {"q": object()}
    monkeypatch.setattr(query_plan, "execution_of", lambda _session, query: executions.get(query))
    assert execution_of_running_query(cast("Any", None), "q") is executions["q"]
    with pytest.raises(TrackingError, match="Spark does not know query p, so nobody can tell"):
        execution_of_running_query(cast("Any", None), "p")


def test_a_label_shows_bolts_and_differs_from_that_of_another_operator_with_their_names() -> None:
    labels = [label("parse+count"), label("parse+count"), label("parse+count", "1f")]
    assert len(set(labels)) == 3
    assert {tuple(operators_in(shown)) for shown in labels} == {("parse", "count")}
    assert labels[2] == "windhover parse+count #1f"
    assert len({new_identity() for _ in range(9)}) == 9
    assert {len(new_identity()) for _ in range(9)} == {12}


def test_two_operators_of_one_name_are_refused_and_one_that_is_used_twice_is_not() -> None:
    with not_refused("an operator that the plan shows twice"):
        refuse_namesakes([label("a+b", "1"), label("c", "2"), label("a+b", "1"), ""])
    for labels in ([label("a", "1"), label("a", "2")], [label("a+b", "1"), label("b+c", "2")]):
        shared = "a" if labels[0] == label("a", "1") else "b"
        with pytest.raises(UsageError, match=f"two operators of the query are called '{shared}'"):
            refuse_namesakes(labels)


def test_a_node_shows_the_bolts_that_it_runs_and_the_stream_that_it_reads() -> None:
    untracked = source(tracked=False)
    assert operators_in(operator_of(source())) == ["split"]
    assert operators_in(operator_of(bolt(source()))) == ["keep"]
    for node in (untracked, users(source()), stage("Repartition"), Node("Project"), Node("Union")):
        assert operator_of(node) == ""
    assert stream_of(source(stream="b")) == "b"
    assert stream_of(untracked) == stream_of(bolt(source())) == ""


@pytest.mark.parametrize(
    ("columns", "is_later_stage"),
    [
        ((TO, TASK, ANCHOR), True),
        ((TO, TASK, ANCHOR, "s0"), True),
        ((TASK, BUNDLE), True),
        ((TO, ANCHOR, "s0"), False),
        ((TASK, ANCHOR), False),
        ((BUNDLE,), False),
        ((), False),
    ],
)
def test_a_later_stage_of_a_topology_is_seen_by_the_columns_that_it_reads(
    columns: tuple[str, ...], is_later_stage: bool
) -> None:
    below = Node("RepartitionByExpression", columns=columns)
    assert is_stage(Node("MapInArrow", below, function="run")) is is_later_stage
    assert not is_stage(Node("MapInPandas", below, function="run"))


# rules for bolts that no query has --------------------------------------------------------------------------

RULES = "[{operator: keep, then: drop}, {operator: splitt, then: drop}, {operator: count, then: drop}]"


def stream_of_rules(name: str) -> Stream:
    """Return a stream with rules for three bolts."""
    text = f"inputs: {{lines: {{id: 1, group: g, retry: {{causes: {RULES}}}}}}}"
    topics = parse(text, file="topics.yaml", environ={})
    inputs = tuple(topics.inputs.values())
    return Stream(name, "g", True, 1, cast("Any", None), cast("Any", None), inputs=inputs)


def logged_of(plan: Node, caplog: pytest.LogCaptureFixture, *streams: Stream) -> list[str]:
    """Return by which rules of an application's streams a line is logged for a query."""
    caplog.clear()
    application: Any = SimpleNamespace(streams={stream.id: stream for stream in streams})
    with caplog.at_level(logging.WARNING):
        log_unfit_rules_of(plan, application)
    assert all(line.startswith("rule_fits_nothing inputs.lines.retry.causes.") for line in caplog.messages)
    return [line.split("causes.")[1].partition(":")[0] for line in caplog.messages]


def test_rules_for_bolts_that_a_query_does_not_have_are_logged_once_for_each_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Node("Union", bolt(source(stream="a")), source(stream="b"), source(stream="elsewhere"))
    first, second, unread = map(stream_of_rules, ("a", "b", "c"))
    assert logged_of(plan, caplog, first, second, unread) == ["1", "2", "1", "2"]
    assert "did you mean split?" in caplog.messages[0]
    assert logged_of(plan, caplog, first, second, unread) == []
    assert (first.has_logged_rules, unread.has_logged_rules) == (True, False)


def test_a_keyed_bolt_is_one_of_the_query_s_by_its_own_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = bolt(bolt(source(), "keep+splitt"), "count/hold")
    assert logged_of(plan, caplog, stream_of_rules("s")) == []


def test_the_plan_of_a_topology_does_not_show_all_of_its_bolts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has logged the rules itself."""
    stream = stream_of_rules("s")
    assert logged_of(stage("RepartitionByExpression", source()), caplog, stream) == []
    assert not stream.has_logged_rules

"""The bolt behind a condition, and sessions that cannot be tracked; without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import UsageError
from spout.bolts.hooks import BoltContext
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.held.conditions import FLAG, FailWhen
from spout.streaming.application import Application, refuse_connect
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.columns import ANCHOR
from spout.tuples.failures import Cause
from spout.tuples.rows import ArrowRows
from tests.support.refusals import not_refused
from tests.support.reports import failures_in
from tests.support.worlds.topology_world import TOPICS


@pytest.mark.parametrize("tracked", [True, False])
def test_rows_that_match_fail_and_all_others_go_on_without_the_flag(tracked: bool) -> None:
    """S83: null is no match, as everywhere in SQL; where nothing is tracked a match is only dropped."""
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4], FLAG: [False, True, None, True]})
    step = Step("check", FailWhen("not this"), pa.schema([pa.field("n", pa.int64())]))
    arrives = AnchorForm.PACKED if tracked else AnchorForm.NONE
    run = StageRun(
        Chain((step,), arriving_form=arrives, leaving_form=arrives).stage, BoltContext("check", 0, 1)
    )
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(4) << ORDINAL_BITS)) if tracked else None
    out = run.feed(ArrowRows(batch), anchors)
    assert out.column("n").to_pylist() == [1, 3]
    failures = [(cause, roots.tolist()) for cause, roots in failures_in(run.report())]
    if tracked:
        assert Anchors(AnchorForm.PACKED, out.column(ANCHOR)).roots().tolist() == [0, 2]
        assert failures == [(Cause("check", "", "not this"), [1, 3])]
    else:
        assert failures == []


def test_a_session_of_spark_connect_is_refused_with_the_way_out() -> None:
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(
        UsageError, match=r"pyspark\.sql\.connect\.session\.SparkSession is no classic .*local"
    ):
        Application.of(session)


def test_a_topology_is_not_submitted_to_one_either() -> None:
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(
        UsageError, match=r"pyspark\.sql\.connect\.session\.SparkSession is no classic .*local"
    ):
        builder.submit(session)


@pytest.mark.parametrize(
    ("settings", "environ", "says"),
    [
        ({"spark.remote": "sc://spark:15002"}, {}, "^spark.remote: "),
        ({}, {"SPARK_REMOTE": "sc://spark:15002"}, "^SPARK_REMOTE: "),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": "1"}, "^SPARK_CONNECT_MODE_ENABLED: "),
        ({"spark.master": "local", "spark.api.mode": "connect"}, {}, "^spark.api.mode=connect"),
        ({"spark.master": "local"}, {"SPARK_API_MODE": "Connect"}, "^spark.api.mode=connect"),
    ],
)
def test_what_would_start_one_is_refused_before(
    settings: dict[str, str], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError, match=says + r".*no classic Spark session: .*Spark Connect"):
        refuse_connect(settings, environ)


def test_what_starts_a_classic_session_is_left_alone() -> None:
    with not_refused("a classic session"):
        refuse_connect({}, {})
        refuse_connect({"spark.master": "local"}, {"SPARK_API_MODE": "classic"})
        refuse_connect({"spark.api.mode": "classic"}, {"SPARK_API_MODE": "connect"})

"""The statuses of ackers and replay workers as metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.openmetrics.exposition import generate_latest

from acker.config.topics import parse
from acker.identity import position_at, source_of
from acker.ledger.cohort import InitEmission, Session
from acker.ledger.tally import CAUSES_MAX, VerdictTally
from acker.ledger.verdicts import LossCause, VerdictSet
from acker.wire.verdict import Verdict
from spout.planning.journal import BEGINNING
from spout.runtime.metrics import Scraped, acker_metrics, flatten, replay_metrics
from tests.support.metric_families import SUFFIXES, acker_status, every_family, replay_status
from tests.support.worlds.planning import World, batch

TOPICS = parse("inputs: {sentences: {id: 1, group: g}}", file="topics.yaml", environ={})
NOW_MS = 1_800_000_000_000
EMISSION = InitEmission(Session("g", 1, "s"), "sentences", "t", 0, NOW_MS - 300, 4_000)


def registry(families: Iterable[Metric]) -> CollectorRegistry:
    """Collect families that were made once."""
    kept = list(families)
    found = CollectorRegistry()
    found.register(Scraped(lambda: kept))
    return found


def tally(*, causes: int = 1, input_id: int = 1) -> VerdictTally:
    """Count two acked roots, and a failed one for each of some causes."""
    found = VerdictTally()
    settled = VerdictSet()
    settled.ack(EMISSION, source_of(input_id, 0, replay=True), position_at(0, 17), range(1))
    settled.ack(EMISSION, source_of(input_id, 3), position_at(0, 1042), range(1))
    for number in range(causes):
        cause = LossCause(Verdict.FAILED, "split", f"Error{number}", f"order {number}", 0)
        settled.lose(cause, EMISSION, source_of(input_id, 3), 2_000 + number, range(1))
    found.add([settled], NOW_MS)
    return found


def test_an_acker_says_what_it_decided_by_input_reason_operator_and_cause() -> None:
    status = acker_status(verdicts=tally(), restored=2, restored_ms=2_500)
    found = registry(acker_metrics(status, TOPICS)).get_sample_value
    of = {"input": "sentences", "group": "g"}
    assert found("windhover_acker_verdicts_total", {**of, "reason": "acked"}) == 2
    assert found("windhover_acker_verdicts_total", {**of, "reason": "failed"}) == 1
    assert found("windhover_acker_failures_total", {**of, "operator": "split", "cause": "Error0"}) == 1
    assert found("windhover_acker_completion_seconds_bucket", {**of, "le": "0.25"}) == 0
    assert found("windhover_acker_completion_seconds_bucket", {**of, "le": "0.5"}) == 2
    assert found("windhover_acker_completion_seconds_sum", of) == 0.6
    assert (found("windhover_acker_partitions"), found("windhover_acker_assigned")) == (2, 3)
    assert found("windhover_acker_transactions_total") == 7
    assert (found("windhover_acker_restore_seconds_count"), found("windhover_acker_restore_seconds_sum")) == (
        2,
        2.5,
    )


def test_an_input_that_topics_yaml_lacks_is_called_by_its_number() -> None:
    found = registry(acker_metrics(acker_status(verdicts=tally(input_id=7)), TOPICS)).get_sample_value
    of = {"input": "id 7", "group": ""}
    assert found("windhover_acker_verdicts_total", {**of, "reason": "acked"}) == 2


def test_ten_thousand_causes_make_no_more_series_than_a_hundred() -> None:
    (one,) = [
        each
        for each in acker_metrics(acker_status(verdicts=tally(causes=10_000)), TOPICS)
        if each.name == "windhover_acker_failures"
    ]
    assert len(one.samples) == CAUSES_MAX + 1


def test_what_an_acker_has_not_decided_yet_is_counted_as_0() -> None:
    """It counts since its start, so 0 is known, and the first verdict is seen by a rate."""
    found = registry(acker_metrics(acker_status(), TOPICS)).get_sample_value
    of = {"input": "sentences", "group": "g"}
    for reason in ("acked", "absent", "blocked", "failed", "timed_out", "abandoned"):
        assert found("windhover_acker_verdicts_total", {**of, "reason": reason}) == 0
    assert found("windhover_acker_completion_seconds_count", of) == 0


def test_a_root_is_an_exemplar_and_no_label() -> None:
    text = generate_latest(registry(acker_metrics(acker_status(verdicts=tally()), TOPICS))).decode()
    (exemplar,) = re.findall(r'le="0.5"\} 2.0 # (\{.*)', text)
    assert exemplar.startswith('{root="sentences/3@1042"} 0.3 ')
    bare = re.sub(r" # .*", "", text)
    assert "1042" not in bare
    assert "order" not in bare


def test_a_replay_worker_counts_by_input_and_says_how_near_its_breakers_are() -> None:
    status = replay_status(
        replayed_by_input={"sentences": 4}, breaker_used={"sentences": 0.8, "orders": 1.0}, paused=("orders",)
    )
    found = registry(replay_metrics(status)).get_sample_value
    assert found("windhover_replay_replayed_total", {"input": "sentences"}) == 4
    assert found("windhover_replay_dead_lettered_total", {"input": "sentences"}) == 0, (
        "so that a rate is seen"
    )
    assert found("windhover_replay_breaker_used_ratio", {"input": "sentences"}) == 0.8
    assert found("windhover_replay_paused", {"input": "sentences"}) == 0
    assert found("windhover_replay_paused", {"input": "orders"}) == 1
    assert found("windhover_replay_next_due_timestamp_seconds") == 1


def test_without_a_next_replay_there_is_no_time_of_it() -> None:
    found = registry(replay_metrics(replay_status(next_due_ms=None))).get_sample_value
    assert found("windhover_replay_next_due_timestamp_seconds") is None


def test_a_line_of_the_log_has_no_tally() -> None:
    flat = flatten(acker_status(verdicts=tally()))
    assert "verdicts" not in flat
    assert flat["transactions"] == 7


@pytest.mark.parametrize("part", every_family())
def test_every_metric_has_help_and_the_names_of_prometheus(part: str) -> None:
    for each in every_family()[part]:
        assert each.documentation
        assert each.type in SUFFIXES
        assert re.fullmatch(r"windhover_[a-z_]+", each.name)
        assert not re.search(r"_(ms|millis|minutes|kb|mb|count|total)\Z", each.name), each.name


def test_the_time_of_a_restore_begins_when_the_group_assigns_the_partition() -> None:
    world = World()
    world.run(1_000)
    assert world.acker is not None
    before = world.acker.status()
    assert before.restored == 3
    assert 0 < before.restored_ms <= 3 * 1_000
    world.run(1_000)
    assert world.acker.status().restored_ms == before.restored_ms


def test_an_acker_counts_the_verdicts_that_it_has_committed() -> None:
    world = World()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=(4,), skip=(2,))
    world.run(6_000)
    assert world.acker is not None
    status = world.acker.status()
    assert status.verdicts.inputs[1].verdicts == {"ACKED": 8, "FAILED": 1, "TIMED_OUT": 1}
    assert sum(status.verdicts.inputs[1].took_counts) == 8

"""An input that is stopped on purpose: no alarm follows from it, and nobody begins to read it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

import spout
from acker.config.topics import Topics, parse
from acker.errors import ConfigError, UsageError
from spout.group.presence import SIGN_EVERY_MS
from spout.inspect.diagnosis import explained
from spout.inspect.overview import Overview, Snapshot, missing_processes, missing_queries, notes_on
from spout.inspect.readings import Reading
from spout.inspect.summary import summaries
from spout.inspect.trail import EvidenceReader
from spout.planning.journal import BEGINNING
from spout.ui.attention import Thresholds, problems
from spout.ui.machinery import machinery_of
from spout.ui.metrics import view_metrics
from spout.ui.watch import LatestState
from tests.support.worlds.planning import WHO, YAML, World, batch

WHY = "the shop is moving until Monday"
STOPPED = f'{YAML}    stopped: "{WHY}"\n'
ALL_READ = f"{YAML}  words: {{id: 2, group: g, partitions: 1, timeout: 4s}}\n"
ONE_STOPPED = ALL_READ.replace("timeout: 4s}", f'timeout: 4s, stopped: "{WHY}"}}')


ALL = Thresholds()


def file_of(text: str) -> Topics:
    return parse(text, file="topics.yaml", environ={})


def left_open() -> World:
    """Return a world in which a query has emitted records, left them open, and is gone for a while."""
    world = World()
    world.produce(10)
    planner = world.ready(who=WHO)
    world.run(2 * SIGN_EVERY_MS)
    batch(planner, BEGINNING, world)
    world.run(1_000)
    world.kill(planner)
    world.run(20_000)
    return world


def snapshot_of(world: World, text: str) -> tuple[Snapshot, Topics]:
    """Return what the views show with a file, which is newer than what the query has."""
    topics = file_of(text)
    with closing(Overview(world.cluster.log(), topics)) as overview:
        return overview.snapshot(world.now_ms), topics


def alarms(snapshot: Snapshot, topics: Topics, limits: Thresholds = ALL) -> list[str]:
    """Return the kinds of what is wrong."""
    flags = problems(snapshot, topics, limits)
    return [flag.name.partition(":")[0] for flag in flags if not flag.name.startswith("silent: no replay")]


def test_without_the_key_an_input_that_nobody_reads_is_an_alarm() -> None:
    """Else the tests below would prove nothing."""
    snapshot, topics = snapshot_of(left_open(), YAML)
    assert {"silent", "stuck"} <= set(alarms(snapshot, topics))


def test_what_follows_from_a_stopped_input_is_no_alarm() -> None:
    """D1205: no query lives, roots are old, the limit is reached, replays wait."""
    snapshot, topics = snapshot_of(left_open(), STOPPED.replace("200000", "1"))
    first, *others = snapshot.partitions
    assert first.pending.value
    paused = replace(first, replays_wait=Reading("replays are paused: too many die"))
    snapshot = replace(snapshot, partitions=[paused, *others])
    assert alarms(snapshot, topics) == []
    assert not [text for text in missing_processes(snapshot.rows(), topics) if "no query" in text]


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("retention", {"start": Reading(9), "end": Reading(1_000)}),
        ("silent", {"ackers": Reading(0)}),
    ],
)
def test_what_does_not_follow_from_it_is_an_alarm_still(kind: str, changed: dict[str, object]) -> None:
    """D1205: a log that is deleted meanwhile, and a process that all inputs need."""
    snapshot, topics = snapshot_of(left_open(), STOPPED)
    first, *others = snapshot.partitions
    states = [replace(first, **changed), *others]  # type: ignore[arg-type]  # by name
    assert alarms(replace(snapshot, partitions=states), topics) == [kind]


def test_each_view_shows_that_it_is_stopped_and_why() -> None:
    """D1206"""
    snapshot, topics = snapshot_of(left_open(), STOPPED)
    shown = f"stopped on purpose: {WHY}"
    assert {row["stopped"] for row in snapshot.rows()} == {WHY}
    assert all(shown in note for note in notes_on(snapshot.rows()))
    (summary,) = summaries(snapshot, topics)
    assert summary.sentence().endswith(f"; {shown}")
    (group,) = machinery_of(snapshot).shown_groups()
    assert group["query_lives"] == f"no, {shown}"
    assert machinery_of(snapshot).rows()["groups"][0]["stopped"] == WHY


def test_the_list_of_open_roots_starts_no_query_that_is_stopped() -> None:
    """D1206"""
    world = left_open()
    (text,) = missing_queries(world.cluster.log(), file_of(STOPPED), ["g"], world.now_ms)
    assert text == f"group g is stopped on purpose: {WHY}"
    (text,) = missing_queries(world.cluster.log(), file_of(YAML), ["g"], world.now_ms)
    assert text.startswith("no query of group g lives")


@pytest.mark.parametrize("offset", [0, 10], ids=["open", "not emitted"])
def test_a_record_of_it_is_said_to_wait_for_the_key(offset: int) -> None:
    """D1206: `inspect` said: start the query."""
    world = left_open()
    world.produce(1)
    trail = EvidenceReader(world.cluster.log(), file_of(STOPPED))
    (here,) = trail.records_at(f"sentences/0@{offset}")
    evidence = trail.read_evidence(here)
    why = str(explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)["why"])
    assert f"input sentences is stopped on purpose ({WHY}); when `inputs.sentences.stopped` is removed" in why


def test_the_metrics_have_it_and_nobody_is_said_to_be_gone() -> None:
    """D1205: the alert on sessions has nothing to fire for."""
    world = left_open()

    def samples(text: str) -> dict[str, float]:
        snapshot, topics = snapshot_of(world, text)
        families = view_metrics(LatestState(1, snapshot), topics, world.now_ms)
        return {sample.name: sample.value for family in families for sample in family.samples}

    assert samples(YAML)["windhover_session_up"] == 0
    assert "windhover_session_up" not in samples(STOPPED)
    assert samples(STOPPED)["windhover_input_stopped"] == 1


def reading(*names: str) -> World:
    """Return a world in which a query reads these inputs, while each input has a record."""
    world = World(ALL_READ)
    world.produce(1)
    world.produce(1, topic="words")
    world.ready(inputs=tuple(world.topics.inputs[name] for name in names), who=WHO)
    world.run(2 * SIGN_EVERY_MS)
    return world


def test_a_query_that_reads_other_inputs_of_its_group_need_not_read_it() -> None:
    """D1207"""
    world = reading("sentences")
    assert "unread" in alarms(*snapshot_of(world, ALL_READ))
    snapshot, topics = snapshot_of(world, ONE_STOPPED)
    assert alarms(snapshot, topics) == []
    assert machinery_of(snapshot).owners[0].stopped == "", "the other input is not stopped"


def test_of_a_group_with_one_stopped_input_a_query_has_to_live() -> None:
    """D1207"""
    world = reading("sentences")
    world.planners.clear()
    world.run(60_000)
    assert "silent" in alarms(*snapshot_of(world, ONE_STOPPED))


def test_a_query_that_reads_it_all_the_same_is_named() -> None:
    """D1208: it began before the key was set; until it ends, all its alarms are alarms."""
    snapshot, topics = snapshot_of(reading("sentences", "words"), ONE_STOPPED)
    assert alarms(snapshot, topics) == ["stopped"]
    (text,) = snapshot.read_though_stopped.values()
    assert text.startswith(f"input words is stopped on purpose ({WHY}), and a query of group g that lives")
    assert text in snapshot.troubles()
    assert {state.stopped for state in snapshot.partitions} == {""}
    assert alarms(snapshot, topics, Thresholds(strangers=False)) == []


@pytest.mark.parametrize(
    "start",
    [
        lambda topics, name: spout.read_stream(None, topics, name),  # type: ignore[arg-type]  # none is needed
        lambda topics, name: spout.read_stream(None, topics, name, tracked=False),  # type: ignore[arg-type]
        spout.KafkaSpout,
    ],
    ids=["read_stream", "untracked", "KafkaSpout"],
)
@pytest.mark.parametrize("names", ["words", ["sentences", "words"]], ids=["alone", "beside another"])
def test_nobody_begins_to_read_it(start: Callable[[Topics, object], object], names: object) -> None:
    """D1209: the error has the reason and names the key."""
    reason = f"input words is stopped on purpose: {WHY}; .* remove `inputs.words.stopped`"
    with pytest.raises(UsageError, match=reason):
        start(file_of(ONE_STOPPED), names)


@pytest.mark.parametrize("written", ["", '""', "~", '"  "', "${WHY:-}"])
def test_a_key_that_says_nothing_stops_nothing(written: str) -> None:
    """D1210"""
    assert file_of(f"{YAML}    stopped: {written}\n").input("sentences").stopped == ""


@pytest.mark.parametrize("written", ["true", "3", "[why]", '"two\\nlines"', '"' + 201 * "x" + '"'])
def test_what_is_no_reason_is_refused_by_its_key(written: str) -> None:
    """D1210: without a reason nobody knows when it may start again."""
    with pytest.raises(ConfigError, match=re.escape("inputs.sentences.stopped")):
        file_of(f"{YAML}    stopped: {written}\n")


def test_a_reason_may_come_from_a_variable() -> None:
    """D1210"""
    topics = parse(f"{YAML}    stopped: ${{WHY}}\n", file="topics.yaml", environ={"WHY": "010"})
    assert topics.input("sentences").stopped == "010"

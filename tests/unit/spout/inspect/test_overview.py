"""How an installation stands, told from its topics alone: `windhover status` and `windhover roots`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from acker.config.topics import Topics
from acker.errors import Disagreement, Unreachable
from acker.identity import source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.state import StatePart, part_key, state_codec
from acker.service.view import ViewReader
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Verdicts
from acker.wire.verdict import Verdict
from replay.records.due import PROGRESS_KEY, Aside, Pause, Progress, due_codec, pause_key, root_key
from spout.cli.inspect import STATUS
from spout.doctor.monitor import MonitorState, monitor_report
from spout.group.presence import SIGN_EVERY_MS, SILENT_MS_MAX
from spout.inspect.overview import Overview, Snapshot, missing_processes, notes_on, unknown_values
from spout.inspect.readings import OLD_MS, Reading
from spout.inspect.summary import summaries
from spout.inspect.tables import OutputFormat, write
from spout.planning.journal import BEGINNING
from spout.questions.open_roots import OpenRoots, root_picture
from spout.ui.attention import Thresholds
from tests.support.worlds.planning import COPIES, World, batch, emit_ten, yaml_of


def observer(world: World, topics: Topics | None = None) -> ViewReader:
    """Look from outside."""
    acker = (topics or world.topics).acker
    return ViewReader(world.cluster.log(), acker.topics, acker.partitions, acker.limits)


def snapshot_of(world: World, *, read_max: int = 1_000_000) -> Snapshot:
    """Look once."""
    with closing(Overview(world.cluster.log(), world.topics, read_max=read_max)) as overview:
        return overview.snapshot(world.now_ms)


def rows(world: World, *, read_max: int = 1_000_000) -> list[dict[str, Any]]:
    return snapshot_of(world, read_max=read_max).rows()


def first(world: World) -> dict[str, Any]:
    """Return the row of partition 0."""
    return rows(world)[0]


def open_now(world: World, older_than_ms: int = 0, limit: int = 100) -> OpenRoots:
    """Return what is open."""
    inputs = tuple(world.topics.inputs.values())
    with root_picture(world.cluster.log(), world.topics, inputs) as picture:
        return picture.open_roots(older_than_ms=older_than_ms, limit=limit, now_ms=world.now_ms)


def test_nothing_is_known_before_an_acker_has_written_its_state() -> None:
    """What cannot be known is unknown, never 0; what the broker knows is told all the same."""
    world = World()
    world.produce(4)
    row = first(world)
    assert (row["emitted"], row["pending"], row["oldest_ms"], row["lag"], row["blocking"]) == (None,) * 5
    assert (row["end"], row["committed"], row["replays_due"], row["dead_letters"]) == (4, None, 0, 0)
    assert open_now(world).unknown == [0, 1, 2]


def test_garbage_among_what_waits_and_among_the_verdicts_is_passed_over() -> None:
    """It ended the command; whoever works by these records tells of them."""
    world = World()
    planner, _ = emit_ten(world, skip=(2,))
    world.kill(planner)
    names = world.topics.ack_topics
    split = Lost(Verdict.FAILED, "g", "sentences", "", "b", "E", "", 0, 0, 0, 65_536, b"abc")
    producer = world.log.producer()
    producer.send(Outgoing(names.due, 0, b"garbage", PROGRESS_KEY))
    producer.send(Outgoing(names.due, 0, due_codec().encode(Progress(0, -1)), PROGRESS_KEY))
    for partition in range(3):
        producer.send(Outgoing(names.verdict, partition, wire_codec().encode(Verdicts((), (), (split,)))))
    producer.flush(1_000)
    row = first(world)
    assert (row["pending"], row["replays_due"]) == (1, 0)
    assert open_now(world).unknown == []


def test_a_state_that_cannot_be_loaded_is_refused_by_name() -> None:
    """It ended the command with a trace."""
    world = World()
    emit_ten(world)
    producer = world.log.producer()
    broken = state_codec().encode(StatePart(0, 0, 1, b"no State"))
    producer.send(Outgoing(world.topics.ack_topics.state, 0, broken, part_key(0, 0)))
    producer.flush(1_000)
    with pytest.raises(Disagreement, match="_ack_state/0@4 cannot be read as State"):
        observer(world).view(0)


def test_the_lag_is_what_is_not_done_and_can_be_read_while_no_query_runs() -> None:
    """S146: five of ten records are done; killing the query changes nothing of that."""
    world = World()
    planner, _ = emit_ten(world, skip=(2, 4, 5, 6, 9))
    world.kill(planner)
    world.run(500)
    row = first(world)
    assert (row["source"], row["emitted"], row["end"], row["pending"], row["lag"]) == (
        "sentences/0",
        10,
        10,
        5,
        5,
    )
    world.produce(3)
    assert first(world)["lag"] == 8
    other = rows(world)[1]
    assert (other["source"], other["emitted"], other["pending"], other["lag"]) == ("sentences/1", 0, 0, 0)


def test_the_blocking_offset_is_the_first_that_is_open_and_says_why() -> None:
    world = World()
    emit_ten(world, skip=(2, 7))
    row = first(world)
    assert (row["blocking"], row["committed"]) == (2, None)
    assert row["why"].startswith("open for 1.0 s, times out in 3.")
    assert row["oldest_ms"] == 1_000
    assert row["pending_max"] == 200_000
    assert row["as_of_ms"] <= 1_000


def test_what_sparks_state_holds_is_told_from_what_is_late() -> None:
    """O1405: a window may hold records for hours, and no monitor rings for it."""
    world = World(yaml_of(timeout="4s", max_spout_pending="200000"))
    world.start_replays()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish_held(BEGINNING, end, held=(2, 7))
    world.run(30_000)
    snapshot = snapshot_of(world)
    row = first(world)
    assert (row["pending"], row["in_state"], row["oldest_ms"]) == (2, 2, 0)
    assert row["oldest_in_state_ms"] == 30_000
    assert row["why"] == "open for 30.0 s in Spark's state, times out in 3.0 d"
    assert any("2 in Spark's state, the oldest for 30.0 s" in note for note in notes_on([row]))
    [summary] = summaries(snapshot, world.topics)
    assert summary.sentence().startswith("g on sentences: 2 pending, 2 of them in Spark's state; 0 due;")
    report = monitor_report(snapshot, world.topics, Thresholds(stuck_timeouts=1.5), Thresholds(), Reading(()))
    assert report.state is MonitorState.OK, report.problems
    shown = open_now(world)
    assert [each["in_state"] for each in shown.rows] == [True, True]

    world.produce(10)
    following = batch(planner, end, world)
    world.publish_held(end, following, left_open=(1,))
    world.run(3_000)
    row = first(world)
    assert (row["pending"], row["in_state"], row["oldest_ms"]) == (3, 2, 3_000)
    [summary] = summaries(snapshot_of(world), world.topics)
    assert "3 pending, 2 of them in Spark's state, oldest 3.0 s of 4.0 s;" in summary.sentence()


def test_what_an_acker_writes_during_the_reading_has_the_age_zero() -> None:
    world = World()
    emit_ten(world, skip=(2,))
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        row = overview.snapshot(world.now_ms - 60_000).rows()[0]
    assert (row["as_of_ms"], row["oldest_ms"]) == (0, 0)


def test_a_partition_that_nothing_holds_back_has_no_blocking_offset() -> None:
    world = World()
    emit_ten(world)
    world.run(3_500)
    row = first(world)
    assert (row["blocking"], row["why"], row["committed"], row["lag"]) == (None, "", 10, 0)


def test_what_is_settled_and_not_committed_is_named() -> None:
    world = World()
    planner, end = emit_ten(world)
    world.run(3_500)
    world.produce(5)
    again = batch(planner, end, world)
    world.kill(planner)
    world.publish(end, again)
    world.run(500)
    row = first(world)
    assert (row["emitted"], row["pending"], row["committed"]) == (15, 0, 10)
    assert "no query of the group runs" in row["why"]


def test_what_a_group_that_never_committed_has_settled_is_named() -> None:
    world = World()
    world.produce(10)
    planner = world.ready()
    assert first(world)["why"] == "", "nothing is emitted, so there is nothing to commit"
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    world.publish(BEGINNING, end)
    world.run(500)
    row = first(world)
    assert (row["emitted"], row["pending"], row["committed"]) == (10, 0, None)
    assert row["why"].startswith("all is settled, and not committed yet; if it stays so, no query")


def test_a_lost_root_is_counted_where_it_waits_as_a_copy_and_as_a_dead_letter() -> None:
    """Its lag stays 1 until it is done; a dead letter is not lag any more."""
    world = World(YAML_OF_TWO_ATTEMPTS)
    planner, end = emit_ten(world, fail=(3,))
    assert (first(world)["replays_due"], first(world)["lag"]) == (1, 1), "though no replay worker runs"
    world.start_replays()
    world.run(500)
    row = first(world)
    assert (row["replays_due"], row["dead_letters"], row["lag"]) == (1, 0, 1)
    world.run(2_000)
    row = first(world)
    assert row["replays_due"] == 0
    assert row["lag"] >= 1, "the copy is not emitted yet"
    world.publish(end, batch(planner, end, world), fail=(0,), of=COPIES)
    world.run(3_000)
    row = first(world)
    assert (row["replays_due"], row["dead_letters"], row["lag"]) == (0, 1, 0)


def test_a_topic_with_more_records_than_one_call_reads_is_unknown_until_it_was_read() -> None:
    world = World()
    emit_ten(world)
    for number in range(5):
        producer = world.log.producer()
        producer.send(
            Outgoing("sentences.g.dlq", 0, b"%d" % number, None, (("windhover.dead", b"ATTEMPTS"),))
        )
        producer.flush(0)
    overview = Overview(world.cluster.log(), world.topics, read_max=3)
    assert overview.snapshot(world.now_ms).rows()[0]["dead_letters"] is None
    assert overview.snapshot(world.now_ms).rows()[0]["dead_letters"] == 5
    overview.close()


def test_the_lag_is_unknown_while_it_is_unknown_how_many_replays_wait() -> None:
    """The rest of it is known, and would be too little."""
    world = World(YAML_OF_TWO_ATTEMPTS)
    emit_ten(world, skip=(7,), fail=(2, 3))
    row = rows(world, read_max=0)[0]
    assert (row["pending"], row["replays_due"], row["lag"]) == (1, None, None)
    row = first(world)
    assert (row["pending"], row["replays_due"], row["lag"]) == (1, 2, 3)


def test_status_says_when_no_query_no_acker_and_no_replay_worker_lives() -> None:
    world = World()
    planner, _ = emit_ten(world, skip=(2,))
    world.start_replays()
    world.run(500)
    [row, other] = rows(world)
    assert (row["query_lives"], row["ackers"], row["replay_workers"]) == (True, 1, 1)
    assert missing_processes([row, other], world.topics) == []
    world.kill(planner)
    world.stop_replays()
    world.run(SILENT_MS_MAX + 500)
    world.kill_acker()
    [row, other] = rows(world)
    assert (row["query_lives"], row["ackers"], row["replay_workers"]) == (False, 0, 0)
    notes = missing_processes([row, other], world.topics)
    assert [note.partition(":")[0] for note in notes] == [
        "no acker lives (group windhover-acker has no member)",
        "no replay worker lives (group windhover-replay has no member)",
        "no query of group g lives",
    ]
    assert notes[-1].endswith("start it"), "a release needs an acker, and a query may wait for one"


def test_a_release_is_advised_where_something_is_open_or_may_be() -> None:
    world = World()
    planner, _ = emit_ten(world, skip=(2,))
    world.kill(planner)
    world.run(SILENT_MS_MAX + 500)
    ends = "start it, or give what it left open to others with `windhover release g`"
    assert missing_processes(rows(world), world.topics)[-1].endswith(ends)
    unknown = [row | {"pending": None} for row in rows(world)]
    assert missing_processes(unknown, world.topics)[-1].endswith(ends)
    row, other = rows(world)
    several = [row | {"group": "a", "pending": 0}, *(other | {"group": name, "pending": 1} for name in "bc")]
    (*_, note) = missing_processes(several, world.topics)
    assert note.startswith("no query of groups a, b, c lives: ")
    assert note.endswith("left open to others with `windhover release b` and `windhover release c`")
    nothing = [row | {"pending": 0} for row in rows(world)]
    assert missing_processes(nothing, world.topics)[-1].endswith("clock of timeouts is stopped; start it")


def test_no_release_is_advised_of_a_group_that_never_had_a_query() -> None:
    """It has left nothing open, though its figures are unknown as long as no acker has a State."""
    world = World()
    world.produce(4)
    world.run(1_000)
    (row, other) = rows(world)
    assert (row["pending"], row["ackers"]) == (None, 1)
    notes = missing_processes([row, other], world.topics)
    assert notes[-1].endswith("clock of timeouts is stopped; start it")


def test_a_letter_that_retention_has_taken_is_no_longer_counted_by_who_has_read_it() -> None:
    world = World(yaml_of(retry="{attempts: 1}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    emit_ten(world, fail=(2, 7))
    world.run(1_000)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        assert overview.snapshot(world.now_ms).rows()[0]["dead_letters"] == 2
        world.log.delete_before({TopicPartition("sentences.g.dlq", 0): 1})
        assert overview.snapshot(world.now_ms).rows()[0]["dead_letters"] == 1


def test_letters_in_a_partition_that_was_added_are_counted_by_who_has_read_the_others() -> None:
    """Whoever watches reads on for days; the new partition showed no dead letter until it began anew."""
    world = World(yaml_of(retry="{attempts: 1}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    planner, end = emit_ten(world)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        assert [row["dead_letters"] for row in overview.snapshot(world.now_ms).rows()] == [0, 0]
        for topic in ("sentences.g.replay", "sentences.g.dlq", "sentences"):
            world.cluster.add_partitions(topic, 3)
        world.produce(3, partition=2)
        world.kill(planner)
        planner = world.ready(end, take_over=True)
        following = batch(planner, end, world)
        world.publish(end, following, of=source_of(1, 2), fail=(1,))
        world.run(2_000)
        assert [row["dead_letters"] for row in overview.snapshot(world.now_ms).rows()] == [0, 0, 1]


def test_what_was_replayed_while_nobody_could_read_waits_no_more() -> None:
    """A laptop slept for two days; its page said that a root waits whose tombstone was compacted away."""
    world = World(yaml_of(retry="{initial: 10s, jitter: 0}"))
    world.cluster.delete_topic("_ack_due")
    world.cluster.create_topic("_ack_due", 3, compacted=True)
    world.start_replays()
    emit_ten(world, fail=(2,), then_ms=2_000)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        assert overview.snapshot(world.now_ms).rows()[0]["replays_due"] == 1
        world.run(12_000)
        world.cluster.compact("_ack_due", drop_tombstones=True)
        assert overview.snapshot(world.now_ms + 172_800_000).rows()[0]["replays_due"] == 0


def test_a_quiet_input_whose_acker_works_has_no_unknown_figure() -> None:
    world = World()
    planner, _ = emit_ten(world)
    world.run(2 * OLD_MS + 900)
    assert [(row["pending"], row["unknown"]) for row in rows(world)] == [(0, {}), (0, {})]
    world.kill_acker()
    world.run(OLD_MS + SIGN_EVERY_MS)
    assert [row["pending"] for row in rows(world)] == [None, None], "its signs of life are in no State"
    world.start_acker()
    world.run(1_500)
    world.kill(planner)
    world.run(1_500)
    world.kill_acker()
    world.run(OLD_MS)
    assert [row["pending"] for row in rows(world)] == [0, 0], "nothing came since"


def test_the_sentence_of_an_input_says_that_more_may_be_pending_than_its_acker_has_written() -> None:
    world = World()
    emit_ten(world, skip=(2, 4))
    assert summaries(snapshot_of(world), world.topics)[0].sentence().startswith("g on sentences: 2 pending, ")
    world.kill_acker()
    world.run(OLD_MS)
    (one,) = summaries(snapshot_of(world), world.topics)
    assert one.pending.value is None
    assert one.sentence().startswith("g on sentences: at least 2 pending, oldest ")


def test_partitions_that_share_a_note_share_its_line() -> None:
    world = World()
    emit_ten(world)
    row = first(world)
    rows = [{**row, "source": f"sentences/{partition}", "as_of_ms": 260} for partition in (0, 1)]
    (line,) = notes_on(rows)
    assert line.startswith("sentences/0, sentences/1: ")
    assert line.endswith("as of 260 ms ago")


def test_a_timeout_is_not_announced_while_the_clock_stands_still() -> None:
    world = World()
    planner, _ = emit_ten(world, skip=(2,))
    world.kill(planner)
    world.run(SILENT_MS_MAX + 500)
    row = first(world)
    assert row["why"] == "open for 11.5 s, the clock of its timeout is stopped: no query lives"
    assert next(notes_on([row])).startswith("sentences/0: offset 2 blocks the commit: open for 11.5 s, the")


def test_each_field_has_one_type_or_is_null() -> None:
    world = World()
    found = rows(world)
    emit_ten(world, skip=(2,))
    found += rows(world)
    for field in found[0]:
        kinds = {type(row[field]) for row in found if row[field] is not None}
        assert len(kinds) <= 1, field


def test_a_table_of_large_numbers_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    emit_ten(world, skip=(2,))
    row = first(world) | {"source": "sentences/11", "pending": 1_000_000, "committed": 12_345_678}
    row |= {"oldest_ms": 3_600_000, "lag": 2_000_000, "replays_due": 1_234}
    write([row], STATUS, OutputFormat.TABLE)
    shown = capsys.readouterr().out.splitlines()
    assert "12,345,678" in "".join(shown)
    assert max(map(len, shown)) <= 80


def test_a_copy_that_is_open_counts_for_its_record_s_partition() -> None:
    world = World()
    planner, end = emit_ten(world, fail=(3,))
    world.start_replays()
    world.run(2_500)
    batch(planner, end, world)
    world.run(1_500)
    row = first(world)
    assert (row["pending"] >= 1, row["replays_due"], row["blocking"]) == (True, 0, None)
    assert open_now(world).rows[0]["root"] == "sentences.g.replay/0@0"


def test_open_roots_are_listed_oldest_first_and_no_more_than_requested() -> None:
    world = World()
    planner, end = emit_ten(world, skip=(2, 7))
    world.produce(3, partition=1)
    batch(planner, end, world)
    world.run(1_500)
    found = open_now(world)
    assert [row["root"] for row in found.rows] == [
        "sentences/0@2", "sentences/0@7", "sentences/1@0", "sentences/1@1", "sentences/1@2",
    ]  # fmt: skip
    assert (found.rows[0]["age_ms"], found.rows[0]["group"]) == (2_500, "g")
    assert found.rows[0]["left_ms"] < found.rows[2]["left_ms"] <= 4_000
    assert [row["root"] for row in open_now(world, older_than_ms=2_000).rows] == [
        "sentences/0@2",
        "sentences/0@7",
    ]
    bounded = open_now(world, limit=3)
    assert (len(bounded.rows), bounded.total) == (3, 5)


def test_roots_that_never_time_out_say_so() -> None:
    world = World(YAML_WITHOUT_TIMEOUT)
    emit_ten(world, skip=(1,))
    assert open_now(world).rows[0]["left_ms"] == "never"
    assert first(world)["why"].endswith("never times out")


def test_a_view_agrees_with_the_acker_after_every_step_of_a_history() -> None:
    """What is told from outside is what the acker answers to a session that asks."""
    world = World()
    planner, end = emit_ten(world, skip=(1, 5))
    for _ in range(6):
        world.produce(4)
        start, end = end, batch(planner, end, world)
        world.publish(start, end, skip=(12, 21))
        world.run(1_000)
        held = sum(len(found.at) for found in _ranges(world))
        assert held == planner.status(world.now_ms).pending
        assert open_now(world).total == held


def test_another_number_of_partitions_is_refused_with_the_cure() -> None:
    world = World()
    emit_ten(world)
    with pytest.raises(Disagreement, match=r"give the topics\.yaml of the ackers"):
        ViewReader(world.cluster.log(), world.topics.ack_topics, 2, world.topics.acker.limits).view(0)


def test_a_missing_topic_is_named_with_the_cure_and_hides_only_what_it_holds() -> None:
    world = World()
    emit_ten(world, skip=(2,))
    world.cluster.delete_topic("sentences.g.dlq")
    row, _ = rows(world)
    assert row["unknown"] == {
        "dead_letters": "topic sentences.g.dlq is missing; run `windhover topics create`"
    }
    assert (row["dead_letters"], row["pending"], row["lag"], row["end"]) == (None, 1, 1, 10)


@pytest.mark.parametrize("name", ["sentences", "sentences.g.replay"])
def test_what_is_in_a_topic_that_was_made_again_was_not_emitted(name: str) -> None:
    """Its records counted as done up to where its former one was read, so that there was no lag."""
    world = World()
    world.produce(10, topic=name)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end)
    world.publish(BEGINNING, end, of=COPIES)
    world.run(1_000)
    row = first(world)
    assert (row["lag"], row["why"]) == (0, "")
    world.cluster.delete_topic(name)
    world.cluster.create_topic(name, 2)
    world.produce(4, topic=name)
    row = first(world)
    assert row["lag"] == 4
    assert row["why"] == (
        f"topic {name} was created again: no query of the group begins before the input is reset; see"
        " `windhover offsets reset sentences --help`"
    )
    world.planners.clear()
    world.rewind("earliest")
    row = first(world)
    assert (row["lag"], row["why"]) == (4, "")
    if name == "sentences":
        assert (row["emitted"], row["emitted_to"], row["blocking"]) == (0, 0, None)


def test_a_missing_topic_of_contributions_is_named() -> None:
    world = World()
    emit_ten(world)
    world.cluster.delete_topic("_ack_ack")
    assert Overview(world.cluster.log(), world.topics).snapshot(world.now_ms).missing == ["_ack_ack"]


TWO_INPUTS = """
acker: {partitions: 3}
inputs:
  sentences: {id: 1, group: g, partitions: 2, timeout: 4s}
  words: {id: 2, group: h, partitions: 1}
"""


def test_a_missing_topic_of_one_input_leaves_the_others_as_they_are() -> None:
    world = World(TWO_INPUTS)
    world.produce(10)
    end = batch(world.ready(inputs=(world.topics.input("sentences"),)), BEGINNING, world)
    world.publish(BEGINNING, end, skip=(2,))
    world.run(1_000)
    whole = rows(world)
    assert whole[0]["pending"] == 1
    world.cluster.delete_topic("words")
    *others, lacking = rows(world)
    assert others == whole[:2]
    assert (lacking["source"], lacking["end"], lacking["pending"], lacking["lag"]) == ("words/?", *[None] * 3)
    assert set(lacking["unknown"].values()) == {"topic words is missing; run `windhover topics create`"}
    assert (lacking["replays_due"], lacking["dead_letters"]) == (0, 0), "which other topics hold"


class Refuses:
    """Lets calls of one kind fail from some moment on."""

    def __init__(self) -> None:
        self.operations: set[str] = set()
        self.calls = 0

    def before(self, operation: str) -> None:
        self.calls += 1
        if operation in self.operations or "all" in self.operations:
            raise Unreachable(f"{operation}: the broker does not answer")

    def after(self, operation: str) -> None:
        pass


def test_a_broker_that_does_not_answer_leaves_everything_unknown_and_is_asked_once() -> None:
    """Each further question would wait for its own deadline. When it answers again all is as it was."""
    world, refuses = World(), Refuses()
    emit_ten(world, skip=(2,))
    overview = Overview(world.cluster.log(refuses), world.topics)
    whole = overview.snapshot(world.now_ms).rows()
    refuses.operations, refuses.calls = {"all"}, 0
    snapshot = overview.snapshot(world.now_ms)
    assert (refuses.calls, str(snapshot.broker_error)) == (1, "topics: the broker does not answer")
    (row,) = snapshot.rows()
    assert {row[name] for name in row["unknown"]} == {None}
    assert {"pending", "lag", "end", "replays_due", "dead_letters", "ackers"} <= set(row["unknown"])
    refuses.operations = set()
    assert overview.snapshot(world.now_ms).rows() == whole
    overview.close()


def test_a_partition_whose_leader_is_away_hides_its_own_values_only() -> None:
    world = World()
    emit_ten(world, skip=(2,))
    world.cluster.lose_leader("sentences", 1)
    snapshot = snapshot_of(world)
    sound, lacking = snapshot.rows()
    assert (sound["end"], sound["lag"], sound["unknown"]) == (10, 1, {})
    why = "sentences/1 has no leader: its replicas are on broker 1"
    assert lacking["unknown"] == dict.fromkeys(("end", "lag"), why)
    assert snapshot.leaderless == {"sentences/1": "has no leader: its replicas are on broker 1"}
    assert (lacking["pending"], lacking["committed"]) == (0, None)


def test_what_is_unknown_is_named_once_for_each_reason() -> None:
    world = World()
    world.produce(4)
    [note] = unknown_values(rows(world))
    assert note.startswith("sentences/0, sentences/1: unknown are emitted, emitted_to, pending, oldest_ms")
    assert note.endswith(
        "since acker partition 0 has no State yet: start an acker and a query, whichever does not run"
    )


def _ranges(world: World) -> list[Any]:
    looks = [observer(world).view(number) for number in range(world.topics.acker.partitions)]
    return [found for view in looks if view is not None for found in view.open_ranges()]


YAML_OF_TWO_ATTEMPTS = """
acker: {partitions: 3}
inputs:
  sentences: {id: 1, group: g, partitions: 2, timeout: 4s, retry: {attempts: 2}, dead_letter: {max_ratio: 1}}
"""
YAML_WITHOUT_TIMEOUT = """
acker: {partitions: 3}
inputs:
  sentences: {id: 1, group: g, partitions: 2, timeout: 0}
"""


def test_what_waits_longer_than_it_is_due_says_why_and_what_to_do() -> None:
    """Put aside by a replay worker that does not have the input, and paused by its breaker."""
    world = World()
    emit_ten(world)
    aside = Aside(65_536, 3, 0, "", "g", "sentences", "", "sentences/0@3", 1, 0, 0, ())
    producer = world.log.producer()
    place = world.topics.ack_topics.due
    producer.send(Outgoing(place, 0, due_codec().encode(aside), root_key(aside)))
    producer.flush(1_000)
    put_aside, other = rows(world)
    assert (put_aside["replays_due"], put_aside["replays_wait"].split(",")[0]) == (1, "1 put aside")
    assert "SIGHUP" in next(notes_on([put_aside]))
    assert other["replays_wait"] == ""
    producer.send(Outgoing(place, 1, due_codec().encode(Pause(1, 5, "3 in a row")), pause_key(1)))
    producer.flush(1_000)
    [told] = [line for line in notes_on(rows(world)) if "3 in a row" in line]
    assert told.endswith("3 in a row; run `windhover replay resume sentences`")
    producer.send(Outgoing(place, 1, None, pause_key(1)))
    producer.send(Outgoing(place, 0, None, root_key(aside)))
    producer.flush(1_000)
    assert (first(world)["replays_due"], first(world)["replays_wait"]) == (0, "")


def test_replays_of_an_input_that_the_file_lacks_are_reported() -> None:
    world = World()
    stranger = Aside(9 << 16, 3, 0, "", "other", "words", "", "words/0@3", 1, 0, 0, ())
    producer = world.log.producer()
    producer.send(Outgoing(world.topics.ack_topics.due, 0, due_codec().encode(stranger), root_key(stranger)))
    producer.flush(1_000)
    overview = Overview(world.cluster.log(), world.topics)
    [note] = overview.snapshot(world.now_ms).of_no_input
    overview.close()
    assert note.startswith("1 replays wait of an input with id 9, which this topics.yaml does not have")

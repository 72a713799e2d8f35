"""From which offset each source is read, what a carried commit leaves unknown, when a start is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest

from acker.config.topics import parse
from acker.errors import Disagreement, OutOfRange, TopicError
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.topic_times import longest_need_ms, rounded_up_ms
from acker.units import second_text
from acker.wire.checks import AHEAD
from acker.wire.events import PositionRun, SourceRun, Taken, TakenSource, TakeSource
from spout.group.announce import REPEAT_MS, PlannerContext
from spout.group.carried import NAMED_MAX, READ_MS_MAX, CarriedCommit, carried_commits
from spout.group.growth import SOURCES_EVERY_MS, Growth
from spout.group.sources import PlannerSpec, SourceSpec, find_sources, sources_of, topic_names
from spout.group.starting import (
    COMMITTED_BY,
    WRITERS_WAIT_MS,
    Begun,
    Reached,
    check_cluster,
    check_commits,
    check_journal,
    log_was_cut,
    older_checkpoint,
    re_created,
    refused_by_acker,
    starting_offsets,
)
from spout.group.troubles import Troubles
from spout.planning.journal import BEGINNING, SourceMark
from spout.planning.session import Answers, SessionName
from spout.planning_process.scout import Scout
from tests.support.memory.clients import MemoryReader, NoFaults
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.worlds.planning import WALL_MS

A: Final[int] = source_of(1, 0)
B: Final[int] = source_of(1, 1)
COPIES_A: Final[int] = source_of(1, 0, replay=True)
COPIES_B: Final[int] = source_of(1, 1, replay=True)
OTHER: Final[int] = source_of(2, 0)
NOTHING: Final = Begun((), {})
TEXT: Final = """
acker: {partitions: 3}
inputs:
  sentences: {id: 1, group: g, partitions: 2, timeout: 4s}
  others: {id: 2, group: g, partitions: 1, timeout: 9s, start: latest}
"""


class Cluster:
    """Two inputs of one group in memory, with records of a minute apart."""

    def __init__(self, text: str = TEXT) -> None:
        """Create their topics."""
        self.topics = parse(text, file="topics.yaml", environ={})
        self.memory = MemoryCluster(WALL_MS)
        for source in self.topics.inputs.values():
            self.memory.create_topic(source.topic, source.partitions or 1)
            self.memory.create_topic(source.replay_topic, source.partitions or 1)
        self.log = self.memory.log()
        self.troubles = Troubles(self.log)

    def produce(self, count: int, partition: int = 0, topic: str = "sentences") -> None:
        """Append records."""
        producer = self.log.producer()
        for _ in range(count):
            self.memory.now_ms += 60_000
            producer.send(Outgoing(topic, partition, b"x"))
            producer.flush(0)

    def spec(self, **values: Any) -> PlannerSpec:
        """Return what a process is to do."""
        return PlannerSpec(tuple(self.topics.inputs.values()), self.topics.ack_topics, 3, **values)

    def context(self, **values: Any) -> PlannerContext:
        """Return what a planning process reads with."""
        return PlannerContext(
            self.log, self.spec(**values), {}, None, lambda _event, _fields: None, self.log,
            Scout(self.log), self.troubles,
        )  # fmt: skip

    def sources(self) -> dict[int, SourceSpec]:
        """Return all sources."""
        return sources_of(self.log, tuple(self.topics.inputs.values()), tracked=True)

    def starts(
        self, sources: Iterable[int] | None = None, begun: Begun = NOTHING, **values: Any
    ) -> dict[int, int]:
        """Return where sources begin."""
        specs = self.sources()
        chosen = [specs[source] for source in (specs if sources is None else sources)]
        return starting_offsets(self.context(**values), chosen, begun)

    def commit(self, place: str, offset: int, mark: str = COMMITTED_BY) -> None:
        """Commit an offset of ``topic/partition``."""
        topic, _, partition = place.partition("/")
        self.log.commit("g", {TopicPartition(topic, int(partition)): offset}, mark)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.produce(10)
    cluster.produce(4, partition=1)
    cluster.produce(6, topic="others")
    cluster.memory.delete_before(TopicPartition("sentences", 1), 2)
    return cluster


def test_each_input_begins_as_its_own_start_says(cluster: Cluster) -> None:
    """Committed, else the first record; the other input behind its last."""
    cluster.commit("sentences/0", 7, "by hand")
    assert cluster.starts([A, B, OTHER]) == {A: 7, B: 2, OTHER: 6}


@pytest.mark.parametrize(
    ("start", "firsts"),
    [
        ("earliest", {A: 0, B: 2, OTHER: 0}),
        ("latest", {A: 10, B: 4, OTHER: 6}),
        (WALL_MS + 5 * 60_000, {A: 4, B: 2, OTHER: 0}),
        (0, {A: 0, B: 2, OTHER: 0}),
    ],
)
def test_a_start_of_the_query_overrides_those_of_its_inputs(
    cluster: Cluster, start: str | int, firsts: Mapping[int, int]
) -> None:
    cluster.commit("sentences/0", 7, "by hand")
    assert cluster.starts([A, B, OTHER], start=start) == firsts


def test_a_new_partition_of_an_input_that_was_read_begins_at_0(cluster: Cluster) -> None:
    """Also by the history of its copies; what was left out at the start is no new one."""
    assert cluster.starts([B], Begun([A], {})) == {B: 0}
    assert cluster.starts([B], Begun([COPIES_A], {})) == {B: 0}
    assert cluster.starts([B], Begun([OTHER], {})) == {B: 2}
    assert cluster.starts([B], Begun([A], {B: WALL_MS})) == {B: 2}


@pytest.mark.parametrize(("records", "first"), [(20, 14), (3, 0)])
def test_what_was_left_out_at_the_latest_record_begins_a_while_before_that(records: int, first: int) -> None:
    """A writer may have kept its records so long; never before 1970."""
    cluster = Cluster()
    cluster.produce(records, topic="others")
    left_out_ms = WALL_MS + 20 * 60_000
    begun = Begun([A], {OTHER: left_out_ms if records > 3 else WRITERS_WAIT_MS - 1})
    assert WRITERS_WAIT_MS == 300_000
    assert cluster.starts([OTHER], begun) == {OTHER: first}


def test_what_was_left_out_soon_after_1970_begins_with_its_first_record() -> None:
    cluster = Cluster()
    cluster.memory.now_ms = -60_000
    cluster.produce(3, topic="others")
    assert cluster.starts([OTHER], Begun([], {OTHER: 5})) == {OTHER: 0}


def test_a_replay_topic_begins_at_0_or_at_a_spout_s_commit_that_its_log_has(cluster: Cluster) -> None:
    replay = cluster.topics.input("sentences").replay_topic
    cluster.produce(5, topic=replay)
    cluster.produce(5, topic=replay, partition=1)
    assert cluster.starts([COPIES_A, COPIES_B]) == {COPIES_A: 0, COPIES_B: 0}
    cluster.commit(f"{replay}/0", 3, "by hand")
    cluster.commit(f"{replay}/1", 5)
    assert cluster.starts([COPIES_A, COPIES_B]) == {COPIES_A: 0, COPIES_B: 5}
    cluster.commit(f"{replay}/0", 3)
    cluster.commit(f"{replay}/1", 6)
    assert cluster.starts([COPIES_A, COPIES_B]) == {COPIES_A: 3, COPIES_B: 0}, "its log was cut"


@pytest.mark.parametrize("start", ["earliest", "latest", "committed", WALL_MS])
def test_of_what_has_no_leader_nobody_knows_the_beginning(cluster: Cluster, start: str | int) -> None:
    replay = cluster.topics.input("sentences").replay_topic
    cluster.commit(f"{replay}/0", 0)
    cluster.memory.lose_leader("sentences", 1)
    cluster.memory.lose_leader(replay, 0)
    firsts = cluster.starts([A, B, COPIES_A, COPIES_B], start=start)
    assert firsts.keys() == {A, COPIES_B}
    assert cluster.troubles.texts().keys() == {"sentences/1", f"{replay}/0"}


def test_a_commit_needs_no_leader(cluster: Cluster) -> None:
    cluster.commit("sentences/1", 3, "by hand")
    cluster.memory.lose_leader("sentences", 1)
    assert cluster.starts([A, B]) == {A: 0, B: 3}


# --- moved commits


def refusal(cluster: Cluster, sources: Collection[int], reached: Reached, **options: bool) -> str:
    """Return why a start is refused; empty: it is not."""
    specs = cluster.sources()
    chosen = [specs[source] for source in sources]
    try:
        check_commits(cluster.context(), chosen, reached, WALL_MS, **options)
    except Disagreement as error:
        return str(error)
    return ""


def test_commits_of_sources_without_history_and_our_own_are_no_moves(cluster: Cluster) -> None:
    cluster.commit("sentences/0", 7)
    cluster.commit("sentences/1", 3, "by hand")
    assert refusal(cluster, [A], Reached({A: 9})) == ""
    assert refusal(cluster, [], Reached({})) == ""
    assert "sentences/1 from 4 to 3 (" in refusal(cluster, [A, B], Reached({A: 9, B: 4}))


def test_each_moved_commit_is_named_from_where_to_where(cluster: Cluster) -> None:
    cluster.commit("sentences/0", 7, "")
    cluster.commit("sentences/1", 3, "by hand")
    text = refusal(cluster, [B, A], Reached({A: 9}, WALL_MS - 5_000))
    assert "sentences/0 from 9 to 7; sentences/1 from nothing to 3" in text
    assert f"It was after {second_text(WALL_MS - 5_000)}, and seen at {second_text(WALL_MS)}." in text
    assert "In the group is now" not in text
    assert "`windhover offsets reset sentences --partition 0 --to 7 --execute`" in text


def test_another_installation_in_the_group_is_named_and_one_of_an_older_version_is_ours() -> None:
    """P15: two installations that read in one group would handle each record twice."""
    cluster = Cluster(TEXT.replace("acker: {", "acker: {topic_prefix: one-, "))
    for mark in ("windhover one-", COMMITTED_BY):
        cluster.commit("sentences/0", 7, mark)
        assert refusal(cluster, [A], Reached({A: 9})) == ""
    cluster.commit("sentences/0", 7, "windhover two-")
    text = refusal(cluster, [A], Reached({A: 9}))
    assert "of group g were moved by another installation of Windhover: sentences/0 from 9 to 7" in text
    assert "by acker.topic_prefix two-" in text
    assert "end the query of one, or give it another group. Then, to go on where Windhover was" in text


@pytest.mark.parametrize("prefixes", [("one-", "two-"), ("one-", ""), ("", "two-")])
def test_a_checkpoint_goes_on_under_another_prefix_and_a_strangers_commit_is_refused_there(
    prefixes: tuple[str, str],
) -> None:
    """The ackers of the new prefix know nothing of the sources, so nobody else need have moved them."""
    former, now = prefixes
    cluster = Cluster(TEXT.replace("acker: {", f"acker: {{topic_prefix: '{now}', "))
    cluster.commit("sentences/0", 7, f"windhover {former}".rstrip())
    assert refusal(cluster, [A], Reached({A: 9}), other_prefix_passes=True) == ""
    cluster.commit("sentences/0", 7, "by hand")
    text = refusal(cluster, [A], Reached({A: 9}), other_prefix_passes=True)
    assert "moved by something else than Windhover" in text


def test_a_replay_topic_is_settled_below_the_commit_of_any_installation() -> None:
    """It is the group's, and a group may go on under another prefix."""
    cluster = Cluster(TEXT.replace("acker: {", "acker: {topic_prefix: one-, "))
    replay = next(spec for spec in cluster.sources().values() if spec.is_replay)
    cluster.produce(5, replay.place.partition, replay.place.topic)
    for mark, start in (("windhover two-", 3), ("windhover", 3), ("windhoverish", 0)):
        cluster.commit(f"{replay.place.topic}/{replay.place.partition}", 3, mark)
        assert cluster.starts([replay.source]) == {replay.source: start}


# --- topics and checkpoints


def test_a_checkpoint_that_names_another_topic_or_id_is_refused(cluster: Cluster) -> None:
    specs = cluster.sources()
    a = specs[A]
    marks = {A: SourceMark(0, 5)}
    check_journal([a], BEGINNING, tracked=True)
    check_journal([a], replace(BEGINNING, sources=marks), tracked=True)
    check_journal([a], replace(BEGINNING, sources=marks, topics={"sentences": a.topic_id}), tracked=True)
    check_journal([specs[B]], replace(BEGINNING, sources=marks, topics={"former": "x"}), tracked=True)
    with pytest.raises(Disagreement, match="has topic sentences now, and by its checkpoint it read former"):
        check_journal([specs[B], a], replace(BEGINNING, sources=marks, topics={"former": "x"}), tracked=True)
    for tracked, cure in ((True, "offsets reset"), (False, "which is untracked")):
        with pytest.raises(Disagreement, match=rf"sentences was re-created.*knows x; .*{cure}"):
            check_journal([a], replace(BEGINNING, topics={"sentences": "x"}), tracked=tracked)
    assert "offsets reset" in str(re_created(a, "x"))


@pytest.mark.parametrize(("written_in", "is_refused"), [("", False), ("memory", False), ("other", True)])
def test_a_checkpoint_of_another_cluster_is_refused_and_one_without_a_name_is_not(
    written_in: str, is_refused: bool
) -> None:
    journal = replace(BEGINNING, cluster=written_in)
    if is_refused:
        with pytest.raises(Disagreement, match="of cluster other, and this is cluster memory"):
            check_cluster(journal, "memory")
    else:
        check_cluster(journal, "memory")


def test_what_an_older_checkpoint_lacks_is_named_by_its_offsets(cluster: Cluster) -> None:
    error = older_checkpoint(cluster.sources()[A], SourceRun(A, position_at(2, 5), position_at(2, 9)), "w")
    assert "of sentences/0 offsets 5 to 8 are ACKED" in str(error)


@pytest.mark.parametrize(
    ("end", "state"), [(None, "has other records"), (5, "ends at 5"), (6, "has other records"), (4, "ends")]
)
@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_cut_log_is_told_apart_from_one_that_has_grown_again(
    cluster: Cluster, end: int | None, state: str, ordering: str
) -> None:
    spec = cluster.sources()[A]
    ordered = replace(spec, input=spec.input.model_copy(update={"ordering": ordering}))
    text = str(log_was_cut(ordered, 5, 9, end))
    assert state in text
    assert ("on_data_loss: skip" in text) == (ordering == "none")


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        (f"{AHEAD} by 1 h", "set the clock"),
        ("input 1 is of group h, not of g", "windhover acker free"),
        ("it differs", "make topics.yaml agree"),
    ],
)
def test_a_refusal_of_an_acker_comes_with_its_cure(reason: str, cure: str) -> None:
    answers = Answers("g", "s", 2, ())
    answers.add_part(1, Taken("g", "s", 1, "s", reason, 0, 1, 0, (), ()))
    text = str(refused_by_acker(answers, SessionName(1, "s"), "g"))
    assert text.startswith(f"acker partition 1 refuses session 1/s of group g: {reason}; ")
    assert cure in text


def test_the_sources_of_a_query_are_its_partitions_and_those_of_its_replay_topics(cluster: Cluster) -> None:
    inputs = tuple(cluster.topics.inputs.values())
    assert sorted(cluster.sources()) == sorted(
        [A, B, OTHER, COPIES_A, COPIES_B, source_of(2, 0, replay=True)]
    )
    specs, lack = find_sources(cluster.log, inputs, tracked=False)
    assert (sorted(specs), lack) == ([A, B, OTHER], "")
    b = specs[B]
    assert (str(b), b.place, b.input.name, b.is_replay) == (
        "sentences/1",
        TopicPartition("sentences", 1),
        "sentences",
        False,
    )
    assert b.taken_from(position_at(3, 4)) == TakeSource(B, "sentences", b.topic_id, 3, position_at(3, 4))
    assert (cluster.spec().group, cluster.spec().timeout_ms) == ("g", 4_000)
    assert PlannerSpec(inputs[1:], cluster.topics.ack_topics, 3).group == "g"


@pytest.mark.parametrize(("timeouts", "shortest_ms"), [(("0", "0"), 0), (("0", "9s"), 9_000)])
def test_an_input_without_a_timeout_leaves_those_of_the_others(
    timeouts: tuple[str, str], shortest_ms: int
) -> None:
    text = TEXT.replace("4s", timeouts[0]).replace("9s", timeouts[1])
    assert Cluster(text).spec().timeout_ms == shortest_ms


def test_a_replay_topic_that_lacks_partitions_is_named_with_the_cure(cluster: Cluster) -> None:
    cluster.memory.add_partitions("others", 3)
    inputs = tuple(cluster.topics.inputs.values())
    specs, lack = find_sources(cluster.log, inputs, tracked=True)
    assert len(specs) == 8
    assert "others.g.replay has 1 partitions, fewer than the 3 of others" in lack
    with pytest.raises(TopicError, match="fewer than the 3"):
        sources_of(cluster.log, inputs, tracked=True)
    assert len(sources_of(cluster.log, inputs, tracked=False)) == 5
    cluster.memory.delete_topic("sentences")
    with pytest.raises(TopicError, match="topic sentences of input sentences does not exist"):
        sources_of(cluster.log, inputs, tracked=True)


def test_the_runs_of_a_batch_have_the_topics_of_their_inputs(cluster: Cluster) -> None:
    inputs = tuple(cluster.topics.inputs.values())
    runs = [SourceRun(source, 0, 1) for source in (A, COPIES_B, OTHER, A)]
    assert topic_names(inputs, runs) == {A: "sentences", COPIES_B: "sentences.g.replay", OTHER: "others"}
    with pytest.raises(Disagreement, match="records of input id 3, which"):
        topic_names(inputs, [*runs, SourceRun(source_of(4, 0), 0, 1), SourceRun(source_of(3, 0), 0, 1)])


# --- carried commits


def carried(cluster: Cluster, sources: Collection[int] | None = None, **values: Any) -> list[CarriedCommit]:
    specs = cluster.sources()
    fresh = [spec for source, spec in specs.items() if sources is None or source in sources]
    log = values.pop("log", cluster.log)
    return list(carried_commits(log, cluster.spec(**values), fresh))


SENTENCES: Final = {number: TopicPartition("sentences", number) for number in range(2)}


@pytest.mark.parametrize(("mark", "is_ours"), [(COMMITTED_BY, True), ("by hand", False)])
def test_a_carried_commit_is_described_by_the_latest_record_below_the_commits(
    cluster: Cluster, mark: str, is_ours: bool
) -> None:
    """The tenth minute has record 9 of one partition, and the fourteenth record 3 of the other."""
    cluster.commit("sentences/0", 10, mark)
    cluster.commit("sentences/1", 4, "by hand")
    cluster.commit("others/0", 4)
    [commit] = carried(cluster)
    assert commit.input.name == "sentences", "the other input begins at the latest record"
    assert commit.offsets == {SENTENCES[0]: 10, SENTENCES[1]: 4}
    assert (commit.is_ours, commit.last_read_ms) == (is_ours, WALL_MS + 14 * 60_000)
    need_ms = longest_need_ms(commit.input)
    assert need_ms is not None
    assert commit.begin_text == second_text(WALL_MS + 14 * 60_000 - rounded_up_ms(need_ms))
    fields = commit.fields()
    assert fields["committed"] == "sentences/0@10, sentences/1@4"
    assert fields["committed_by"] == ("windhover" if is_ours else "another program")
    assert f"sentences --to {commit.begin_text} --execute` (earlier" in str(fields["next_step"])


@pytest.mark.parametrize("offsets", [(10, 0), (0, 4)])
def test_a_commit_of_one_partition_is_enough(cluster: Cluster, offsets: tuple[int, int]) -> None:
    """Below offset 0 nothing can have failed."""
    for number, offset in enumerate(offsets):
        cluster.commit(f"sentences/{number}", offset)
    [commit] = carried(cluster)
    last = {10: 10, 4: 14}[max(offsets)]
    assert commit.last_read_ms == WALL_MS + last * 60_000


@pytest.mark.parametrize(
    ("offset", "minute"),
    [(1, 1), (10, 10), (11, None)],
    ids=["the first record", "the last one", "behind the log"],
)
def test_the_record_below_a_commit_is_looked_at_where_the_log_has_it(
    cluster: Cluster, offset: int, minute: int | None
) -> None:
    cluster.commit("sentences/0", offset)
    [commit] = carried(cluster)
    assert commit.last_read_ms == (None if minute is None else WALL_MS + minute * 60_000)
    assert (commit.begin_text == "earliest") == (minute is None)


@pytest.mark.parametrize(("offset", "minute"), [(2, None), (3, 13)])
def test_what_was_deleted_up_to_the_commit_says_nothing(
    cluster: Cluster, offset: int, minute: int | None
) -> None:
    cluster.commit("sentences/1", offset)
    [commit] = carried(cluster)
    assert commit.last_read_ms == (None if minute is None else WALL_MS + minute * 60_000)


@pytest.mark.parametrize(
    "values", [{"start": "earliest"}, {"start": "latest"}, {"start": 5}, {"sources": [OTHER, COPIES_A]}]
)
def test_who_does_not_begin_at_a_commit_of_new_records_gets_no_line(
    cluster: Cluster, values: dict[str, Any]
) -> None:
    cluster.commit("sentences/0", 10)
    cluster.commit("sentences.g.replay/0", 10)
    assert carried(cluster, **values) == []
    assert [commit.input.name for commit in carried(cluster, start="committed")] == ["sentences"]


def test_only_fresh_partitions_are_looked_at(cluster: Cluster) -> None:
    cluster.commit("sentences/0", 10)
    cluster.commit("sentences/1", 4)
    [commit] = carried(cluster, [A])
    assert (commit.offsets, commit.last_read_ms) == ({SENTENCES[0]: 10}, WALL_MS + 10 * 60_000)


def test_a_marker_below_a_commit_is_no_record_and_is_not_waited_for(cluster: Cluster) -> None:
    writer = cluster.log.transactions("somebody's")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing("sentences", 0, b"x"))
    writer.commit(0)
    cluster.commit("sentences/0", 12)
    polls = Polls()
    [commit] = carried(cluster, log=MemoryLog(cluster.memory, polls))
    assert commit.last_read_ms is None
    assert polls.count == 1


class Polls(NoFaults):
    """Counts polls."""

    def __init__(self) -> None:
        """Begin with none."""
        self.count = 0

    def before(self, operation: str) -> None:
        """Count one."""
        self.count += operation == "poll"


class SilentReader(MemoryReader):
    """Brings nothing of what it is assigned."""

    def poll(self, timeout_ms: int, max_records: int = 1000) -> tuple[()]:
        """Bring nothing, after this time."""
        self._faults.before("poll")
        SilentLog.waited_ms += timeout_ms
        return ()


class SilentLog(MemoryLog):
    """A log of which no record comes."""

    waited_ms = 0

    def reader(self, *, committed: bool, patient: bool = False) -> SilentReader:
        """Make a silent reader."""
        return SilentReader(self._broker, self._faults, committed=committed, open_readers=self.open_readers)


def test_the_records_below_the_commits_are_waited_for_two_seconds_in_all(cluster: Cluster) -> None:
    cluster.commit("sentences/0", 10)
    log = SilentLog(cluster.memory, NoFaults())
    SilentLog.waited_ms = 0
    [commit] = carried(cluster, log=log)
    assert (commit.last_read_ms, SilentLog.waited_ms) == (None, READ_MS_MAX)
    assert not log.open_readers


@pytest.mark.parametrize(
    ("last_ms", "timeout_ms", "begin"),
    [(None, 4_000, "earliest"), (WALL_MS, 0, "earliest"), (5, 4_000, "earliest")],
)
def test_where_nobody_knows_how_far_back_a_record_waits_it_begins_at_the_earliest(
    cluster: Cluster, last_ms: int | None, timeout_ms: int, begin: str
) -> None:
    source = cluster.topics.input("sentences").model_copy(update={"timeout_ms": timeout_ms})
    offsets = {TopicPartition("sentences", number): 7 for number in range(NAMED_MAX + 2)}
    commit = CarriedCommit(source, offsets, True, last_ms)
    assert commit.begin_text == begin
    assert "earlier" not in str(commit.fields()["next_step"])
    assert str(commit.fields()["committed"]).endswith("sentences/2@7, and 2 more")


def test_a_record_as_old_as_the_longest_need_begins_at_1970(cluster: Cluster) -> None:
    source = cluster.topics.input("sentences")
    need_ms = longest_need_ms(source)
    assert need_ms is not None
    assert CarriedCommit(source, {}, True, rounded_up_ms(need_ms)).begin_text == "1970-01-01T00:00:00Z"
    assert CarriedCommit(source, {}, True, rounded_up_ms(need_ms) - 1).begin_text == "earliest"


def test_an_input_that_does_not_begin_at_its_commit_hides_none_behind_it() -> None:
    text = TEXT.replace(", start: latest", "").replace("timeout: 4s", "timeout: 4s, start: latest")
    cluster = Cluster(text)
    assert [source.start for source in cluster.topics.inputs.values()] == ["latest", "committed"]
    cluster.produce(6, topic="others")
    cluster.commit("others/0", 4)
    assert [commit.input.name for commit in carried(cluster)] == ["others"]


def test_a_record_that_was_aborted_below_a_commit_says_nothing(cluster: Cluster) -> None:
    writer = cluster.log.transactions("somebody's")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing("sentences", 0, b"x"))
    writer.abort(0)
    cluster.commit("sentences/0", 11)
    assert [commit.last_read_ms for commit in carried(cluster)] == [None]


def test_a_record_of_1970_has_a_time() -> None:
    cluster = Cluster()
    cluster.memory.now_ms = -60_000
    cluster.produce(1)
    cluster.commit("sentences/0", 1)
    assert [commit.last_read_ms for commit in carried(cluster)] == [0]


class Deleted(Polls):
    """What is polled is deleted meanwhile."""

    def before(self, operation: str) -> None:
        """Count one, and say so."""
        super().before(operation)
        if operation == "poll":
            raise OutOfRange("it is not there any more")


def test_records_that_are_deleted_meanwhile_are_not_waited_for(cluster: Cluster) -> None:
    cluster.commit("sentences/0", 10)
    polls = Deleted()
    [commit] = carried(cluster, log=MemoryLog(cluster.memory, polls))
    assert (commit.last_read_ms, polls.count) == (None, 1)


# --- sources that join


class Growing:
    """A session that looks for new sources, and who answers it."""

    def __init__(self, cluster: Cluster, *, tracked: bool = True) -> None:
        """Begin with what there is."""
        self.cluster = cluster
        self.takes: list[tuple[SessionName, int, dict[int, int], list[int]]] = []
        self.reports: list[tuple[str, object]] = []
        self.sources = sources_of(cluster.log, tuple(cluster.topics.inputs.values()), tracked=tracked)
        self.context: Any = SimpleNamespace(
            log=cluster.log,
            spec=cluster.spec(tracked=tracked),
            sources=self.sources,
            announcer=self if tracked else None,
            report=lambda event, fields: self.reports.append((event, fields["error"])),
            troubles=cluster.troubles,
            left_out={},
        )
        self.it = Growth(self.context, SessionName(1, "s"), WALL_MS)

    def send_take(self, name: SessionName, now: int, sources: list[TakeSource], to: list[int]) -> None:
        """Note a take."""
        self.takes.append((name, now, {s.source: s.from_ for s in sources}, list(to)))

    def step(self, ms: int) -> dict[int, tuple[int, list[PositionRun]]]:
        """Look at this time; return where what joins begins, and what is free of it below 100."""
        joined = self.it.step(77, WALL_MS + ms)
        return {
            spec.source: (cursor.from_, cursor.uninitialised_runs(cursor.from_ + 9))
            for spec, cursor in joined
        }

    def answer(self, *partitions: int, next_: int = 0, **other: Any) -> None:
        """Let acker partitions answer."""
        infos = self.cluster.log.topics(["sentences", "sentences.g.replay"])
        for partition in partitions:
            entries = tuple(
                TakenSource(
                    source, infos["sentences" if source == new(2) else "sentences.g.replay"].id, 0, 0, next_
                )
                for source in self.takes[-1][2]
            )
            values = {"sources": entries, "refused": "", **other}
            self.it.read(
                partition,
                Taken("g", "s", 1, "s", values["refused"], 0, 1, 0, values["sources"], ()),
            )


def new(partition: int, *, replay: bool = False) -> int:
    return source_of(1, partition, replay=replay)


JOINING: Final = {new(2): 0, new(2, replay=True): 0}


def grow(cluster: Cluster, *topics: str) -> None:
    for topic in topics or ("sentences", "sentences.g.replay"):
        cluster.memory.add_partitions(topic, 3)


def test_new_partitions_are_named_to_the_ackers_and_read_when_all_have_answered(cluster: Cluster) -> None:
    growing = Growing(cluster)
    grow(cluster)
    assert growing.step(0) == {}
    assert growing.step(SOURCES_EVERY_MS - 1) == {}
    assert growing.takes == []
    assert growing.step(SOURCES_EVERY_MS) == {}
    assert growing.takes == [(SessionName(1, "s"), 77, JOINING, [0, 1, 2])]
    growing.step(SOURCES_EVERY_MS)
    assert len(growing.takes) == 1
    growing.answer(0, 2)
    assert growing.step(SOURCES_EVERY_MS + REPEAT_MS - 1) == {}
    assert len(growing.takes) == 1
    assert growing.step(SOURCES_EVERY_MS + REPEAT_MS) == {}
    assert growing.takes[1:] == [(SessionName(1, "s"), 77, JOINING, [1])]
    growing.step(SOURCES_EVERY_MS + REPEAT_MS + 1)
    assert len(growing.takes) == 2
    growing.step(SOURCES_EVERY_MS)
    assert len(growing.takes) == 3, "the clock was set back"
    growing.answer(1, next_=4)
    joined = growing.step(SOURCES_EVERY_MS + 1)
    assert joined.keys() == JOINING.keys()
    # whoever has called `step` reads them from now on
    specs = cluster.sources()
    growing.sources.update({source: specs[source] for source in joined})
    assert growing.step(SOURCES_EVERY_MS + 2) == {}
    assert growing.step(5 * SOURCES_EVERY_MS) == {}
    assert len(growing.takes) == 3


class TopicLooks(NoFaults):
    """Counts how often topics are asked for."""

    def __init__(self) -> None:
        """Begin with none."""
        self.count = 0

    def before(self, operation: str) -> None:
        """Count one."""
        self.count += operation == "topics"


def test_the_broker_is_asked_for_topics_each_two_seconds(cluster: Cluster) -> None:
    growing = Growing(cluster)
    looks = TopicLooks()
    growing.context.log = MemoryLog(cluster.memory, looks)
    counts: list[int] = []
    every_ms = SOURCES_EVERY_MS
    for ms in (0, every_ms - 1, every_ms, every_ms, every_ms + 1, 2 * every_ms, every_ms):
        growing.step(ms)
        counts.append(looks.count)
    assert counts == [0, 0, 1, 1, 1, 2, 3], "the last one: the clock was set back"


def test_an_answer_that_nobody_waits_for_changes_nothing(cluster: Cluster) -> None:
    growing = Growing(cluster)
    growing.it.read(0, Taken("g", "s", 1, "s", "", 0, 1, 0, (), ()))
    assert growing.step(SOURCES_EVERY_MS) == {}


def test_an_untracked_query_reads_new_partitions_at_once(cluster: Cluster) -> None:
    growing = Growing(cluster, tracked=False)
    grow(cluster, "sentences")
    assert growing.step(SOURCES_EVERY_MS) == {new(2): (0, [PositionRun(0, 9)])}
    assert growing.takes == []


def test_partitions_whose_replay_topic_lacks_them_wait_and_it_is_said_once(cluster: Cluster) -> None:
    growing = Growing(cluster)
    grow(cluster, "sentences")
    for number in range(1, 4):
        assert growing.step(number * SOURCES_EVERY_MS) == {}
    assert growing.takes == []
    [(event, text)] = growing.reports
    assert event == "new_partitions_wait"
    assert "fewer than the 3 of sentences" in str(text)
    grow(cluster, "sentences.g.replay")
    growing.step(4 * SOURCES_EVERY_MS)
    assert [take[2] for take in growing.takes] == [JOINING]
    cluster.memory.add_partitions("sentences", 4)
    growing.step(5 * SOURCES_EVERY_MS)
    assert len(growing.reports) == 2


def test_new_partitions_that_come_while_others_are_under_way_follow_them(cluster: Cluster) -> None:
    growing = Growing(cluster)
    grow(cluster)
    growing.step(SOURCES_EVERY_MS)
    cluster.memory.add_partitions("sentences.g.replay", 4)
    cluster.memory.add_partitions("sentences", 4)
    growing.step(2 * SOURCES_EVERY_MS)
    assert [take[2] for take in growing.takes] == [JOINING]


def test_a_new_partition_that_an_acker_refuses_ends_the_query(cluster: Cluster) -> None:
    growing = Growing(cluster)
    grow(cluster)
    growing.step(SOURCES_EVERY_MS)
    growing.answer(0, 1)
    growing.answer(2, refused="it differs", sources=())
    with pytest.raises(Disagreement, match="acker partition 2 refuses session 1/s of group g: it differs"):
        growing.step(SOURCES_EVERY_MS + 1)


def test_a_new_partition_that_the_ackers_have_of_a_former_topic_ends_the_query(cluster: Cluster) -> None:
    growing = Growing(cluster)
    grow(cluster)
    growing.step(SOURCES_EVERY_MS)
    former = tuple(TakenSource(source, "former", 0, 0, 0) for source in JOINING)
    growing.answer(0, 1, 2, sources=former)
    with pytest.raises(Disagreement, match="re-created"):
        growing.step(SOURCES_EVERY_MS + 1)


def test_a_new_partition_without_a_leader_is_taken_when_its_beginning_is_known(cluster: Cluster) -> None:
    growing = Growing(cluster)
    growing.context.left_out[new(2)] = WALL_MS
    grow(cluster)
    cluster.memory.lose_leader("sentences", 2)
    growing.step(SOURCES_EVERY_MS)
    assert [take[2] for take in growing.takes] == [{new(2, replay=True): 0}]


def test_where_no_beginning_is_known_nothing_is_sent(cluster: Cluster) -> None:
    growing = Growing(cluster, tracked=True)
    growing.context.left_out[new(2)] = WALL_MS
    grow(cluster)
    cluster.memory.lose_leader("sentences", 2)
    cluster.memory.lose_leader("sentences.g.replay", 2)
    cluster.commit("sentences.g.replay/2", 0)
    assert growing.step(SOURCES_EVERY_MS) == {}
    assert growing.takes == []
    assert growing.step(SOURCES_EVERY_MS + REPEAT_MS) == {}
    assert growing.takes == []


@pytest.mark.parametrize("tracked", [True, False])
def test_a_topic_that_was_created_again_ends_the_query(cluster: Cluster, tracked: bool) -> None:
    growing = Growing(cluster, tracked=tracked)
    cluster.memory.delete_topic("sentences")
    cluster.memory.create_topic("sentences", 2)
    cure = "offsets reset" if tracked else "which is untracked"
    with pytest.raises(Disagreement, match=rf"sentences was re-created.*{cure}"):
        growing.step(SOURCES_EVERY_MS)


def test_a_source_that_is_gone_for_now_is_no_new_topic(cluster: Cluster) -> None:
    growing = Growing(cluster)
    growing.sources[new(7)] = replace(growing.sources[A], source=new(7))
    assert growing.step(SOURCES_EVERY_MS) == {}


def test_a_source_that_begins_a_new_generation_is_taken_unless_others_are_under_way(cluster: Cluster) -> None:
    growing = Growing(cluster)
    first = position_at(1, 3)
    assert growing.it.begin_again({}, 77, WALL_MS) == []
    assert growing.takes == []
    assert growing.it.begin_again({A: first}, 78, WALL_MS) == []
    assert growing.takes == [(SessionName(1, "s"), 78, {A: first}, [0, 1, 2])]
    assert growing.it.begin_again({B: first}, 79, WALL_MS) == []
    assert len(growing.takes) == 1
    entry = TakenSource(A, growing.sources[A].topic_id, 1, first, first + 2)
    for partition in range(3):
        growing.answer(partition, sources=(entry,))
    joined = growing.step(1)
    assert joined.keys() == {A}
    assert joined[A][0] == first

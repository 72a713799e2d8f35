"""How a process becomes the owner of its group, answer by answer: what it sends, and what it begins with.

The acker partitions' answers are given by hand, so each of them may be late, old, refused, or of another
generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest

from acker.errors import Disagreement, SessionRefused, Unreachable, UsageError
from acker.identity import GENERATION_MAX, position_at, source_of
from acker.kafka.port import TopicPartition
from acker.wire.checks import CLOCK_AHEAD_MS_MAX
from acker.wire.events import PositionRun, SourceRun, Taken, TakenSource, TakeSource, Verdicts
from spout.group.announce import REPEAT_MS
from spout.group.opening import GIVE_UP_MS, WAIT_REPORTED_MS, Opening, clock_after
from spout.group.session_state import SessionEvent, SessionStates
from spout.group.sources import PlannerSpec, SourceSpec, sources_of
from spout.group.troubles import Troubles
from spout.planning.journal import BEGINNING, Journal, SourceMark
from spout.planning.session import STEP_MS_MAX, SessionName
from tests.support.worlds.planning import WALL_MS, World

PARTITIONS: Final = 3
EVERYBODY: Final = list(range(PARTITIONS))
A: Final[int] = source_of(1, 0)
B: Final[int] = source_of(1, 1)
COPIES_A: Final[int] = source_of(1, 0, replay=True)
COPIES_B: Final[int] = source_of(1, 1, replay=True)
QUESTION: Final = SessionName(0, "new?")


class SentTake(NamedTuple):
    """A take that was sent, as far as it names something."""

    name: SessionName
    now: int
    firsts: dict[int, int]
    to: list[int]


@dataclass
class Group:
    """A process that opens its group, and who answers it."""

    world: World
    spec: dict[str, Any] = field(default_factory=dict)
    now_ms: int = WALL_MS
    takes: list[SentTake] = field(default_factory=list)
    reports: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    left_out: dict[int, int] = field(default_factory=dict)
    who: None = None
    granted: list[int] | None = None

    def grant(self, epoch_min: int) -> int:
        """Grant an epoch as a store does, before anything is taken; note for which one it was asked."""
        assert self.granted is not None
        assert [take.name for take in self.takes] == [QUESTION]
        self.granted.append(epoch_min)
        return epoch_min + 10

    def send_take(
        self, name: SessionName, now: int, sources: Sequence[TakeSource], to: Iterable[int]
    ) -> None:
        """Note what the process sends; it is its `Announcer`."""
        self.takes.append(SentTake(name, now, {s.source: s.from_ for s in sources}, list(to)))

    def opening(self, journal: Journal = BEGINNING) -> Opening:
        """Begin."""
        topics = self.world.topics
        spec = PlannerSpec(
            tuple(topics.inputs.values()), topics.ack_topics, PARTITIONS, **{"take_over": True, **self.spec}
        )
        self.sources: dict[int, SourceSpec] = sources_of(self.world.log, spec.inputs, tracked=True)

        self.troubles = Troubles(self.world.log)

        def leave_out(since_ms: Mapping[int, int]) -> None:
            for source in since_ms:
                del self.sources[source]
            self.left_out.update(since_ms)

        context: Any = SimpleNamespace(
            log=self.world.log,
            spec=spec,
            sources=self.sources,
            report=lambda event, fields: self.reports.append((event, fields)),
            troubles=self.troubles,
            leave_out=leave_out,
        )
        announcer: Any = self
        session = SessionStates()
        session.process(SessionEvent.SOURCES_READ)
        grant = None if self.granted is None else self.grant
        self.it = Opening(context, announcer, journal, "new", self.now_ms, session, grant)
        return self.it

    def answer(
        self,
        partitions: Iterable[int] = EVERYBODY,
        *,
        sources: Sequence[TakenSource] | None = None,
        owner: SessionName = SessionName(0, ""),  # noqa: B008 - a constant
        clock: int = 0,
        refused: str = "",
        open_runs: Sequence[SourceRun] = (),
        offset: int = 7,
    ) -> None:
        """Let acker partitions answer the last take; `sources`: those of it by default."""
        asked = self.takes[-1]
        named = [self.entry(s, first, first) for s, first in asked.firsts.items()]
        for partition in partitions:
            self.it.read(
                partition,
                offset,
                Taken(
                    "g", owner.id, owner.epoch, asked.name.id, refused, 0, 1, clock,
                    tuple(named if sources is None else sources), tuple(open_runs),
                ),
            )  # fmt: skip

    def entry(self, source: int, from_: int, next_: int) -> TakenSource:
        """Return what an acker partition has of a source."""
        spec = self.sources[source]
        return TakenSource(source, spec.topic_id, from_ >> 48, from_, next_)

    def step(self, ms: int = 0) -> Opening:
        """Let time pass, and go on."""
        self.now_ms += ms
        self.it.step(self.now_ms)
        return self.it

    def pass_time(self, ms: int, every_ms: int = 500) -> None:
        """Let time pass, with a look now and then."""
        for _ in range(ms // every_ms):
            self.step(every_ms)


@pytest.fixture
def group() -> Group:
    world = World()
    world.kill_acker()
    return Group(world)


BEGINNINGS: Final[dict[int, int]] = {A: 0, B: 0, COPIES_A: 0, COPIES_B: 0}


def test_a_fresh_group_is_asked_for_first_and_then_taken_with_all_its_sources(group: Group) -> None:
    group.opening()
    assert group.takes == [SentTake(QUESTION, WALL_MS, {}, EVERYBODY)]
    group.answer([0, 2])
    assert group.step(100).opened is None
    assert len(group.takes) == 1
    group.answer([1])
    group.step(100)
    assert group.takes[1:] == [SentTake(SessionName(1, "new"), WALL_MS + 200, BEGINNINGS, EVERYBODY)]
    group.answer()
    opened = group.step(50).opened
    assert opened is not None
    assert (opened.name, opened.is_restart, opened.clock_ms) == (SessionName(1, "new"), False, WALL_MS + 200)
    assert {source: history.from_ for source, history in opened.histories.items()} == BEGINNINGS
    assert (opened.later_events, opened.answer_offsets) == ((), dict.fromkeys(EVERYBODY, 7))
    assert (group.reports, group.left_out) == ([], {})


def test_what_an_acker_partition_writes_behind_its_answer_is_kept_and_what_came_before_it_is_not(
    group: Group,
) -> None:
    group.opening()
    verdicts = Verdicts((SourceRun(A, 0, 1),), (), ())
    group.answer()
    group.it.read(0, 8, verdicts)  # to the question: another session may be the owner by then
    group.step()
    group.it.read(1, 9, verdicts)
    group.answer([0], offset=10)
    group.it.read(0, 11, verdicts)
    group.answer([0], offset=12)
    group.answer([1, 2], offset=13)
    opened = group.step().opened
    assert opened is not None
    assert [(partition, offset) for partition, offset, _ in opened.later_events] == [(0, 11), (0, 12)]
    assert opened.answer_offsets == {0: 10, 1: 13, 2: 13}


def test_a_take_is_repeated_to_those_that_do_not_answer_and_to_nobody_else(group: Group) -> None:
    group.opening()
    group.answer([1])
    group.pass_time(REPEAT_MS - 500)
    assert len(group.takes) == 1
    group.pass_time(500)
    assert [take.to for take in group.takes] == [EVERYBODY, [0, 2]]
    group.pass_time(REPEAT_MS - 500)
    assert len(group.takes) == 2
    group.step(-1)
    assert len(group.takes) == 2
    group.now_ms = WALL_MS
    group.step()
    assert [take.to for take in group.takes[2:]] == [[0, 2]], "the clock was set back"
    group.step()
    assert len(group.takes) == 3


def test_it_says_once_for_whom_it_waits_and_gives_up_in_the_end(group: Group) -> None:
    group.opening()
    group.answer([1])
    assert group.it.waits_for().startswith("acker partition 0, 2 to answer; where no acker runs")
    group.pass_time(WAIT_REPORTED_MS - 500)
    assert group.reports == []
    group.pass_time(500)
    assert len(group.reports) == 1
    group.pass_time(19_500)
    [(event, fields)] = group.reports
    assert (event, fields["group"], fields["acker_partitions"]) == ("waits_for_ackers", "g", "0,2")
    group.pass_time(GIVE_UP_MS - WAIT_REPORTED_MS - 20_000)
    with pytest.raises(Unreachable, match=r"acker partition 0, 2 did not answer group g for 60 s"):
        group.step(500)


def test_the_limit_of_the_wait_begins_anew_with_each_take(group: Group) -> None:
    group.opening()
    group.pass_time(GIVE_UP_MS - 1_000)
    group.answer()
    group.step()
    group.pass_time(GIVE_UP_MS - 1_000)
    group.answer()
    assert group.step().opened is not None


@pytest.mark.parametrize(
    ("before", "epoch"), [(SessionName(0, ""), 1), (SessionName(6, "old"), 7)], ids=["no owner", "an owner"]
)
def test_a_new_session_follows_on_the_owner_and_its_clock_on_every_clock(
    group: Group, before: SessionName, epoch: int
) -> None:
    group.opening()
    group.answer([0], owner=before, clock=WALL_MS + 5_000)
    group.answer([1, 2], owner=SessionName(0, ""), clock=WALL_MS - 5_000)
    group.step()
    assert (group.takes[-1].name, group.takes[-1].now) == (SessionName(epoch, "new"), WALL_MS + 5_000)
    group.answer()
    opened = group.step(1_000).opened
    assert opened is not None
    assert opened.clock_ms == WALL_MS + 5_000
    assert group.reports == []


def test_what_an_owner_left_behind_is_said_with_how_far_it_was_ahead(group: Group) -> None:
    ahead_ms = CLOCK_AHEAD_MS_MAX
    group.opening()
    group.answer(owner=SessionName(1 << 53, "forged"), clock=WALL_MS + ahead_ms)
    group.step()
    assert group.takes[-1].now == WALL_MS
    assert [(event, fields["owner"]) for event, fields in group.reports] == [
        ("epoch_left_behind", f"{1 << 53}/forged"),
        ("clock_left_behind", f"{1 << 53}/forged"),
    ]
    assert group.reports[0][1]["epoch"] == group.takes[-1].name.epoch
    assert group.reports[1][1]["ahead"] == f"{ahead_ms // 1_000} s"
    half_ms = CLOCK_AHEAD_MS_MAX // 2
    assert clock_after(WALL_MS + half_ms, WALL_MS) == WALL_MS + half_ms
    assert clock_after(WALL_MS + half_ms + 1, WALL_MS) == WALL_MS


# --- a restart


MARKS: Final[dict[int, SourceMark]] = {source: SourceMark(0, 0) for source in BEGINNINGS}
OWN: Final = SessionName(4, "own")
JOURNAL: Final = Journal("own", 4, WALL_MS - 60_000, 2, MARKS, (), at_ms=WALL_MS - 50_000)


def test_a_restart_asks_and_goes_on_with_its_own_session_and_the_highest_clock(group: Group) -> None:
    group.opening(JOURNAL)
    assert group.takes[0].name == QUESTION
    group.answer()
    group.step(10)
    assert group.takes[1] == SentTake(OWN, WALL_MS + 10, BEGINNINGS, EVERYBODY)
    group.answer([0], owner=OWN, clock=WALL_MS - 30_000)
    group.answer([1, 2], owner=OWN, clock=WALL_MS - 90_000)
    opened = group.step().opened
    assert opened is not None
    assert (opened.name, opened.is_restart, opened.clock_ms) == (OWN, True, WALL_MS - 30_000)


def test_a_restart_never_goes_back_behind_the_clock_of_its_journal(group: Group) -> None:
    group.opening(JOURNAL)
    group.answer()
    group.step()
    group.answer(owner=OWN, clock=JOURNAL.now - 1)
    opened = group.step().opened
    assert opened is not None
    assert opened.clock_ms == JOURNAL.now


@pytest.mark.parametrize(("apart_ms", "times"), [(STEP_MS_MAX - 100, 1), (STEP_MS_MAX, 2)])
def test_a_restart_whose_answers_lie_a_second_apart_takes_once_more_and_no_more(
    group: Group, apart_ms: int, times: int
) -> None:
    group.opening(JOURNAL)
    group.answer()
    group.step()
    for _ in range(times):
        assert group.it.opened is None
        sent = len(group.takes)
        group.pass_time(3_000)  # that nobody answers makes no answer old
        group.answer([0], owner=OWN)
        group.step()
        group.step(apart_ms)
        group.answer([1, 2], owner=OWN)
        group.step()
        assert len(group.takes) in (sent, sent + 1)
    assert group.it.opened is not None
    assert sum(take.name == OWN for take in group.takes) == times


def test_a_fresh_session_does_not_take_twice_since_nobody_else_moves_its_clock(group: Group) -> None:
    group.opening()
    group.answer()
    group.step()
    group.answer([0])
    group.pass_time(3_000)
    group.answer([1, 2])
    assert group.step().opened is not None


@pytest.mark.parametrize("ahead_ms", [CLOCK_AHEAD_MS_MAX, CLOCK_AHEAD_MS_MAX + 1])
def test_a_restart_leaves_its_session_where_no_acker_would_take_its_clock(
    group: Group, ahead_ms: int
) -> None:
    group.opening(JOURNAL)
    group.answer()
    group.step()
    group.answer(owner=OWN, clock=WALL_MS + ahead_ms)
    opened = group.step().opened
    if ahead_ms <= CLOCK_AHEAD_MS_MAX:
        assert opened is not None
        assert opened.clock_ms == WALL_MS + ahead_ms
    else:
        assert group.takes[-1] == SentTake(SessionName(5, "new"), WALL_MS, BEGINNINGS, EVERYBODY)


def test_a_restart_that_may_not_take_over_is_told_of_its_clock(group: Group) -> None:
    group.spec["take_over"] = False
    group.opening(JOURNAL)
    group.answer()
    group.step()
    group.answer(owner=OWN, clock=WALL_MS + CLOCK_AHEAD_MS_MAX + 5_000)
    with pytest.raises(Disagreement, match=r"clock of session 4/own of group g is 7205 s ahead"):
        group.step()


@pytest.mark.parametrize("take_over", [False, True])
@pytest.mark.parametrize("owner", [SessionName(4, "zealot"), SessionName(4, "own"), SessionName(9, "a")])
def test_a_refused_restart_ends_or_goes_on_with_a_new_session_above_the_owner(
    group: Group, take_over: bool, owner: SessionName
) -> None:
    group.spec["take_over"] = take_over
    group.opening(JOURNAL)
    group.answer()
    group.step()
    group.answer([0], owner=owner, refused="it is lower")
    group.answer([1, 2], owner=OWN)
    if owner == OWN:
        with pytest.raises(Disagreement, match=r"acker partition 0 refuses session 4/own of group g"):
            group.step()
    elif not take_over:
        with pytest.raises(SessionRefused, match=r"session 4/own of group g is refused: session .* holds"):
            group.step()
    else:
        group.step()
        assert group.takes[-1].name == SessionName(owner.epoch + 1, "new")
        group.answer()
        opened = group.step().opened
        assert opened is not None
        assert not opened.is_restart


def test_a_fresh_session_that_is_refused_ends_even_where_it_may_take_over(group: Group) -> None:
    group.opening()
    group.answer()
    group.step()
    group.answer(owner=SessionName(9, "a"), refused="it is lower")
    with pytest.raises(SessionRefused, match=r"session 1/new of group g is refused"):
        group.step()


def test_a_checkpoint_that_is_too_old_is_left_with_a_session_above_its_own(group: Group) -> None:
    group.opening(JOURNAL)
    group.answer()
    group.step()
    own = [group.entry(A, 0, 40)]
    group.answer([0], owner=OWN, sources=[*own, *(group.entry(s, 0, 0) for s in (B, COPIES_A, COPIES_B))])
    group.answer([1, 2], owner=OWN)
    assert group.step().opened is not None
    group.it.take_anew(group.now_ms)
    assert group.it.opened is None
    assert group.takes[-1] == SentTake(SessionName(5, "new"), WALL_MS, BEGINNINGS, EVERYBODY)


# --- where sources begin


def test_a_source_begins_where_the_ackers_have_it_or_the_checkpoint_or_the_commit(group: Group) -> None:
    """In this order: a history, the marks of the journal, what the input's `start` says."""
    world = group.world
    world.log.commit("g", {TopicPartition("sentences", 1): 12}, "by hand")
    marks = {A: SourceMark(0, 5), COPIES_A: SourceMark(3, 9)}
    group.opening(changed(JOURNAL, sources=marks))
    group.answer([0], sources=[group.entry(A, 2, 8)])
    group.answer([1, 2], sources=[])
    group.step()
    assert group.takes[-1].firsts == {A: 2, B: 0, COPIES_A: 3, COPIES_B: 0}


def test_a_partition_of_an_input_without_history_begins_at_its_commit(group: Group) -> None:
    group.world.log.commit("g", {TopicPartition("sentences", 1): 12}, "by hand")
    group.opening()
    group.answer()
    group.step()
    assert group.takes[-1].firsts == BEGINNINGS | {B: 12}


@pytest.mark.parametrize("by_journal", [False, True])
def test_a_new_partition_of_an_input_that_was_read_begins_at_0(group: Group, by_journal: bool) -> None:
    """Its records came since, whatever the commit says; that it was read the ackers or the journal know."""
    group.world.log.commit("g", {TopicPartition("sentences", 1): 12}, "by hand")
    marks = {A: SourceMark(0, 0)} if by_journal else {}
    group.opening(changed(JOURNAL, sources=marks))
    group.answer(sources=[] if by_journal else [group.entry(A, 0, 0)])
    group.step()
    assert group.takes[-1].firsts == BEGINNINGS


def test_nothing_is_asked_of_the_log_of_a_source_that_has_a_history(group: Group) -> None:
    """It may have no leader now, and where it begins is known."""
    group.opening()
    group.world.cluster.lose_leader("sentences", 1)
    group.answer(sources=[group.entry(B, 0, 4)])
    group.step()
    assert group.takes[-1].firsts == BEGINNINGS
    assert not group.troubles


@pytest.mark.parametrize("rewinds", [False, True])
@pytest.mark.parametrize("has_history", [False, True])
def test_a_commit_of_which_the_ackers_have_no_history_is_named_unless_it_is_rewound(
    group: Group, has_history: bool, rewinds: bool
) -> None:
    group.world.produce(9)
    group.world.log.commit("g", {TopicPartition("sentences", 0): 4}, "by hand")
    group.spec |= {"rewind": {A: 0} if rewinds else {}, "checks_commits": False}
    group.opening()
    group.answer(sources=[group.entry(A, 0, 4)] if has_history else [])
    group.step()
    reports = [fields["committed"] for event, fields in group.reports if event == "commit_without_state"]
    assert reports == ([] if has_history or rewinds else ["sentences/0@4"])


def test_what_an_untracked_run_has_emitted_is_done_but_its_gaps(group: Group) -> None:
    marks = {A: SourceMark(0, 9, (PositionRun(6, 7), PositionRun(3, 4))), B: SourceMark(1, 5)}
    group.opening(Journal("", 0, 0, 1, marks, ()))
    group.answer()
    group.step()
    assert group.takes[-1].firsts == {A: 3, B: 5, COPIES_A: 0, COPIES_B: 0}
    assert group.takes[-1].name == SessionName(1, "new")


def test_the_ackers_may_have_sources_that_this_query_does_not_read(group: Group) -> None:
    stranger = TakenSource(source_of(2, 0), "other", 0, 0, 5)
    group.opening()
    group.answer(sources=[stranger])
    group.step()
    group.answer(sources=[*(group.entry(source, 0, 0) for source in BEGINNINGS), stranger])
    opened = group.step().opened
    assert opened is not None
    assert opened.histories.keys() == BEGINNINGS.keys()


@pytest.mark.parametrize("was_left_out", [False, True])
def test_a_partition_without_a_leader_is_left_out_since_the_first_time(
    group: Group, was_left_out: bool
) -> None:
    group.world.produce(3, partition=1)
    group.world.cluster.lose_leader("sentences", 1)
    marks = {source: mark for source, mark in MARKS.items() if source != B}
    group.opening(changed(JOURNAL, sources=marks, waits=(B,)) if was_left_out else BEGINNING)
    group.answer()
    group.step(20)
    assert B not in group.takes[-1].firsts
    group.answer()
    opened = group.step(20).opened
    assert opened is not None
    assert group.left_out == {B: JOURNAL.at_ms if was_left_out else WALL_MS + 40}
    assert B not in opened.histories


def test_a_topic_that_the_ackers_have_by_another_id_is_refused(group: Group) -> None:
    group.opening()
    group.answer()
    group.step()
    entries = [group.entry(source, 0, 0) for source in BEGINNINGS]
    group.answer(sources=[entry._replace(topic_id="former") for entry in entries])
    with pytest.raises(Disagreement, match=r"was re-created.*knows former"):
        group.step()


def test_generations_that_only_some_acker_partitions_have_are_taken_to_all(group: Group) -> None:
    first = position_at(1, 4)
    group.opening()
    group.answer()
    group.step()
    others = [group.entry(source, 0, 0) for source in (B, COPIES_A, COPIES_B)]
    group.answer([0, 2])
    group.answer([1], sources=[group.entry(A, first, first + 3), *others])
    assert group.step(30).opened is None
    assert group.takes[-1] == SentTake(SessionName(1, "new"), WALL_MS, BEGINNINGS | {A: first}, EVERYBODY)
    group.answer()
    opened = group.step().opened
    assert opened is not None
    assert opened.histories[A].from_ == first


def test_a_rewind_begins_a_new_generation_of_what_it_names(group: Group) -> None:
    group.spec["rewind"] = {A: 7}
    group.opening()
    group.answer(sources=[group.entry(A, position_at(2, 1), position_at(2, 9)), group.entry(B, 0, 4)])
    group.step()
    assert group.takes[-1].firsts == BEGINNINGS | {A: position_at(3, 7)}


def test_a_rewind_of_what_nobody_has_read_begins_in_generation_1(group: Group) -> None:
    group.spec["rewind"] = {A: 7, B: 0}
    group.opening()
    group.answer()
    group.step()
    assert group.takes[-1].firsts == BEGINNINGS | {A: position_at(1, 7), B: position_at(1, 0)}


@pytest.mark.parametrize("is_rewind", [False, True])
def test_a_rewind_reads_a_replay_topic_that_was_created_again_from_its_start(
    group: Group, is_rewind: bool
) -> None:
    group.spec["rewind"] = {A: 7} if is_rewind else {}
    group.opening()
    former = group.entry(COPIES_A, 0, 5)._replace(topic_id="former")
    group.answer(
        sources=[former, group.entry(COPIES_B, 0, 5), group.entry(B, 0, 5)._replace(topic_id="former")]
    )
    group.step()
    begun = {A: position_at(1, 7), COPIES_A: position_at(1, 0)} if is_rewind else {}
    assert group.takes[-1].firsts == BEGINNINGS | begun


@pytest.mark.parametrize("left", [0, 1])
def test_a_partition_can_be_rewound_so_often_and_no_more(group: Group, left: int) -> None:
    group.spec["rewind"] = {A: 7}
    group.opening()
    last = position_at(GENERATION_MAX - left, 0)
    group.answer(sources=[group.entry(A, last, last)])
    if left:
        group.step()
        assert group.takes[-1].firsts[A] == position_at(GENERATION_MAX, 7)
    else:
        with pytest.raises(UsageError, match=r"sentences/0 was rewound 32,767 times"):
            group.step()


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("emitted", [0, 6])
def test_offsets_that_somebody_moved_are_refused_where_something_was_emitted(
    group: Group, checks: bool, emitted: int
) -> None:
    group.spec["checks_commits"] = checks
    group.opening()
    group.world.log.commit("g", {TopicPartition("sentences", 0): 2}, "by hand")
    group.answer([0], sources=[group.entry(A, 0, emitted)])
    group.answer([1, 2], sources=[group.entry(A, 0, 0), group.entry(B, 0, 0)])
    if checks and emitted:
        with pytest.raises(Disagreement, match="sentences/0 from 6 to 2"):
            group.step()
    else:
        group.step()
        assert group.takes[-1].firsts == BEGINNINGS


@pytest.mark.parametrize("emitted", [0, 6])
@pytest.mark.parametrize("at_ms", [0, WALL_MS - 50_000])
def test_a_checkpoint_whose_offsets_somebody_moved_is_refused_before_anything_is_sent(
    group: Group, emitted: int, at_ms: int
) -> None:
    group.world.log.commit("g", {TopicPartition("sentences", 0): 2}, "by hand")
    journal = changed(JOURNAL, sources=MARKS | {A: SourceMark(0, emitted)}, at_ms=at_ms)
    if emitted:
        with pytest.raises(Disagreement, match="sentences/0 from 6 to 2") as raised:
            group.opening(journal)
        assert group.takes == []
        assert ("after 2027" in str(raised.value)) == bool(at_ms)
    else:
        group.opening(journal)
        assert len(group.takes) == 1


def test_a_session_that_writes_exactly_once_has_the_epoch_that_its_store_grants(group: Group) -> None:
    """Rule 12: the store is opened behind the question, and before the first `Take`."""
    group.granted = []
    group.opening()
    assert group.granted == []
    group.answer(owner=SessionName(4, "o"))
    group.step()
    assert group.granted == [5]
    assert group.takes[-1].name == SessionName(15, "new-store")


def test_each_start_that_writes_exactly_once_is_a_session_of_its_own(group: Group) -> None:
    """Rule 12: two processes of one session would each have a clock."""
    group.granted = []
    group.spec = {"take_over": False}
    group.opening(JOURNAL)
    group.answer(owner=SessionName(4, "own"))
    group.step()
    assert group.takes[-1].name == SessionName(15, "new-store"), "its own session need not be silent"
    group.answer()
    opened = group.step().opened
    assert opened is not None
    assert not opened.is_restart


STORED = SessionName(4, "own-store")


@pytest.mark.parametrize("has_journal", [False, True])
@pytest.mark.parametrize("take_over", [False, True])
def test_a_session_without_the_store_does_not_follow_on_one_that_writes_exactly_once(
    group: Group, has_journal: bool, take_over: bool
) -> None:
    """D3206: what is open may be in the store; so a release, a reset and another query are refused."""
    group.spec = {"take_over": take_over}
    group.opening(JOURNAL if has_journal else BEGINNING)
    group.answer(owner=STORED)
    with pytest.raises(SessionRefused, match=r"session 4/own-store.*windhover release g --without-store"):
        group.step()
    assert [take.name for take in group.takes] == [QUESTION]


def test_a_query_without_the_store_does_not_go_on_from_the_checkpoint_of_one_that_has_it(
    group: Group,
) -> None:
    """D3206: also when the group was released: what was under way may be in the store."""
    group.opening(changed(JOURNAL, session=STORED.id))
    group.answer(owner=SessionName(5, "op"))
    with pytest.raises(SessionRefused, match="start with a fresh checkpoint"):
        group.step()


@pytest.mark.parametrize("opens_store", [False, True])
def test_who_opens_the_store_or_says_that_it_does_not_count_follows_on_it(
    group: Group, opens_store: bool
) -> None:
    """D3206."""
    group.granted = [] if opens_store else None
    group.spec = {"without_store": not opens_store}
    group.opening()
    group.answer(owner=STORED)
    group.step()
    expected = SessionName(15, "new-store") if opens_store else SessionName(5, "new")
    assert group.takes[-1].name == expected

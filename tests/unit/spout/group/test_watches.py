"""What a planning process watches beside its work: strangers in its group, clocks, partitions in trouble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from acker.clock_watch import CLOCKS_APART_MS, MEASUREMENTS_MIN, SKEW_MS_MAX
from acker.config.limits import STANDS_MS
from acker.errors import LogError, PartitionStands
from acker.kafka.port import Bound, GroupMember, OffsetAnswers, Record, TimestampType, TopicPartition
from acker.kafka.read_to_end import POLL_MS
from acker.writer_clocks import WriterTime
from spout.group.clocks import OURS, WATCH_MS, YOUNG_MS, WatchedClocks, watch_clocks, wrong_clocks
from spout.group.strangers import (
    NAMED_MAX,
    REFUSED_CHECK_MS,
    STRANGER_CHECK_MS,
    MovedCommit,
    StrangerWatch,
    member_text,
    moved_cure,
    stranger_texts,
    strangers_now,
    strangers_of,
)
from spout.group.troubles import ASK_EVERY_MS, Troubles

HOUR_MS: Final = 3_600_000
NOW_MS: Final = 1_800_000_000_000
CONSOLE: Final = GroupMember("console on 10.0.0.7", frozenset({0}), "console-4f")
OWN: Final = GroupMember("windhover-acker-1 on 10.0.0.2", frozenset({2}))
MEMBERS: Final = [CONSOLE._replace(name=f"c{number}", id="") for number in range(NAMED_MAX + 2)]


# --- strangers


class Watched:
    """A group with members, and who watches it."""

    def __init__(self, *members: GroupMember) -> None:
        """Begin to watch."""
        self.present = list(members)
        self.error: LogError | None = None
        self.requests: list[int] = []
        self.reports: list[tuple[str, dict[str, object]]] = []
        self.now_ms = NOW_MS
        log: Any = self
        self.it = StrangerWatch(log, "g", lambda event, fields: self.reports.append((event, dict(fields))))

    def members(self, group: str) -> Sequence[GroupMember]:
        """Return who is there."""
        assert group == "g"
        self.requests.append(self.now_ms - NOW_MS)
        if self.error is not None:
            raise self.error
        return list(self.present)

    def steps(self, *times_ms: int, refused: str = "") -> list[int]:
        """Look at these times; return at which of them the broker was asked."""
        self.requests.clear()
        for ms in times_ms:
            self.now_ms = NOW_MS + ms
            self.it.step(refused, self.now_ms)
        return list(self.requests)


def test_a_group_is_looked_at_half_a_minute_after_the_start_and_each_half_a_minute() -> None:
    half_ms = STRANGER_CHECK_MS
    watched = Watched()
    assert watched.it.strangers == ()
    assert watched.steps(0, 0, 1, half_ms - 1, half_ms, half_ms, half_ms + 1) == [half_ms]
    assert watched.steps(2 * half_ms - 1, 2 * half_ms, half_ms) == [2 * half_ms, half_ms], "set back"
    assert watched.reports == []


def test_it_is_looked_at_at_once_where_a_commit_is_refused_and_more_often_while_it_is() -> None:
    watched = Watched()
    assert watched.steps(0, 1, REFUSED_CHECK_MS - 1, refused="no") == [0]
    assert watched.steps(REFUSED_CHECK_MS, REFUSED_CHECK_MS + 1, refused="no") == [REFUSED_CHECK_MS]
    assert watched.steps(2 * REFUSED_CHECK_MS) == []
    again_ms = 2 * REFUSED_CHECK_MS + 1
    assert watched.steps(again_ms, again_ms + 1, refused="no") == [again_ms], "refused anew"


def test_a_refusal_right_behind_a_look_is_looked_at_too() -> None:
    watched = Watched()
    watched.steps(0, STRANGER_CHECK_MS)
    assert watched.steps(STRANGER_CHECK_MS + 5, refused="no") == [STRANGER_CHECK_MS + 5]


def test_a_stranger_is_reported_when_it_comes_each_minute_and_when_it_leaves() -> None:
    watched = Watched(CONSOLE)
    watched.steps(0, *range(STRANGER_CHECK_MS, 5 * STRANGER_CHECK_MS, STRANGER_CHECK_MS))
    assert watched.it.strangers == [CONSOLE]
    assert [(event, fields["member"], fields["since_s"]) for event, fields in watched.reports] == [
        ("stranger_in_group", member_text(CONSOLE), 0),
        ("stranger_in_group", member_text(CONSOLE), 60),
    ]
    assert all("error" not in fields and fields["group"] == "g" for _, fields in watched.reports)
    watched.reports.clear()
    watched.present.clear()
    watched.steps(5 * STRANGER_CHECK_MS, 6 * STRANGER_CHECK_MS)
    assert [(event, fields["group"]) for event, fields in watched.reports] == [("stranger_left_group", "g")]
    watched.reports.clear()
    watched.present.append(CONSOLE)
    watched.steps(7 * STRANGER_CHECK_MS)
    assert [fields["since_s"] for _, fields in watched.reports] == [0], "it came anew"


def test_a_refusal_without_a_member_is_reported_with_the_broker_s_words() -> None:
    watched = Watched()
    watched.steps(0, refused="UNKNOWN_MEMBER_ID")
    [(event, fields)] = watched.reports
    assert (event, fields["error"]) == ("stranger_in_group", "UNKNOWN_MEMBER_ID")
    assert "nobody whom the broker names" in str(fields["member"])
    watched.steps(STRANGER_CHECK_MS)
    assert [event for event, _ in watched.reports] == ["stranger_in_group", "stranger_left_group"]


def test_while_the_broker_does_not_answer_the_last_report_holds() -> None:
    watched = Watched(CONSOLE)
    watched.steps(0, STRANGER_CHECK_MS)
    watched.error = LogError("no right to see it")
    assert watched.steps(2 * STRANGER_CHECK_MS, 2 * STRANGER_CHECK_MS + 1) == [2 * STRANGER_CHECK_MS]
    assert watched.it.strangers == [CONSOLE]
    assert len(watched.reports) == 1
    log: Any = watched
    assert strangers_now(log, "g") == ""
    watched.error = None
    assert strangers_now(log, "g") == member_text(CONSOLE)


def test_in_a_spout_s_group_nobody_is_by_right_and_in_a_service_s_group_its_own_are() -> None:
    assert strangers_of([OWN, CONSOLE], has_own=False) == [OWN, CONSOLE]
    assert strangers_of([OWN, CONSOLE], has_own=True) == [CONSOLE]
    texts = stranger_texts({"g": [OWN], "h": []}, {"windhover-acker": [OWN], "windhover-replay": MEMBERS})
    assert texts.keys() == {"g", "windhover-replay"}
    assert "its commits stand still" in texts["g"]
    assert "have no process of ours" in texts["windhover-replay"]
    assert "c4; and 2 more" in texts["windhover-replay"]


@pytest.mark.parametrize(
    ("ours", "theirs", "text", "target"),
    [
        (None, 1_234, "from nothing to 1,234", "--to 1234"),
        (0, 0, "from 0 to 0", "--to 0"),
        (1_234, None, "from 1,234 to nothing", "--to earliest"),
    ],
)
def test_a_moved_commit_is_named_and_put_right_by_command(
    ours: int | None, theirs: int | None, text: str, target: str
) -> None:
    moved = MovedCommit(TopicPartition("t", 3), ours, theirs)
    assert str(moved) == f"t/3 {text}"
    assert f"windhover offsets reset 'my input' --partition 3 {target} --execute" in moved_cure(
        "g", "my input", moved
    )


# --- clocks


@pytest.mark.parametrize(
    ("times", "ahead_ms"),
    [
        ([WriterTime(NOW_MS + CLOCKS_APART_MS, NOW_MS)], None),
        ([WriterTime(NOW_MS + CLOCKS_APART_MS + 1, NOW_MS)], 1),
        ([WriterTime(NOW_MS - CLOCKS_APART_MS - 1, NOW_MS)], -1),
        ([WriterTime(NOW_MS - YOUNG_MS + HOUR_MS, NOW_MS - YOUNG_MS)], 1),
        ([WriterTime(NOW_MS - YOUNG_MS - 1 + HOUR_MS, NOW_MS - YOUNG_MS - 1)], None),
        ([WriterTime(NOW_MS + HOUR_MS, NOW_MS), WriterTime(NOW_MS - 2 * HOUR_MS, NOW_MS)], 1),
        ([WriterTime(None, NOW_MS), WriterTime(NOW_MS - HOUR_MS, NOW_MS)], -1),
    ],
)
def test_a_writer_s_clock_is_judged_by_its_best_young_record(
    times: Sequence[WriterTime], ahead_ms: int | None
) -> None:
    texts = wrong_clocks([("the acker", times), ("the driver", [])], NOW_MS)
    assert texts.keys() == (set() if ahead_ms is None else {"the acker"})
    for text in texts.values():
        assert ("ahead of the broker's" if ahead_ms == 1 else "behind the broker's") in text


@pytest.mark.parametrize(
    ("written_ms", "is_wrong"),
    [
        (CLOCKS_APART_MS, False),
        (CLOCKS_APART_MS + 1, True),
        (-HOUR_MS, False),
    ],
)
def test_a_writer_s_own_times_are_judged_only_where_they_are_of_the_future(
    written_ms: int, is_wrong: bool
) -> None:
    times = [WriterTime(NOW_MS + written_ms), WriterTime(NOW_MS - HOUR_MS), WriterTime()]
    others = [WriterTime(NOW_MS + HOUR_MS, NOW_MS)]
    texts = wrong_clocks([("an acker", others), ("the driver", times)], NOW_MS)
    assert ("the driver" in texts) == is_wrong
    assert "an acker" in texts, "who is judged before somebody hides nobody"
    assert not is_wrong or "ahead of this machine's" in texts["the driver"]


@pytest.mark.parametrize(
    ("here_ms", "correction_ms"),
    [
        (None, 0),
        (SKEW_MS_MAX, 0),
        (-SKEW_MS_MAX, 0),
        (SKEW_MS_MAX + 1, SKEW_MS_MAX + 1),
        (-HOUR_MS, -HOUR_MS),
    ],
)
def test_a_clock_that_is_wrong_by_more_than_a_bit_is_corrected(
    here_ms: int | None, correction_ms: int
) -> None:
    clocks = WatchedClocks(here_ms)
    assert clocks.correction_ms == correction_ms
    assert clocks.texts(NOW_MS).keys() == ({OURS} if correction_ms else set())


@pytest.mark.parametrize("driver_ahead_ms", [CLOCKS_APART_MS, -CLOCKS_APART_MS, None])
def test_drivers_whose_clocks_are_near_are_not_named(driver_ahead_ms: int | None) -> None:
    assert WatchedClocks(None, driver_ahead_ms).texts(NOW_MS) == {}


@pytest.mark.parametrize("driver_ahead_ms", [CLOCKS_APART_MS + 1, -CLOCKS_APART_MS - 1])
def test_drivers_whose_clocks_are_wrong_are_named(driver_ahead_ms: int) -> None:
    texts = WatchedClocks(None, driver_ahead_ms).texts(NOW_MS)
    assert texts.keys() == {"a driver"}
    assert ("ahead of" if driver_ahead_ms > 0 else "behind") in texts["a driver"]


class Signs:
    """A log that brings records with times, one poll after another; a poll takes 100 ms."""

    def __init__(self, kind: TimestampType, *times_ms: Sequence[int]) -> None:
        """Bring records with these times, given from when the watch began."""
        self.kind = kind
        self.times_ms = list(times_ms)
        self.passed_ms = 0
        self.polls = 0
        self.assigned: dict[TopicPartition, int] = {}
        self.is_closed = False

    def wall_ms(self) -> int:
        """Return this machine's time."""
        return NOW_MS + self.passed_ms

    def bounds(self, bound: Bound, places: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return the ends."""
        assert bound is Bound.END
        return OffsetAnswers(dict.fromkeys(places, 7), {})

    def reader(self, *, committed: bool) -> Any:
        """Make a reader."""
        assert not committed

        def poll(timeout_ms: int, max_records: int) -> list[Record]:
            assert (timeout_ms, max_records) == (POLL_MS, 1_000)
            self.passed_ms += timeout_ms
            self.polls += 1
            times_ms = self.times_ms.pop(0) if self.times_ms else ()
            return [Record("t", 0, 7, None, b"", (), NOW_MS + ms, self.kind) for ms in times_ms]

        def close() -> None:
            self.is_closed = True

        return SimpleNamespace(assign=self.assigned.update, poll=poll, close=close)

    def watch(self) -> WatchedClocks:
        """Watch."""
        log: Any = self
        return watch_clocks(log, [TopicPartition("t", 0)], self.wall_ms)


@pytest.mark.parametrize("kind", [TimestampType.APPENDED, TimestampType.CREATED])
@pytest.mark.parametrize(
    ("times_ms", "skew_ms", "polls"),
    [
        ([], None, WATCH_MS // POLL_MS),
        ([(), (50,)], 0, 2),
        ([(HOUR_MS,), (), (2 * HOUR_MS, 5)], HOUR_MS - 100, WATCH_MS // POLL_MS),
        ([(-HOUR_MS,), (-HOUR_MS + 5,), (60,)], 0, 3),
        ([(HOUR_MS + n,) for n in range(9)], HOUR_MS - 496, MEASUREMENTS_MIN),
        ([(100 + SKEW_MS_MAX,)], SKEW_MS_MAX, 1),
        ([(100 + SKEW_MS_MAX + 1,)], SKEW_MS_MAX + 1, WATCH_MS // POLL_MS),
        ([(-SKEW_MS_MAX,)], -SKEW_MS_MAX, 1),
    ],
    ids=["nothing", "right", "ahead", "old ones first", "enough", "at the limit", "above", "behind"],
)
def test_clocks_are_watched_until_one_record_says_that_they_agree(
    kind: TimestampType, times_ms: Sequence[Sequence[int]], skew_ms: int | None, polls: int
) -> None:
    signs = Signs(kind, *times_ms)
    watched = signs.watch()
    is_broker = kind == TimestampType.APPENDED
    by_broker_ms = None if skew_ms is None else -skew_ms
    assert watched == (WatchedClocks(by_broker_ms) if is_broker else WatchedClocks(None, skew_ms))
    assert (signs.polls, signs.is_closed) == (polls, True)
    assert signs.assigned == {TopicPartition("t", 0): 7}


# --- partitions in trouble

PLACES: Final = [TopicPartition("t", number) for number in range(3)]


class Broker:
    """Answers where logs end, but for partitions without a leader."""

    def __init__(self, *leaderless: int) -> None:
        """Begin; these have none."""
        self.leaderless = {PLACES[number] for number in leaderless}
        self.requests: list[list[TopicPartition]] = []

    def bounds(self, bound: Bound, places: Iterable[TopicPartition]) -> OffsetAnswers:
        """Answer."""
        assert bound is Bound.END
        named = list(places)
        self.requests.append(named)
        return self.answers(named)

    def answers(self, places: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return ends, and troubles."""
        ends = {place: 9 for place in places if place not in self.leaderless}
        return OffsetAnswers(ends, {place: "has no leader" for place in places if place in self.leaderless})

    def troubles(self) -> Troubles:
        """Return a list of troubles that has just learned of these."""
        log: Any = self
        troubles = Troubles(log)
        troubles.record_answers(self.answers(PLACES))
        return troubles


def test_what_has_no_answer_is_in_trouble_until_it_has_one() -> None:
    broker = Broker(2, 1)
    troubles = broker.troubles()
    assert bool(troubles)
    assert [place in troubles for place in PLACES] == [False, True, True]
    assert list(troubles.texts().items()) == [("t/1", "has no leader"), ("t/2", "has no leader")]
    broker.leaderless.clear()
    troubles.record_answers(broker.answers(PLACES[:2]))
    assert troubles.texts() == {"t/2": "has no leader"}, "nobody was asked about this one"
    troubles.record_answers(broker.answers(PLACES))
    assert not troubles


def test_they_are_asked_about_at_once_and_then_each_five_seconds() -> None:
    broker = Broker(1)
    troubles = broker.troubles()
    times_ms = [0, 0, 1, ASK_EVERY_MS - 1, ASK_EVERY_MS, ASK_EVERY_MS + 1, 2 * ASK_EVERY_MS, ASK_EVERY_MS]
    counts: list[int] = []
    for ms in times_ms:
        troubles.step({}, NOW_MS + ms)
        counts.append(len(broker.requests))
    assert counts == [1, 1, 1, 1, 2, 2, 3, 4], "the last one: the clock was set back"
    assert broker.requests[0] == [PLACES[1]]
    broker.leaderless.clear()
    troubles.step({}, NOW_MS + 3 * ASK_EVERY_MS)
    assert not troubles
    troubles.step({}, NOW_MS + 9 * ASK_EVERY_MS)
    assert len(broker.requests) == 5, "there is nothing left to ask about"


def test_who_stands_for_long_is_reported_with_its_position_and_again_when_it_goes_on() -> None:
    broker = Broker(1)
    troubles = broker.troubles()
    stand: list[tuple[int, str, int]] = []
    go_on: list[tuple[int, TopicPartition]] = []
    step_ms = 1_000
    for ms in range(0, STANDS_MS + 20 * step_ms, step_ms):
        if ms == STANDS_MS + 10 * step_ms:
            broker.leaderless.clear()
        news = troubles.step({PLACES[1]: 4}, NOW_MS + ms)
        stand += [(ms, partition.name, partition.position) for partition in news.stand]
        go_on += [(ms, place) for place in news.go_on]
        if ms == STANDS_MS - step_ms:
            troubles.raise_if_stood(STANDS_MS)
    assert [(name, position) for _, name, position in stand] == [("t/1", 4)]
    assert STANDS_MS <= stand[0][0] <= STANDS_MS + 2 * step_ms
    [(went_on_ms, place)] = go_on
    assert place == PLACES[1]
    assert STANDS_MS + 10 * step_ms <= went_on_ms <= STANDS_MS + 10 * step_ms + ASK_EVERY_MS
    troubles.raise_if_stood(0)


def test_who_has_nothing_else_to_do_waits_for_so_long() -> None:
    troubles = Broker(1, 2).troubles()
    for ms in range(0, STANDS_MS + 10_000, 1_000):
        troubles.step({}, NOW_MS + ms)
    stood_ms = STANDS_MS + 9_000
    troubles.raise_if_stood(stood_ms + 1)
    with pytest.raises(PartitionStands):
        troubles.raise_if_stood(stood_ms)
    with pytest.raises(
        PartitionStands, match=r"t/1 stands since .*; t/2 stands since .*start the query again"
    ):
        troubles.raise_if_stood(STANDS_MS)

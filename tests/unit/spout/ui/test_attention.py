"""The attention list: a flag after two bad readings, gone with the first good one."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from acker.errors import Unreachable
from spout.inspect.failures import CAUSE_KEPT_MS, CAUSE_NEW_MS, FailureGroup, SeenCause
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.readings import DeadRecords, Reading, SourceProgress
from spout.inspect.summary import RATES_EVERY_MS, SERIES_EVERY_MS, SERIES_MS, History, RateSeries
from spout.planning.journal import BEGINNING, Journal
from spout.ui.attention import APART_MS, Attention, new_causes, problems
from spout.ui.drawing import rate_columns, rate_minutes, sparkline_path
from spout.ui.watch import EVERY_S, IDLE_EVERY_S, CauseWatch, Watch
from tests.support.memory.cluster import NoFaults
from tests.support.worlds.planning import World, batch, world_with_one_open, yaml_of


@pytest.fixture
def world() -> World:
    return world_with_one_open()


def read(world: World, **changed: object) -> Snapshot:
    """Read once, and change the state of partition 0."""
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    first, *others = snapshot.partitions
    return replace(snapshot, partitions=[replace(first, **changed), *others])  # type: ignore[arg-type]


def names(world: World, **changed: object) -> list[str]:
    return [each.name.partition(":")[0] for each in problems(read(world, **changed), world.topics)]


def test_in_a_sound_installation_nothing_is_flagged(world: World) -> None:
    assert names(world) == []


def test_a_clock_that_is_set_back_hides_a_flag_for_no_longer_than_two_readings(world: World) -> None:
    attention, found = Attention(world.topics), read(world, oldest_ms=Reading(8_001))
    hour_ms = 3_600_000
    for at_ms in (hour_ms, hour_ms + APART_MS):
        flags = attention.check(replace(found, at_ms=at_ms))
    assert [each.name for each in flags] == ["stuck: sentences/0"]
    attention.check(replace(found, at_ms=0))
    (flag,) = attention.check(replace(found, at_ms=APART_MS))
    assert flag.name == flags[0].name
    assert flag.since_ms <= APART_MS


@pytest.mark.parametrize(
    ("problem", "changed"),
    [
        ("silent", {"query_lives": Reading(False)}),
        ("silent", {"ackers": Reading(0)}),
        ("silent", {"replay_workers": Reading(0)}),
        ("limit", {"pending": Reading(200_000)}),
        ("stuck", {"oldest_ms": Reading(8_001)}),
        ("waits", {"replays_wait": Reading("replays are paused: too many die")}),
        ("retention", {"start": Reading(2), "end": Reading(1_000)}),
        ("retention", {"start": Reading(3), "end": Reading(1_000)}),
    ],
)
def test_what_is_wrong_is_a_problem(world: World, problem: str, changed: dict[str, object]) -> None:
    assert names(world, **changed) == [problem]


def test_what_is_unknown_is_no_problem(world: World) -> None:
    gone: Reading[int] = Reading(unknown="the broker is away")
    assert names(world, pending=gone, oldest_ms=gone, start=gone, ackers=gone, query_lives=gone) == []


def test_a_dead_letter_is_new_for_fifteen_minutes(world: World) -> None:
    def dead(age_ms: int) -> Reading[DeadRecords]:
        return Reading(DeadRecords(np.array([4]), np.array([world.now_ms - age_ms])))

    assert names(world, dead_at=dead(899_999)) == ["dead"]
    assert names(world, dead_at=dead(900_000)) == []


def test_a_flag_needs_two_bad_readings_and_clears_itself(world: World) -> None:
    attention = Attention(world.topics)
    bad: Callable[[], Snapshot] = lambda: read(world, ackers=Reading(0))  # noqa: E731
    began_ms = world.now_ms
    assert attention.check(bad()) == ()
    world.cluster.now_ms += APART_MS - 1
    assert attention.check(bad()) == ()
    world.cluster.now_ms += 1
    (flag,) = attention.check(bad())
    assert flag.since_ms < began_ms, "the last State says since when, not the first reading"
    assert "no acker lives" in flag.text
    assert attention.check(read(world)) == ()
    assert attention.check(bad()) == ()


def test_a_flag_says_since_when_it_is_so_or_when_it_was_seen_first(world: World) -> None:
    """D1304: a page that was started now said of all that it is so since now."""
    attention = Attention(world.topics)
    died_ms = world.now_ms - 60_000
    dead = Reading(DeadRecords(np.array([4, 5]), np.array([died_ms + 1, died_ms])))
    changed: dict[str, object] = {
        "dead_at": dead, "oldest_ms": Reading(30_000), "ackers": Reading(0), "query_lives": Reading(False),
    }  # fmt: skip
    first_ms = world.now_ms
    attention.check(read(world, **changed))
    world.cluster.now_ms += APART_MS
    flags = {flag.name.partition(" (")[0]: flag for flag in attention.check(read(world, **changed))}
    assert flags["dead: sentences"].since_ms == died_ms
    assert flags["stuck: sentences/0"].since_ms == world.now_ms - 30_000
    assert flags["silent: no acker lives"].since_ms < first_ms
    assert flags["silent: group g"].since_ms == first_ms
    assert not flags["silent: group g"].is_dated, "when the query gave its last sign is not in a State"


def test_a_missing_process_is_flagged_before_what_began_earlier(world: World) -> None:
    attention = Attention(world.topics)
    silence = {"ackers": Reading(0)}
    for count, changed in enumerate(({}, {}, silence, silence)):
        world.cluster.now_ms += APART_MS
        flags = attention.check(read(world, oldest_ms=Reading(8_001), **changed))
        found = [each.name.partition(":")[0] for each in flags]
        assert found == [[], ["stuck"], ["stuck"], ["silent", "stuck"]][count]


def test_the_figures_of_fifteen_minutes_are_kept_and_are_absent_where_unknown(world: World) -> None:
    history = History()
    snapshot = read(world)
    unknown = read(world, pending=Reading(unknown="no State"))
    for number in range(200):
        at_ms = snapshot.at_ms + number * SERIES_EVERY_MS
        source = unknown if number == 198 else snapshot
        history.record(replace(source, at_ms=at_ms - 1), world.topics)  # too young
        series = history.record(replace(source, at_ms=at_ms), world.topics)
    points = series["sentences", "pending"]
    assert len(points) <= SERIES_MS // SERIES_EVERY_MS + 1
    assert [value for _, value in points[-3:]] == [1, None, 1]
    assert sparkline_path(points[-3:], points[-1][0]).count("M") == 2


def test_the_figures_go_on_where_the_clock_is_set_back(world: World) -> None:
    history, snapshot = History(), read(world)
    for at_ms in (snapshot.at_ms, snapshot.at_ms - 3_600_000, snapshot.at_ms - 3_600_000 + SERIES_EVERY_MS):
        series = history.record(replace(snapshot, at_ms=at_ms), world.topics)
    times = [at_ms - snapshot.at_ms for at_ms, _ in series["sentences", "pending"]]
    assert times == [-3_600_000, -3_600_000 + SERIES_EVERY_MS]


def test_an_error_of_the_broker_is_on_the_page_and_no_flag(world: World) -> None:
    away = replace(read(world), broker_error=Unreachable("no answer"), partitions=())
    assert list(problems(away, world.topics)) == []


def test_a_source_that_nobody_ever_took_needs_no_record(world: World) -> None:
    """Retention deletes what no query reads."""
    never = Reading(SourceProgress(False, 0, 0, ()))
    assert names(world, progress=never, start=Reading(5), end=Reading(1_000)) == []


@pytest.mark.parametrize(
    ("rule", "is_new"),
    [
        ("{error: ValueError, then: drop}", False),
        ("{error: ValueError, then: retry, attempts: 9}", False),
        ("{error: Exception, then: dead_letter}", False),
        ("{operator: split, then: dead_letter}", False),
        ("{error: KeyError, then: drop}", True),
        ("{error: ValueError, operator: count, then: drop}", True),
    ],
)
def test_a_cause_for_which_the_file_has_a_rule_is_no_new_one(rule: str, *, is_new: bool) -> None:
    """D1201: who wrote the rule has foreseen it."""
    world, _, overview, watch = failing(f"{{causes: [{rule}]}}")
    with closing(overview):
        causes_in(watch)
        world.run(APART_MS)
        assert bool(causes_in(watch)) is is_new
        assert [len(series.failed) for series in watch.latest.rates.values()] != [0]


def failing(retry: str = "{}") -> tuple[World, Journal, Overview, Watch]:
    """Let two of ten records fail, and watch the causes."""
    world = World(yaml_of(timeout="4h", retry=retry))
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, skip=range(2, 10), fail=(0, 1))
    world.run(1_000)
    overview = Overview(world.cluster.log(), world.topics)
    causes = CauseWatch(world.cluster.log(), world.topics)
    return world, end, overview, Watch(overview.snapshot, world.topics, lambda: world.now_ms, causes.read)


def causes_in(watch: Watch) -> list[str]:
    """Read twice, and return the texts of the flags of causes."""
    watch.read()
    return [each.text for each in watch.latest.flags if each.name.startswith("cause:")]


def test_a_cause_is_new_for_fifteen_minutes_and_again_after_an_hour_without_it() -> None:
    world, end, overview, watch = failing()
    with closing(overview):
        assert causes_in(watch) == [], "one reading may be wrong"
        world.run(APART_MS)
        (text,) = causes_in(watch)
        assert text.startswith("sentences: bolt split fails records by ValueError, 2 in the last ")
        assert watch.latest.flags[-1].link == "/failures"
        seen_ms = world.now_ms
        world.cluster.now_ms = seen_ms + CAUSE_NEW_MS
        assert causes_in(watch) == []
        world.publish(BEGINNING, end, skip=[0, 1, *range(3, 10)], fail=(2,))
        world.cluster.now_ms += APART_MS
        world.run(100)
        assert [causes_in(watch), causes_in(watch)] == [[], []], "it is known already"
        world.cluster.now_ms += CAUSE_KEPT_MS
        assert causes_in(watch) == []
        assert watch.latest.causes.value == (), "it is forgotten, so it takes no room from others"
        world.publish(BEGINNING, end, skip=[*range(3), *range(4, 10)], fail=(3,))
        world.run(100)
        causes_in(watch)
        world.cluster.now_ms += APART_MS
        (text,) = causes_in(watch)
        assert ", 1 in the last " in text


def test_causes_that_cannot_be_read_are_unknown_until_they_can_be() -> None:
    world, _, overview, _ = failing()
    overview.close()
    away = Away()
    causes = CauseWatch(world.cluster.log(away), world.topics)
    assert causes.read(world.now_ms).unknown
    away.is_away = False
    (found,) = causes.read(world.now_ms).value or ()
    assert (found.group.operator, found.group.cause, found.failures) == ("split", "ValueError", 2)
    away.is_away = True
    assert causes.read(world.now_ms).value is None
    causes.close()


def test_who_begins_now_finds_the_same_causes_new_as_who_began_long_ago() -> None:
    """A cause that failed something before the last hour, and again less than an hour later, is not new."""
    world, end, overview, watch = failing()
    with closing(overview):
        watch.read()
        world.cluster.now_ms += CAUSE_KEPT_MS - 60_000
        world.publish(BEGINNING, end, skip=[0, 1, *range(3, 10)], fail=(2,))
        world.run(100)
        world.cluster.now_ms += 120_000
        assert [causes_in(watch), causes_in(watch)] == [[], []]
        with closing(CauseWatch(world.cluster.log(), world.topics)) as anew:
            found = anew.read(world.now_ms).value or ()
        assert list(new_causes(found, world.now_ms)) == []
        assert [each.failures for each in found] == [3]


def test_a_cause_that_comes_back_after_an_hour_is_new_to_who_reads_both_failures_at_once() -> None:
    world, end, overview, _ = failing()
    world.cluster.now_ms += CAUSE_KEPT_MS
    world.publish(BEGINNING, end, skip=[0, 1, *range(3, 10)], fail=(2,))
    world.run(100)
    with closing(overview), closing(CauseWatch(world.cluster.log(), world.topics)) as anew:
        found = anew.read(world.now_ms).value or ()
    assert [each.failures for each in found] == [1]
    assert len(list(new_causes(found, world.now_ms + APART_MS))) == 1


def test_causes_are_unknown_until_all_verdicts_are_read_and_the_page_goes_on() -> None:
    world, _, overview, _ = failing()
    with closing(overview), closing(CauseWatch(world.cluster.log(), world.topics, 1)) as causes:
        watch = Watch(
            overview.snapshot,
            world.topics,
            lambda: world.now_ms,
            causes.read,
            is_filling=causes.is_filling,
        )
        watch.read()
        assert (watch.latest.reading_number, watch.pause_s) == (1, EVERY_S)
        assert re.fullmatch(r"reading verdicts since \S+, \d+ % read", watch.latest.causes.unknown)
        for _ in range(100):
            watch.read()
            if watch.latest.causes.value is not None:
                break
        (found,) = watch.latest.causes.value or ()
        assert (found.failures, watch.pause_s) == (2, IDLE_EVERY_S)


def test_verdicts_are_counted_when_they_were_given_and_unknown_where_they_were_not_read() -> None:
    world, end, overview, _ = failing()
    overview.close()
    away = Away()
    away.is_away = False
    causes = CauseWatch(world.cluster.log(away), world.topics)
    given_ms = world.now_ms

    def rates() -> dict[int, tuple[int | None, int | None, int | None]]:
        """Read, and return what was acked, failed and timed out by the start of each point."""
        causes.read(world.now_ms)
        found = causes.rates(world.now_ms)["sentences"]
        points = zip(found.acked, found.failed, found.timed_out, strict=True)
        return {found.first_ms + n * RATES_EVERY_MS: point for n, point in enumerate(points)}

    at_ms = given_ms - given_ms % RATES_EVERY_MS
    assert at_ms not in rates(), "more may come"
    world.cluster.now_ms = at_ms + RATES_EVERY_MS
    before = rates()
    assert before[at_ms] == (0, 2, 0)
    assert len(before) == SERIES_MS // RATES_EVERY_MS
    away.is_away = True
    world.publish(BEGINNING, end, skip=(0, 1))
    world.run(100)
    world.cluster.now_ms += RATES_EVERY_MS
    unread = rates()
    assert (unread[at_ms], unread[at_ms + RATES_EVERY_MS]) == ((0, 2, 0), (None, None, None))
    away.is_away = False
    assert rates()[at_ms + RATES_EVERY_MS] == (8, 0, 0), "the log has what nobody read"
    world.cluster.now_ms = at_ms + SERIES_MS + RATES_EVERY_MS
    assert at_ms not in rates()
    causes.close()


def test_the_chart_has_rates_a_second_and_its_table_whole_minutes() -> None:
    acked: list[int | None] = [*range(1, 15)]
    acked[13] = None
    series = RateSeries(50_000, acked, [0] * 14, [0] * 14)
    seconds, *rates = rate_columns(series)
    assert (seconds[0], seconds[-1], rates[0][:2], rates[0][-1]) == (50, 180, [0.1, 0.2], None)
    assert rate_minutes(series) == [
        (120_000, [8 + 9 + 10 + 11 + 12 + 13, 0, 0]),
        (60_000, [2 + 3 + 4 + 5 + 6 + 7, 0, 0]),
    ]
    partly = RateSeries(60_000, [1, 2, None, 4, 5, 6], [0] * 6, [0] * 6)
    assert rate_minutes(partly) == [(60_000, [None, 0, 0])]


def test_a_record_that_times_out_has_a_cause_and_no_bolt() -> None:
    cause = SeenCause(FailureGroup("sentences", None, "TIMED_OUT"), 1_000, 2_000, 3)
    (flag,) = new_causes([cause], 61_000)
    assert flag.text == (
        "sentences: records are lost by TIMED_OUT, 3 in the last 1.0 min and none in the hour before; see"
        " `windhover failures`"
    )


class Away(NoFaults):
    """No call is answered while it is away."""

    is_away = True

    def before(self, operation: str) -> None:
        if self.is_away:
            raise Unreachable(operation)

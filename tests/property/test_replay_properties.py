"""What holds for every policy, every header and every order of events."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from acker.config.topics import Topics
from acker.wire.verdict import LOST_VERDICTS, Verdict
from replay.policy.disposition import (
    Action,
    Backoff,
    GiveUp,
    LostEmission,
    Policy,
    Replay,
    Rule,
    delay_ms,
    dispose,
    rule_of,
)
from replay.records.due import append_loss, history_json, parse_history, parse_last_loss
from replay.records.headers import Lineage, build_headers, parse_lineage, parse_location
from replay.worker.service import ReplayService
from replay.worker.waiting import Schedule
from tests.support.worlds.replay_world import Crash, CrashAt, Emission, World, header, history, topics

DAY_MS = 86_400_000
backoffs = st.builds(
    Backoff,
    initial_ms=st.integers(0, DAY_MS),
    multiplier=st.floats(1, 100),
    max_ms=st.integers(0, 7 * DAY_MS),
    jitter=st.floats(0, 1),
    delays_ms=st.just(())
    | st.lists(st.integers(0, DAY_MS), min_size=1).map(lambda all_: tuple(sorted(all_))),
)
fractions = st.floats(0, 1, exclude_max=True)
operators = st.sampled_from(["", "split", "count"])
errors = st.sampled_from(["", "KeyError", "LookupError", "NoSuchOrder(OrderError, LookupError)", "HUNG"])
rules = st.builds(
    Rule,
    error=st.none() | st.sampled_from(["LookupError", "OrderError", "Exception", "FailTuple"]),
    operator=st.none() | operators,
    then=st.sampled_from(Action),
)
policies = st.builds(
    Policy,
    attempts=st.integers(1, 1_000_000),
    max_abandoned=st.integers(0, 1_000_000),
    backoff=backoffs,
    time_limit_ms=st.just(0) | st.integers(1, 365 * DAY_MS),
    count_timed_out=st.booleans(),
    count_abandoned=st.booleans(),
    rules=st.lists(rules, max_size=4).map(tuple),
)


@given(backoffs, st.integers(1, 10**9), fractions)
def test_a_delay_is_never_below_the_plain_one_nor_above_its_maximum_and_jitter(
    backoff: Backoff, failures: int, jitter: float
) -> None:
    """S114"""
    plain, longest = delay_ms(backoff, failures, 0.0), max(backoff.delays_ms or (backoff.max_ms,))
    assert 0 <= plain <= longest
    assert plain <= delay_ms(backoff, failures, jitter) <= longest * (1 + backoff.jitter) + 1


@given(backoffs, st.integers(1, 10**6), fractions)
def test_a_further_failure_never_shortens_the_delay(backoff: Backoff, failures: int, jitter: float) -> None:
    assert delay_ms(backoff, failures, jitter) <= delay_ms(backoff, failures + 1, jitter)


lost_emissions = st.builds(
    LostEmission,
    reason=st.sampled_from(LOST_VERDICTS),
    attempt=st.integers(1, 10**7),
    abandoned=st.integers(0, 10**7),
    timed_out=st.integers(0, 10**7),
    lived_ms=st.integers(-DAY_MS, 10**13),
    operator=operators,
    error=errors,
)


@given(policies, lost_emissions, st.integers(0, 10**13), fractions)
def test_every_loss_has_a_disposition_and_none_is_early(
    policy: Policy, lost: LostEmission, now_ms: int, jitter: float
) -> None:
    decided = dispose(policy, lost, now_ms, jitter)
    assert isinstance(decided, GiveUp) or decided.due_ms >= now_ms


@given(
    st.builds(
        Policy,
        attempts=st.integers(1, 6),
        max_abandoned=st.integers(0, 6),
        backoff=st.just(Backoff(1, 2, 10)),
        time_limit_ms=st.sampled_from([0, 20, 50]),
        count_timed_out=st.booleans(),
        count_abandoned=st.booleans(),
        rules=st.lists(rules, max_size=3).map(tuple),
    ),
    st.lists(st.tuples(st.sampled_from(LOST_VERDICTS), operators, errors), min_size=26, max_size=26),
)
def test_every_root_dies_within_its_limits_and_none_dies_before(
    policy: Policy, losses: list[tuple[Verdict, str, str]]
) -> None:
    """Rule 9: no order of failures and takeovers makes a root immortal, none kills it before its time.

    Each emission takes 5 ms. Where timeouts are free and there is no time limit, which topics.yaml refuses,
    a root may live on.
    """
    lost_by = dict.fromkeys(LOST_VERDICTS, 0)
    for attempt, (reason, operator, error) in enumerate(losses, 1):
        lost_by[reason] += 1
        abandoned, timed_out = lost_by[Verdict.ABANDONED], lost_by[Verdict.TIMED_OUT]
        lost = LostEmission(reason, attempt, abandoned, timed_out, 5 * attempt, operator, error)
        is_failed, is_abandoned = reason is Verdict.FAILED, reason is Verdict.ABANDONED
        counts = is_failed or (policy.count_abandoned if is_abandoned else policy.count_timed_out)
        used = (
            lost_by[Verdict.FAILED] + policy.count_timed_out * timed_out + policy.count_abandoned * abandoned
        )
        dies = (
            (is_failed and rule_of(policy.rules, operator, error).then is not Action.RETRY)
            or (not is_abandoned and 0 < policy.time_limit_ms <= 5 * attempt)
            or (is_abandoned and abandoned > policy.max_abandoned)
            or (counts and used >= policy.attempts)
        )
        assert isinstance(dispose(policy, lost, 0, 0.0), GiveUp if dies else Replay)
        if dies:
            return
    assert (policy.count_timed_out, policy.time_limit_ms) == (False, 0)


names = st.sampled_from(
    [
        "windhover.origin",
        "windhover.attempt",
        "windhover.abandoned",
        "windhover.cause",
        "windhover.first-emitted",
    ]
)
header_lists = st.lists(st.tuples(names, st.none() | st.binary(max_size=30)), max_size=8)


@given(header_lists)
def test_no_headers_are_too_strange_to_be_read(headers: list[tuple[str, bytes | None]]) -> None:
    lineage = parse_lineage(tuple(headers), "t", 1, 2)
    assert lineage.attempt >= 1
    assert 0 <= lineage.abandoned < lineage.attempt
    assert parse_location(lineage.origin) is not None
    assert parse_lineage(build_headers(lineage), "t", 1, 2).origin == lineage.origin


@given(st.integers(1, 10**6), st.data(), st.text(max_size=200), st.text(max_size=200))
def test_a_lineage_survives_its_headers(attempt: int, data: st.DataObject, cause: str, operator: str) -> None:
    clean = Lineage(
        origin=f"t/{data.draw(st.integers(0, 65_535))}@{data.draw(st.integers(0, 2**48 - 1))}",
        attempt=attempt,
        abandoned=data.draw(st.integers(0, attempt - 1)),
        first_emitted_ms=data.draw(st.integers(0, 10**14)),
        reason="FAILED",
        cause=cause.encode("utf-8", "replace").decode(),
        operator=operator.encode("utf-8", "replace").decode(),
    )
    clean = replace(clean, timed_out=data.draw(st.integers(0, attempt - 1 - clean.abandoned)))
    assert parse_lineage(build_headers(clean), "t", 0, 0) == clean


@given(st.binary(max_size=300))
def test_no_history_is_too_strange_to_be_read(value: bytes) -> None:
    history = parse_history(value)
    assert parse_history(history_json(history)) == history
    assert parse_last_loss(value) == history[-1:]
    assert append_loss(history, *history[:1]) if history else True


@given(
    st.lists(st.tuples(st.sampled_from(["add", "take", "put back"]), st.integers(0, 20)), max_size=200),
    st.integers(1, 10),
)
def test_a_schedule_is_a_sorted_list(steps: list[tuple[str, int]], limit: int) -> None:
    """With chunks and buffers so small that all of its ways are gone."""
    schedule = Schedule(chunk_size=3, unsorted_allowed=2)
    model: list[tuple[int, int]] = []
    for offset, (step, number) in enumerate(steps):
        if step == "add":
            schedule.add(number, offset)
            model.append((number, offset))
        else:
            model.sort()
            due = [entry for entry in model if entry[0] <= number][:limit]
            taken = schedule.take(number, limit)
            assert taken == due
            model = [entry for entry in model if entry not in due]
            if step == "put back":
                for entry in taken[1:]:
                    schedule.add(*entry)
                model += due[1:]
        assert schedule.next_due_ms == min((due_ms for due_ms, _ in model), default=None)
        assert len(schedule) == len(model)


POLICIES = [
    ", causes: [{error: ValueError, then: drop}]",
    ", causes: [{operator: split, then: dead_letter}]",
    ", time_limit: 3s, count_timed_out: false",
    ", count_abandoned: true",
]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_kills_and_takeovers_at_any_moment_cost_no_root_and_double_none(data: st.DataObject) -> None:
    """Rules 5 and 7: every history of losses, kills and takeovers ends with one outcome for each emission."""
    world = World()
    more = data.draw(st.sampled_from(["", *POLICIES]), label="more")
    policy = topics(attempts=data.draw(st.integers(1, 3), label="attempts"), more=more)
    live = [world.emit(b"%d" % number, partition=number % 2) for number in range(4)]
    workers = [world.worker(CrashAt(10**9), of=policy)]
    lost: set[Emission] = set()
    for _ in range(data.draw(st.integers(1, 12), label="steps")):
        choice = data.draw(st.sampled_from(["lose", "lose", "run", "run", "kill", "join", "compact"]))
        if choice == "lose" and (open_ := [root for root in live if root not in lost]):
            root = data.draw(st.sampled_from(open_))
            lost.add(root)
            world.lose(
                root, reason=data.draw(st.sampled_from(LOST_VERDICTS)), verdict_partition=root.partition
            )
        elif choice == "kill":
            world.kill(workers.pop())
            workers.append(world.worker(CrashAt(data.draw(st.integers(0, 60))), of=policy))
        elif choice == "join" and len(workers) < 3:
            workers.insert(0, world.worker(CrashAt(10**9), of=policy))
        elif choice == "compact":
            world.cluster.compact("_ack_due", drop_tombstones=data.draw(st.booleans()))
        else:
            _run(world, workers, policy, data.draw(st.integers(0, 5_000)))
        live = live[:4] + [world.emission_of(copy) for copy in world.copies()]
    _run(world, workers, policy, 3_600_000)
    _check_outcomes(world, lost)


def _run(world: World, workers: list[ReplayService], policy: Topics, time_ms: int) -> None:
    """Step all workers; the last one may crash, and is then started again."""
    try:
        world.settle(*workers, until_ms=world.now_ms + time_ms)
    except Crash:
        world.kill(workers.pop())
        workers.append(world.worker(of=policy))
        world.settle(*workers, until_ms=world.now_ms + time_ms)


def _check_outcomes(world: World, lost: set[Emission]) -> None:
    """Each loss shows as the last entry of exactly one history, and every history ends in a loss."""
    written = [*world.copies(), *world.letters()]
    ends = sorted(str(history(record)[-1]["root"]) for record in written)
    assert ends == sorted(f"{root.topic}/{root.partition}@{root.offset}" for root in lost)
    for record in written:
        assert (header(record, "windhover.origin") or "").startswith("sentences/")

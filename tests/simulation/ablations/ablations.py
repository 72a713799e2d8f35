"""Each safeguard taken out, and the checker that must fall without it.

The product has no switches. A safeguard is taken out for the simulator alone, by replacing the function that
is the safeguard while a run lasts. Each ablation runs under a profile that makes the constellation likely
which the safeguard is there for; the safeguards that cover for each other are taken out together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tests.simulation.ablations import removals as cut
from tests.simulation.ablations import removals_of_exactness as exact
from tests.simulation.ablations import removals_of_order as order
from tests.simulation.ablations import removals_outside as away
from tests.simulation.options import EXACT, RULES, Profile

Removal = Callable[[], list[tuple[Any, str, Any]]]
"""Says what to replace: of which object, under which name, by what."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One safeguard, or a pair of them.

    Attributes:
        removes: what the product does without it.
        removal: how it is taken out.
        falls: checkers of which one must fall.
        profile: what makes that likely.
        pair: the other safeguard, where two cover for each other.
        begin: where tests begin: the first seed that fell when this was last looked for, so that a test
            seldom runs more than one. The command begins with 0.
    """

    removes: str
    removal: Removal
    falls: tuple[str, ...]
    profile: Profile = field(default_factory=Profile)
    pair: str = ""
    begin: int = 0


@contextmanager
def removed(ablation: Ablation | None) -> Iterator[None]:
    """Take a safeguard out as long as the context lasts."""
    with ExitStack() as undo:
        for owner, name, replacement in ablation.removal() if ablation else ():
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield


def _biased(share: float = 0.35, /, *, sizes: dict[str, object] | None = None, **always: float) -> Profile:
    fixed = {"steps": 400, "is_warm": True, **(sizes or {})}
    return Profile(always=MappingProxyType(always), sizes=MappingProxyType(fixed), share=share)


def _ordered(**always: float) -> Profile:
    return replace(_biased(sizes={}, **always), orders=1.0)


def _exact(**always: float) -> Profile:
    return _biased(sizes=dict(EXACT), **always)


_ONCE: Final = ("ExactlyOnce",)
_LATE: Final = ("HonestDeadlines",)

ABLATIONS: Final[dict[str, Ablation]] = {
    "set-once-init": Ablation(
        "an init below the watermark opens its roots again", cut.set_once_init,
        ("OneVerdict", "EmittedOnce"), _biased(duplicate=0.5),
    ),
    "one-verdict": Ablation(
        "a settled root is settled again", cut.one_verdict,
        ("OneVerdict",), _biased(crash=0.01, fickle=0.5, slow=0.3),
        begin=32,
    ),
    "fail-beats-zero": Ablation(
        "a step applies acks before fails", cut.fail_beats_zero,
        ("FailBeatsZero",),
        _biased(
            0.0, crash=0.04, fickle=0.9, sleep=0.06,
            sizes={
                "ackers": 1, "replayers": 1, "groups": 1, "timeout_ms": 20_000, "batch_records": 2,
                "records": 24, "attempts": 3, "skipping_sink": False,
            },
        ),
        begin=223,
    ),
    "failed-left-out": Ablation(
        "acks name failed roots too, and a step applies acks before fails", cut.failed_left_out,
        ("FailBeatsZero", "NoEarlyCompletion"), _biased(flaky=0.5), pair="fail-beats-zero",
    ),
    "init-fails-acks": Ablation(
        "acks are applied without reading inits and fails up to their ends", cut.inits_first,
        (*_LATE, "FailBeatsZero", "NothingBlocks"), _biased(uneven=0.8),
        begin=4,
    ),
    "ticks-and-takes-last": Ablation(
        "ticks and takes count as soon as they are read", cut.ticks_last,
        (*_LATE, "PutBack"), _biased(uneven=0.8, sleep=0.03, takeover=0.02),
        begin=7,
    ),
    "pending-take-in-state": Ablation(
        "State does not hold what was read and does not count yet", cut.pending_in_state,
        ("PutBack",), _biased(crash=0.03, release=0.03, uneven=0.8),
    ),
    "end-is-high-watermark": Ablation(
        "ends are last stable offsets", cut.high_watermark,
        (*_LATE, "PutBack"), _biased(foreign=0.05, takeover=0.02, sleep=0.03, uneven=0.8),
        begin=6,
    ),
    "from-of-a-session": Ablation(
        "a session begins its sources at offset 0", away.from_of_session,
        ("EmittedOnce",), _biased(),
    ),
    "crc-of-a-repeat": Ablation(
        "a repeated record with other content is ignored", cut.crc,
        ("NoEarlyCompletion", "FailBeatsZero", *_LATE), _biased(crash=0.03, fickle=0.8, remote=0.3),
        begin=78,
    ),
    "marks-per-topic": Ablation(
        "acks and fails share their marks", cut.marks_per_topic,
        ("CrashCostsNoReplay", "FailureHasAName"), _biased(flaky=0.4),
    ),
    "bounds-of-a-record": Ablation(
        "an acker believes every clock and every epoch in a session's name", cut.bounds,
        (*_LATE, "NothingBlocks", "PutBack"), _biased(forged=0.05),
    ),
    "safe-position": Ablation(
        "a restart does not read contributions of open roots again", cut.safe_position,
        _LATE, _biased(crash=0.03, remote=0.8, sizes={"bytes_kept": 1 << 27, "timeout_ms": 6_000}),
    ),
    "settled-by-verdict-log": Ablation(
        "a restart does not read what the verdict log settled", cut.settled_by_log,
        ("OneVerdict",), _biased(crash=0.03, slow=0.4),
    ),
    "state-watermarks": Ablation(
        "State does not hold watermarks", cut.state_watermarks,
        ("EmittedOnce", "OneVerdict", "NothingBlocks"), _biased(crash=0.03),
    ),
    "state-marks": Ablation(
        "State does not hold marks", cut.state_marks,
        (*_LATE, "NoEarlyCompletion", "CrashCostsNoReplay", "FailBeatsZero"),
        _biased(crash=0.03, remote=0.8, duplicate=0.5, sizes={"timeout_ms": 6_000}),
        begin=107,
    ),
    "lane-marks": Ablation(
        "a repeated record is applied again", cut.lane_marks,
        (*_LATE, "NoEarlyCompletion", "CrashCostsNoReplay"), _biased(remote=0.8, duplicate=0.5),
    ),
    "session-of-acks": Ablation(
        "contributions count for roots of any session", cut.session_of_acks,
        ("NoEarlyCompletion", "CrashCostsNoReplay"), _biased(takeover=0.05, pause=0.02),
        begin=101,
    ),
    "acker-transaction": Ablation(
        "State and its verdicts are committed one after the other", cut.acker_transaction,
        ("OneVerdict", "NoLoss", "NothingBlocks"), _biased(crash=0.03),
        begin=101,
    ),
    "writes-awaited": Ablation(
        "a transaction that is under way is taken for committed", cut.writes_awaited,
        ("PutBack", "OneVerdict", "NoLoss", "NothingBlocks"), _biased(crash=0.03, lagging=0.7),
    ),
    "replay-first-transaction": Ablation(
        "the progress is committed before the roots that wait", cut.replay_first,
        ("NoLoss", "NothingBlocks"), _biased(crash=0.03, flaky=0.5),
        begin=141,
    ),
    "replay-second-transaction": Ablation(
        "a copy is committed before its tombstone", cut.replay_second,
        ("CrashCostsNoReplay",), _biased(crash=0.03, flaky=0.5),
        begin=84,
    ),
    "acker-transactional-id": Ablation(
        "each acker process has a transactional id of its own", cut.acker_id,
        ("OneVerdict", "EmittedOnce"), _biased(pause=0.02, zombie=0.02),
        begin=4,
    ),
    "replay-transactional-id": Ablation(
        "each replay worker has a transactional id of its own", cut.replay_id,
        ("CrashCostsNoReplay",), _biased(pause=0.02, zombie=0.02, flaky=0.5),
    ),
    "lower-session-refused": Ablation(
        "a lower session takes its group back", away.lower_session,
        ("PutBack",), _biased(takeover=0.03),
    ),
    "gaps-of-a-source": Ablation(
        "what lies free below the highest watermark is forgotten (that an init's parts are written one after"
        " another is not shown apart: with the gaps known, nothing was found that falls without it)",
        away.gaps,
        ("NoLoss", "NothingBlocks"),
        _biased(
            0.0, crash=0.05, sleep=0.05,
            sizes={
                "partitions": 2, "first_offset": 65_532, "records": 24, "batch_records": 50, "groups": 1,
                "source_partitions": 1,
                "max_spout_pending": 1_000, "steps": 160,
            },
        ),
        begin=256,
    ),
    "delivery-ordinals": Ablation(
        "siblings on one subscription have one edge", away.ordinals,
        ("NoEarlyCompletion",), _biased(slow=0.5),
    ),
    "inputs-by-group": Ablation(
        "two groups on one topic are one input", away.inputs_by_group,
        ("EmittedOnce", "OneVerdict", "NoLoss", "NothingBlocks", "NoEarlyCompletion"),
        _biased(sizes={"groups": 2}),
    ),
    "clock-stands-still": Ablation(
        "the clock of a restarted session is wall time", away.clock_stands_still,
        _LATE, _biased(crash=0.03, slow=0.5, stall=0.02),
        begin=5,
    ),
    "process-before": Ablation(
        "a restart forgets that the process before may live, asks nothing first, and an acker adds nothing"
        " for what that one has not told", away.process_before,
        (*_LATE, "EmittedOnce"),  # an answer to the process before calls positions free that it has emitted
        _biased(
            0.0, pause=0.05, zombie=0.1, slow=0.9,
            sizes={
                "partitions": 3, "source_partitions": 2, "groups": 1, "records": 24, "timeout_ms": 1_500,
                "steps": 400,
            },
        ),
        begin=71,
    ),
    "tick-of-a-second": Ablation(
        "a tick adds all the time that has passed", away.tick_of_a_second,
        _LATE, _biased(slow=0.5, sleep=0.03, stall=0.02),
    ),
    "leader-epochs": Ablation(
        "a lost record is compared with the epoch of the takeover alone", away.leader_epochs,
        ("NoLoss",), _biased(cut=0.05, flaky=0.5, sleep=0.03),
        begin=14,
    ),
    "no-early-replay": Ablation(
        "a lost root is put back at once", away.no_early_replay,
        ("PutBack",), _biased(flaky=0.5, sizes={"initial_ms": 2_000}),
        begin=4,
    ),
    "dead-letter": Ablation(
        "a root is tried for ever", away.dead_letter,
        ("Limits",), _biased(poison=0.3),
    ),
    "rules-by-cause": Ablation(
        "a rule that calls a cause final is not asked", away.rules,
        ("Limits",), _biased(poison=0.3, sizes={"causes": RULES[0], "attempts": 3}),
    ),
    "max-spout-pending": Ablation(
        "intake is not gated", away.max_pending,
        ("Limits",), _biased(sizes={"max_spout_pending": 2, "records": 20}),
    ),
    "restored-are-pending": Ablation(
        "a restart gates without what was open before", away.restored_pending,
        ("Limits",), _biased(crash=0.03, slow=0.8, sizes={"max_spout_pending": 6, "records": 40}),
    ),
    "max-abandoned": Ablation(
        "an abandoned root is put back for ever", away.max_abandoned,
        ("Limits",), _biased(takeover=0.03, slow=0.5, sizes={"max_abandoned": 0}),
    ),
    "timeout-reset": Ablation(
        "a timeout is never reset", cut.timeout_reset,
        _LATE, _biased(touch=0.8),
        begin=254,
    ),
    "carried-by-value": Ablation(
        "a restart folds contributions again that State carries by value", cut.carried,
        (*_LATE, "NoEarlyCompletion"),
        _biased(
            0.0, crash=0.02, remote=0.9,
            sizes={
                "bytes_kept": 16_384, "batch_records": 4, "tasks": 1, "timeout_ms": 20_000, "partitions": 1,
                "records": 24, "groups": 1,
            },
        ),
        begin=23,
    ),
    "last-stable-offset": Ablation(
        "records of open transactions are planned", away.last_stable_offset,
        ("NoLoss",), _biased(markers=0.7),
    ),
    "holes-that-were-seen": Ablation(
        "what nobody has looked at counts as empty", away.seen_holes,
        ("NoLoss",), _biased(markers=0.7, sizes={"hole_min": 1, "batch_records": 2}),
        begin=40,
    ),
    "output-stands-first": Ablation(
        "a batch is published before its output stands", away.output_stands,
        ("NoEarlyCompletion",), _biased(crash=0.03),
    ),
    "skipped-batch-fails": Ablation(
        "a batch that the sink skipped is acked as its last run has it", away.skipped_batch,
        ("NoEarlyCompletion",), _biased(crash=0.03, fickle=0.8, sizes={"skipping_sink": True}),
        begin=15,
    ),
    "verdicts-kept-for-replay": Ablation(
        "verdicts are deleted that no replay worker has read", away.verdicts_kept,
        ("NothingBlocks", "NoLoss"), _biased(crash=0.01, flaky=0.5, sleep=0.03, shorten=1.0),
    ),
    "contributions-kept-for-restart": Ablation(
        "contributions of open roots are deleted", away.contributions_kept,
        ("NothingBlocks",),
        _biased(crash=0.03, remote=0.8, slow=0.4, shorten=1.0, sizes={"bytes_kept": 1 << 27}),
    ),
    "oldest-first": Ablation(
        "a takeover puts roots back in any order", away.oldest_first,
        ("PutBack",), _biased(takeover=0.03, slow=0.5),
    ),
    "order-gate": Ablation(
        "a task hands on what stands behind a record that waits", order.gate,
        ("InOrder",), _ordered(flaky=0.5),
        begin=14,
    ),
    "order-behind": Ablation(
        "what ran behind a failure that no task saw is acked", order.behind,
        ("InOrder",), _ordered(flaky=0.5),
        begin=42,
    ),
    "order-nothing-pending": Ablation(
        "an ordered partition is planned while roots of it are pending", order.pending,
        ("InOrder",), _ordered(flaky=0.5, slow=0.3),
        begin=5,
    ),
    "order-taken-over": Ablation(
        "it is planned before a replay worker has taken over what was lost", order.taken_over,
        ("InOrder",), _ordered(flaky=0.5, sleep=0.05),
        begin=110,
    ),
    "order-not-acked": Ablation(
        "behind a published batch it goes on as if all of the batch were acked", order.not_acked,
        ("InOrder",), _ordered(flaky=0.5),
        begin=45,
    ),
    "exact-fence": Ablation(
        "a writer commits, whoever has opened the store since", exact.fence,
        _ONCE, _exact(pause=0.03, zombie=0.03, takeover=0.02),
    ),
    "exact-publication": Ablation(
        "the store has the rows, and not what is to be published for them", exact.publication_kept,
        _ONCE, _exact(crash=0.03),
    ),
    "exact-not-acked": Ablation(
        "rows of roots are written that the batch does not ack", exact.not_acked,
        _ONCE, _exact(flaky=0.5, slow=0.3),
    ),
    "exact-open": Ablation(
        "a root that was left open contributes what was done, so that another lane completes it",
        exact.open_contribute,
        _ONCE, _exact(remote=0.8),
    ),
    "exact-clock": Ablation(
        "the session's clock moves while a batch is under way", exact.clock,
        _ONCE, _exact(sleep=0.05, stall=0.02),
        begin=18,
    ),
    "exact-ran-twice": Ablation(
        "a batch in which a task reported twice is settled and written", exact.ran_twice,
        _ONCE, _exact(lost=0.8, fickle=0.8),
        begin=4,
    ),
    "exact-committed-first": Ablation(
        "a batch is published before the store has it", exact.committed_first,
        (*_ONCE, "NoEarlyCompletion"), _exact(crash=0.03),
    ),
}  # fmt: skip
"""By name. docs/design/protocol.md marks many of them with †; the others were found on the way."""

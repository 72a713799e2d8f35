"""Flags for an operator: two bad readings put one up, a good one takes it down; pure.

One bad reading is often a rebalance or a slow answer, so a problem is flagged when a second
reading finds it, `APART_MS` or more after the first one.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.config.topics import Topics
from acker.identity import I64, offset_of
from acker.service.state import FILLING_SHARE
from acker.untrusted import UntrustedName, shell_word
from spout.inspect.failures import CAUSE_NEW_MS, SeenCause
from spout.inspect.letter_rows import moment
from spout.inspect.overview import (
    Snapshot,
    filling_text,
    filling_views,
    late_text,
    missing_broker_texts,
    missing_services,
    silent_groups,
    silent_groups_notes,
)
from spout.inspect.readings import PartitionState, Reading, too_late_counts
from spout.inspect.summary import InputSummary, summaries
from spout.inspect.tables import span

APART_MS: Final = 2_000
"""A problem has a flag once readings that are so far apart have found it."""

_SILENT_PREFIX: Final = "silent: "
"""Begins the names of flags about a process that is gone: other problems may follow from it."""

_BROKER_PREFIX: Final = "broker: "
"""Begins the names of flags of missing brokers.

They are put up at the first reading, since all other brokers agree on who is missing.
"""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a figure needs attention.

    Attributes:
        stuck_timeouts: the age of an open root, in its timeouts.
        pending: the share of the pending limit that is used.
        dead: how many new dead letters an input has; 0: their number does not matter.
        new_ms: a dead letter is new for this long.
        near_share: a share of a log, from its start; a record in it that is still needed may soon be
            deleted.
        late: whether it matters that something came too late for its window, for as long as
            `new_ms`.
        strangers: whether it matters that a group has a member that is not Windhover's, a query
            that does not read one of its inputs, or one that reads what is stopped on purpose.
        filling: the part of a limit that State of an acker partition takes.
        clocks: whether it matters that a clock is wrong.
    """

    stuck_timeouts: float = 2.0
    pending: float = 1.0
    dead: int = 1
    new_ms: int = 900_000
    near_share: float = 0.1
    late: bool = True
    strangers: bool = True
    filling: float = FILLING_SHARE
    clocks: bool = True


class Flag(NamedTuple):
    """A problem that an operator should see to.

    Attributes:
        name: stays the same while figures in `text` change, so that its age can be counted.
        since_ms: wall time.
        link: the path of the page that shows more; empty: none does.
        is_dated: the log says that it began at `since_ms`; else it was first seen then, and may be
            older.
    """

    name: str
    text: str
    since_ms: int
    link: str = ""
    is_dated: bool = False


class Attention:
    """Which problems there are, and since when each was seen in every reading."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        # by the flag's name: wall time of the first reading that found the problem
        self._first_seen_ms: dict[str, int] = {}

    def check(self, snapshot: Snapshot, causes: Iterable[SeenCause] = ()) -> tuple[Flag, ...]:
        """Record the problems of the next reading, and return the flags of those that lasted.

        A broker that is missing comes first, then a process, since others may follow from it;
        then the oldest. `causes` are those of failures.
        """
        now_ms = snapshot.at_ms
        flags_of_reading = [*problems(snapshot, self._topics), *new_causes(causes, now_ms)]
        flags_by_name = {flag.name: flag for flag in flags_of_reading}
        # a problem that this reading did not find is forgotten: it counts anew when it comes again
        first_seen_ms = {}
        for name in flags_by_name:
            # `min`: a clock that was set back hides no flag until it is there again
            first_seen_ms[name] = min(now_ms, self._first_seen_ms.get(name, now_ms))
        self._first_seen_ms = first_seen_ms
        lasting: list[Flag] = []
        for name, seen_ms in first_seen_ms.items():
            flag = flags_by_name[name]
            if name.startswith(_BROKER_PREFIX) or now_ms - seen_ms >= APART_MS:
                since_ms = min(now_ms, flag.since_ms) if flag.is_dated else seen_ms
                lasting.append(flag._replace(since_ms=since_ms))

        def rank(flag: Flag) -> tuple[bool, bool, int]:
            is_of_broker = flag.name.startswith(_BROKER_PREFIX)
            is_of_process = flag.name.startswith(_SILENT_PREFIX)
            return not is_of_broker, not is_of_process, flag.since_ms  # False sorts first

        return tuple(sorted(lasting, key=rank))


_DEFAULT_THRESHOLDS: Final = Thresholds()


def problems(
    snapshot: Snapshot, topics: Topics, thresholds: Thresholds = _DEFAULT_THRESHOLDS
) -> Iterator[Flag]:
    """Yield a flag for each thing that is wrong in one reading; what is unknown has no flag."""
    now_ms = snapshot.at_ms
    rows = snapshot.rows()
    # processes that are gone
    for index, text in enumerate(missing_broker_texts(snapshot.missing_brokers)):
        yield Flag(f"{_BROKER_PREFIX}{index}", text, now_ms)
    for group, may_have_open_roots in silent_groups(rows).items():
        # one group at a time, so that each has a flag, and an age, of its own
        for text in silent_groups_notes({group: may_have_open_roots}):
            yield Flag(f"{_SILENT_PREFIX}group {group}", text, now_ms)
    for text in missing_services(rows, topics):
        yield _flag_of_silent_service(text, snapshot, topics)
    # topics and their readers
    for place, why in snapshot.leaderless.items():
        text = f"{place} {why}: what needs it waits; start what is missing"
        yield Flag(f"stands: {place}", text, now_ms)
    for topic, text in snapshot.cut.items():
        yield Flag(f"cut: {topic}", f"{topic}: {text}", now_ms)
    for view in filling_views(snapshot.views, thresholds.filling):
        yield Flag(f"filling: {view.partition}", filling_text(view), now_ms)
    for text in snapshot.standing:
        # the name lacks the position, which changes: "... up to 42", then "... up to 43"
        reader = text.partition(" up to ")[0]
        yield Flag(f"stands: {reader}", text, now_ms)
    if thresholds.clocks:
        for process, text in snapshot.clocks.items():
            yield Flag(f"clock: {process}", text, now_ms)
    if thresholds.strangers:
        for group, text in snapshot.strangers.items():
            yield Flag(f"stranger: {group}", text, now_ms)
        for input_name, text in snapshot.unread.items():
            yield Flag(f"unread: {input_name}", text, now_ms)
        for input_name, text in snapshot.read_though_stopped.items():
            yield Flag(f"stopped: {input_name}", text, now_ms)
    # records
    if thresholds.late:
        yield from _flags_of_too_late(snapshot, topics, thresholds.new_ms)
    for summary in summaries(snapshot, topics):
        yield from _flags_of_input(summary, thresholds, now_ms)
        for state in summary.partitions:
            yield from _flags_of_partition(state, summary, thresholds, now_ms)


def _flags_of_too_late(snapshot: Snapshot, topics: Topics, new_ms: int) -> Iterator[Flag]:
    """Yield a flag for each group of which a root or row came too late for its window.

    It came so within the last `new_ms`.
    """
    for group in dict.fromkeys(state.group for state in snapshot.partitions):
        counts = too_late_counts(snapshot.views, group).value
        # None: the counts are unknown; no note: nothing came too late
        if counts is None or counts.newest_note is None:
            continue
        late_ms = counts.newest_note.wall  # when the newest loss was noted
        if snapshot.at_ms - late_ms < new_ms:
            text = late_text(group, counts, counts.newest_note, topics)
            yield Flag(f"late: {group}", text, late_ms, is_dated=True)


def _flag_of_silent_service(text: str, snapshot: Snapshot, topics: Topics) -> Flag:
    """Return the flag of ackers or replay workers that are gone; `text` is of `missing_services`.

    Ackers write a State every few seconds, so of them the flag is dated by their last sign of life.
    """
    name = f"{_SILENT_PREFIX}{text}"
    views = [view.value for view in snapshot.views]
    # the texts of a reading in which the ackers alone are gone
    texts_of_ackers = missing_services([{"ackers": 0, "replay_workers": None}], topics)
    is_of_ackers = text in texts_of_ackers
    if not is_of_ackers or not views or None in views:
        return Flag(name, text, snapshot.at_ms)
    last_ms = max(view.at_ms for view in views if view is not None)
    return Flag(name, f"{text}; the last State is of {moment(last_ms)}", last_ms, is_dated=True)


def _flags_of_input(summary: InputSummary, thresholds: Thresholds, now_ms: int) -> Iterator[Flag]:
    """Yield what is wrong with an input.

    If the input is stopped on purpose, its roots and replays may wait.
    """
    pending = None if summary.stopped else summary.pending.value
    if pending is not None and pending >= thresholds.pending * summary.pending_max:
        effect = ""
        if pending >= summary.pending_max:
            effect = "nothing more is emitted before some are done; "
        text = (
            f"{summary.name} has {pending:,} pending, of at most {summary.pending_max:,}:"
            f" {effect}see `windhover roots --group {shell_word(summary.group)}`"
        )
        yield Flag(f"limit: {summary.name}", text, now_ms)
    new_ms = thresholds.new_ms
    new_count = new_letters(summary, new_ms, now_ms).value
    if new_count and 0 < thresholds.dead <= new_count:
        text = (
            f"{summary.name}: {new_count:,} died in the last {span(new_ms)}, and nobody has"
            " handled them; see `windhover dlq stats`"
        )
        died_ms = first_new_death_ms(summary, new_ms, now_ms)
        link = f"/letters?input={summary.name}"
        yield Flag(f"dead: {summary.name}", text, died_ms, link, is_dated=True)
    pauses = [state.replays_wait.value for state in summary.partitions if state.replays_wait.value]
    if pauses and not summary.stopped:
        # the first one is enough for a flag: the page of each partition has its own
        yield Flag(f"waits: {summary.name}", f"{summary.name}: {pauses[0]}", now_ms)


def new_causes(causes: Iterable[SeenCause], now_ms: int) -> Iterator[Flag]:
    """Yield a flag for each cause that failed a record within `CAUSE_NEW_MS` for the first time."""
    for cause in causes:
        age_ms = now_ms - cause.first_ms
        if age_ms >= CAUSE_NEW_MS:
            continue
        input_name, error = cause.group.input, UntrustedName(cause.group.cause)
        operator = UntrustedName(cause.group.operator or "")
        effect = f"records are lost by {error}"
        if operator:
            effect = f"bolt {operator} fails records by {error}"
        text = (
            f"{input_name}: {effect}, {cause.failures:,} in the last {span(max(0, age_ms))} and"
            " none in the hour before; see `windhover failures`"
        )
        name = f"cause: {input_name} {operator} {error}"
        yield Flag(name, text, cause.first_ms, "/failures", is_dated=True)


def causes_unknown(causes: Reading[Sequence[SeenCause]]) -> str:
    """Return a note that it is unknown whether a cause is new, and why; empty: it is known."""
    if not causes.unknown:
        return ""
    return f"whether a cause of failures is new is unknown, since {causes.unknown}"


def new_letters(summary: InputSummary, new_ms: int, now_ms: int) -> Reading[int]:
    """Return how many dead letters of an input died within the last `new_ms`.

    If those of a partition are unknown, the others are counted, and `unknown` says why the number
    may be too small.
    """
    count = sum(len(deaths_ms) for deaths_ms in _new_deaths_ms(summary, new_ms, now_ms))
    reasons = [state.dead_at.unknown for state in summary.partitions if state.dead_at.unknown]
    return Reading(count, reasons[0] if reasons else "")


def first_new_death_ms(summary: InputSummary, new_ms: int, now_ms: int) -> int:
    """Return the wall time at which the first of an input's new letters died; now: none is new."""
    all_deaths_ms = _new_deaths_ms(summary, new_ms, now_ms)
    firsts_ms = [int(deaths_ms.min()) for deaths_ms in all_deaths_ms if len(deaths_ms)]
    return min(firsts_ms, default=now_ms)


def _new_deaths_ms(summary: InputSummary, new_ms: int, now_ms: int) -> Iterator[I64]:
    """Yield the wall times at which the new letters of a partition died, for each partition.

    A partition whose letters are unknown is left out.
    """
    for state in summary.partitions:
        if state.dead_at.value is not None:
            died_ms = state.dead_at.value.died_ms
            yield died_ms[died_ms > now_ms - new_ms]


def _flags_of_partition(
    state: PartitionState, summary: InputSummary, thresholds: Thresholds, now_ms: int
) -> Iterator[Flag]:
    """Yield what is wrong with a partition: a root is open too long, or retention takes records."""
    link = f"/partition/{state.source}"
    # roots of an input that is stopped on purpose may stay open
    oldest_ms = None if summary.stopped else state.oldest_ms.value
    timeout_ms = summary.timeout_ms  # 0: the input has none
    if timeout_ms and oldest_ms is not None and oldest_ms > thresholds.stuck_timeouts * timeout_ms:
        text = (
            f"a root of {state.source} is open for {span(oldest_ms)}, its timeout is"
            f" {span(timeout_ms)}; see `windhover roots --group {shell_word(summary.group)}`"
        )
        yield Flag(f"stuck: {state.source}", text, now_ms - oldest_ms, link, is_dated=True)
    log_start, log_end = state.start.value, state.end.value
    first_needed = needed_offset(state)  # the lowest offset that somebody still has to read
    # at start 0 nothing was ever deleted, so nobody knows how long the log may become
    if not log_start or log_end is None or first_needed is None or first_needed >= log_end:
        return
    if first_needed < log_start:
        deleted = f"records of {state.source} from offset {first_needed:,}"
        text = f"retention has deleted {deleted} that are not done"
    elif first_needed - log_start < (log_end - log_start) * thresholds.near_share:
        text = (
            f"{state.source}: offset {first_needed:,} is not done, and the log begins at {log_start:,}:"
            " retention may soon delete it; make `retention.ms` of the topic longer"
        )
    else:
        return
    yield Flag(f"retention: {state.source}", text, now_ms, link)


def needed_offset(state: PartitionState) -> int | None:
    """Return the lowest offset that somebody still has to read; None: unknown, or there is none."""
    progress, lost = state.progress.value, state.due_at.value
    if progress is None or not progress.was_emitted or lost is None:
        return None
    emitted_to = int(offset_of(progress.emitted_to))
    # the first open record, or the end of what was emitted; a lost record may be before it
    first_open = emitted_to if state.blocking.value is None else state.blocking.value
    return int(lost.offsets.min(initial=first_open))

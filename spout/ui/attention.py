"""What an operator should see to: flags that are put up after two bad readings, and clear themselves; pure.

One bad reading is often a rebalance or a slow answer, so a problem is flagged when a second reading finds it,
`APART_MS` or more after the first one. A reading without it takes the flag down.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.config.topics import Topics
from acker.identity import offset_of
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
    no_query,
    silent_groups,
)
from spout.inspect.readings import PartitionState, Reading, late_counts
from spout.inspect.summary import InputSummary, summaries
from spout.inspect.tables import span

APART_MS: Final = 2_000

_SILENT: Final = "silent: "

_BROKER: Final = "broker: "
"""Begins the name of what is flagged at the first reading: all other brokers agree that one is missing."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on a figure needs attention.

    Attributes:
        stuck: the age of an open root, in its timeouts.
        pending: the share of the pending limit that is used.
        dead: how many new dead letters an input has; 0: their number does not matter.
        new_ms: a dead letter is new for this long.
        near: a record that is needed in this part of a log, counted from its begin, may soon be deleted.
        late: whether it matters that something came too late for its window, for as long as `new_ms`.
        strangers: whether it matters that a group has a member that is not Windhover's, a query that does
            not read one of its inputs, or one that reads what is stopped on purpose.
        filling: the part of a limit that State of an acker partition takes.
        clocks: whether it matters that a clock is wrong.
    """

    stuck: float = 2.0
    pending: float = 1.0
    dead: int = 1
    new_ms: int = 900_000
    near: float = 0.1
    late: bool = True
    strangers: bool = True
    filling: float = FILLING_SHARE
    clocks: bool = True


class Flag(NamedTuple):
    """A problem. `name` stays the same while its `text` has changing figures; `since_ms` is wall time.

    `is_dated`: the log says that it began then; else it was seen then first, and may have begun before.
    """

    name: str
    text: str
    since_ms: int
    link: str = ""
    is_dated: bool = False


class Attention:
    """Which problems there are, and since when."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._since: dict[str, int] = {}

    def check(self, snapshot: Snapshot, causes: Iterable[SeenCause] = ()) -> tuple[Flag, ...]:
        """Take the next reading, and return the flags; `causes` are those of failures.

        A broker that is missing comes first, then a process, since others may follow from it; then the
        oldest.
        """
        now_ms = snapshot.at_ms
        every = [*problems(snapshot, self._topics), *new_causes(causes, now_ms)]
        found = {each.name: each for each in every}
        # a clock that was set back hides no flag until it is there again
        self._since = {name: min(now_ms, self._since.get(name, now_ms)) for name in found}
        flags: list[Flag] = []
        for name, seen_ms in self._since.items():
            flag = found[name]
            if name.startswith(_BROKER) or now_ms - seen_ms >= APART_MS:
                since_ms = min(now_ms, flag.since_ms) if flag.is_dated else seen_ms
                flags.append(flag._replace(since_ms=since_ms))

        def rank(flag: Flag) -> tuple[bool, bool, int]:
            return not flag.name.startswith(_BROKER), not flag.name.startswith(_SILENT), flag.since_ms

        return tuple(sorted(flags, key=rank))


def problems(snapshot: Snapshot, topics: Topics, limits: Thresholds = Thresholds()) -> Iterator[Flag]:
    """Yield what is wrong in one reading. Of what is unknown nothing is said: the page shows that itself."""
    now_ms = snapshot.at_ms
    rows = snapshot.rows()
    for number, text in enumerate(missing_broker_texts(snapshot.missing_brokers)):
        yield Flag(f"{_BROKER}{number}", text, now_ms)
    for group, is_open in silent_groups(rows).items():  # since when is of each group
        for text in no_query({group: is_open}):
            yield Flag(f"{_SILENT}group {group}", text, now_ms)
    for text in missing_services(rows, topics):
        yield _silent_service(text, snapshot, topics)
    for name, text in snapshot.leaderless.items():
        yield Flag(f"stands: {name}", f"{name} {text}: what needs it waits; start what is missing", now_ms)
    for name, text in snapshot.cut.items():
        yield Flag(f"cut: {name}", f"{name}: {text}", now_ms)
    for view in filling_views(snapshot.views, limits.filling):
        yield Flag(f"filling: {view.partition}", filling_text(view), now_ms)
    for text in snapshot.standing:
        yield Flag(f"stands: {text.partition(' up to ')[0]}", text, now_ms)
    for whose, text in snapshot.clocks.items() if limits.clocks else ():
        yield Flag(f"clock: {whose}", text, now_ms)
    for group, text in snapshot.strangers.items() if limits.strangers else ():
        yield Flag(f"stranger: {group}", text, now_ms)
    for name, text in snapshot.unread.items() if limits.strangers else ():
        yield Flag(f"unread: {name}", text, now_ms)
    for name, text in snapshot.read_though_stopped.items() if limits.strangers else ():
        yield Flag(f"stopped: {name}", text, now_ms)
    for group in dict.fromkeys(state.group for state in snapshot.partitions) if limits.late else ():
        counts = late_counts(snapshot.views, group).value
        if counts is not None and counts.last is not None and now_ms - counts.last.wall < limits.new_ms:
            late = late_text(group, counts, counts.last, topics)
            yield Flag(f"late: {group}", late, counts.last.wall, is_dated=True)
    for one in summaries(snapshot, topics):
        yield from _of_input(one, limits, now_ms)
        for state in one.partitions:
            yield from _of_partition(state, one, limits, now_ms)


def _silent_service(text: str, snapshot: Snapshot, topics: Topics) -> Flag:
    """Return the flag of ackers or replay workers that are gone; of ackers since their last sign of life."""
    name = f"{_SILENT}{text}"
    states = [view.value for view in snapshot.views]
    is_of_ackers = text in missing_services([{"ackers": 0, "replay_workers": None}], topics)
    if not is_of_ackers or not states or None in states:
        return Flag(name, text, snapshot.at_ms)
    last_ms = max(state.at_ms for state in states if state is not None)
    return Flag(name, f"{text}; the last State is of {moment(last_ms)}", last_ms, is_dated=True)


def _of_input(one: InputSummary, limits: Thresholds, now_ms: int) -> Iterator[Flag]:
    """Yield what is wrong with an input. What waits since it is stopped on purpose is nothing of that."""
    pending = None if one.stopped else one.pending.value
    if pending is not None and pending >= limits.pending * one.pending_max:
        effect = "nothing more is emitted before some are done; " * (pending >= one.pending_max)
        text = (
            f"{one.name} has {pending:,} pending, of at most {one.pending_max:,}: {effect}see"
            f" `windhover roots --group {shell_word(one.group)}`"
        )
        yield Flag(f"limit: {one.name}", text, now_ms)
    new = new_letters(one, limits.new_ms, now_ms).value
    if new and 0 < limits.dead <= new:
        text = (
            f"{one.name}: {new:,} died in the last {span(limits.new_ms)}, and nobody has handled them; see"
            " `windhover dlq stats`"
        )
        link = f"/letters?input={one.name}"
        yield Flag(f"dead: {one.name}", text, first_new_death_ms(one, limits.new_ms, now_ms), link, True)
    pause = next((each.replays_wait.value for each in one.partitions if each.replays_wait.value), "")
    if pause and not one.stopped:
        yield Flag(f"waits: {one.name}", f"{one.name}: {pause}", now_ms)


def new_causes(causes: Iterable[SeenCause], now_ms: int) -> Iterator[Flag]:
    """Yield the causes that failed a record within `CAUSE_NEW_MS` for the first time."""
    for group, first_ms, _, failures in causes:
        if now_ms - first_ms >= CAUSE_NEW_MS:
            continue
        name, cause = group.input, UntrustedName(group.cause)
        operator = UntrustedName(group.operator or "")
        what = f"bolt {operator} fails records by {cause}" if operator else f"records are lost by {cause}"
        text = (
            f"{name}: {what}, {failures:,} in the last {span(max(0, now_ms - first_ms))} and none in the"
            " hour before; see `windhover failures`"
        )
        yield Flag(f"cause: {name} {operator} {cause}", text, first_ms, "/failures", True)


def causes_unknown(causes: Reading[Sequence[SeenCause]]) -> str:
    """Describe why nobody can say whether a cause is new; empty: it can be said."""
    return causes.unknown and f"whether a cause of failures is new is unknown, since {causes.unknown}"


def new_letters(one: InputSummary, new_ms: int, now_ms: int) -> Reading[int]:
    """Return how many dead letters of an input are new; of a partition that is unknown none is counted."""
    dead = [each.dead_at for each in one.partitions]
    times = [each.value.died_ms for each in dead if each.value is not None]
    count = sum(int((died_ms > now_ms - new_ms).sum()) for died_ms in times)
    return Reading(count, next((each.unknown for each in dead if each.unknown), ""))


def first_new_death_ms(one: InputSummary, new_ms: int, now_ms: int) -> int:
    """Return when the first of the new dead letters of an input died, wall time; now where none is new."""
    dead = [state.dead_at.value for state in one.partitions]
    times = [letters.died_ms[letters.died_ms > now_ms - new_ms] for letters in dead if letters is not None]
    return min((int(died_ms.min()) for died_ms in times if len(died_ms)), default=now_ms)


def _of_partition(
    state: PartitionState, one: InputSummary, limits: Thresholds, now_ms: int
) -> Iterator[Flag]:
    link = f"/partition/{state.source}"
    oldest_ms = None if one.stopped else state.oldest_ms.value
    if one.timeout_ms and oldest_ms is not None and oldest_ms > limits.stuck * one.timeout_ms:
        text = (
            f"a root of {state.source} is open for {span(oldest_ms)}, its timeout is {span(one.timeout_ms)}"
            f"; see `windhover roots --group {shell_word(one.group)}`"
        )
        yield Flag(f"stuck: {state.source}", text, now_ms - oldest_ms, link, True)
    start, end, needed = state.start.value, state.end.value, needed_offset(state)
    if start and end is not None and needed is not None and needed < end:
        if needed < start:
            text = f"retention has deleted records of {state.source} from offset {needed:,} that are not done"
        elif needed - start < (end - start) * limits.near:
            text = (
                f"{state.source}: offset {needed:,} is not done, and the log begins at {start:,}: retention"
                " may soon delete it; make `retention.ms` of the topic longer"
            )
        else:
            return
        yield Flag(f"retention: {state.source}", text, now_ms, link)


def needed_offset(state: PartitionState) -> int | None:
    """Return the lowest offset that somebody has to read yet; None: it is unknown, or there is none."""
    if state.progress.value is None or not state.progress.value.was_emitted or state.due_at.value is None:
        return None
    emitted_to = int(offset_of(state.progress.value.emitted_to))
    blocking = emitted_to if state.blocking.value is None else state.blocking.value
    return int(state.due_at.value.offsets.min(initial=blocking))

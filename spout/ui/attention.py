"""What an operator should see to: flags that are put up after two bad readings, and clear themselves; pure.

One bad reading is often a rebalance or a slow answer, so a problem is flagged when a second reading finds it,
`APART_MS` or more after the first one. A reading without it takes the flag down.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from acker.config.topics import Topics
from acker.identity import offset_of
from spout.inspect.overview import Snapshot, missing_processes
from spout.inspect.readings import PartitionState
from spout.inspect.tables import span
from spout.ui.summary import InputSummary, summaries

APART_MS: Final = 2_000

STUCK: Final = 2
"""A root that is open for so many times its timeout is stuck."""

NEW_MS: Final = 900_000
"""A dead letter is new for this long."""

NEAR: Final = 10
"""A record that is needed in the first tenth of a log may soon be deleted by retention."""


class Flag(NamedTuple):
    """A problem. `name` stays the same while its `text` has changing figures; `since_ms` is wall time."""

    name: str
    text: str
    since_ms: int
    link: str = ""


class Attention:
    """Which problems there are, and since when."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._since: dict[str, int] = {}

    def check(self, snapshot: Snapshot) -> tuple[Flag, ...]:
        """Take the next reading, and return the flags, the oldest first."""
        now_ms = snapshot.at_ms
        found = {each.name: each for each in problems(snapshot, self._topics)}
        self._since = {name: self._since.get(name, now_ms) for name in found}
        flags = [found[name]._replace(since_ms=since) for name, since in self._since.items()]
        flags = [each for each in flags if now_ms - each.since_ms >= APART_MS]
        return tuple(sorted(flags, key=lambda each: each.since_ms))


def problems(snapshot: Snapshot, topics: Topics) -> Iterator[Flag]:
    """Yield what is wrong in one reading. Of what is unknown nothing is said: the page shows that itself."""
    now_ms = snapshot.at_ms
    for text in missing_processes(snapshot.rows(), topics):
        yield Flag(f"silent: {text}", text, now_ms)
    for one in summaries(snapshot, topics):
        yield from _of_input(one, now_ms)
        for state in one.partitions:
            yield from _of_partition(state, one, now_ms)


def _of_input(one: InputSummary, now_ms: int) -> Iterator[Flag]:
    if one.pending.value is not None and one.pending.value >= one.pending_max:
        text = (
            f"{one.name} has {one.pending.value:,} pending, of at most {one.pending_max:,}: nothing more"
            f" is emitted before some are done; see `windhover roots --group {one.group}`"
        )
        yield Flag(f"limit: {one.name}", text, now_ms)
    dead = [each.dead_at.value.died_ms for each in one.partitions if each.dead_at.value is not None]
    if new := sum(int((died_ms > now_ms - NEW_MS).sum()) for died_ms in dead):
        text = f"{new:,} of {one.name} became dead letters in the last 15 minutes; see `windhover dlq stats`"
        yield Flag(f"dead: {one.name}", text, now_ms)
    if pause := next((each.replays_wait.value for each in one.partitions if each.replays_wait.value), ""):
        yield Flag(f"waits: {one.name}", f"{one.name}: {pause}", now_ms)


def _of_partition(state: PartitionState, one: InputSummary, now_ms: int) -> Iterator[Flag]:
    link = f"/partition/{state.source}"
    oldest_ms = state.oldest_ms.value
    if one.timeout_ms and oldest_ms is not None and oldest_ms > STUCK * one.timeout_ms:
        text = (
            f"a root of {state.source} is open for {span(oldest_ms)}, its timeout is {span(one.timeout_ms)}"
            f"; see `windhover roots --group {one.group}`"
        )
        yield Flag(f"stuck: {state.source}", text, now_ms, link)
    start, end, needed = state.start.value, state.end.value, needed_offset(state)
    if start and end is not None and needed is not None and needed < end:
        if needed < start:
            text = f"retention has deleted records of {state.source} from offset {needed:,} that are not done"
        elif (needed - start) * NEAR < end - start:
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

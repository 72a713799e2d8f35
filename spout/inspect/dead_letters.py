"""What ``windhover dlq`` does, on the port: which inputs and letters are meant, and an order carried out.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from acker.config.limits import ReplayLimits
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.kafka.port import Log, Record
from replay.handling.letter_box import KEPT_MAX, look_through
from replay.handling.letter_handling import Left, LetterHandling, Order, Pace
from replay.records.headers import location, parse_location
from replay.records.letters import Filter
from replay.worker.fetch import Fetcher, Wanted
from spout.inspect.letter_rows import Found


class Letters(NamedTuple):
    """What was found: the letters, how many more there may be, and how many records were none."""

    found: Sequence[Found]
    left_out: int
    others: int


@dataclass(slots=True)
class Outcome:
    """What became of an order; `left` counts the letters that stay as they are, by why."""

    done: int = 0
    left: dict[Left, int] = field(default_factory=dict)
    left_out: int = 0


def inputs_named(topics: Topics, names: Sequence[str]) -> list[Input]:
    """Return the tracked inputs that are named, by name, topic or dead-letter topic; all where none is.

    Raises:
        UsageError: a name is that of no tracked input.
    """
    tracked = [one for one in topics.inputs.values() if one.tracked]
    for name in names:
        if not any(name in _names(one) for one in tracked):
            known = ", ".join(one.name for one in tracked) or "none"
            raise UsageError(f"no tracked input of topics.yaml is called {name!r}; it has {known}")
    return [one for one in tracked if not names or any(name in _names(one) for name in names)]


def by_place(inputs: Sequence[Input], places: Sequence[str], wanted: Filter) -> list[tuple[Input, Filter]]:
    """Say for each input which letters are meant.

    Args:
        inputs: where to look.
        places: letters by their own place (``sentences.g.dlq/0@17``), or by their origin
            (``sentences/3@1042``, with the input's name or its topic's); all letters where there is none.
        wanted: what else they must be.

    Raises:
        UsageError: a place is none, or is of no input.
    """
    if not places:
        return [(one, wanted) for one in inputs]
    meant: dict[str, set[str]] = {}
    for text in places:
        found = [(one, place) for one in inputs if (place := _place(one, text)) is not None]
        if not found:
            known = ", ".join(f"{one.name}, {one.dead_letter.topic}" for one in inputs) or "none"
            raise UsageError(
                f"{text!r} is no place of a letter or a record, such as {known.split(', ', 1)[0]}/3@1042;"
                f" the names are: {known}"
            )
        for one, place in found:
            meant.setdefault(one.name, set()).add(place)
    return [(one, replace(wanted, places=frozenset(meant[one.name]))) for one in inputs if one.name in meant]


def look(
    log: Log, meant: Sequence[tuple[Input, Filter]], *, wait_ms: int, kept_max: int = KEPT_MAX
) -> Letters:
    """Read the letters that are meant, those that died first standing first."""
    found: list[Found] = []
    left_out = others = 0
    for one, wanted in meant:
        box = look_through(log, one, wanted, wait_ms=wait_ms, kept_max=kept_max - len(found))
        found += [Found(one.name, letter) for letter in box.letters]
        left_out, others = left_out + box.left_out, others + box.others
    return Letters(sorted(found, key=lambda each: each.letter.died_ms), left_out, others)


def records_of(log: Log, found: Sequence[Found], limits: ReplayLimits) -> Iterator[tuple[Found, Record]]:
    """Read letters whole; those that have left the topic meanwhile are left out."""
    with closing(Fetcher(log, limits)) as fetcher:
        for one in found:
            wanted = Wanted(*_parsed(one.letter.place))
            record = fetcher.fetch([wanted])[wanted]
            if isinstance(record, Record):
                yield one, record


def carry_out(
    log: Log, topics: Topics, meant: Sequence[tuple[Input, Filter]], order: Order, pace: Pace,
    *, clock: Callable[[], int], sleep_ms: Callable[[int], None], tell: Callable[[int], None],
) -> Outcome:  # fmt: skip
    """Handle the letters that are meant.

    Args:
        log: the cluster.
        topics: the installation.
        meant: inputs, and their letters.
        order: what to do; its filter gives way to those of `meant`.
        pace: how fast.
        clock: wall time, ms.
        sleep_ms: waits.
        tell: is told after each transaction how many letters were handled in all.

    Raises:
        Aborted: nothing of the last transaction was written; repeat the command.
        Fenced: somebody else gave such a command meanwhile.
        Unreachable: the broker does not answer; repeat the command.
    """
    outcome = Outcome()
    limits = topics.replay.limits
    for one, wanted in meant:
        handling = LetterHandling(
            log, one, replace(order, wanted=wanted), owner=topics.acker.replay_group, limits=limits
        )
        with closing(handling):
            handling.open()
            while not handling.is_done:
                sleep_ms(pace.wait_ms(clock()))
                now_ms = clock()
                if room := pace.room(now_ms):
                    pace.spend(handling.step(room, now_ms))
                    tell(outcome.done + handling.done)
        outcome.done += handling.done
        outcome.left_out += handling.left_out
        for left, count in handling.left.items():
            outcome.left[left] = outcome.left.get(left, 0) + count
    return outcome


def _names(one: Input) -> tuple[str, str, str]:
    return one.name, one.topic, one.dead_letter.topic


def _place(one: Input, text: str) -> str | None:
    """Return a letter's place, or a record's with its topic; None when neither is of an input."""
    name, partition, offset = _parsed(text)
    if name == one.dead_letter.topic:
        return text
    return location(one.topic, partition, offset) if name in (one.name, one.topic) else None


def _parsed(text: str) -> tuple[str, int, int]:
    return parse_location(text) or ("", 0, 0)

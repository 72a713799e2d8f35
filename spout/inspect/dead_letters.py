"""What ``windhover dlq`` does, through the Kafka port: choose inputs and letters, and carry out an order.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

from acker.config.limits import ReplayLimits
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import Unreachable, UsageError
from acker.kafka.port import Log, Record
from acker.units import named_past_ms
from acker.untrusted import Untrusted, UntrustedName
from replay.handling.letter_box import KEPT_MAX, find_letters
from replay.handling.outcomes import RedriveOutcomes, RedriveRecord, find_redrives
from replay.handling.redrive import Redrive, RedriveProgress, cancel_redrive
from replay.policy.disposition import DeadReason
from replay.records.headers import location, parse_location
from replay.records.letters import Filter, KeyIs
from replay.worker.fetch import Fetcher, RecordPlace
from spout.inspect.letter_rows import FoundLetter, letter_details, parse_key, parse_name, redrive_row
from spout.inspect.operate import inputs_of


class FoundLetters(NamedTuple):
    """The dead letters that match.

    Attributes:
        letters: the first ones, by when they died.
        left_out: how many more match.
        other_records: how many records of the topics are no letters.
    """

    letters: Sequence[FoundLetter]
    left_out: int
    other_records: int


def inputs_named(topics: Topics, names: Sequence[str]) -> list[Input]:
    """Return the tracked inputs with these names, topics or dead-letter topics; without names all."""
    tracked = [one for one in topics.inputs.values() if one.tracked]
    for name in names:
        if not any(name in _names(one) for one in tracked):
            names = ", ".join(one.name for one in tracked) or "none"
            wrong = UntrustedName(name)
            raise UsageError(f"no tracked input of topics.yaml is called '{wrong}'; it has {names}")
    return [one for one in tracked if not names or any(name in _names(one) for name in names)]


def topics_of_some(topics: Topics, names: Sequence[str], groups: Sequence[str]) -> Topics:
    """Return topics.yaml with only those of its tracked inputs that are named, or are of a named group.

    Without names and groups: all of it. `UsageError`: there is no such input or group.
    """
    if not names and not groups:
        return topics
    meant = {own.name for own in inputs_named(topics, names)} if names else set[str]()
    for group in groups:
        meant |= {own.name for own in inputs_of(topics, group)}
    inputs = {name: own for name, own in topics.inputs.items() if name in meant}
    return topics.model_copy(update={"inputs": inputs})


def parse_filter(
    texts: Mapping[str, str | None], now_ms: int, *, handled: bool = False, option: str = ""
) -> Filter:
    """Parse a filter as people write it, by the names error, operator, reason, key, since and until.

    A key and names are as they are shown, in the notation of `acker.notation`. A time may be a duration
    before `now_ms`, which is wall time; messages have `option` before each name.

    Raises:
        UsageError: a text cannot be parsed.
    """
    reason, key = texts.get("reason"), texts.get("key")
    try:
        dead = None if reason is None else DeadReason(reason.upper())
    except ValueError as error:
        wrong = Untrusted(reason or "")
        raise UsageError(f"{option}reason {wrong}: is none; give {', '.join(DeadReason)}") from error
    since_ms, until_ms = (
        None if (text := texts.get(name)) is None else named_past_ms(f"{option}{name}", text, now_ms)
        for name in ("since", "until")
    )
    cause, operator = (
        None if (text := texts.get(name)) is None else parse_name(text, f"{option}{name}")
        for name in ("error", "operator")
    )
    return Filter(
        error=cause,
        operator=operator,
        dead=dead,
        key=None if key is None else KeyIs(parse_key(key, option)),
        since_ms=since_ms,
        until_ms=until_ms,
        handled=handled,
    )


def by_place(inputs: Sequence[Input], places: Sequence[str], matching: Filter) -> list[tuple[Input, Filter]]:
    """Return for each input a filter of its letters; without places it is `matching` for all inputs.

    A place is a letter's own (``sentences.g.dlq/0@17``), or that of its origin (``sentences/3@1042``, with
    the name of the input or of its topic).

    Raises:
        UsageError: a place cannot be parsed, or is of no input.
    """
    if not places:
        return [(one, matching) for one in inputs]
    meant: dict[str, set[str]] = {}
    for text in places:
        found = [(one, place) for one in inputs if (place := _place(one, text)) is not None]
        if not found:
            names = ", ".join(f"{one.name}, {one.dead_letter.topic}" for one in inputs) or "none"
            raise UsageError(
                f"'{UntrustedName(text)}' is no place of a letter or a record, such as"
                f" {names.split(', ', 1)[0]}/3@1042; the names are: {names}"
            )
        for one, place in found:
            meant.setdefault(one.name, set()).add(place)
    return [
        (one, replace(matching, places=frozenset(meant[one.name]))) for one in inputs if one.name in meant
    ]


def matching_letters(
    log: Log, meant: Sequence[tuple[Input, Filter]], *, wait_ms: int, kept_max: int = KEPT_MAX
) -> FoundLetters:
    """Read the letters that the filters match; those that died first come first."""
    found: list[FoundLetter] = []
    left_out = others = 0
    for one, matching in meant:
        box = find_letters(log, one, matching, wait_ms=wait_ms, kept_max=kept_max - len(found))
        found += [FoundLetter(one.name, letter) for letter in box.letters]
        left_out, others = left_out + box.left_out, others + box.others
    return FoundLetters(sorted(found, key=lambda each: each.letter.died_ms), left_out, others)


def records_of(
    log: Log, found: Sequence[FoundLetter], limits: ReplayLimits
) -> Iterator[tuple[FoundLetter, Record]]:
    """Read whole letters; letters that have left the topic in the meantime are left out."""
    with closing(Fetcher(log, limits)) as fetcher:
        for one in found:
            place = RecordPlace(*(parse_location(one.letter.place) or ("", 0, 0)))
            record = fetcher.fetch([place])[place]
            if isinstance(record, Record):
                yield one, record


def details_of(log: Log, topics: Topics, places: Sequence[str]) -> list[dict[str, Any]]:
    """Read letters by their places or those of their origins, with all their details.

    Raises:
        UsageError: a place cannot be parsed, or there is no letter at any of them.
    """
    meant = by_place(inputs_named(topics, ()), places, Filter(handled=True))
    limits = topics.replay.limits
    letters = matching_letters(log, meant, wait_ms=limits.operation_timeout_ms)
    details = [letter_details(found, record) for found, record in records_of(log, letters.letters, limits)]
    if not details:
        named = ", ".join(str(Untrusted(place)) for place in places)
        raise UsageError(f"no dead letter at {named}; see `windhover dlq list --all`")
    return details


def redrive_rows(
    log: Log, topics: Topics, inputs: Sequence[Input], since_ms: int = 0
) -> list[dict[str, Any]]:
    """Read the redrives of inputs, the oldest first, with what became of their letters until now."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for one in inputs:
        found = find_redrives(log, one, wait_ms=topics.replay.limits.operation_timeout_ms, since_ms=since_ms)
        times = [each.begun.at_ms for each in found]
        rows += zip(times, (row for row, _ in _with_outcomes(log, topics, one, found)), strict=True)
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def redrive_details(log: Log, topics: Topics, redrive: str) -> list[dict[str, Any]]:
    """Read one redrive: a row for each of its inputs, with the outcome of each letter as `outcomes`.

    Raises:
        UsageError: there is no such redrive.
    """
    own_id = parse_name(redrive, "redrive")
    rows: list[dict[str, Any]] = []
    for one in inputs_named(topics, ()):
        found = find_redrives(log, one, wait_ms=topics.replay.limits.operation_timeout_ms)
        own = [each for each in found if each.begun.redrive == own_id]
        for row, outcomes in _with_outcomes(log, topics, one, own):
            letters = outcomes.letters(own_id).items()
            rows.append({**row, "outcomes": [{"letter": at, "outcome": each.value} for at, each in letters]})
    if not rows:
        raise UsageError(f"there is no redrive {Untrusted(redrive)}; see `windhover dlq redrives`")
    return rows


def cancel_everywhere(log: Log, topics: Topics, redrive: str, by: str, now_ms: int) -> list[str]:
    """Cancel a redrive that runs elsewhere, for each of its inputs; return their names.

    Raises:
        UsageError: there is no such redrive, or it has ended.
    """
    rows = redrive_details(log, topics, redrive)
    rows = [row for row in rows if row["state"] == "NOT ENDED"] or rows
    for row in rows:
        cancel_redrive(log, topics, topics.input(row["input"]), parse_name(redrive, "redrive"), by, now_ms)
    return [str(row["input"]) for row in rows]


def _with_outcomes(
    log: Log, topics: Topics, one: Input, found: Sequence[RedriveRecord]
) -> Iterator[tuple[dict[str, Any], RedriveOutcomes]]:
    """Yield the rows of some redrives of an input, each with the outcomes until now.

    Raises `Unreachable`: nothing more came, short of the end.
    """
    if not found:
        return
    with closing(RedriveOutcomes(log, topics, one, [each.begun for each in found])) as outcomes:
        outcomes.read()
        before = -1.0
        while not outcomes.is_whole:
            if outcomes.share_read <= before:
                raise Unreachable(
                    f"what became of the redrives of {one.name} cannot be read to its end: nothing more came"
                )
            before = outcomes.share_read
            outcomes.read()
        for each in found:
            yield redrive_row(one.name, each, outcomes), outcomes


def carry_out(
    redrive: Redrive,
    *,
    clock: Callable[[], int],
    sleep_ms: Callable[[int], None],
    progress: Callable[[RedriveProgress], None],
) -> RedriveProgress:
    """Step a redrive to its end and close it; `progress` is called after each step.

    Raises:
        Aborted: nothing of the last transaction was written; repeat the command.
        Fenced: somebody else started such a command in the meantime, or cancelled this one.
        Unreachable: the broker does not answer; repeat the command.
    """
    with closing(redrive):
        while not redrive.is_done:
            wait_ms = redrive.step(clock())
            progress(redrive.progress)
            if wait_ms:
                sleep_ms(wait_ms)
    return redrive.progress


def _names(one: Input) -> tuple[str, str, str]:
    return one.name, one.topic, one.dead_letter.topic


def _place(one: Input, text: str) -> str | None:
    """Return the place of a letter or record, with the topic's name; None when it is not of this input."""
    name, partition, offset = parse_location(text) or ("", 0, 0)
    if name == one.dead_letter.topic:
        return text
    return location(one.topic, partition, offset) if name in (one.name, one.topic) else None

"""What ``windhover dlq`` does, through the Kafka port: choose inputs and letters, and carry out an order.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.kafka.port import Log
from acker.units import named_past_ms
from acker.untrusted import Untrusted, UntrustedName
from replay.handling.outcomes import BegunRedrive, find_redrives
from replay.policy.disposition import DeadReason
from replay.records.headers import location, parse_location
from replay.records.letters import Filter, KeyIs
from spout.inspect.letter_rows import parse_key, parse_name

if TYPE_CHECKING:
    from replay.handling.redrive import Redrive, RedriveProgress


def inputs_named(topics: Topics, names: Sequence[str]) -> list[Input]:
    """Return the tracked inputs with these names, topics or dead-letter topics; without names all.

    Raises:
        UsageError: there is none of one of the names.
    """
    tracked = [input for input in topics.inputs.values() if input.tracked]
    if not names:
        return tracked
    for name in names:
        if not any(name in _names_of(input) for input in tracked):
            input_names = ", ".join(input.name for input in tracked) or "none"
            wrong = UntrustedName(name)
            raise UsageError(f"no tracked input of topics.yaml is called '{wrong}'; it has {input_names}")
    return [input for input in tracked if any(name in _names_of(input) for name in names)]


def topics_of_some(topics: Topics, names: Sequence[str], groups: Sequence[str]) -> Topics:
    """Return topics.yaml with only those of its tracked inputs that are named, or are of a named group.

    Without names and groups: all of it. `UsageError`: there is no such input or group.
    """
    if not names and not groups:
        return topics
    # it takes a tenth of a second to load, which most commands can do without
    from spout.inspect.operate import inputs_of

    chosen = list(inputs_named(topics, names)) if names else []
    for group in groups:
        chosen += inputs_of(topics, group)
    chosen_names = {input.name for input in chosen}
    inputs = {name: input for name, input in topics.inputs.items() if name in chosen_names}
    return topics.model_copy(update={"inputs": inputs})


def parse_filter(
    texts: Mapping[str, str | None], now_ms: int, *, handled: bool = False, option: str = ""
) -> Filter:
    """Parse a filter as people write it.

    A key and names are as they are shown, in the notation of `acker.notation`. A time may be a duration
    before `now_ms`.

    Args:
        texts: by the names error, operator, reason, key, since and until; None: anything.
        now_ms: wall time.
        handled: whether letters that somebody has handled match as well.
        option: what messages have before each name, such as ``--``.

    Raises:
        UsageError: a text cannot be parsed.
    """

    def time_ms(name: str) -> int | None:
        text = texts.get(name)
        return None if text is None else named_past_ms(f"{option}{name}", text, now_ms)

    def parsed_name(name: str) -> str | None:
        text = texts.get(name)
        return None if text is None else parse_name(text, f"{option}{name}")

    reason, key = texts.get("reason"), texts.get("key")
    try:
        dead_reason = None if reason is None else DeadReason(reason.upper())
    except ValueError as error:
        wrong = Untrusted(reason or "")
        raise UsageError(f"{option}reason {wrong}: is none; give {', '.join(DeadReason)}") from error
    # of several wrong texts the message names the first: times are parsed before names
    since_ms, until_ms = time_ms("since"), time_ms("until")
    return Filter(
        error=parsed_name("error"),
        operator=parsed_name("operator"),
        dead=dead_reason,
        key=None if key is None else KeyIs(parse_key(key, option)),
        since_ms=since_ms,
        until_ms=until_ms,
        handled=handled,
    )


def filters_of_inputs(
    inputs: Sequence[Input], places: Sequence[str], filter_of_all: Filter
) -> list[tuple[Input, Filter]]:
    """Return the inputs that have letters at some places, each with a filter for these.

    Without places: all inputs, each with `filter_of_all`. A place is a letter's own
    (``sentences.g.dlq/0@17``), or that of its origin (``sentences/3@1042``, with the name of the
    input or of its topic).

    Raises:
        UsageError: a place cannot be parsed, or is of no input.
    """
    if not places:
        return [(input, filter_of_all) for input in inputs]
    places_by_input: dict[str, set[str]] = {}
    for text in places:
        has_input = False
        for input in inputs:  # several groups may read one topic: a record's place is of all of them
            place = _place_of_input(input, text)
            if place is not None:
                has_input = True
                places_by_input.setdefault(input.name, set()).add(place)
        if not has_input:
            names = ", ".join(f"{input.name}, {input.dead_letter.topic}" for input in inputs) or "none"
            raise UsageError(
                f"'{UntrustedName(text)}' is no place of a letter or a record, such as"
                f" {names.split(', ', 1)[0]}/3@1042; the names are: {names}"
            )
    filters = []
    for input in inputs:
        if input.name in places_by_input:
            places_of_input = frozenset(places_by_input[input.name])
            filters.append((input, replace(filter_of_all, places=places_of_input)))
    return filters


def cancel_everywhere(log: Log, topics: Topics, redrive: str, by: str, now_ms: int) -> list[str]:
    """Cancel a redrive that runs elsewhere, for each of its inputs; return their names.

    Raises:
        UsageError: there is no such redrive, or it has ended.
    """
    # what emits letters takes a while to load, which commands that only look can do without
    from replay.handling.redrive import cancel_redrive

    redrive_id = parse_name(redrive, "redrive")
    wait_ms = topics.replay.limits.operation_timeout_ms
    redrives: list[tuple[Input, BegunRedrive]] = []
    for input in inputs_named(topics, ()):
        records = find_redrives(log, input, wait_ms=wait_ms)
        redrives += [(input, record) for record in records if record.begun.redrive == redrive_id]
    if not redrives:
        raise UsageError(f"there is no redrive {Untrusted(redrive)}; see `windhover dlq redrives`")
    # if all are over, `cancel_redrive` raises for the first one, and says so
    inputs = [input for input, record in redrives if record.may_run] or [redrives[0][0]]
    for input in inputs:
        cancel_redrive(log, topics, input, redrive_id, by, now_ms)
    return [input.name for input in inputs]


def carry_out(
    redrive: Redrive,
    *,
    clock: Callable[[], int],
    sleep_ms: Callable[[int], None],
    progress: Callable[[RedriveProgress], None],
) -> RedriveProgress:
    """Step a redrive to its end and close it.

    Args:
        clock: returns wall time in ms.
        sleep_ms: waits for so many ms.
        progress: is called after each step.

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


def _names_of(input: Input) -> tuple[str, str, str]:
    """Return by which names people may choose an input."""
    return input.name, input.topic, input.dead_letter.topic


def _place_of_input(input: Input, text: str) -> str | None:
    """Return a place that a person typed with the name of its topic; None: it is not of this input.

    It is a place of a letter, or of a record by the name of its input or topic.
    """
    name, partition, offset = parse_location(text) or ("", 0, 0)
    if name == input.dead_letter.topic:
        return text
    if name in (input.name, input.topic):
        return location(input.topic, partition, offset)
    return None

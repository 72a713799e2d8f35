"""The table `outcomes`: what became of the letters that redrives handled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import Unreachable, WindhoverError
from acker.kafka.port import Log
from replay.handling.outcomes import LetterOutcome, RedriveOutcomes
from replay.records.headers import parse_location
from replay.records.redrives import RedriveBegun
from spout.picture.database import Picture, Row
from spout.picture.holes import Hole
from spout.picture.reading import LogReading

TABLE: Final = "outcomes"


class _Followed(NamedTuple):
    """The redrives of one input that are followed, and what reads how their letters ended."""

    redrives: Sequence[RedriveBegun]
    outcomes: RedriveOutcomes


class OutcomeTable:
    """Fills the table; each reading goes on behind the one before.

    It reads the topics from where the first redrive began, however old that is.
    """

    def __init__(self, log: Log, topics: Topics, picture: Picture) -> None:
        """Begin with nothing read."""
        self._log = log
        self._topics = topics
        self._picture = picture
        self._followed_by_input: dict[str, _Followed] = {}

    def begin_reading(self) -> None:
        """Forget what the table has: each reading writes it anew."""
        self._picture.replace(TABLE, ())

    def read(self, input: Input, redrives: Sequence[RedriveBegun], reading: LogReading) -> None:
        """Add a row for each letter of an input's redrives; `unknown` says what cannot be read."""
        if not redrives:
            return
        try:
            followed = self._follow(input, redrives, reading.patience_ms)
            self._read_to_end(input, followed.outcomes, reading)
        except WindhoverError as error:
            reading.note_error(Hole(TABLE, str(error), input.dead_letter.topic), error)
            return
        self._picture.insert(TABLE, _rows(input, followed))

    def _follow(
        self,
        input: Input,
        redrives: Sequence[RedriveBegun],
        patience_ms: int,
    ) -> _Followed:
        """Return what follows these redrives: that of the last reading, if it had the same ones."""
        followed = self._followed_by_input.get(input.name)
        if followed is not None and followed.redrives == redrives:
            return followed
        if followed is not None:
            followed.outcomes.close()
        outcomes = RedriveOutcomes(
            self._log,
            self._topics,
            input,
            redrives,
            patience_ms=patience_ms,
        )
        self._followed_by_input[input.name] = _Followed(redrives, outcomes)
        return self._followed_by_input[input.name]

    def _read_to_end(self, input: Input, outcomes: RedriveOutcomes, reading: LogReading) -> None:
        """Read all that there is, unless the limits of the reading are reached before.

        Raises `Unreachable`: nothing more came.
        """
        while True:
            limit = reading.why_it_ends()
            if limit:
                why = f"what became of the redrives of {input.name} is not read to its end: {limit}"
                reading.note_cut(Hole(TABLE, why, input.dead_letter.topic))
                return
            outcomes.read()
            if outcomes.is_whole:
                return
            why = outcomes.why_not_whole()
            if why:  # else one call does not read so many records, and the next one goes on
                raise Unreachable(
                    f"what became of the redrives of {input.name} cannot be read to its end: {why}"
                )

    def close(self) -> None:
        """Close what reads the topics."""
        for followed in self._followed_by_input.values():
            followed.outcomes.close()


def _rows(input: Input, followed: _Followed) -> Iterator[Row]:
    """Yield a row for each letter that one of these redrives has handled.

    A letter that was dropped has no outcome. While not all is read, neither has an open one: its
    verdict may stand in what is not read yet.
    """
    is_whole = followed.outcomes.is_whole
    redrive_ids = {begun_redrive.redrive for begun_redrive in followed.redrives}
    for letter in followed.outcomes.letters():
        # a mark in the dead-letter topic may name a redrive whose first record has left the log
        if letter.redrive not in redrive_ids:
            continue
        outcome = letter.outcome
        if outcome is LetterOutcome.OPEN and not is_whole:
            outcome = None
        topic, partition, offset = parse_location(letter.place) or (None, None, None)
        yield {
            "input": input.name,
            "redrive": letter.redrive,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "outcome": None if outcome is None else outcome.value,
        }

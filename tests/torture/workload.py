"""The records of a run: what each holds and what is to become of it, computed from its number alone; pure.

The number travels in a header, which replayed copies and dead letters keep. A record's first word holds
the number, so that no two records have the same words.
"""

from __future__ import annotations

from typing import Final

from acker.kafka.port import Headers, Outgoing
from spout.demo.words import ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST, PLAIN

NUMBER: Final = "torture.number"
"""Header with the record's number, in decimal digits."""

UNDONE: Final = "undone"
"""The one word of a record whose transaction is aborted; nobody may ever see it."""

_EVERY: Final = {997: ALWAYS_FAILS, 101: FAILS_TWICE, 211: NEVER_ACKED_AT_FIRST}
"""Of so many records one is of that kind. Primes, so that they fall on all partitions."""

_WORDS_MAX: Final = 5
_NO_WORDS_EVERY: Final = 251


def key_of(number: int) -> bytes:
    """Return the key of a record, which tells its bolt what to do; most have `PLAIN`."""
    return next((key for every, key in _EVERY.items() if number % every == every // 2), PLAIN)


def words_of(number: int) -> tuple[str, ...]:
    """Return the words of a record, in order; a few records have none."""
    if number % _NO_WORDS_EVERY == 7:
        return ()
    return (f"n{number}", *(f"w{(number * 7 + place) % 97}" for place in range(number % _WORDS_MAX)))


def record_of(number: int, topic: str, partitions: int) -> Outgoing:
    """Make a record."""
    text = " ".join(words_of(number)).encode()
    return Outgoing(topic, number % partitions, text, key_of(number) or None, headers_of(number))


def undone_record(number: int, topic: str, partitions: int) -> Outgoing:
    """Make a record for a transaction that will be aborted."""
    return Outgoing(topic, number % partitions, UNDONE.encode(), None, headers_of(number))


def headers_of(number: int) -> Headers:
    """Return the headers of a record."""
    return ((NUMBER, b"%d" % number),)


def number_in(headers: Headers) -> int | None:
    """Return the number that headers hold, None when they hold none."""
    return next((int(value) for name, value in headers if name == NUMBER and value is not None), None)

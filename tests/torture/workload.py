"""The records of a run: what each holds and what is to become of it, computed from its number alone; pure.

The number travels in a header, which replayed copies and dead letters keep. A record's first word holds
the number, so that no two records have the same words.
"""

from __future__ import annotations

from typing import Final

from acker.kafka.port import Headers, Outgoing
from spout.demo.words import ALWAYS_FAILS, FAILS_TWICE, NEVER_ACKED_AT_FIRST, PLAIN
from tests.support.odd_records import KEYS, ODD_RECORDS, VALUES, OddRecord
from tests.support.raw_records import RawRecord

NUMBER: Final = "torture.number"
"""Header with the record's number, in decimal digits."""

UNDONE: Final = "undone"
"""The one word of a record whose transaction is aborted; nobody may ever see it."""

_EVERY: Final = {997: ALWAYS_FAILS, 101: FAILS_TWICE, 211: NEVER_ACKED_AT_FIRST}
"""Of so many records one is of that kind. Primes, so that they fall on all partitions."""

ODD_EVERY: Final = 9
"""One record of so many is odd, in its headers, its key or its value; so they fall on all partitions."""

_ODD_FROM: Final = 3
_ODD_BYTES_MAX: Final = 20_000
_ODD: Final = [odd for odd in ODD_RECORDS if odd.record.size <= _ODD_BYTES_MAX]


class UnluckyLineError(Exception):
    """An evaluation fails by chance, whatever the record; the next one may not."""


ODD_ERRORS: Final = frozenset({AttributeError.__name__, UnicodeDecodeError.__name__})
"""What the bolt raises at a record without a value, and at one whose value is no text."""

_WORDS_MAX: Final = 5
_NO_WORDS_EVERY: Final = 251


def key_of(number: int) -> bytes:
    """Return the key of a record, which tells its bolt what to do; most have `PLAIN`."""
    return next((key for every, key in _EVERY.items() if number % every == every // 2), PLAIN)


def odd_of(number: int) -> OddRecord | None:
    """Return in which way a record is odd; None for most records.

    Each kind in turn has four odd records in a row, one in each of four partitions.
    """
    if number % ODD_EVERY != _ODD_FROM or key_of(number) != PLAIN:
        return None
    return _ODD[number // ODD_EVERY // 4 % len(_ODD)]


def is_text(number: int) -> bool:
    """Whether a record's value can be read as text: else its bolt raises one of `ODD_ERRORS`, each time."""
    odd = odd_of(number)
    if odd not in VALUES:
        return True
    value = odd.record.value
    try:
        return value is not None and isinstance(value.decode(), str)
    except UnicodeDecodeError:
        return False


def words_of(number: int) -> tuple[str, ...]:
    """Return the words of a record, in order; a few records have none."""
    if number % _NO_WORDS_EVERY == 7 or odd_of(number) in VALUES:
        return ()
    return (f"n{number}", *(f"w{(number * 7 + place) % 97}" for place in range(number % _WORDS_MAX)))


def record_of(number: int, topic: str, partitions: int) -> Outgoing:
    """Make a record that a client can write."""
    raw = raw_record(number)
    headers = headers_of(number)
    if (odd := odd_of(number)) is not None:
        headers += tuple(odd.headers)
    return Outgoing(topic, number % partitions, raw.value, raw.key, headers)


def raw_record(number: int) -> RawRecord:
    """Make a record as bytes: of some odd ones no client can write the names of their headers."""
    value: bytes | None = " ".join(words_of(number)).encode()
    key: bytes | None = key_of(number) or None
    headers = [(name.encode(), content) for name, content in headers_of(number)]
    if (odd := odd_of(number)) is not None:
        headers += odd.record.headers
        if odd in VALUES:
            value = odd.record.value
        elif odd in KEYS:
            key = odd.record.key
    return RawRecord(value, key, tuple(headers))


def undone_record(number: int, topic: str, partitions: int) -> Outgoing:
    """Make a record for a transaction that will be aborted."""
    return Outgoing(topic, number % partitions, UNDONE.encode(), None, headers_of(number))


def headers_of(number: int) -> Headers:
    """Return the headers of a record."""
    return ((NUMBER, b"%d" % number),)


def number_in(headers: Headers) -> int | None:
    """Return the number that headers hold, None when they hold none."""
    return next((int(value) for name, value in headers if name == NUMBER and value is not None), None)

"""The headers of a message of confluent-kafka, whatever bytes their names are.

Kafka lets a header's name be any bytes, and producers of other languages write them. confluent-kafka decodes
names as UTF-8. Where one cannot be decoded it makes its list all the same, but leaves an empty slot (a C
NULL) in the tuple of that header, and returns the list with an exception pending. Three things follow:

1. A direct call, ``message.headers()``, may return that list. An interpreter that has specialised the call
   does not look for an exception, which then comes up in some later statement. So it is called through
   `operator.methodcaller`, whose call is always checked: a `SystemError` is raised.
2. The message keeps the list. To read an empty slot, to show the tuple, or to pickle it ends the process.
   The garbage collector's own view of a tuple passes over an empty slot, so its length tells which tuples
   have one. Values are never in that slot.
3. The message is given a list of ours at once, so nobody else comes by the broken one.

Of several names that are no UTF-8 only the first one's bytes are known.

What librdkafka does not tell nobody can see here: it cuts a name at its first zero byte, and of a record with
more than 100,000 headers it shows none.

Source: confluent_kafka.c, `c_headers_to_py`, `Message_headers`; rdkafka_msg.c, `rd_kafka_msg_headers_parse`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import Message

from acker.kafka.port import Headers, UnreadableName

_log = logging.getLogger(__name__)
# without a handler of the application's, Python would print it to stderr
_log.addHandler(logging.NullHandler())

TOPICS_LOGGED_MAX: Final = 1_000
"""In a process so many topics are named at most that have such headers."""

LOGGED_CHARACTERS: Final = 200
"""So much of the placeholders of one record is logged."""

_topics_logged: set[str] = set()

_checked_headers: Callable[[Message], list[tuple[str, bytes | None]] | None] = methodcaller("headers")


def headers_of(message: Message) -> Headers:
    """Return a message's headers, in order; a name that is no UTF-8 is an `UnreadableName`.

    The first such record of each topic is logged with its place.
    """
    try:
        headers = _checked_headers(message)
    except SystemError as error:
        return _repaired(message, error)
    return () if headers is None else tuple(headers)


def _repaired(message: Message, error: BaseException) -> Headers:
    """Replace names that are no UTF-8, in the message as well."""
    first_name = _bytes_of_name(error)
    headers: list[tuple[str, str | bytes | None]] = []
    try:
        broken = _checked_headers(message) or ()
    except SystemError:  # another client than the one of which the module tells: it keeps nothing
        broken = ()
    for pair in broken:
        if _is_whole(pair):
            headers.append(pair)
        else:
            headers.append((UnreadableName.of(first_name), pair[1]))
            first_name = None  # the bytes of the others are not known
    message.set_headers(headers or [(UnreadableName.of(first_name), None)])
    _log_once(message)
    return headers_of(message)


def _is_whole(pair: tuple[Any, ...]) -> bool:
    """Return whether a tuple has no empty slot; nothing in it is looked at."""
    return len(gc.get_referents(pair)) == len(pair)


def _bytes_of_name(error: BaseException | None) -> bytes | None:
    """Return the bytes of the first name that could not be decoded: each further one hides it once more."""
    while error is not None:
        if isinstance(error, UnicodeDecodeError):
            return error.object
        error = error.__cause__
    return None


def _log_once(message: Message) -> None:
    topic = message.topic() or ""
    if topic in _topics_logged or len(_topics_logged) >= TOPICS_LOGGED_MAX:
        return
    _topics_logged.add(topic)
    names = ", ".join(name for name, _ in headers_of(message) if type(name) is UnreadableName)
    _log.warning(
        "header_name_unreadable record=%s/%s@%s names=%r: it is not UTF-8, so the record goes on with a"
        " placeholder for it; further ones of this topic are not logged",
        topic,
        message.partition(),
        message.offset(),
        names[:LOGGED_CHARACTERS],
    )

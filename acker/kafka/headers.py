"""The headers of a message of confluent-kafka, whatever bytes their names are.

A header's name may be any bytes in Kafka, and producers of other languages
write such names. confluent-kafka decodes names as UTF-8. If one cannot be
decoded, it makes its list all the same, but leaves an empty slot (a C NULL)
in the tuple of that header, and returns the list with an exception pending.
Three things follow:

1. A direct call, ``message.headers()``, may return that list. An interpreter that has specialised
   the call does not look for an exception, which then comes up in some later statement. So it is
   called through `operator.methodcaller`, whose call is always checked: a `SystemError` is raised.
2. The message keeps the list. To read an empty slot, to show the tuple, or to pickle it ends the
   process. The garbage collector's own view of a tuple passes over an empty slot, so its length
   tells which tuples have one. Values are never in that slot.
3. The message is given a list of ours at once, so that nobody else reads the broken one.

Of several names that are no UTF-8 only the first one's bytes are known.

Two things cannot be seen here: librdkafka cuts a name at its first zero byte,
and it shows no header of a record that has more than 100,000.

Source: confluent_kafka.c, `c_headers_to_py`, `Message_headers`;
rdkafka_msg.c, `rd_kafka_msg_headers_parse`.
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
"""A process logs so many topics with such headers at most, each once."""

LOGGED_CHARACTERS: Final = 200
"""So many characters of the placeholders of one record are logged."""

_topics_logged: set[str] = set()

_checked_headers: Callable[[Message], list[tuple[str, bytes | None]] | None] = methodcaller("headers")


def headers_of(message: Message) -> Headers:
    """Return a message's headers, in order; a name that is no UTF-8 is an `UnreadableName`.

    Of each topic, the first message with such a name is logged with its place.
    """
    try:
        headers = _checked_headers(message)
    # confluent-kafka raises it if a name is no UTF-8: see the head of this module, 1.
    except SystemError as error:
        return _repair_headers(message, error)
    return () if headers is None else tuple(headers)  # None: the message has no headers


def _repair_headers(message: Message, error: BaseException) -> Headers:
    """Give a message a list of headers without empty slots, log it, and return them.

    `error` is what reading them raised; names that are no UTF-8 become placeholders.
    """
    unreadable_name = _bytes_of_first_name(error)
    headers: list[tuple[str, str | bytes | None]] = []
    try:
        broken_headers = _checked_headers(message) or ()  # the message has kept the list
    except SystemError:  # another client than the one that the module describes: it keeps no list
        broken_headers = ()
    for header in broken_headers:
        if _has_no_empty_slot(header):
            headers.append(header)
        else:
            value = header[1]  # the empty slot is that of the name, which may not be read
            headers.append((UnreadableName.of(unreadable_name), value))
            unreadable_name = None  # only the first one's bytes are known
    if not headers:  # something could not be read, so there is at least one
        headers.append((UnreadableName.of(unreadable_name), None))
    message.set_headers(headers)
    _log_first_of_topic(message)
    return headers_of(message)


def _has_no_empty_slot(header: tuple[Any, ...]) -> bool:
    """Return whether a header's tuple has no empty slot, without reading one."""
    return len(gc.get_referents(header)) == len(header)


def _bytes_of_first_name(error: BaseException | None) -> bytes | None:
    """Return the bytes of the first name that could not be decoded; None: they are not known.

    Each further name that cannot be decoded wraps the error of the first one once more.
    """
    while error is not None:
        if isinstance(error, UnicodeDecodeError):
            return error.object
        error = error.__cause__
    return None


def _log_first_of_topic(message: Message) -> None:
    """Log the first message of each topic that has a name which is no UTF-8."""
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

"""Logs of the commands: JSON lines on stderr, the event's name first.

Only the commands configure them; the rooms below return what happened, or get a function to log.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from acker.redaction import HIDDEN, cut

SECRET_NAMES: Final = re.compile(
    r"password|secret|token|jaas|credential|private|sasl|ssl", flags=re.IGNORECASE
)

WARNINGS: Final = frozenset(
    {"aborted", "broker_unreachable", "damaged", "dead_lettered", "exposed", "fenced", "held_up",
     "mended", "not_committed", "not_reloaded", "partition_fenced", "paused", "put_aside",
     "quarantine_refused", "record_differs", "record_quarantined", "state_half_full", "step_hung",
     "step_slow", "stop_hung", "take_refused", "transaction_aborted", "undecodable", "unreachable"}
)  # fmt: skip
"""Events, without the first part of their names, that an operator should see."""

ERRORS: Final = frozenset({"partition_stands", "state_full"})
"""Events, without the first part of their names, that an operator must see to: a partition does
not go on until somebody acts."""

LIBRDKAFKA: Final = "librdkafka"
"""`acker.kafka.client.LIBRDKAFKA`; not imported here, since most commands start before they
need Kafka."""

_NUMBERS: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
"""Decimal and hexadecimal numbers in a line."""

_STARTS_OF_REPORTED_LINES: Final = ("FAIL [", "ERROR [")
"""librdkafka both logs and reports errors whose lines begin so; only the report is shown."""

_FIRST_FIELDS: Final = ("event", "level", "time")

RECURRING_EVERY_S: Final = 60.0
"""How often events of one kind are shown, such as lines of librdkafka that differ only in their
numbers."""

KINDS_MAX: Final = 1_000
"""How many kinds are remembered; then all are forgotten, and each may be shown once more."""


def configure(*, debug: bool = False) -> None:
    """Send the logs of this process, and of the libraries in it, to stderr.

    `debug` shows more of them.
    """
    import structlog  # only here: most commands only call `silence`

    # 1. Our own events, by structlog. What the libraries' lines pass through, too, is in the two
    # lists: at the begin and at the end.
    common_begin: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    common_end: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        hide_secrets,
        event_first,
        structlog.processors.JSONRenderer(),
    ]
    own_level = logging.DEBUG if debug else logging.INFO
    structlog.configure(
        processors=[*common_begin, *common_end],
        wrapper_class=structlog.make_filtering_bound_logger(own_level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    # 2. The libraries' lines, by Python's own logging.
    handler = logging.StreamHandler(sys.stderr)
    if not debug:
        handler.addFilter(Recurring(time.monotonic))
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*common_begin, structlog.stdlib.ExtraAdder()],
            processors=[remove_meta, *common_end],
        )
    )
    library_level = logging.DEBUG if debug else logging.WARNING
    logging.basicConfig(handlers=[handler], level=library_level, force=True)


class _Shown(NamedTuple):
    """When an event of a kind was last shown, by the clock, and how many were left out since."""

    at_s: float
    left_out_count: int


class OncePerKind:
    """Decides whether a repeated event is shown: one of each kind per `RECURRING_EVERY_S`.

    `clock` gives seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shown_by_kind: dict[Hashable, _Shown] = {}

    def record_event(self, kind: Hashable) -> int | None:
        """Record an event; return None if it is to be left out.

        A number: show the event; that many of its kind were left out since the last one shown.
        """
        now_s = self._clock()
        last_shown = self._shown_by_kind.get(kind)
        left_out_count = 0
        if last_shown is not None:
            left_out_count = last_shown.left_out_count
            if now_s - last_shown.at_s < RECURRING_EVERY_S:
                self._shown_by_kind[kind] = _Shown(last_shown.at_s, left_out_count + 1)
                return None
        if len(self._shown_by_kind) >= KINDS_MAX:  # memory stays bounded: each kind begins anew
            self._shown_by_kind.clear()
        self._shown_by_kind[kind] = _Shown(now_s, left_out_count=0)
        return left_out_count


class Recurring(logging.Filter):
    """Shows one line of librdkafka of each kind per minute: in an outage each client repeats
    them.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._kinds = OncePerKind(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a line.

        Its field `repeated` gets the number left out before it.
        """
        if record.name != LIBRDKAFKA:
            return True
        text = record.getMessage()
        if text.startswith(_STARTS_OF_REPORTED_LINES):
            return False
        kind = _NUMBERS.sub("#", text)  # lines that differ only in their numbers
        left_out_count = self._kinds.record_event(kind)  # None: leave this one out, too
        if left_out_count:
            record.repeated = left_out_count
        return left_out_count is not None


def silence() -> None:
    """Drop the libraries' logs: a command that ends reports its result in one line."""
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)


def log_event(event: str, **fields: Any) -> None:
    """Log an event, ``<part>.<what happened>``, at its level.

    A log that cannot be written, on a full disk, ends no process: what counts is in the topics.
    """
    import structlog

    logger = structlog.get_logger()
    name = event.partition(".")[2]
    write = logger.info
    if name in ERRORS:
        write = logger.error
    elif name in WARNINGS:
        write = logger.warning
    with suppress(OSError):
        write(event, **fields)


def hide_secrets(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Replace the value of each field whose name suggests a secret; a processor of structlog.

    Of other fields, and of what is in them, what has the form of a secret is cut out.
    """
    shown_fields: dict[str, Any] = {}
    for name, value in fields.items():
        shown_fields[name] = HIDDEN if SECRET_NAMES.search(name) else _cut(value)
    return shown_fields


def _cut(value: Any) -> Any:
    """Return a value, with all that has the form of a secret cut out of the texts in it."""
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, Mapping):
        return {name: _cut(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cut(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return cut(str(value))


def event_first(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put event, level and time before the other fields; a processor of structlog."""
    begin = {name: fields[name] for name in _FIRST_FIELDS if name in fields}
    return begin | dict(fields)

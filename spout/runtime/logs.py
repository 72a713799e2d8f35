"""Logs of the commands: JSON lines on stderr, the event's name first; configured at the top only."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from acker.redaction import HIDDEN, cut

SECRET_NAMES: Final = re.compile(r"password|secret|token|jaas|credential|private|sasl|ssl", re.IGNORECASE)

WARNINGS: Final = frozenset(
    {"aborted", "broker_unreachable", "damaged", "dead_lettered", "exposed", "fenced", "held_up", "mended",
     "not_committed", "not_reloaded", "partition_fenced", "paused", "put_aside", "quarantine_refused",
     "record_differs", "record_quarantined", "state_half_full", "step_hung", "step_slow", "stop_hung",
     "take_refused",
     "transaction_aborted", "undecodable", "unreachable"}
)  # fmt: skip
"""Events, without the first part of their names, that an operator should see."""

ERRORS: Final = frozenset({"partition_stands", "state_full"})
"""Events, without the first part of their names, that an operator must see to: a part of the work stands."""

LIBRDKAFKA: Final = "librdkafka"
"""`acker.kafka.client.LIBRDKAFKA`; not imported here, since most commands start before they need Kafka."""

_FIGURES: Final = re.compile(r"[0-9a-f]*\d[0-9a-f]*")
_REPORTED_TOO: Final = ("FAIL [", "ERROR [")
"""librdkafka both logs and reports errors whose lines begin so; only the report is shown."""

_FIRST: Final = ("event", "level", "time")

RECURRING_EVERY_S: Final = 60.0
"""How often events of one kind are shown, such as lines of librdkafka that differ only in their numbers."""

KINDS_MAX: Final = 1_000
"""How many kinds are remembered; then all are forgotten, and each may be shown once more."""


def configure(*, debug: bool = False) -> None:
    """Send the logs of this process, and of the libraries in it, to stderr. `debug` shows more of them."""
    import structlog  # only here: most commands only call `silence`

    level = logging.DEBUG if debug else logging.INFO
    first: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        hide_secrets,
        event_first,
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    if not debug:
        handler.addFilter(Recurring(time.monotonic))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*first, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.WARNING, force=True)


class OncePerKind:
    """Decides whether a repeated event is shown: one of each kind per period; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shown: dict[Hashable, tuple[float, int]] = {}

    def left_out(self, kind: Hashable) -> int | None:
        """Return how many of a kind were left out since the last one shown; None: leave this one out too."""
        now = self._clock()
        shown_s, left_out = self._shown.get(kind, (None, 0))
        if shown_s is not None and now - shown_s < RECURRING_EVERY_S:
            self._shown[kind] = shown_s, left_out + 1
            return None
        if len(self._shown) >= KINDS_MAX:
            self._shown.clear()
        self._shown[kind] = now, 0
        return left_out


class Recurring(logging.Filter):
    """Lets one line of librdkafka of each kind through per minute: in an outage each client repeats them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._kinds = OncePerKind(clock)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a line; its field `repeated` counts the lines left out before it."""
        if record.name != LIBRDKAFKA:
            return True
        text = record.getMessage()
        if text.startswith(_REPORTED_TOO):
            return False
        left_out = self._kinds.left_out(_FIGURES.sub("#", text))
        if left_out:
            record.repeated = left_out
        return left_out is not None


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
    write = logger.error if name in ERRORS else logger.warning if name in WARNINGS else logger.info
    with suppress(OSError):
        write(event, **fields)


def hide_secrets(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Replace the value of each field whose name suggests a secret; a processor of structlog.

    Of other fields, and of what is in them, what has the form of a secret is cut out.
    """
    return {name: HIDDEN if SECRET_NAMES.search(name) else _cut(value) for name, value in fields.items()}


def _cut(value: Any) -> Any:
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
    return {name: fields[name] for name in _FIRST if name in fields} | dict(fields)

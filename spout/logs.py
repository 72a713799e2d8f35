"""Logs of the commands: JSON lines on stderr, the event's name first; configured at the top only."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import structlog

SECRET_NAMES: Final = re.compile(r"password|secret|token|jaas|credential|private|sasl|ssl", re.IGNORECASE)
HIDDEN: Final = "…"

WARNINGS: Final = frozenset(
    {"aborted", "broker_unreachable", "dead_lettered", "fenced", "mended", "not_committed",
     "partition_fenced", "record_differs", "record_quarantined", "step_hung", "step_slow", "stop_hung",
     "take_refused", "transaction_aborted", "undecodable", "unreachable"}
)  # fmt: skip
"""Events, without the part that they begin with, that a person may want to look at."""

_FIRST: Final = ("event", "level", "time")


def configure(*, debug: bool = False) -> None:
    """Send the logs of this process, and of the libraries in it, to stderr. `debug` shows more of them."""
    level = logging.DEBUG if debug else logging.INFO
    first: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        hide_secrets,
        event_first,
        structlog.processors.JSONRenderer(default=str),
    ]
    structlog.configure(
        processors=[*first, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=first,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if debug else logging.WARNING, force=True)


def silence() -> None:
    """Drop the libraries' logs: a command that ends says what there is to say in one line."""
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)


def tell(event: str, **fields: Any) -> None:
    """Log an event, ``<part>.<what happened>``, at the level that it deserves."""
    logger = structlog.get_logger()
    if event.partition(".")[2] in WARNINGS:
        logger.warning(event, **fields)
    else:
        logger.info(event, **fields)


def hide_secrets(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Replace the value of each field whose name says that it may be a secret; a processor of structlog."""
    return {name: HIDDEN if SECRET_NAMES.search(name) else value for name, value in fields.items()}


def event_first(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Put event, level and time before the other fields; a processor of structlog."""
    return {name: fields[name] for name in _FIRST if name in fields} | dict(fields)

"""Bounds between settings of librdkafka: one that may not be above another one in the same client.

librdkafka refuses a client whose settings break one, and names settings that a user may never have written:
the other one may be ours, or its own default. So ours give way to the user's (`reconciled`), and what a
user's settings cannot have together is a problem of the file (`contradictions`), before any client is made.

Source: ``rd_kafka_conf_finalize`` and ``rd_kafka_new`` of librdkafka 2.16, each bound tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from acker.config.problems import Problem

SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")
"""Settings with addresses, which no client refuses: it looks for them later."""

LOWEST_BYTES: Final = 1000
"""The smallest `message.max.bytes` that librdkafka takes."""

HEAD_BYTES: Final = 512
"""So much larger must an answer be allowed to be than what is fetched in it."""

SESSION_MS: Final = 15_000
"""The session of a member of the ackers' or replay workers' group, unless it is set."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """`low` plus `room` is at most `high`, in a client that has the setting `client_of` (empty: in each)."""

    low: str
    room: int
    high: str
    client_of: str = ""
    gives_way: str = ""
    """Where both are a user's, and one of them means nothing to this client: the one that gives way."""


# In this order: what one of them lowers is the higher one of the next.
_BOUNDS: Final = (
    _Bound("reconnect.backoff.ms", 0, "reconnect.backoff.max.ms"),
    _Bound("session.timeout.ms", 0, "max.poll.interval.ms", "group.id"),
    _Bound("fetch.max.bytes", HEAD_BYTES, "receive.message.max.bytes", "group.id"),
    _Bound("message.max.bytes", 0, "fetch.max.bytes", "group.id"),
    # A transaction that nobody ends holds back all readers until its timeout. So that stays as it is,
    # and a producer that has transactions waits no longer for an answer, or for a record's delivery.
    _Bound("socket.timeout.ms", -100, "transaction.timeout.ms", "transactional.id", "socket.timeout.ms"),
    _Bound("message.timeout.ms", 0, "transaction.timeout.ms", "transactional.id", "message.timeout.ms"),
    _Bound("linger.ms", 1, "message.timeout.ms", "acks"),
)

RANGES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({"session.timeout.ms": (1, 3_600_000)})
"""Settings of which all is known here that librdkafka asks: nobody needs to make a client to try them."""

_DEFAULTS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "fetch.max.bytes": 52_428_800,
        "linger.ms": 5,
        "max.poll.interval.ms": 300_000,
        "message.max.bytes": 1_000_000,
        "message.timeout.ms": 300_000,
        "receive.message.max.bytes": 100_000_000,
        "reconnect.backoff.max.ms": 10_000,
        "reconnect.backoff.ms": 100,
        "session.timeout.ms": 45_000,
        "socket.timeout.ms": 60_000,
        "transaction.timeout.ms": 60_000,
    }
)
"""What librdkafka takes where nothing is set."""

_OTHER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"delivery.timeout.ms": "message.timeout.ms", "queue.buffering.max.ms": "linger.ms"}
)
"""Settings that librdkafka has under two names."""


def reconciled(
    ours: Mapping[str, Any], users: Mapping[str, str], forced: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of one client: the user's overrule ours, never the forced ones.

    Where a user's setting and one of ours break a bound, ours is moved to where they agree.
    """
    settings = {**ours, **users, **forced}
    for name, other in _OTHER_NAMES.items():
        if name in settings:
            settings[other] = settings.pop(name)
    pinned = {_OTHER_NAMES.get(name, name) for name in users} - forced.keys()
    for bound in _BOUNDS:
        is_of_client = not bound.client_of or bound.client_of in settings
        if is_of_client and not settings.keys().isdisjoint((bound.low, bound.high)):
            moved = _moved(bound, settings, pinned)
            settings |= moved
            pinned |= moved.keys()  # else the next bound would move it back
    return settings


def needs_trial(settings: Mapping[str, str]) -> bool:
    """Return whether only a client itself can say if it takes these settings."""
    for name, value in settings.items():
        least, most = RANGES.get(name, (1, 0))
        is_in_range = name in RANGES and least <= float(value) <= most
        if name not in SERVERS and not is_in_range:
            return True
    return False


def _moved(bound: _Bound, settings: Mapping[str, Any], pinned: set[str]) -> dict[str, int]:
    """Return the setting that keeps a bound, and its new value; nothing where it is kept."""
    low, high = (float(settings.get(name, _DEFAULTS[name])) for name in (bound.low, bound.high))
    if low + bound.room <= high:
        return {}
    if bound.gives_way == bound.low or bound.high in pinned:
        return {bound.low: max(0, int(high) - bound.room)}
    return {bound.high: int(low) + bound.room}


def contradictions(users: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what settings of a user cannot have together, or with what Windhover needs."""
    settings = {_OTHER_NAMES.get(name, name): value for name, value in users.items()}
    written = {_OTHER_NAMES.get(name, name): name for name in users}

    def number(name: str, otherwise: int) -> float:
        return float(settings[name]) if name in settings else otherwise

    def problem(name: str, text: str) -> Problem:
        return Problem(("kafka", written[name]), text)

    if "max.poll.interval.ms" in settings:
        session_ms = number("session.timeout.ms", SESSION_MS)
        if number("max.poll.interval.ms", 0) < session_ms:
            shown = _shown("session.timeout.ms", session_ms, settings)
            text = f"is below session.timeout.ms, {shown}; give as much, or remove it"
            yield problem("max.poll.interval.ms", text)
    if {"fetch.max.bytes", "receive.message.max.bytes"} <= settings.keys():
        needed = number("fetch.max.bytes", 0) + HEAD_BYTES
        if number("receive.message.max.bytes", 0) < needed:
            text = f"is below fetch.max.bytes and {HEAD_BYTES} more; give {needed:.0f}, or remove one of them"
            yield problem("receive.message.max.bytes", text)
    for name, least in (
        ("fetch.max.bytes", LOWEST_BYTES),
        ("receive.message.max.bytes", LOWEST_BYTES + HEAD_BYTES),
    ):
        if number(name, least) < least:
            yield problem(name, f"is below {least}; nothing could be read. Give more, or remove it")
    if {"reconnect.backoff.ms", "reconnect.backoff.max.ms"} <= settings.keys() and (
        number("reconnect.backoff.max.ms", 0) < number("reconnect.backoff.ms", 0)
    ):
        yield problem(
            "reconnect.backoff.max.ms", "is below reconnect.backoff.ms; give as much, or remove one"
        )
    limit_ms = min(
        number("message.timeout.ms", _DEFAULTS["transaction.timeout.ms"]),
        number("transaction.timeout.ms", _DEFAULTS["transaction.timeout.ms"]),
    )
    if "linger.ms" in settings and number("linger.ms", 0) >= limit_ms > 0:
        text = (
            f"is not below {limit_ms:.0f}, the time within which a record must be written; give less, such"
            " as 5, or remove it"
        )
        yield problem("linger.ms", text)


def _shown(name: str, value: float, settings: Mapping[str, str]) -> str:
    """Show a number that a user may compare; it is no secret."""
    return f"{value:.0f}" if name in settings else f"{value:.0f} where it is not set"

"""Bounds between settings of librdkafka: one that may not be above another one in the same client.

librdkafka refuses a client whose settings break one, and names settings that a user may never have
written: the other one may be ours, or its own default. So ours give way to the user's
(`reconciled`), and what a user's settings cannot have together is a problem of the file
(`contradictions`), before any client is made.

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
    """The setting `lower_name` plus `distance` is at most the setting `higher_name`.

    Attributes:
        client_of: it holds for a client that has this setting, since that shows its kind: only a
            consumer has a ``group.id``. Empty: it holds for each client.
        name_to_move: the one that is moved, whoever set it: it means nothing to this client. Empty:
            the higher one is moved, or the lower one if the higher one is a user's.
    """

    lower_name: str
    distance: int
    higher_name: str
    client_of: str = ""
    name_to_move: str = ""


# In this order: what one of them lowers is the higher one of the next.
_BOUNDS: Final = (
    _Bound("reconnect.backoff.ms", 0, "reconnect.backoff.max.ms"),
    _Bound("session.timeout.ms", 0, "max.poll.interval.ms", "group.id"),
    _Bound("fetch.max.bytes", HEAD_BYTES, "receive.message.max.bytes", "group.id"),
    _Bound("message.max.bytes", 0, "fetch.max.bytes", "group.id"),
    # A transaction that nobody ends holds back all readers until its timeout. So that stays as it
    # is, and a producer that has transactions waits no longer for an answer, or for a record's
    # delivery.
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
"""Settings that librdkafka has under two names, each with the one that is used here."""


def reconciled(
    ours: Mapping[str, Any], users: Mapping[str, str], forced: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of one client of librdkafka: a user's overrule ours, never the forced
    ones.

    A bound says that one setting may not be above another one. If a user's setting and one of ours
    break it, ours is moved to where they agree.
    """
    settings = {**ours, **users, **forced}
    # librdkafka has some settings under two names: go on with one
    for name, used_name in _OTHER_NAMES.items():
        if name in settings:
            settings[used_name] = settings.pop(name)
    # the names of settings that must stay as they are
    fixed = {_OTHER_NAMES.get(name, name) for name in users} - forced.keys()
    for bound in _BOUNDS:
        # only clients with the setting `client_of` have the bound: it is that of consumers, say
        is_of_client = not bound.client_of or bound.client_of in settings
        # where neither is set, librdkafka's own defaults agree
        is_touched = bound.lower_name in settings or bound.higher_name in settings
        if is_of_client and is_touched:
            moved_settings = _setting_to_move(bound, settings, fixed)
            settings |= moved_settings
            fixed |= moved_settings.keys()  # else the next bound would move it back
    return settings


def needs_trial(settings: Mapping[str, str]) -> bool:
    """Return whether only a client itself can say if it takes these settings."""
    for name, value in settings.items():
        if name in SERVERS:  # no client refuses an address
            continue
        if name not in RANGES:  # what librdkafka takes is not written down here
            return True
        lowest, highest = RANGES[name]
        if not lowest <= float(value) <= highest:
            return True
    return False


def _setting_to_move(bound: _Bound, settings: Mapping[str, Any], fixed: set[str]) -> dict[str, int]:
    """Return the setting that must be moved to keep a bound, with its new value; empty: it is kept.

    A bound is that the lower setting and a distance are not above the higher setting. The higher
    one is moved, or the lower one if the higher one is `fixed`, or the bound says so.
    """
    low_value = float(settings.get(bound.lower_name, _DEFAULTS[bound.lower_name]))
    high_value = float(settings.get(bound.higher_name, _DEFAULTS[bound.higher_name]))
    if low_value + bound.distance <= high_value:
        return {}
    if bound.name_to_move == bound.lower_name or bound.higher_name in fixed:
        return {bound.lower_name: max(0, int(high_value) - bound.distance)}
    return {bound.higher_name: int(low_value) + bound.distance}


def contradictions(users: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem for each setting of a user's that contradicts another one, or what
    Windhover needs.

    `users` are the settings in the file, by name. A problem names a setting as the file does.
    """
    settings = {_OTHER_NAMES.get(name, name): value for name, value in users.items()}
    names_in_file = {_OTHER_NAMES.get(name, name): name for name in users}
    contradictory = (
        *_session_above_poll_interval(settings),
        *_answer_below_fetch(settings),
        *_too_small_to_read(settings),
        *_backoff_above_its_maximum(settings),
        *_linger_above_delivery(settings),
    )
    for name, text in contradictory:
        yield Problem(("kafka", names_in_file[name]), text)


# Each rule yields the setting that breaks it, by the name in `_BOUNDS`, and what is wrong with it.
_Flaws = Iterator[tuple[str, str]]


def _number_of(settings: Mapping[str, str], name: str, unset: int) -> float:
    """Return the value of a setting, `unset` where the user has not set it."""
    return float(settings[name]) if name in settings else unset


def _session_above_poll_interval(settings: Mapping[str, str]) -> _Flaws:
    """Yield a flaw if a member would leave its group before its session is over."""
    if "max.poll.interval.ms" not in settings:  # its default is above each session
        return
    session_ms = _number_of(settings, "session.timeout.ms", SESSION_MS)
    if float(settings["max.poll.interval.ms"]) < session_ms:
        origin = "" if "session.timeout.ms" in settings else " where it is not set"
        text = f"is below session.timeout.ms, {session_ms:.0f}{origin}; give as much, or remove it"
        yield "max.poll.interval.ms", text


def _answer_below_fetch(settings: Mapping[str, str]) -> _Flaws:
    """Yield a flaw if an answer of the broker may be larger than the client takes."""
    if not {"fetch.max.bytes", "receive.message.max.bytes"} <= settings.keys():
        return
    needed_bytes = float(settings["fetch.max.bytes"]) + HEAD_BYTES
    if float(settings["receive.message.max.bytes"]) < needed_bytes:
        text = (
            f"is below fetch.max.bytes and {HEAD_BYTES} more; give {needed_bytes:.0f}, or remove one of them"
        )
        yield "receive.message.max.bytes", text


def _too_small_to_read(settings: Mapping[str, str]) -> _Flaws:
    """Yield a flaw for each limit below which no batch could be read."""
    for name, lowest_bytes in (
        ("fetch.max.bytes", LOWEST_BYTES),
        ("receive.message.max.bytes", LOWEST_BYTES + HEAD_BYTES),
    ):
        if _number_of(settings, name, lowest_bytes) < lowest_bytes:
            yield name, f"is below {lowest_bytes}; nothing could be read. Give more, or remove it"


def _backoff_above_its_maximum(settings: Mapping[str, str]) -> _Flaws:
    """Yield a flaw if the first pause before a connection is longer than the longest one."""
    if not {"reconnect.backoff.ms", "reconnect.backoff.max.ms"} <= settings.keys():
        return
    if float(settings["reconnect.backoff.max.ms"]) < float(settings["reconnect.backoff.ms"]):
        text = "is below reconnect.backoff.ms; give as much, or remove one"
        yield "reconnect.backoff.max.ms", text


def _linger_above_delivery(settings: Mapping[str, str]) -> _Flaws:
    """Yield a flaw if records would wait for others longer than they may take in all."""
    if "linger.ms" not in settings:
        return
    unset_ms = _DEFAULTS["transaction.timeout.ms"]  # ours: a record waits for its transaction at most
    limit_ms = min(
        _number_of(settings, "message.timeout.ms", unset_ms),
        _number_of(settings, "transaction.timeout.ms", unset_ms),
    )
    if float(settings["linger.ms"]) >= limit_ms > 0:
        text = (
            f"is not below {limit_ms:.0f}, the time within which a record must be written; give less, such"
            " as 5, or remove it"
        )
        yield "linger.ms", text

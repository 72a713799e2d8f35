"""Logins by token: the function that a topics.yaml names is imported, and what it returns is checked.

librdkafka asks for a token when it connects, and again when four fifths of its life are over; a thread of its
own calls the function, so each client of each process has to be able to import it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any, Final

from acker.errors import ConfigError, NotAuthenticated
from acker.redaction import cut
from acker.untrusted import Untrusted

TokenFunction = Callable[[str], tuple[Any, ...]]
"""Gets `sasl.oauthbearer.config`; returns the token, and when it ends in seconds since 1970. Behind these may
stand the principal and a mapping of SASL extensions."""

_PLACE: Final = "topics.yaml: kafka: oauth_cb"

_ENDED: Final = ("none", 1.0)
"""A token that has ended."""

_log = logging.getLogger(__name__)


def token_function(named: str) -> TokenFunction:
    """Import a function by ``module:function``.

    Raises `ConfigError`: it cannot be imported, or is no function.
    """
    module_name, _, path = named.partition(":")
    try:
        function: Any = reduce(getattr, path.split("."), import_module(module_name))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{_PLACE} = {named}: no module is called {error.name}; install it on every machine that runs, or"
            " put its folder on PYTHONPATH"
        ) from error
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(
            f"{_PLACE} = {named}: cannot be imported: {Untrusted(str(error))}; correct it"
        ) from error
    if not callable(function):
        raise ConfigError(f"{_PLACE} = {named}: is no function; write module:function")
    return function  # type: ignore[no-any-return]  # of the user's


class Tokens:
    """Gives a client its tokens: what librdkafka calls.

    An exception must not leave the call: confluent-kafka would go on with it, and end the process. So a
    function that fails later is logged, and librdkafka is given a token that has ended: it reports that as a
    login that failed, and asks again after ten seconds.
    """

    def __init__(self, named: str, function: TokenFunction, now: Callable[[], float] = time.time) -> None:
        self._named = named
        self._function = function
        self._now = now
        self._first: tuple[Any, ...] | None = None

    def take_first(self, config: str) -> None:
        """Ask for the first token, before there is a client: here what goes wrong can be raised.

        Raises `NotAuthenticated`: the function raises something, or returns no token.
        """
        self._first = self._checked(config)

    def __call__(self, config: str) -> tuple[Any, ...]:
        first, self._first = self._first, None
        if first is not None and first[1] > self._now():
            return first
        try:
            return self._checked(config)
        except NotAuthenticated as error:
            _log.warning("no token", extra={"error": str(error)})
            return _ENDED

    def _checked(self, config: str) -> tuple[Any, ...]:
        try:
            answer = self._function(config)
        except Exception as error:
            what = f"{type(error).__name__}: {Untrusted(cut(str(error)))}"
            raise NotAuthenticated(
                f"{_PLACE} = {self._named} raised {what}; correct it, or what it asks for a token"
            ) from error
        # the answer is never shown: it may be a token
        if not _is_token(answer):
            raise NotAuthenticated(
                f"{_PLACE} = {self._named} returned no tuple of a token and its end; return (text, seconds"
                " since 1970)"
            )
        if answer[1] <= self._now():
            raise NotAuthenticated(
                f"{_PLACE} = {self._named} returned a token that has ended already; return its end in seconds"
                " since 1970, not its length, and compare the clocks"
            )
        return answer


def _is_token(answer: object) -> bool:
    if not isinstance(answer, tuple) or not 2 <= len(answer) <= 4:
        return False
    text, ends_s = answer[:2]
    return isinstance(text, str) and bool(text) and isinstance(ends_s, int | float)

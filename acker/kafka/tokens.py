"""Logins by token: the function that a topics.yaml names is imported, and what it returns is
checked.

librdkafka asks for a token when it connects, and again when four fifths of
its life are over; a thread of its own calls the function, so each client of
each process has to be able to import it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from acker.errors import ConfigError, NotAuthenticated
from acker.redaction import cut
from acker.untrusted import Untrusted

TokenFunction = Callable[[str], tuple[Any, ...]]
"""Gets `sasl.oauthbearer.config`; returns the token, and when it ends in
seconds since 1970. The principal and a mapping of SASL extensions may
follow."""

_SETTING: Final = "topics.yaml: kafka: oauth_cb"

_ENDED_TOKEN: Final = ("none", 1.0)
"""It has ended in 1970."""

_log = logging.getLogger(__name__)


def token_function(name: str) -> TokenFunction:
    """Import the function with a name of the form ``module:function``.

    Raises `ConfigError`: it cannot be imported, whatever its module raises, or is no function.
    """
    module_name, _, path = name.partition(":")
    try:
        function: Any = import_module(module_name)
        for attribute in path.split("."):  # such as Tokens.fetch
            function = getattr(function, attribute)
    except (Exception, SystemExit) as error:  # the module is the user's, and may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name:
            problem = f"no module is called {Untrusted(error.name)}"
            cure = "install it on every machine that runs, or put its folder on PYTHONPATH"
        elif isinstance(error, ImportError | AttributeError | SyntaxError):
            # their texts say where it is
            problem = f"cannot be imported: {Untrusted(cut(str(error)))}"
            cure = "correct it"
        else:
            problem = f"cannot be imported: module {module_name} raised {_text_of(error)}"
            cure = "correct it, or what it needs"
        raise ConfigError(f"{_SETTING} = {name}: {problem}; {cure}") from error
    if not callable(function):
        raise ConfigError(f"{_SETTING} = {name}: is no function; write module:function")
    return function  # type: ignore[no-any-return]  # of the user's


class Tokens:
    """Gives a client its tokens: librdkafka calls an instance whenever it needs one.

    An exception must not leave the call: confluent-kafka would go on with it,
    and end the process. So a function that fails later is logged, and
    librdkafka is given a token that has ended: it reports that as a login
    that failed, and asks again after ten seconds.
    """

    def __init__(
        self, name: str, function: TokenFunction, wall_clock_s: Callable[[], float] = time.time
    ) -> None:
        """Keep the user's function.

        `name` is its name in topics.yaml, for messages. `wall_clock_s` returns
        the wall time in seconds since 1970.
        """
        self._name = name
        self._function = function
        self._wall_clock_s = wall_clock_s
        # what the function returned to `take_first`; None: `take_first` was not called, or
        # librdkafka has taken it
        self._first_token: tuple[Any, ...] | None = None

    def take_first(self, config: str) -> None:
        """Fetch the first token, before there is a client: an error can still be raised here.

        Raises `NotAuthenticated`: the function raises something, or returns no token.
        """
        self._first_token = self._fetch(config)

    def __call__(self, config: str) -> tuple[Any, ...]:
        """Return a token, as `TokenFunction` does.

        Where the function gives none, it is one that has ended.
        """
        first_token, self._first_token = self._first_token, None
        if first_token is not None:
            _, ends_s, *_ = first_token  # the token, and when it ends by wall time
            if ends_s > self._wall_clock_s():
                return first_token
        try:
            return self._fetch(config)
        except NotAuthenticated as error:
            _log.warning("no token", extra={"error": str(error)})
            return _ENDED_TOKEN

    def _fetch(self, config: str) -> tuple[Any, ...]:
        """Call the user's function.

        Raise `NotAuthenticated` if it raises, or returns no valid token.
        """
        try:
            token = self._function(config)
        except (Exception, SystemExit) as error:
            what = _text_of(error)
            raise NotAuthenticated(
                f"{_SETTING} = {self._name} raised {what}; correct it, or what it asks for a token"
            ) from error
        # no message shows what was returned: it may be a token
        if not _is_token(token):
            raise NotAuthenticated(
                f"{_SETTING} = {self._name} returned no tuple of a token and its end; return (text, seconds"
                " since 1970)"
            )
        _, ends_s, *_ = token
        if ends_s <= self._wall_clock_s():
            raise NotAuthenticated(
                f"{_SETTING} = {self._name} returned a token that has ended already; return its end in"
                " seconds since 1970, not its length, and compare the clocks"
            )
        return token


def _text_of(error: BaseException) -> str:
    """Return the class and the message of what the user's code raised, without secrets."""
    message = Untrusted(cut(str(error)))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _is_token(answer: object) -> bool:
    """Return whether a function has returned what a `TokenFunction` must: a text, its end, and so on."""
    if not isinstance(answer, tuple) or not 2 <= len(answer) <= 4:
        return False
    text, ends_s = answer[:2]
    return isinstance(text, str) and bool(text) and isinstance(ends_s, int | float)

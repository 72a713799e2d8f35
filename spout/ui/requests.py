"""What a request asks for and may do, and what the answer shows.

Requests for other hosts are refused, and no answer lets foreign script run. A page changes
something only where its process was started with ``--allow-actions``, for a form of its own,
and for somebody who has the token that the process has printed.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.untrusted import Untrusted, shell_word
from replay.records.letters import Filter
from spout.inspect.dead_letters import filters_of_inputs, inputs_named, parse_filter
from spout.inspect.tables import Row
from spout.serving.hosts import MISDIRECTED, AllowedHosts, path_of_target
from spout.ui.jobs import Actions
from spout.ui.watch import LatestState

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
        " img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "vary": "accept",
}


@dataclass(frozen=True, slots=True)
class PageContent:
    """What one page shows.

    Attributes:
        template: the file in templates/ for `<main>`.
        values: for the template.
        json: the same for programs.
        every_s: an open page is built again after this time at the earliest; 0: with each reading.
        is_live: whether an open page is built again by itself.
        location: the address of what a request has made or changed; empty: it changed nothing.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    status: int = 200
    every_s: float = 0.0
    is_live: bool = True
    location: str = ""


Build = Callable[[Request, LatestState], PageContent]
"""Builds a page, as an answer to a request."""

LogBuild = Callable[[Request, dict[str, Any]], Any]
"""Builds a page that reads the log: it fills the dict for its template, and returns JSON.

See `LogPages.build_showing_errors`.
"""

LETTER_LINKS: Final[Mapping[str, Callable[[Row], str]]] = {
    "letter": lambda row: f"/letter/{row['letter']}",
}
"""By the key of a column: the address to which its cell in a row leads."""


def named_values(query: bytes, fields_max: int | None = None) -> dict[str, str]:
    """Return the values of a query or a form by the names of its fields; a later one replaces.

    Bytes that are no text are kept, as Python keeps those of a command line: ``%FF`` that somebody
    has typed into an address is that byte of a key.

    Raises:
        ValueError: it has more than `fields_max` fields, or is no text.
    """
    fields = parse_qsl(
        query.decode("ascii", "surrogateescape"),
        keep_blank_values=True,
        errors="surrogateescape",
        max_num_fields=fields_max,
    )
    return dict(fields)


def query_of(request: Request) -> dict[str, str]:
    """Return the values of a request's address by name; see `named_values`."""
    return named_values(request.scope["query_string"])


class RecordQuery(NamedTuple):
    """What the form of the record page names: a place, or a key from a time on; empty: neither."""

    place: str
    key: str
    since: str
    input: str

    @classmethod
    def of(cls, request: Request) -> Self:
        fields = query_of(request)
        place = request.path_params.get("place") or fields.get("place", "")
        return cls(
            place=place.strip(),
            key=fields.get("key", "").strip(),
            since=fields.get("from", ""),
            input=fields.get("input", ""),
        )


class LetterQuery(NamedTuple):
    """Which dead letters are meant, by the options of ``windhover dlq``; empty: any."""

    input: str = ""
    place: str = ""
    error: str = ""
    operator: str = ""
    reason: str = ""
    key: str = ""
    since: str = ""
    until: str = ""
    all: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Self:
        """Return the query of the fields of an address or a form; unknown fields are ignored."""
        return cls(**{name: fields.get(name, "").strip() for name in cls._fields})

    def filters(self, topics: Topics, now_ms: int) -> list[tuple[Input, Filter]]:
        """Return a filter for each input that is meant; `UsageError`: a text cannot be parsed."""
        texts = {name: value or None for name, value in self._asdict().items()}
        filter_of_all = parse_filter(texts, now_ms, handled=bool(self.all))
        inputs = inputs_named(topics, [self.input] if self.input else [])
        return filters_of_inputs(inputs, [self.place] if self.place else [], filter_of_all)

    def address(self, path: str = "/letters", **changes: str) -> str:
        """Return the address of a page with this query, a part of it changed."""
        fields = {name: value for name, value in (self._asdict() | changes).items() if value}
        if not fields:
            return path
        return f"{path}?{urlencode(fields, errors='surrogateescape')}"

    def options(self) -> str:
        """Return the query as arguments of ``windhover dlq``: the place, then the options."""
        words = [shell_word(self.place)] if self.place else []
        for name, value in self._asdict().items():
            if name == "all" and value:
                words.append("--all")
            elif name != "place" and value:
                words.append(f"--{name} {shell_word(value)}")
        return " ".join(words)


def action_refusal(request: Request, form: Mapping[str, str], actions: Actions | None) -> str:
    """Return why a request may not change anything; empty: it may.

    A browser names the site that a form came from as its origin, and no site can name another one.
    """
    if actions is None:
        cure = "start it with `windhover ui --allow-actions`, or type the command"
        return f"The page is read-only: {cure}."
    origin = request.headers.get("origin", "").partition("://")[2]
    if not origin or origin != request.headers.get("host"):
        sender = Untrusted(origin) or "no page"
        return f"The request did not come from this page, but from {sender}."
    if not secrets.compare_digest(form.get("token", "").encode(), actions.token.encode()):
        return "That is not the token that `windhover ui --allow-actions` has printed."
    return ""


class HostGuard:
    """Refuses requests for hosts that are not allowed, so that no foreign page can read this one.

    It adds `HEADERS` to each answer, and takes the host out of a target in absolute form.
    """

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with an error, or pass it to the application, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        server_address, _server_port = scope.get("server") or ("", None)
        refusal = self._hosts.refusal(hosts, scope["path"], server_address)
        if refusal:
            error_response = JSONResponse({"error": refusal}, MISDIRECTED)
            await error_response(scope, receive, send_with_headers)
            return
        # a proxy may name a whole URL as the target of a request
        path = path_of_target(scope["path"])
        await self._app({**scope, "path": path}, receive, send_with_headers)

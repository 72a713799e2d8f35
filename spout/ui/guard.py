"""Who may ask for a page, and who may change something by it.

Requests for other hosts are refused, and no answer lets foreign script run. A page changes something only
where its process was started with ``--allow-actions``, for a form of its own, and for somebody who has the
token that the process has printed.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spout.ui.jobs import Actions

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "vary": "accept",
}


def action_refusal(request: Request, form: Mapping[str, str], actions: Actions | None) -> str:
    """Return why a request may not change anything; empty: it may.

    A browser names the site that a form came from as its origin, and no site can name another one.
    """
    if actions is None:
        return "The page is read-only: start it with `windhover ui --allow-actions`, or type the command."
    origin = urlsplit(request.headers.get("origin", ""))
    if not origin.netloc or origin.netloc != request.headers.get("host"):
        return f"The request did not come from this page, but from {origin.netloc or 'no page'}."
    if not secrets.compare_digest(form.get("token", "").encode(), actions.token.encode()):
        return "That is not the token that `windhover ui --allow-actions` has printed."
    return ""


class HostGuard:
    """Refuses requests for other hosts, so that no foreign page can read this one, and adds `HEADERS`."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if self._hosts and name not in self._hosts:
            text = f"This page answers for {', '.join(sorted(self._hosts))}, not for {name}."
            await JSONResponse({"error": text}, 421)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

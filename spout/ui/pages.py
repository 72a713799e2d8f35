"""The pages, as an ASGI application: ``windhover ui``.

Each page has one address and one model. What a request accepts decides about its form: HTML for a person,
JSON for a program, and an event stream for the page itself, which then replaces what it shows. An event has
the whole of what may change, so a page that missed some has lost nothing.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acker.config.topics import Topics
from acker.errors import UsageError, WindhoverError
from acker.units import duration_ms, time_ms
from spout.inspect.diagnosis import explained
from spout.inspect.letter_rows import moment, parse_key
from spout.inspect.overview import notes_on, unknown_values
from spout.inspect.readings import Reading
from spout.inspect.tables import UNKNOWN, count, span
from spout.inspect.trail import RECORDS_SHOWN, InputRecord, Trail
from spout.ui.machinery import machinery_of
from spout.ui.strip import CELLS_MAX, BandKind, Run, copies_strip_of, strip_of
from spout.ui.summary import DRAWN, SERIES_EVERY_MS, Point, summaries
from spout.ui.timeline import Timeline, timeline_of
from spout.ui.watch import CHECK_EVERY_S, LatestState, Watch

STRIPS_MAX: Final = 64
"""The overview draws the bands of so many partitions; a snapshot stays small."""

CELLS_OF_OVERVIEW: Final = 2_400
"""So many cells all bands of the overview have together, and each of them `CELLS_MAX` at most."""

RECORD_EVERY_S: Final = 2.0
"""A record's story is read again after this time at the earliest."""

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
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
        every_s: how long at least what it shows is shown.
    """

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    status: int = 200
    every_s: float = 0.0


class RecordQuery(NamedTuple):
    """What the form of the record page asks for."""

    place: str
    key: str
    since: str
    input: str

    @classmethod
    def of(cls, request: Request) -> Self:
        named = request.query_params
        place = request.path_params.get("place") or named.get("place", "")
        return cls(place.strip(), named.get("key", ""), named.get("from", ""), named.get("input", ""))


Build = Callable[[Request, LatestState], PageContent]


class Pages:
    """Builds what each page shows from the latest moment."""

    def __init__(self, topics: Topics, watch: Watch, trail: Trail, now_ms: Callable[[], int]) -> None:
        """Prepare. `trail` has a client of its own, which one request at a time uses; `now_ms`: wall time."""
        self._topics = topics
        self._watch = watch
        self._trail = trail
        self._trail_lock = threading.Lock()
        self._now_ms = now_ms
        self._templates = Environment(
            loader=PackageLoader("spout.ui"),
            autoescape=select_autoescape(),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            count=lambda value: _shown(value, count),
            span=lambda value: _shown(value, span),
            moment=lambda value: _shown(value, lambda at: str(moment(at))),
            paths=strip_paths,
            seconds=lambda value: _shown(value, lambda at: str(moment(at - at % 1_000))),
            code=_with_commands,
            sparkline=sparkline_path,
            shape=lambda kind: _rectangle(kind, 0, 24),
        )
        self._templates.globals.update(kinds=list(BandKind))

    def application(self, hosts: frozenset[str]) -> Starlette:
        """Return the application; it answers requests for `hosts` alone, and for any where there is none."""
        pages: list[tuple[str, Build]] = [
            ("/", self._overview),
            ("/partition/{input}/{partition:int}", self._partition),
            ("/machinery", self._machinery),
            ("/record", self._record),
            ("/record/{place:path}", self._record),
        ]
        static = StaticFiles(packages=[("spout.ui", "static")])
        return Starlette(
            routes=[*(Route(path, self._endpoint(build)) for path, build in pages), Mount("/static", static)],
            middleware=[Middleware(_Guard, hosts)],
            exception_handlers={404: self._endpoint(_not_found)},
        )

    def _overview(self, _request: Request, now: LatestState) -> PageContent:
        rows = now.snapshot.rows()
        inputs = summaries(now.snapshot, self._topics)
        drawn = min(STRIPS_MAX, len(now.snapshot.partitions))
        cells = min(CELLS_MAX, CELLS_OF_OVERVIEW // max(1, drawn))
        strips = {each.source: strip_of(each, cells) for each in now.snapshot.partitions[:drawn]}
        notes = [*unknown_values(rows), *now.snapshot.of_no_input]
        values = {
            "inputs": inputs,
            "strips": strips,
            "notes": notes,
            "blocked": list(notes_on(rows)),
            "flags": now.flags,
            "series": now.series,
            "drawn": DRAWN,
        }
        return PageContent("overview.html", "Overview", values, rows)

    def _partition(self, request: Request, now: LatestState) -> PageContent:
        source = f"{request.path_params['input']}/{request.path_params['partition']}"
        state = next((each for each in now.snapshot.partitions if each.source == source), None)
        if state is None:
            return _not_found(request, now)
        one, row = self._topics.inputs[state.input], state.row()
        values = {
            "state": state,
            "topic": one.topic,
            "replay_topic": one.replay_topic,
            "row": row,
            "strip": strip_of(state),
            "copies": copies_strip_of(state),
            "notes": [*notes_on([row]), *unknown_values([row])],
        }
        return PageContent("partition.html", source, values, row)

    def _machinery(self, _request: Request, now: LatestState) -> PageContent:
        found = machinery_of(now.snapshot)
        return PageContent("machinery.html", "Machinery", {"found": found}, found.rows())

    def _record(self, request: Request, now: LatestState) -> PageContent:
        query = RecordQuery.of(request)
        found: list[tuple[dict[str, Any], Timeline]] = []
        problem, notes, status = "", list[str](), 200
        try:
            with self._trail_lock:
                records, notes = self._records(query)
                for here in records:
                    evidence, at_ms = self._trail.follow(here), self._now_ms()
                    story = explained(evidence, self._trail.around(here, evidence, at_ms), at_ms)
                    found.append((story, timeline_of(evidence, at_ms)))
        except WindhoverError as error:
            problem, status = str(error), 404 if isinstance(error, UsageError) else 503
        names = [one.name for one in self._topics.inputs.values() if one.tracked]
        values = {"query": query, "found": found, "problem": problem, "notes": notes, "names": names}
        json = {"error": problem} if problem else [story for story, _ in found]
        return PageContent("record.html", query.place or "Record", values, json, status, RECORD_EVERY_S)

    def _records(self, query: RecordQuery) -> tuple[list[InputRecord], list[str]]:
        if query.place:
            return self._trail.origin(query.place), []
        if not query.key:
            return [], []
        since_ms = _since_ms(query.since, self._now_ms())
        found: list[InputRecord] = []
        notes: list[str] = []
        for one in self._topics.inputs.values():
            if one.tracked and query.input in ("", one.name):
                key, room = parse_key(query.key), RECORDS_SHOWN - len(found)
                more, unread = self._trail.with_key(one, key, since_ms, room)
                found, notes = [*found, *more], [*notes, *unread]
        return found, notes or ([] if found else [f"no record with key {query.key} was found"])

    def _endpoint(self, build: Build) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request, _error: Exception | None = None) -> Response:
            accepts = request.headers.get("accept", "")
            if "text/event-stream" in accepts:
                return EventSourceResponse(self._events(request, build), ping=15)
            now = self._watch.latest
            content = await asyncio.to_thread(build, request, now)
            if "application/json" in accepts:
                return JSONResponse(content.json, content.status)
            return HTMLResponse(self._render("page.html", request, content, now), content.status)

        return answer

    async def _events(self, request: Request, build: Build) -> AsyncIterator[ServerSentEvent]:
        """Yield what a page shows, again and again."""
        shown = None
        with self._watch.tab():
            while not self._watch.is_over() and not await request.is_disconnected():
                now = self._watch.latest
                if now.number != shown:
                    shown = now.number
                    content = await asyncio.to_thread(build, request, now)
                    text = self._render("live.html", request, content, now)
                    yield ServerSentEvent(text, id=str(now.number), event="show")
                    await asyncio.sleep(content.every_s)
                await asyncio.sleep(CHECK_EVERY_S)

    def _render(self, template: str, request: Request, content: PageContent, now: LatestState) -> str:
        return self._templates.get_template(template).render(
            content=content, path=request.url.path, now=now, body=content.template, **content.values
        )


def _since_ms(text: str, now_ms: int) -> int:
    """Parse a time, or a duration before now."""
    try:
        return max(0, now_ms - duration_ms(text))
    except ValueError:
        pass  # then it is a time, or an error
    try:
        return time_ms(text)
    except ValueError as error:
        raise UsageError(
            f"a key needs a time to search from: {text!r} is none; give 2026-07-01T00:00:00Z, or 2h"
        ) from error


def _not_found(request: Request, _now: LatestState) -> PageContent:
    text = f"There is no page {request.url.path}, or nothing was read of it yet."
    return PageContent("message.html", "Not found", {"text": text}, {"error": text}, 404)


def _shown(value: Any, text: Callable[[Any], str]) -> str | Markup:
    """Format a value or a reading; what is unknown is called so, and what does not exist is a dash."""
    if isinstance(value, Reading):
        if value.unknown:
            return Markup('<span class="unknown">{}</span>').format(UNKNOWN)
        value = value.value
    return "-" if value is None else escape(text(value))


def _with_commands(text: str) -> Markup:
    """Mark up the commands of a text, which are between backticks."""
    parts = [
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part)
        for at, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


_SHAPES: Final = {
    BandKind.COMMITTED: (18, 6),
    BandKind.NEW: (22, 2),
    BandKind.SETTLED: (11, 13),
    BandKind.UNKNOWN: (8, 8),
    BandKind.OPEN: (2, 22),
    BandKind.WAITING: (2, 10),
    BandKind.BLOCKED: (7, 10),
    BandKind.DEAD: (0, 24),
}
"""Where a kind begins in a band of height 24, and how high it is: a second sign beside its colour."""


def strip_paths(runs: Sequence[Run]) -> dict[BandKind, str]:
    """Return for each kind the SVG path of its runs; one path of many parts is shorter than many shapes."""
    paths: dict[BandKind, str] = {}
    for run in runs:
        paths[run.kind] = paths.get(run.kind, "") + _rectangle(run.kind, run.cell, run.cell_end)
    return paths


def _rectangle(kind: BandKind, left: int, right: int) -> str:
    top, height = _SHAPES[kind]
    return f"M{left} {top}h{right - left}v{height}h-{right - left}z"


def sparkline_path(points: Sequence[Point], now_ms: int) -> str:
    """Return the SVG path of the last fifteen minutes in a box of 900 by 20; it is absent where unknown."""
    highest = max((value for _, value in points if value is not None), default=0)
    path, is_drawn = "", False
    for at_ms, value in points:
        if value is not None:
            x, y = 900 - (now_ms - at_ms) // 1_000, 19 - 18 * value // max(1, highest)
            path += f"{'L' if is_drawn else 'M'}{x} {y}h{SERIES_EVERY_MS // 1_000}"
        is_drawn = value is not None
    return path


class _Guard:
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

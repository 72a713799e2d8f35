"""The pages, as an ASGI application: ``windhover ui``.

Each page has one address and one model. What a request accepts decides about its form: HTML for a person,
JSON for a program, and an event stream for the page itself, which then replaces what it shows. An event has
the whole of what may change, so a page that missed some has lost nothing.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from prometheus_client.exposition import choose_encoder
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from acker.config.topics import Topics
from acker.listing import first_of
from acker.untrusted import Untrusted, isolated, sentence_line, sentence_pieces, shell_word
from spout.inspect.failures import share_text
from spout.inspect.letter_rows import bytes_text, field_text, moment
from spout.inspect.overview import missing_broker_texts, notes_on, unknown_by_reason
from spout.inspect.readings import Reading
from spout.inspect.summary import DRAWN, summaries
from spout.inspect.tables import (
    UNKNOWN,
    Column,
    OutputFormat,
    Row,
    absent_text,
    count,
    cut_to,
    encoded,
    span,
    with_config,
    with_configs,
)
from spout.runtime.endpoints import registry_of
from spout.runtime.metrics import Scraped
from spout.serving.hosts import AllowedHosts
from spout.ui.attention import causes_unknown
from spout.ui.drawing import (
    NODE_HEIGHT,
    NODE_WIDTH,
    band_rectangle,
    draw_graph,
    histogram_path,
    histogram_place,
    rate_columns,
    rate_minutes,
    sparkline_path,
    strip_paths,
)
from spout.ui.graph import NO_DRIVERS, Drivers, milliseconds
from spout.ui.log_pages import LogPages
from spout.ui.machinery import (
    ACKER_PARTITIONS,
    REPLAY_WORKERS,
    SESSIONS,
    machinery_notes,
    machinery_of,
)
from spout.ui.metrics import view_metrics
from spout.ui.redrive_pages import RedrivePages
from spout.ui.requests import Build, HostGuard, PageContent, named_values
from spout.ui.strip import CELLS_MAX, BandKind, copies_strip_of, strip_of
from spout.ui.watch import CHECK_EVERY_S, LatestState, Watch

STRIPS_MAX: Final = 64
"""The overview draws the bands of so many partitions; a snapshot stays small."""

CELLS_OF_OVERVIEW: Final = 2_400
"""So many cells all bands of the overview have together, and each of them `CELLS_MAX` at most."""

DRIVERS_EVERY_S: Final = 2.0
"""Drivers are asked again after this time at the earliest."""

RETRY_MS: Final = 1_000
"""A tab whose stream was cut asks for another one after this time."""

NAMES: Final = {
    "/": "Overview",
    "/record": "Record",
    "/failures": "Failures",
    "/letters": "Dead letters",
    "/redrives": "Redrives",
    "/latency": "Latency",
    "/topology": "Topology",
    "/machinery": "Machinery",
}
"""The pages by their addresses, as the header and links have them."""

_COMMAND: Final = re.compile("<code>(windhover [^<]+)</code>")

JSON_TYPE: Final = "application/json"

NAME_CHARACTERS: Final = 18
"""So much of a name fits into a node of a graph; all of it is in the tables."""

SOURCES_NAMED_MAX: Final = 4
"""A reason names so many of the partitions that it concerns; of 64 it would fill the screen."""

FORM_BYTES_MAX: Final = 65_536
FORM_FIELDS_MAX: Final = 50


class Pages:
    """Builds what each page shows from the latest moment."""

    def __init__(
        self,
        topics: Topics,
        watch: Watch,
        log_pages: LogPages,
        redrive_pages: RedrivePages,
        drivers: Drivers,
        config: Path | None = None,
    ) -> None:
        """Prepare. `config` is the topics.yaml that commands to copy have to name; None: the default one."""
        self._topics = topics
        self._config = config
        self._watch = watch
        self._log_pages = log_pages
        self._redrive_pages = redrive_pages
        self._drivers = drivers
        self._templates = Environment(
            loader=PackageLoader("spout.ui"),
            autoescape=select_autoescape(),
            finalize=_visible,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            count=lambda value: _shown(value, count),
            span=lambda value: _shown(value, span),
            moment=lambda value: _shown(value, lambda at: str(moment(at))),
            broker_texts=missing_broker_texts,
            paths=strip_paths,
            seconds=lambda value: _shown(value, lambda at: str(moment(at - at % 1_000))),
            code=lambda sentence: _with_commands(with_configs(str(sentence), config)),
            bytes=lambda field: _lines(bytes_text(field)),
            field=lambda row, name: _lines(field_text(row, name)),
            page_name=_page_name,
            sparkline=sparkline_path,
            rate_columns=rate_columns,
            rate_minutes=rate_minutes,
            shape=lambda kind: band_rectangle(kind, 0, 24),
            share=lambda value: _unknown() if value is None else share_text(value),
            draw=lambda graph: draw_graph([(each.source, each.operator) for each in graph.edges]),
            zip=zip,
            shorter=cut_to(NAME_CHARACTERS),
            isolated=lambda text: _marked(isolated(str(text))),
            word=shell_word,
            path=lambda text: quote(text, safe=""),
            rate=lambda value: _shown(value, lambda each: f"{each:,.1f}"),
            fraction=lambda value: _shown(value, milliseconds),
            histogram=histogram_path,
            histogram_place=histogram_place,
            cell=_cell,
            left=_is_left,
        )
        self._templates.globals.update(
            names_of_pages=NAMES,
            installation=_installation(topics),
            kinds=list(BandKind),
            node_width=NODE_WIDTH,
            node_height=NODE_HEIGHT,
        )

    def application(self, hosts: AllowedHosts) -> Starlette:
        """Return the application; it answers requests for this machine and for `hosts`."""
        pages: list[tuple[str, Build]] = [
            ("/", self._overview),
            ("/partition/{input}/{partition:int}", self._partition),
            ("/machinery", self._machinery),
            ("/topology", self._topology),
        ]
        of_the_log = [*self._log_pages.routes(), *self._redrive_pages.routes()]
        thread, changes = self._log_pages.thread, self._redrive_pages.changes()
        static = StaticFiles(packages=[("spout.ui", "static")])
        return Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics(), methods=["GET"]),
                *(Route(path, self._endpoint(build)) for path, build in pages),
                *(Route(path, self._endpoint(build, thread)) for path, build in of_the_log),
                *(Route(path, self._change(build, thread), methods=["POST"]) for path, build in changes),
                Mount("/static", static),
            ],
            middleware=[Middleware(HostGuard, hosts)],
            exception_handlers={404: self._endpoint(_not_found)},
        )

    async def _livez(self, _request: Request) -> Response:
        """Say that the loop goes on, which an answer proves; nothing is read for it."""
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        if self._watch.latest.number:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("nothing was read yet\n", 503)

    def _overview(self, _request: Request, now: LatestState) -> PageContent:
        rows = now.snapshot.rows()
        inputs = summaries(now.snapshot, self._topics)
        drawn = min(STRIPS_MAX, len(now.snapshot.partitions))
        cells = min(CELLS_MAX, CELLS_OF_OVERVIEW // max(1, drawn))
        strips = {each.source: strip_of(each, cells) for each in now.snapshot.partitions[:drawn]}
        unknown = [*unknown_reasons(rows), *filter(None, [causes_unknown(now.causes)])]
        notes = [*(() if now.snapshot.away else unknown), *now.snapshot.of_no_input]
        held = [row for row in rows if row["why"] or row["waits_for"] or row["replays_wait"] or row["held"]]
        values = {
            "inputs": inputs,
            "strips": strips,
            "notes": notes,
            "blocked": list(notes_on(held)),
            "flags": now.flags,
            "series": now.series,
            "drawn": DRAWN,
            "rates": now.rates,
        }
        return PageContent("overview.html", "Overview", values, rows)

    def _partition(self, request: Request, now: LatestState) -> PageContent:
        source = f"{request.path_params['input']}/{request.path_params['partition']}"
        state = next((each for each in now.snapshot.partitions if each.source == source), None)
        if state is None:
            return self._no_partition(request, now, source)
        one, row = self._topics.inputs[state.input], now.snapshot.row_of(state)
        values = {
            "state": state,
            "topic": one.topic,
            "replay_topic": one.replay_topic,
            "row": row,
            "strip": strip_of(state),
            "copies": copies_strip_of(state),
            "timeout_ms": one.timeout_ms,
            # why the commit is blocked, and how old that is, have places of their own
            "notes": [
                *notes_on([{**row, "blocking": None, "why": "", "as_of_ms": 0}]),
                *unknown_reasons([row]),
            ],
        }
        return PageContent("partition.html", source, values, row)

    def _no_partition(self, request: Request, now: LatestState, source: str) -> PageContent:
        """Say that a partition is unknown, or that there is none: it may be there when the broker is back."""
        name = request.path_params["input"]
        unknown = next((each for each in now.snapshot.partitions if each.source == f"{name}/?"), None)
        one = self._topics.inputs.get(name)
        if one is None or not one.tracked or (unknown is None and now.number):
            return _not_found(request, now)
        why = "nothing was read yet" if unknown is None else unknown.end.unknown
        text = f"What {source} has is unknown: {why}."
        return PageContent("message.html", source, {"text": text}, {"source": source, "unknown": why})

    def _machinery(self, _request: Request, now: LatestState) -> PageContent:
        found = machinery_of(now.snapshot)
        rows = found.rows()
        values = {
            "found": found,
            "rows": rows,
            "partitions": ACKER_PARTITIONS,
            "workers": REPLAY_WORKERS,
            "sessions": SESSIONS,
            "notes": [] if now.snapshot.away else machinery_notes(rows),
        }
        return PageContent("machinery.html", "Machinery", values, rows)

    def _topology(self, _request: Request, _now: LatestState) -> PageContent:
        graphs, problems = self._drivers.read(self._watch.now_ms())
        values = {"graphs": graphs, "problems": problems, "no_drivers": NO_DRIVERS, "drivers": self._drivers}
        json = [each.row() for each in graphs]
        return PageContent("topology.html", "Topology", values, json, every_s=DRIVERS_EVERY_S)

    def _endpoint(self, build: Build, thread: Executor | None = None) -> Callable[..., Awaitable[Response]]:
        """Return what answers with a page that is built in `thread`; None: in one of those that all share."""

        async def answer(request: Request, _error: Exception | None = None) -> Response:
            accepts = request.headers.get("accept", "")
            if "text/event-stream" in accepts:
                return EventSourceResponse(self._events(request, build, thread), ping=15)
            return await self._answer(request, build, thread)

        return answer

    def _metrics(self) -> Callable[[Request], Awaitable[Response]]:
        registry = registry_of(
            Scraped(lambda: view_metrics(self._watch.latest, self._topics, self._watch.now_ms()))
        )

        async def answer(request: Request) -> Response:
            encode, kind = choose_encoder(request.headers.get("accept", ""))
            return Response(await asyncio.to_thread(encode, registry), headers={"content-type": kind})

        return answer

    def _change(self, build: Build, thread: Executor) -> Callable[..., Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            request.state.form = await _form_of(request)
            # its address has another page for GET
            return await self._answer(request, build, thread, is_live=False)

        return answer

    async def _answer(
        self, request: Request, build: Build, thread: Executor | None, *, is_live: bool = True
    ) -> Response:
        now, content = await self._built(request, build, thread)
        content = replace(content, is_live=is_live and content.is_live)
        if JSON_TYPE in request.headers.get("accept", ""):
            document = encoded(content.json, OutputFormat.JSON)
            return Response(document, 201 if content.location else content.status, media_type=JSON_TYPE)
        if content.location:
            return RedirectResponse(content.location, 303)
        return HTMLResponse(self._render("page.html", request, content, now), content.status)

    async def _built(
        self, request: Request, build: Build, thread: Executor | None
    ) -> tuple[LatestState, PageContent]:
        """Build a page from the newest reading as of when it is its turn in `thread`."""

        def built() -> tuple[LatestState, PageContent]:
            now = self._watch.latest
            return now, build(request, now)

        return await asyncio.get_running_loop().run_in_executor(thread, built)

    async def _events(
        self, request: Request, build: Build, thread: Executor | None
    ) -> AsyncIterator[ServerSentEvent]:
        shown = None
        with self._watch.tab():
            while not self._watch.is_over() and not await request.is_disconnected():
                if self._watch.latest.number != shown:
                    now, content = await self._built(request, build, thread)
                    shown = now.number
                    text = self._render("live.html", request, content, now)
                    yield ServerSentEvent(text, id=str(now.number), event="show", retry=RETRY_MS)
                    await asyncio.sleep(content.every_s)
                await asyncio.sleep(CHECK_EVERY_S)

    def _render(self, template: str, request: Request, content: PageContent, now: LatestState) -> str:
        page = self._templates.get_template(template).render(
            content=content,
            path=request.url.path,
            stream_address=f"?{request.url.query}",
            now=now,
            body=content.template,
            **content.values,
        )
        return _COMMAND.sub(
            lambda found: f"<code>{escape(with_config(unescape(found[1]), self._config))}</code>", page
        )


async def _form_of(request: Request) -> dict[str, str]:
    """Read the fields of a form; of one that is too large, is none, or does not come to its end, nothing."""
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > FORM_BYTES_MAX:
                return {}
        return named_values(body, FORM_FIELDS_MAX)
    except (ValueError, ClientDisconnect):
        return {}


def _not_found(request: Request, _now: LatestState) -> PageContent:
    text = f"There is no page {Untrusted(request.url.path)}, or nothing was read of it yet."
    return PageContent("message.html", "Not found", {"text": text}, {"error": text}, 404)


def _shown(value: Any, text: Callable[[Any], str]) -> str | Markup:
    """Format a value or a reading; what is unknown is called so, and what does not exist is a dash."""
    if isinstance(value, Reading):
        if value.unknown:
            return _unknown()
        value = value.value
    return "-" if value is None else escape(text(value))


def unknown_reasons(rows: Sequence[Row]) -> list[str]:
    """Return why values are unknown, and of which partitions; the tables show which values."""
    notes = []
    for why, sources in unknown_by_reason(rows).items():
        notes.append(f"{first_of(list(sources), SOURCES_NAMED_MAX)}: unknown, since {why}")
    return notes


def _installation(topics: Topics) -> str:
    """Name what is shown, since one installation looks as another does: its brokers, and their prefix."""
    servers = [server.strip() for server in topics.kafka.get("bootstrap.servers", "").split(",")]
    if not servers[0]:
        return ""
    prefix = topics.acker.topic_prefix
    return first_of(servers, 1) + (f", prefix {prefix}" if prefix else "")


def _unknown() -> Markup:
    return Markup('<span class="unknown">{}</span>').format(UNKNOWN)


def _page_name(address: str) -> str:
    """Name the page at an address: as the header does, or by its partition."""
    path = address.partition("?")[0]
    return NAMES.get(path, path.removeprefix("/partition/"))


def _cell(column: Column, row: Row) -> str | Markup:
    """Format a value of a table as the command does, times to the second: the last column is to be seen."""
    value = row[column.key]
    if value is not None:
        text = column.text(value)
        is_time = bool(text) and column.key in ("first", "last", "died")
        return escape(sentence_line(f"{text[:19]}Z" if is_time else text))
    text = absent_text(column, row)
    return _unknown() if text == UNKNOWN else text


def _is_left(column: Column, rows: Sequence[Row]) -> bool:
    """Tell whether a column has words, which are read from the left."""
    values = [row[column.key] for row in rows if row[column.key] is not None]
    return bool(values) and all(isinstance(value, str) for value in values)


def _visible(value: Any) -> Any:
    """Return what a template puts out: of a text, which is no markup yet, with all that it has to be seen."""
    return sentence_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _with_commands(sentence: str) -> Markup:
    """Mark up the commands of a sentence of ours, which are between backticks, and what is isolated in it."""
    marked = _marked(sentence)
    plain, *others = marked.split("`")
    if len(others) % 2:  # one has no partner: no template of ours is so
        return marked
    parts = [
        Markup("<code>{}</code>").format(part) if at % 2 == 0 else part for at, part in enumerate(others)
    ]
    return Markup("").join([plain, *parts])


def _marked(sentence: str) -> Markup:
    """Mark up what is isolated in a sentence."""
    isolate = Markup("<bdi>{}</bdi>")
    return Markup("").join(
        isolate.format(piece.text) if piece.is_isolated else escape(piece.text)
        for piece in sentence_pieces(sentence)
    )


def _lines(shown: str) -> Markup:
    """Show bytes of a record, their lines below each other: behind the escape of a line break comes one."""
    return Markup(escape(shown).replace("%0A", "%0A\n"))

"""The pages, as an ASGI application: ``windhover ui``.

Each page has one address and one model. What a request accepts decides about its form: HTML for a
person, JSON for a program, and an event stream for the page itself, which then replaces what it
shows. An event has the whole of what may change, so a page that missed some has lost nothing.

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
from spout.inspect.readings import PartitionState, Reading
from spout.inspect.summary import FIGURES_DRAWN, summaries
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
    histogram_x,
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
"""The overview draws the bands of so many partitions at most, so that its HTML stays small."""

CELLS_OF_OVERVIEW: Final = 2_400
"""All bands of the overview together have so many cells at most: of 64 bands each has 37."""

_UNKNOWN_MARK: Final = Markup('<span class="unknown">{}</span>').format(UNKNOWN)
"""Stands in place of a value that is unknown."""

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
"""So many characters of a name fit into a node of a graph; the tables have all of them."""

SOURCES_NAMED_MAX: Final = 4
"""A reason names so many of its partitions at most; the names of 64 would fill the screen."""

FORM_BYTES_MAX: Final = 65_536
FORM_FIELDS_MAX: Final = 50
"""A form that is longer, or has more fields, is refused."""


class Pages:
    """Builds what each page shows, from the latest reading of the topics."""

    def __init__(
        self,
        topics: Topics,
        watch: Watch,
        log_pages: LogPages,
        redrive_pages: RedrivePages,
        drivers: Drivers,
        config: Path | None = None,
    ) -> None:
        """Prepare; commands to copy name the topics.yaml `config`; None: the default one."""
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
        self._templates.filters.update(self._filters())
        self._templates.globals.update(
            names_of_pages=NAMES,
            installation=_installation_text(topics),
            kinds=list(BandKind),
            node_width=NODE_WIDTH,
            node_height=NODE_HEIGHT,
        )

    def _filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters of the templates by their names: each turns a value into its text."""
        return {
            # values and readings of them
            "count": lambda value: _text_of(value, count),
            "span": lambda value: _text_of(value, span),
            "rate": lambda value: _text_of(value, lambda per_s: f"{per_s:,.1f}"),
            "fraction": lambda value: _text_of(value, milliseconds),
            "moment": lambda value: _text_of(value, lambda at_ms: str(moment(at_ms))),
            "seconds": lambda value: _text_of(value, _moment_to_second),
            "share": lambda value: _UNKNOWN_MARK if value is None else share_text(value),
            # texts
            "code": lambda sentence: _with_commands(with_configs(str(sentence), self._config)),
            "bytes": lambda field: _lines(bytes_text(field)),
            "field": lambda row, name: _lines(field_text(row, name)),
            "shorter": cut_to(NAME_CHARACTERS),
            "isolated": lambda text: _marked(isolated(str(text))),
            "word": shell_word,
            "path": lambda text: quote(text, safe=""),
            "page_name": _page_name,
            "broker_texts": missing_broker_texts,
            # cells of tables
            "cell": _cell,
            "left": _is_of_words,
            # drawings
            "paths": strip_paths,
            "shape": lambda kind: band_rectangle(kind, 0, 24),
            "sparkline": sparkline_path,
            "rate_columns": rate_columns,
            "rate_minutes": rate_minutes,
            "histogram": histogram_path,
            "histogram_x": histogram_x,
            "draw": lambda graph: draw_graph([(edge.source, edge.operator) for edge in graph.edges]),
            "zip": zip,
        }

    def application(self, hosts: AllowedHosts) -> Starlette:
        """Return the application; it answers requests for this machine and for `hosts`."""
        # built from the latest snapshot; all others read the log, in a thread of their own
        snapshot_pages: list[tuple[str, Build]] = [
            ("/", self._overview_page),
            ("/partition/{input}/{partition:int}", self._partition_page),
            ("/machinery", self._machinery_page),
            ("/topology", self._topology_page),
        ]
        log_pages = [*self._log_pages.routes(), *self._redrive_pages.routes()]
        log_thread = self._log_pages.thread
        form_actions = self._redrive_pages.form_actions()
        static = StaticFiles(packages=[("spout.ui", "static")])
        return Starlette(
            routes=[
                Route("/livez", self._livez),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics_endpoint(), methods=["GET"]),
                *(Route(path, self._page_endpoint(build)) for path, build in snapshot_pages),
                *(Route(path, self._page_endpoint(build, log_thread)) for path, build in log_pages),
                *(
                    Route(path, self._form_endpoint(build, log_thread), methods=["POST"])
                    for path, build in form_actions
                ),
                Mount("/static", static),
            ],
            middleware=[Middleware(HostGuard, hosts)],
            exception_handlers={404: self._page_endpoint(_not_found)},
        )

    async def _livez(self, _request: Request) -> Response:
        """Answer 200: that there is an answer proves that the event loop goes on."""
        return PlainTextResponse("ok\n")

    async def _readyz(self, _request: Request) -> Response:
        """Answer 503 before the first reading: the pages have nothing to show yet."""
        if self._watch.latest.reading_number:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("nothing was read yet\n", 503)

    def _overview_page(self, _request: Request, latest: LatestState) -> PageContent:
        """Show all inputs: flags, figures, and the bands of the first partitions."""
        snapshot = latest.snapshot
        rows = snapshot.rows()
        drawn_count = min(STRIPS_MAX, len(snapshot.partitions))
        cells_max = min(CELLS_MAX, CELLS_OF_OVERVIEW // max(1, drawn_count))
        drawn_states = snapshot.partitions[:drawn_count]
        strips = {state.source: strip_of(state, cells_max) for state in drawn_states}
        notes = list(snapshot.of_no_input)
        # without a broker all is unknown, and the head of the page says so once
        if snapshot.broker_error is None:
            reasons = [*unknown_reasons(rows), causes_unknown(latest.causes)]
            notes = [*filter(None, reasons), *notes]
        reasons_to_wait = ("why", "waits_for", "replays_wait", "held")
        waiting_rows = [row for row in rows if any(row[reason] for reason in reasons_to_wait)]
        values = {
            "inputs": summaries(snapshot, self._topics),
            "strips": strips,
            "notes": notes,
            "blocked": list(notes_on(waiting_rows)),
            "flags": latest.flags,
            "series": latest.series,
            "drawn": FIGURES_DRAWN,
            "rates": latest.rates,
        }
        return PageContent("overview.html", "Overview", values, rows)

    def _partition_page(self, request: Request, latest: LatestState) -> PageContent:
        """Show one partition of an input, its copies, and why it waits."""
        source = f"{request.path_params['input']}/{request.path_params['partition']}"
        state = _state_of(source, latest)
        if state is None:
            return self._missing_partition_page(request, latest, source)
        input, row = self._topics.inputs[state.input], latest.snapshot.row_of(state)
        # why the commit is blocked, and how old that is, have places of their own
        row_of_notes = {**row, "blocking": None, "why": "", "as_of_ms": 0}
        values = {
            "state": state,
            "topic": input.topic,
            "replay_topic": input.replay_topic,
            "row": row,
            "strip": strip_of(state),
            "copies": copies_strip_of(state),
            "timeout_ms": input.timeout_ms,
            "notes": [*notes_on([row_of_notes]), *unknown_reasons([row])],
        }
        return PageContent("partition.html", source, values, row)

    def _missing_partition_page(self, request: Request, latest: LatestState, source: str) -> PageContent:
        """Show that the state of a partition is unknown, if it may be there; else 404."""
        input_name = request.path_params["input"]
        # while nobody knows how many partitions an input has, one state stands for them all
        state_of_all = _state_of(f"{input_name}/?", latest)
        input = self._topics.inputs.get(input_name)
        has_reading = latest.reading_number > 0
        # a reading that counts the partitions of the input lacks this one: 404
        if input is None or not input.tracked or (state_of_all is None and has_reading):
            return _not_found(request, latest)
        why = "nothing was read yet" if state_of_all is None else state_of_all.end.unknown
        text = f"What {source} has is unknown: {why}."
        json = {"source": source, "unknown": why}
        return PageContent("message.html", source, {"text": text}, json)

    def _machinery_page(self, _request: Request, latest: LatestState) -> PageContent:
        """Show acker partitions, replay workers and sessions."""
        machinery = machinery_of(latest.snapshot)
        rows = machinery.rows()
        # why values are unknown; while no broker answers the page says so once, for all of them
        notes = [] if latest.snapshot.broker_error else machinery_notes(rows)
        values = {
            "machinery": machinery,
            "rows": rows,
            "partitions": ACKER_PARTITIONS,
            "workers": REPLAY_WORKERS,
            "sessions": SESSIONS,
            "notes": notes,
        }
        return PageContent("machinery.html", "Machinery", values, rows)

    def _topology_page(self, _request: Request, _latest: LatestState) -> PageContent:
        """Ask the drivers, and show their graphs."""
        graphs, problems = self._drivers.read(self._watch.now_ms())
        values = {
            "graphs": graphs,
            "problems": problems,
            "no_drivers": NO_DRIVERS,
            "drivers": self._drivers,
        }
        json = [graph.row() for graph in graphs]
        return PageContent("topology.html", "Topology", values, json, every_s=DRIVERS_EVERY_S)

    def _page_endpoint(
        self, build: Build, thread: Executor | None = None
    ) -> Callable[..., Awaitable[Response]]:
        """Return what answers with a page that is built in `thread`; None: in any that is free."""

        # Starlette passes the error, too, where this is an exception handler
        async def answer(request: Request, _error: Exception | None = None) -> Response:
            accepts = request.headers.get("accept", "")
            if "text/event-stream" in accepts:
                return EventSourceResponse(self._events(request, build, thread), ping=15)
            return await self._answer(request, build, thread)

        return answer

    def _metrics_endpoint(self) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers with the metrics of the latest snapshot, in the format asked for."""
        registry = registry_of(
            Scraped(lambda: view_metrics(self._watch.latest, self._topics, self._watch.now_ms()))
        )

        async def answer(request: Request) -> Response:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
            metrics = await asyncio.to_thread(encode, registry)
            return Response(metrics, headers={"content-type": content_type})

        return answer

    def _form_endpoint(self, build: Build, thread: Executor) -> Callable[..., Awaitable[Response]]:
        """Return what reads a form, and answers with what `build` makes of it."""

        async def answer(request: Request) -> Response:
            request.state.form = await _form_of(request)
            # the page would open its stream by GET, and that is another page at this address
            return await self._answer(request, build, thread, is_live=False)

        return answer

    async def _answer(
        self, request: Request, build: Build, thread: Executor | None, *, is_live: bool = True
    ) -> Response:
        """Build a page, and return it as HTML or JSON, whichever the request accepts.

        If the request has changed something, HTML is a redirection to what it changed, and JSON has
        the status 201. Without `is_live` the page does not show later readings by itself.
        """
        latest, content = await self._build_in_thread(request, build, thread)
        content = replace(content, is_live=is_live and content.is_live)
        if JSON_TYPE in request.headers.get("accept", ""):
            document = encoded(content.json, OutputFormat.JSON)
            status = 201 if content.location else content.status
            return Response(document, status, media_type=JSON_TYPE)
        if content.location:
            return RedirectResponse(content.location, 303)
        return HTMLResponse(self._render("page.html", request, content, latest), content.status)

    async def _build_in_thread(
        self, request: Request, build: Build, thread: Executor | None
    ) -> tuple[LatestState, PageContent]:
        """Build a page in `thread`, behind what waits for it there; return it and the reading it shows.

        None: in any thread that is free.
        """

        def build_from_newest() -> tuple[LatestState, PageContent]:
            # read in the thread, so that the page shows the newest reading, not that of the request
            latest = self._watch.latest
            return latest, build(request, latest)

        return await asyncio.get_running_loop().run_in_executor(thread, build_from_newest)

    async def _events(
        self, request: Request, build: Build, thread: Executor | None
    ) -> AsyncIterator[ServerSentEvent]:
        """Yield the page anew for each reading that is new, until the tab or the server ends."""
        shown_number = None
        with self._watch.open_tab():
            while not self._watch.is_over() and not await request.is_disconnected():
                if self._watch.latest.reading_number != shown_number:
                    latest, content = await self._build_in_thread(request, build, thread)
                    shown_number = latest.reading_number
                    text = self._render("live.html", request, content, latest)
                    yield ServerSentEvent(text, id=str(latest.reading_number), event="show", retry=RETRY_MS)
                    await asyncio.sleep(content.every_s)
                await asyncio.sleep(CHECK_EVERY_S)

    def _render(self, template: str, request: Request, content: PageContent, latest: LatestState) -> str:
        """Return a page as HTML; commands in it name the topics.yaml of this page."""
        page = self._templates.get_template(template).render(
            content=content,
            path=request.url.path,
            stream_address=f"?{request.url.query}",
            latest=latest,
            body=content.template,
            **content.values,
        )

        def command_with_config(match: re.Match[str]) -> str:
            command = with_config(unescape(match[1]), self._config)
            return f"<code>{escape(command)}</code>"

        return _COMMAND.sub(command_with_config, page)


def _state_of(source: str, latest: LatestState) -> PartitionState | None:
    """Return the state of a partition such as ``sentences/3``; None: the reading has none."""
    return next((state for state in latest.snapshot.partitions if state.source == source), None)


async def _form_of(request: Request) -> dict[str, str]:
    """Read the fields of a form by their names.

    Empty: the form is too large, cannot be parsed, or was cut off. The change that it is for is
    refused then, since it lacks the token.
    """
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > FORM_BYTES_MAX:
                return {}
        return named_values(body, FORM_FIELDS_MAX)
    except (ValueError, ClientDisconnect):
        return {}


def _not_found(request: Request, _latest: LatestState) -> PageContent:
    """Show that an address has no page."""
    text = f"There is no page {Untrusted(request.url.path)}, or nothing was read of it yet."
    json = {"error": text}
    return PageContent("message.html", "Not found", {"text": text}, json, status=404)


def _moment_to_second(at_ms: int) -> str:
    """Return a wall time as text, without the part of its second."""
    return str(moment(at_ms - at_ms % 1_000))


def _text_of(value: Any, text_of: Callable[[Any], str]) -> str | Markup:
    """Format a value, or the value of a `Reading`: "unknown" if it is unknown, "-" for None."""
    if isinstance(value, Reading):
        if value.unknown:
            return _UNKNOWN_MARK
        value = value.value
    return "-" if value is None else escape(text_of(value))


def unknown_reasons(rows: Sequence[Row]) -> list[str]:
    """Return a line for each reason why values are unknown, with the names of their partitions."""
    notes = []
    for why, sources in unknown_by_reason(rows).items():
        notes.append(f"{first_of(list(sources), SOURCES_NAMED_MAX)}: unknown, since {why}")
    return notes


def _installation_text(topics: Topics) -> str:
    """Return the brokers, and the prefix of the ack topics; empty: the file names no brokers.

    People tell the pages of two installations apart by it.
    """
    servers = [server.strip() for server in topics.kafka.get("bootstrap.servers", "").split(",")]
    if not servers[0]:
        return ""
    brokers_text = first_of(servers, 1)  # the first broker, and how many more there are
    prefix = topics.acker.topic_prefix
    return f"{brokers_text}, prefix {prefix}" if prefix else brokers_text


def _page_name(address: str) -> str:
    """Return the name of the page at an address: that of the header, or its partition."""
    path = address.partition("?")[0]
    return NAMES.get(path, path.removeprefix("/partition/"))


def _cell(column: Column, row: Row) -> str | Markup:
    """Format a value of a table as the command does, but times to the second: they are shorter."""
    value = row[column.key]
    if value is not None:
        text = column.text(value)
        if text and column.key in ("first", "last", "died"):
            text = f"{text[:19]}Z"  # 2026-07-01T00:00:00 of 2026-07-01T00:00:00.123Z
        return escape(sentence_line(text))
    text = absent_text(column, row)
    return _UNKNOWN_MARK if text == UNKNOWN else text


def _is_of_words(column: Column, rows: Sequence[Row]) -> bool:
    """Return whether a column has words, which are aligned at the left; numbers at the right."""
    values = [row[column.key] for row in rows if row[column.key] is not None]
    return bool(values) and all(isinstance(value, str) for value in values)


def _visible(value: Any) -> Any:
    """Return a value as a template prints it: a text on one line, each of its characters visible.

    Markup, and what is no text, is returned as it is.
    """
    if isinstance(value, str) and not isinstance(value, Markup):
        return sentence_line(value)
    return value


def _with_commands(sentence: str) -> Markup:
    """Mark up a sentence of ours: commands, which are between backticks, and names from outside."""
    marked = _marked(sentence)
    # "see `windhover up` first" has the parts "see ", "windhover up", " first"
    parts = marked.split("`")
    if len(parts) % 2 == 0:  # a backtick has no partner: the sentence is not ours
        return marked
    code = Markup("<code>{}</code>")
    parts[1::2] = [code.format(command) for command in parts[1::2]]
    return Markup("").join(parts)


def _marked(sentence: str) -> Markup:
    """Mark up names from outside in a sentence: they may be written from right to left."""
    isolate = Markup("<bdi>{}</bdi>")
    return Markup("").join(
        isolate.format(piece.text) if piece.is_isolated else escape(piece.text)
        for piece in sentence_pieces(sentence)
    )


def _lines(escaped_bytes: str) -> Markup:
    """Mark up bytes of a record, one line below the other: a line break follows its escape."""
    return Markup(escape(escaped_bytes).replace("%0A", "%0A\n"))

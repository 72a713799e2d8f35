"""The pages that read the log when somebody opens them: a record, failures, dead letters, latency.

They read by one client, one request at a time. What took long to read is shown for longer.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from acker.config.topics import Topics
from acker.errors import Unreachable, UsageError, WindhoverError
from acker.kafka.port import Log
from acker.notation import CUT
from acker.units import duration_ms, named_past_ms
from acker.untrusted import Untrusted
from acker.wire.causes import EXPLICIT
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from spout.inspect.dead_letters import inputs_named
from spout.inspect.diagnosis import explained
from spout.inspect.failures import FAILURES, FailureLog, reading_text
from spout.inspect.latency import LATENCY, CompletionLog
from spout.inspect.letter_rows import HISTORY, LIST, STATS, key_text, moment
from spout.inspect.overview import missing_services
from spout.inspect.tables import Row
from spout.inspect.trail import EvidenceReader, InputRecord
from spout.questions.letters import ReadsLetters, details_of, letters_read
from spout.ui.graph import BOLTS, Drivers, with_bolts
from spout.ui.requests import (
    LETTER_LINKS,
    Build,
    LetterQuery,
    LogBuild,
    PageContent,
    RecordQuery,
    query_of,
)
from spout.ui.timeline import Timeline, timeline_of
from spout.ui.watch import PAGE_READ_MAX, LatestState

EVERY_MS_MIN: Final = 2_000
"""A page is shown for ten times as long as it took to read, and at least for this time."""

EVERY_MS_MAX: Final = 15_000
"""A page is shown for this time at most; one that was not read to its end is read on at once."""

LETTERS_SHOWN: Final = 100
"""How many dead letters a page lists."""

FAILURES_SINCE: Final = "1h"
"""The page of failures begins so long ago, if nobody has typed another time."""

WINDOWS_MAX: Final = 4
"""How many windows of failures are followed: those that were asked for last."""

WINDOW_GROWTH_MAX: Final = 10
"""A window is counted anew when it has grown by one tenth: "1h" then would be 66 minutes."""


class _FailureWindow(NamedTuple):
    """The failures since a wall time; the window grows until it is begun anew."""

    since_ms: int
    failures: FailureLog


class LogPages:
    """Builds the pages that read the log, all in `thread`: other pages never wait for its reads.

    Each method that builds a page puts the values of its template into `page_values`, and returns
    the same for programs.
    """

    def __init__(
        self,
        topics: Topics,
        log: Log,
        now_ms: Callable[[], int],
        drivers: Drivers,
        config: Path | None = None,
        read_max: int = PAGE_READ_MAX,
        reads_letters: ReadsLetters = letters_read,
    ) -> None:
        """Prepare; nothing is read.

        Args:
            log: nobody else uses it.
            now_ms: returns wall time.
            config: the topics.yaml that commands to copy have to name; None: the default one.
            read_max: how many records of a topic a request for failures or latencies reads at most;
                the next request goes on.
            reads_letters: reads dead letters, or only those that are new.
        """
        self._reads_letters = reads_letters
        self._config = config
        self._read_max = read_max
        self._topics = topics
        self._drivers = drivers
        self._log = log
        # why the newest reading found no broker; None: it found one
        self._broker_error: WindhoverError | None = None
        self._now_ms = now_ms
        self._evidence_reader = EvidenceReader(log, topics)
        self.thread = ThreadPoolExecutor(1, "windhover-log-pages")
        # by what somebody typed, such as "1h"; the window that was shown last is the last
        self._window_by_since: dict[str, _FailureWindow] = {}
        # each request for the page of latencies reads on; None: there was no request yet
        self._completion_log: CompletionLog | None = None
        self._input_names = [input.name for input in topics.inputs.values() if input.tracked]

    def routes(self) -> list[tuple[str, Build]]:
        """Return what builds each page, by its address."""
        return [
            ("/record", self.build_showing_errors(self._record_page)),
            ("/record/{place:path}", self.build_showing_errors(self._record_page)),
            ("/failures", self.build_showing_errors(self._failures_page)),
            ("/letters", self.build_showing_errors(self._letters_page)),
            ("/letter/{place:path}", self.build_showing_errors(self._letter_page)),
            ("/latency", self.build_showing_errors(self._latency_page)),
        ]

    def build_showing_errors(self, build: LogBuild) -> Build:
        """Return what builds a page by `build`, and shows an error of it in the page.

        `build` returns what programs get, and puts what the page shows into its argument
        `page_values`: the values of the template, and `template`, `title`, `is_live` and `location`
        of `PageContent`. What it has put there before an error is shown with the error. While not
        all was read, it puts a text into `reading`.
        """

        def answer(request: Request, latest: LatestState) -> PageContent:
            self._broker_error = latest.snapshot.broker_error
            page_values: dict[str, Any] = {"template": "message.html", "title": "Error"}
            page_values |= {"names": self._input_names, "problem": "", "reading": ""}
            # "no letters" says little while nobody lives who would write one
            page_values["absent"] = missing_services(latest.snapshot.rows(), self._topics)
            status = 200
            began_ms = self._now_ms()
            self._log.share_deadline()  # all reads of this page together take one timeout at most
            try:
                json = build(request, page_values)
            except WindhoverError as error:
                status = 404 if isinstance(error, UsageError) else 503
                page_values |= {"problem": str(error), "text": str(error)}
                json = {"error": str(error)}
            took_ms = self._now_ms() - began_ms
            every_ms = min(EVERY_MS_MAX, max(EVERY_MS_MIN, 10 * took_ms))
            if page_values["reading"]:
                every_ms = 0  # the next request reads on
            return PageContent(
                template=page_values["template"],
                title=page_values["title"],
                values=page_values,
                json=json,
                status=status,
                every_s=every_ms / 1_000,
                is_live=page_values.get("is_live", True),
                location=page_values.get("location", ""),
            )

        return answer

    def log_if_reachable(self) -> Log:
        """Return the client, for what builds a page.

        Raises:
            Unreachable: the newest reading found no broker. To ask again would only take the
                timeout of an operation, and all pages of the log would wait for it.
        """
        if self._broker_error is not None:
            raise Unreachable(str(self._broker_error))
        return self._log

    def _record_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show what became of the record of a place, or of all of a key, for each group."""
        query = RecordQuery.of(request)
        stories: list[tuple[dict[str, Any], Timeline]] = []
        page_values |= {"template": "record.html", "title": query.place or "Record"}
        page_values |= {"query": query, "stories": stories, "notes": []}
        records, page_values["notes"] = self._records(query)
        for record in records:
            evidence = self._evidence_reader.read_evidence(record)
            now_ms = self._now_ms()
            circumstances = self._evidence_reader.circumstances(record, evidence, now_ms)
            story = explained(evidence, circumstances, now_ms, self._config)
            stories.append((story, timeline_of(evidence, now_ms)))
        return [story for story, _timeline in stories]

    def _records(self, query: RecordQuery) -> tuple[list[InputRecord], list[str]]:
        """Read the records that are asked for, and notes on what was not read."""
        if not query.place and not query.key:
            return [], []
        self.log_if_reachable()  # raises where no broker answers
        if query.place:
            return self._evidence_reader.records_at(query.place), []
        inputs = inputs_named(self._topics, [query.input] if query.input else [])
        return self._evidence_reader.search(inputs, query.key, query.since, self._now_ms())

    def _failures_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show the causes of failures since a time, once all verdicts since then were read."""
        since = query_of(request).get("since", "").strip() or FAILURES_SINCE
        page_values |= {"template": "failures.html", "title": "Failures", "columns": FAILURES}
        page_values["since"] = since
        since_ms = named_past_ms("since", since, self._now_ms())
        window = self._keep_window(self.log_if_reachable(), since, since_ms)
        failures = window.failures
        try:
            failures.read()
        except WindhoverError:
            failures.close()
            del self._window_by_since[since]  # the next request begins anew
            raise
        if not failures.is_whole:
            # a window that is longer than the time since 1970 begins below 0
            what = f"verdicts since {moment(max(0, window.since_ms))}"
            return _show_progress(page_values, what, failures.fraction_read)
        rows = failures.rows(self._now_ms())
        page_values |= {"rows": rows, "since_ms": window.since_ms, "notes": failures.all_notes()}
        page_values["links"] = {
            "dead": lambda row: _letters_address(row, since) if row["dead"] else "",
        }
        return rows

    def _keep_window(self, log: Log, since: str, since_ms: int) -> _FailureWindow:
        """Return the window of failures since a time, of a former request or begun now.

        A window that has grown by a tenth of its length is begun anew. Windows beyond `WINDOWS_MAX`
        are closed, those first that were shown longest ago.

        Args:
            since: what somebody typed, such as "1h".
            since_ms: the wall time that this is now.
        """
        window = self._window_by_since.pop(since, None)  # it is put back at the end
        if window is not None:
            length_ms = self._now_ms() - since_ms
            growth_ms = since_ms - window.since_ms  # it began so much earlier than "1h" ago
            if growth_ms * WINDOW_GROWTH_MAX > length_ms:
                window.failures.close()
                window = None
        if window is None:
            inputs = inputs_named(self._topics, ())
            failures = FailureLog(log, self._topics, inputs, since_ms, self._read_max)
            window = _FailureWindow(since_ms, failures)
        self._window_by_since[since] = window  # at the end of the dict: asked for last
        for oldest in list(self._window_by_since)[:-WINDOWS_MAX]:
            self._window_by_since.pop(oldest).failures.close()
        return window

    def _letters_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show the last dead letters that match a filter, and how many there are of each kind."""
        query = LetterQuery.of(query_of(request))
        page_values |= {"template": "letters.html", "title": "Dead letters", "query": query}
        page_values["total"] = None  # unknown, until they are read
        now_ms = self._now_ms()
        filters = query.filters(self._topics, now_ms)
        with self._reads_letters(self.log_if_reachable(), self._topics, filters) as letters:
            rows = letters.rows(LETTERS_SHOWN)
            counted_rows = letters.counts(now_ms)
        stats_by_kind: dict[str, list[dict[str, Any]]] = {}
        for row in counted_rows:
            stats_by_kind.setdefault(row["of"], []).append(row)
        notes = list(letters.left_unread)
        hidden_count = letters.total - len(rows)
        if hidden_count:
            notes.append(f"{hidden_count:,} more are not shown: narrow the filter")
        if letters.other_records_text:
            notes.append(letters.other_records_text)
        # the last column says who has handled a letter: without `all` nobody has
        columns = LIST if query.all else LIST[:-1]
        page_values |= {"rows": rows, "columns": columns, "links": LETTER_LINKS}
        page_values |= {"total": letters.total, "stats": stats_by_kind, "groups": STATS[1:]}
        page_values["notes"] = notes
        page_values["group_links"] = {"value": lambda row: _group_address(query, row)}
        return rows

    def _letter_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show all details of the letter at a place, or of the letters of the record at it."""
        place = request.path_params["place"]
        page_values["title"] = place
        details = details_of(self.log_if_reachable(), self._topics, [place])
        # these have parts of the page of their own; what else a letter has is a row of one table
        lists = (
            *("stack", "history", "headers", "windhover"),
            *("payload", "payload_bytes", "key", "origin"),
        )
        page_values |= {"template": "letter.html", "letters": details, "lists": lists}
        page_values["history"] = HISTORY
        return details

    def _latency_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show how long records of each input take; before all was read, how much of the ack topics was.

        What is returned is the same for programs.
        """
        page_values |= {"template": "latency.html", "title": "Latency"}
        page_values |= {"columns": LATENCY, "bolts": BOLTS}
        timeout_text = query_of(request).get("timeout", "").strip()
        try:
            timeout_ms = duration_ms(timeout_text) if timeout_text else None
        except ValueError as error:
            why = f"timeout {Untrusted(timeout_text)}: {error}; give 10s or 5m"
            raise UsageError(why) from error
        log = self.log_if_reachable()
        if self._completion_log is None:
            inputs = inputs_named(self._topics, ())
            self._completion_log = CompletionLog(log, self._topics, inputs, self._read_max)
        completions = self._completion_log
        try:
            completions.read()
        except WindhoverError:
            completions.close()
            self._completion_log = None  # the next request begins anew
            raise
        if not completions.is_whole:
            return _show_progress(page_values, "the ack topics", completions.fraction_read)
        now_ms = self._now_ms()
        rows = completions.rows(now_ms, timeout_ms)
        rows = with_bolts(rows, self._topics, self._drivers, now_ms)
        page_values |= {"rows": rows, "notes": completions.notes()}
        return rows


def _show_progress(page_values: dict[str, Any], what: str, share: float) -> dict[str, str]:
    """Put into a page what is still being read, and how much of it was; return JSON of the same.

    No figure is shown before all was read.
    """
    page_values["reading"] = reading_text(what, share)
    return {"unknown": page_values["reading"]}


def _letters_address(row: Row, since: str) -> str:
    """Return the address of the dead letters of a cause, also of letters that were handled."""
    # a bolt that calls `fail` itself has the cause EXPLICIT: its letters have no error, but FAILED
    error = Verdict.FAILED.value if row["cause"] == EXPLICIT else row["cause"]
    operator = row["operator"] or ""
    query = LetterQuery(row["input"], error=error, operator=operator, since=since, all="on")
    return query.address()


def _group_address(query: LetterQuery, row: Row) -> str:
    """Return the address of the letters that a row of `STATS` counts.

    Empty: no filter matches just these.
    """
    # what the row counts by, such as error, key, or dead: the reason of the letter
    counted_by = str(row["of"])
    field = "reason" if counted_by == "dead" else counted_by
    is_of_field = field in ("input", "error", "operator", "reason", "key")
    # the row of all others has no first letter
    if not is_of_field or not row["first"]:
        return ""
    # a filter can match letters without a key, and nothing else that is absent
    if row["value"] is None and field != "key":
        return ""
    if field == "reason" and row["value"] not in set(DeadReason):
        return ""
    value = key_text(row["value"]) if field == "key" else row["value"]
    # a value that was cut would match nothing
    return "" if CUT in value else query.address(**{field: value})

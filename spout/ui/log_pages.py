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
from spout.inspect.dead_letters import details_of, inputs_named, matching_letters
from spout.inspect.diagnosis import explained
from spout.inspect.failures import FAILURES, FailureLog, reading_text
from spout.inspect.latency import LATENCY, CompletionLog
from spout.inspect.letter_rows import (
    HISTORY,
    LIST,
    STATS,
    key_text,
    letter_row,
    moment,
    stats_of,
)
from spout.inspect.overview import missing_services
from spout.inspect.tables import Row
from spout.inspect.trail import InputRecord, Trail
from spout.ui.graph import BOLTS, Drivers, with_bolts
from spout.ui.requests import LETTER_LINKS, Build, LetterQuery, LogBuild, PageContent, RecordQuery, query_of
from spout.ui.timeline import Timeline, timeline_of
from spout.ui.watch import PAGE_READ_MAX, LatestState

EVERY_MS_MIN: Final = 2_000
EVERY_MS_MAX: Final = 15_000
"""What was read is shown for ten times as long as it took to read it, within these bounds; what is still
being read is shown anew at once."""

LETTERS_SHOWN: Final = 100
FAILURES_SINCE: Final = "1h"

WINDOWS_MAX: Final = 4
"""So many times since which failures are counted are followed, those that were asked for last."""

DRIFT: Final = 10
"""Failures are counted anew when their window has grown by a tenth."""


class _Counted(NamedTuple):
    since_ms: int
    found: FailureLog


class LogPages:
    """Builds the pages that read the log, all of them in `thread`: while it waits, nobody else does."""

    def __init__(
        self,
        topics: Topics,
        log: Log,
        now_ms: Callable[[], int],
        drivers: Drivers,
        config: Path | None = None,
        read_max: int = PAGE_READ_MAX,
    ) -> None:
        """Prepare; nothing is read. Nobody else uses `log`; `now_ms` is wall time.

        For failures and latency a request reads at most `read_max` records of a topic, and the next one goes
        on.
        """
        self._config = config
        self._read_max = read_max
        self._topics = topics
        self._drivers = drivers
        self._log = log
        self._away: WindhoverError | None = None
        self._now_ms = now_ms
        self._trail = Trail(log, topics)
        self.thread = ThreadPoolExecutor(1, "windhover-log-pages")
        self._failures: dict[str, _Counted] = {}
        self._completions: CompletionLog | None = None
        self._names = [one.name for one in topics.inputs.values() if one.tracked]

    def routes(self) -> list[tuple[str, Build]]:
        return [
            ("/record", self.answering(self._record)),
            ("/record/{place:path}", self.answering(self._record)),
            ("/failures", self.answering(self._failures_page)),
            ("/letters", self.answering(self._letters)),
            ("/letter/{place:path}", self.answering(self._letter)),
            ("/latency", self.answering(self._latency)),
        ]

    def answering(self, build: LogBuild) -> Build:
        """Return what builds a page, for one request at a time, and shows an error in it.

        `build` returns what programs get, and puts what the page shows into its argument; what it has put
        there before an error is shown all the same. So it puts there `template`, `title`, `is_live` and
        `location` of `PageContent` too.
        """

        def answer(request: Request, now: LatestState) -> PageContent:
            self._away = now.snapshot.away
            values: dict[str, Any] = {"template": "message.html", "title": "Error", "names": self._names}
            # without a service that there is nothing says little
            absent = missing_services(now.snapshot.rows(), self._topics)
            values |= {"problem": "", "reading": "", "absent": absent}
            status = 200
            began_ms = self._now_ms()
            self._log.share_deadline()
            try:
                json = build(request, values)
            except WindhoverError as error:
                status = 404 if isinstance(error, UsageError) else 503
                values |= {"problem": str(error), "text": str(error)}
                json = {"error": str(error)}
            took_ms = self._now_ms() - began_ms
            every_ms = 0 if values["reading"] else min(EVERY_MS_MAX, max(EVERY_MS_MIN, 10 * took_ms))
            return PageContent(
                values["template"],
                values["title"],
                values,
                json,
                status,
                every_ms / 1_000,
                values.get("is_live", True),
                values.get("location", ""),
            )

        return answer

    def log(self) -> Log:
        """Return the client, for who builds a page.

        Raises:
            Unreachable: the newest reading found no broker; to ask again would take the time of an operation
                to find out the same, and all others would wait for it.
        """
        if self._away is not None:
            raise Unreachable(str(self._away))
        return self._log

    def _record(self, request: Request, values: dict[str, Any]) -> Any:
        query = RecordQuery.of(request)
        found = list[tuple[dict[str, Any], Timeline]]()
        values |= {"template": "record.html", "title": query.place or "Record"}
        values |= {"query": query, "found": found, "notes": []}
        records, values["notes"] = self._records(query)
        for here in records:
            evidence, at_ms = self._trail.follow(here), self._now_ms()
            around = self._trail.around(here, evidence, at_ms)
            story = explained(evidence, around, at_ms, self._config)
            found.append((story, timeline_of(evidence, at_ms)))
        return [story for story, _ in found]

    def _records(self, query: RecordQuery) -> tuple[list[InputRecord], list[str]]:
        if not query.place and not query.key:
            return [], []
        self.log()
        if query.place:
            return self._trail.origin(query.place), []
        inputs = inputs_named(self._topics, [query.input] if query.input else [])
        return self._trail.search(inputs, query.key, query.since, self._now_ms())

    def _failures_page(self, request: Request, values: dict[str, Any]) -> Any:
        since = query_of(request).get("since", "").strip() or FAILURES_SINCE
        values |= {"template": "failures.html", "title": "Failures", "columns": FAILURES, "since": since}
        counted = self._counted(self.log(), since, named_past_ms("since", since, self._now_ms()))
        try:
            counted.found.read()
        except WindhoverError:
            counted.found.close()
            del self._failures[since]
            raise
        if not counted.found.is_whole:
            what = f"verdicts since {moment(max(0, counted.since_ms))}"
            return _still_reading(values, what, counted.found.share_read)
        values["rows"] = counted.found.rows(self._now_ms())
        values |= {"since_ms": counted.since_ms, "notes": counted.found.all_notes()}
        values["links"] = {"dead": lambda row: _letters_of(row, since) if row["dead"] else ""}
        return values["rows"]

    def _counted(self, log: Log, since: str, since_ms: int) -> _Counted:
        """Return the failures since a time, which are followed from one request to the next."""
        kept = self._failures.pop(since, None)
        if kept is not None and (since_ms - kept.since_ms) * DRIFT > self._now_ms() - since_ms:
            kept.found.close()
            kept = None
        if kept is None:
            kept = _Counted(
                since_ms,
                FailureLog(log, self._topics, inputs_named(self._topics, ()), since_ms, self._read_max),
            )
        self._failures[since] = kept
        for text in list(self._failures)[:-WINDOWS_MAX]:
            self._failures.pop(text).found.close()
        return kept

    def _letters(self, request: Request, values: dict[str, Any]) -> Any:
        query = LetterQuery.of(query_of(request))
        values |= {"template": "letters.html", "title": "Dead letters", "query": query, "total": None}
        now_ms = self._now_ms()
        meant = query.filters(self._topics, now_ms)
        wait_ms = self._topics.replay.limits.operation_timeout_ms
        found = matching_letters(self.log(), meant, wait_ms=wait_ms)
        rows = [letter_row(each) for each in found.found[-LETTERS_SHOWN:]]
        stats: dict[str, list[dict[str, Any]]] = {}
        for row in stats_of(found.found, now_ms):
            stats.setdefault(row["of"], []).append(row)
        notes = [
            (len(found.found) - len(rows), "{:,} more are not shown: narrow the filter"),
            (found.left_out, "{:,} more match and were not kept: narrow the filter"),
            (found.others, "{:,} records are no letters of Windhover's and are left alone"),
        ]
        values |= {"rows": rows, "columns": LIST if query.all else LIST[:-1], "links": LETTER_LINKS}
        values |= {"total": len(found.found), "stats": stats, "groups": STATS[1:]}
        values["notes"] = [text.format(number) for number, text in notes if number]
        values["group_links"] = {"value": lambda row: _group_address(query, row)}
        return rows

    def _letter(self, request: Request, values: dict[str, Any]) -> Any:
        place = request.path_params["place"]
        values["title"] = place
        details = details_of(self.log(), self._topics, [place])
        lists = ("stack", "history", "headers", "windhover", "payload", "payload_bytes", "key", "origin")
        values |= {"template": "letter.html", "letters": details, "lists": lists, "history": HISTORY}
        return details

    def _latency(self, request: Request, values: dict[str, Any]) -> Any:
        values |= {"template": "latency.html", "title": "Latency", "columns": LATENCY, "bolts": BOLTS}
        text = query_of(request).get("timeout", "").strip()
        try:
            timeout_ms = duration_ms(text) if text else None
        except ValueError as error:
            raise UsageError(f"timeout {Untrusted(text)}: {error}; give 10s or 5m") from error
        log = self.log()
        if self._completions is None:
            named = inputs_named(self._topics, ())
            self._completions = CompletionLog(log, self._topics, named, self._read_max)
        try:
            self._completions.read()
        except WindhoverError:
            self._completions.close()
            self._completions = None
            raise
        if not self._completions.is_whole:
            return _still_reading(values, "the ack topics", self._completions.share_read)
        now_ms = self._now_ms()
        rows = with_bolts(self._completions.rows(now_ms, timeout_ms), self._topics, self._drivers, now_ms)
        values |= {"rows": rows, "notes": self._completions.notes()}
        return rows


def _still_reading(values: dict[str, Any], what: str, share: float) -> dict[str, str]:
    """Say what is read, and how much of it: no figure is known before all was read."""
    values["reading"] = reading_text(what, share)
    return {"unknown": values["reading"]}


def _letters_of(row: Row, since: str) -> str:
    error = Verdict.FAILED.value if row["cause"] == EXPLICIT else row["cause"]
    query = LetterQuery(row["input"], error=error, operator=row["operator"] or "", since=since, all="on")
    return query.address()


def _group_address(query: LetterQuery, row: Row) -> str:
    """Return the address of one group of letters; empty where no filter names it."""
    kind = str(row["of"])
    name = {"dead": "reason"}.get(kind, kind)
    is_named = bool(row["first"]) and name in ("input", "error", "operator", "reason", "key")
    if not is_named or (row["value"] is None and name != "key"):
        return ""
    if name == "reason" and row["value"] not in set(DeadReason):
        return ""
    value = key_text(row["value"]) if name == "key" else row["value"]
    return "" if CUT in value else query.address(**{name: value})

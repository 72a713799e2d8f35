"""Redrives: what was let live again and what became of it; and, where it is allowed, new ones.

A redrive is first tried: its letters are counted and five of them are shown, and nothing is written. The form
below starts it for exactly these letters, since its filter ends at the time of the count.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import Request

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.kafka.port import Log
from acker.units import named_past_ms, time_text
from acker.untrusted import Untrusted
from replay.handling.letter_handling import Order
from replay.handling.outcomes import LetterOutcome
from replay.handling.redrive import outcome_text
from replay.records.letters import Filter, LetterAction
from spout.inspect.dead_letters import (
    FoundLetters,
    cancel_everywhere,
    inputs_named,
    matching_letters,
    redrive_details,
    redrive_rows,
)
from spout.inspect.letter_rows import LIST, REDRIVES, letter_row, sample_of
from spout.inspect.tables import Column
from spout.ui.jobs import Actions, RedriveJobs
from spout.ui.requests import (
    LETTER_LINKS,
    Build,
    LetterQuery,
    LogBuild,
    PageContent,
    action_refusal,
    query_of,
)
from spout.ui.watch import LatestState

TYPED_ABOVE: Final = 1_000
"""Who lets more letters live again than this types how many."""

OUTCOMES_SHOWN: Final = 1_000
REDRIVES_SINCE: Final = "7d"

OUTCOMES: Final = (Column("letter", "letter"), Column("became", "outcome"))
_WORST_FIRST: Final = ("DIED", "GONE", "UNKNOWN", "OPEN", "ACKED")


class _Meant(NamedTuple):
    query: LetterQuery
    filters: list[tuple[Input, Filter]]
    letters: FoundLetters

    @property
    def total(self) -> int:
        return len(self.letters.found) + self.letters.left_out


class RedrivePages:
    """Builds the pages of redrives, and starts and cancels them."""

    def __init__(
        self,
        topics: Topics,
        log: Callable[[], Log],
        now_ms: Callable[[], int],
        answering: Callable[[LogBuild], Build],
        jobs: RedriveJobs,
        actions: Actions | None,
    ) -> None:
        """Prepare. `log` and `answering` are those of `LogPages`; None for `actions`: read-only."""
        self._topics = topics
        self._log = log
        self._now_ms = now_ms
        self._answering = answering
        self._jobs = jobs
        self._actions = actions

    def routes(self) -> list[tuple[str, Build]]:
        """Return the pages."""
        return [
            ("/redrives", self._answering(self._list)),
            ("/redrives/new", self._answering(self._try)),
            ("/redrives/{redrive:path}", self._answering(self._details)),
        ]

    def changes(self) -> list[tuple[str, Build]]:
        """Return what a form may be sent to; the form is `request.state.form`."""
        return [
            ("/redrives", self._allowed(self._start)),
            ("/redrives/{redrive:path}/cancel", self._allowed(self._cancel)),
        ]

    def _allowed(self, build: LogBuild) -> Build:
        changing = self._answering(build)

        def answer(request: Request, now: LatestState) -> PageContent:
            text = action_refusal(request, request.state.form, self._actions)
            if text:
                return PageContent("message.html", "Refused", {"text": text}, {"error": text}, 403)
            return changing(request, now)

        return answer

    def _list(self, request: Request, values: dict[str, Any]) -> Any:
        since = query_of(request).get("since", "").strip() or REDRIVES_SINCE
        values |= {"template": "redrives.html", "title": "Redrives", "since": since, "rows": None}
        values |= {"columns": REDRIVES, "links": {"redrive": lambda row: redrive_address(row["redrive"])}}
        since_ms = named_past_ms("since", since, self._now_ms())
        values["rows"] = redrive_rows(self._log(), self._topics, inputs_named(self._topics, ()), since_ms)
        return values["rows"]

    def _details(self, request: Request, values: dict[str, Any]) -> Any:
        redrive = request.path_params["redrive"]
        job = self._jobs.find(redrive)
        values |= {"title": f"Redrive {redrive}", "redrive": redrive, "job": job, "actions": self._actions}
        try:
            rows = redrive_details(self._log(), self._topics, redrive)
        except UsageError:
            if job is None:
                raise
            rows = []  # it has not written that it began
        outcomes = [each for row in rows for each in row["outcomes"]]
        outcomes.sort(key=lambda each: _WORST_FIRST.index(each["outcome"]))
        counted = Counter(LetterOutcome(each["outcome"]) for each in outcomes)
        is_open = any(row["state"] == "NOT ENDED" for row in rows) or (job is not None and job.is_running)
        values |= {"template": "redrive.html", "rows": rows, "is_open": is_open}
        is_replay = any(row["action"] == LetterAction.REPLAYED for row in rows)
        values |= {
            "became": outcome_text(counted) if is_replay else "",
            "hidden": max(0, len(outcomes) - OUTCOMES_SHOWN),
        }
        values |= {"columns": OUTCOMES, "outcomes": outcomes[:OUTCOMES_SHOWN], "links": LETTER_LINKS}
        return rows

    def _try(self, request: Request, values: dict[str, Any]) -> Any:
        values |= {"title": "Redrive dead letters", "is_live": False}
        meant = self._meant(query_of(request))
        rows = [letter_row(each) for each in sample_of(meant.letters.found)]
        values |= {"template": "redrive_new.html", "query": meant.query, "total": meant.total, "rows": rows}
        values |= {"columns": LIST[:-1], "links": LETTER_LINKS}
        values |= {"actions": self._actions, "typed_above": TYPED_ABOVE}
        return {"letters": meant.total, "until": meant.query.until, "sample": rows}

    def _start(self, request: Request, values: dict[str, Any]) -> Any:
        form: Mapping[str, str] = request.state.form
        values["title"] = "Not started"
        meant = self._meant(form)
        if not meant.total:
            raise UsageError("no letter matches any more: somebody else has handled them")
        typed = form.get("count", "").replace(",", "").strip()
        if meant.total > TYPED_ABOVE and typed != str(meant.total):
            wrong = Untrusted(typed) or "nothing"
            raise UsageError(f"{meant.total:,} letters match, and {wrong} was typed: type how many match")
        if not (why := form.get("why", "").strip()):
            raise UsageError("say for what reason the letters live again: it is kept with the redrive")
        order = Order(LetterAction.REPLAYED, Filter(), self._by(form), why, uuid.uuid4().hex[:8])
        self._jobs.start(meant.filters, order, _rate(form.get("rate", "").strip()))
        values["location"] = redrive_address(order.redrive)
        return {"redrive": order.redrive}

    def _cancel(self, request: Request, values: dict[str, Any]) -> Any:
        redrive = request.path_params["redrive"]
        values["title"] = "Not cancelled"
        job = self._jobs.find(redrive)
        if job is not None and job.is_running:
            job.cancel()
        else:
            by = self._by(request.state.form)
            cancel_everywhere(self._log(), self._topics, redrive, by, self._now_ms())
        values["location"] = redrive_address(redrive)
        return {"redrive": redrive}

    def _by(self, form: Mapping[str, str]) -> str:
        return form.get("by", "").strip() or (self._actions.by if self._actions else "")

    def _meant(self, named: Mapping[str, str]) -> _Meant:
        """Count what is meant; a filter without an end gets the present time as its end.

        Raises:
            UsageError: the filter cannot be parsed, or means all letters of all inputs.
        """
        query = LetterQuery.of(named)
        if not any(query._replace(until="", all="")):
            raise UsageError("that means every letter of every input: choose an input, or a filter")
        now_ms = self._now_ms()
        query = query._replace(until=query.until or time_text(now_ms))
        filters = query.filters(self._topics, now_ms)
        wait_ms = self._topics.replay.limits.operation_timeout_ms
        return _Meant(query, filters, matching_letters(self._log(), filters, wait_ms=wait_ms))


def redrive_address(redrive: str) -> str:
    """Return the address of the page of a redrive, whose id is in the notation."""
    return f"/redrives/{quote(redrive, safe='')}"


def _rate(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError as error:
        raise UsageError(
            f"rate {Untrusted(text)}: is no number; give letters a second, such as 100"
        ) from error

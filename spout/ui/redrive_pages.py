"""The pages of redrives: which there were, what became of their letters, and how to start one.

A redrive is first tried: its letters are counted and five of them are shown, and nothing is
written. The form below starts it for exactly these letters, since its filter ends at the time
of the count.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from spout.inspect.dead_letters import cancel_everywhere, inputs_named
from spout.inspect.letter_rows import LIST, REDRIVES
from spout.inspect.tables import Column
from spout.questions.letters import ReadsLetters, letters_read
from spout.questions.redrives import redrive_details, redrive_rows
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
"""Whoever starts a redrive of more letters than this has to type how many they are."""

OUTCOMES_SHOWN: Final = 1_000
"""How many letters of a redrive its page lists."""

REDRIVES_SINCE: Final = "7d"
"""The list begins so long ago, if nobody has typed another time."""

OUTCOMES: Final = (Column("letter", "letter"), Column("became", "outcome"))
_OUTCOMES_WORST_FIRST: Final = ("DIED", "GONE", "UNKNOWN", "OPEN", "ACKED")


class _Selection(NamedTuple):
    """The letters that a redrive handles.

    Attributes:
        query: the fields of the form, with an end.
        filters: the same as a filter for each input.
        total: how many letters match.
        sample: some of them, as rows of `LIST`.
        left_unread: what was not read because of a limit; empty: no more letters match.
    """

    query: LetterQuery
    filters: list[tuple[Input, Filter]]
    total: int
    sample: Sequence[Mapping[str, Any]]
    left_unread: Sequence[str]


class RedrivePages:
    """Builds the pages of redrives, and starts and cancels them.

    Each method that builds a page puts the values of its template into `page_values`, and returns
    the same for programs.
    """

    def __init__(
        self,
        topics: Topics,
        log_if_reachable: Callable[[], Log],
        now_ms: Callable[[], int],
        build_showing_errors: Callable[[LogBuild], Build],
        jobs: RedriveJobs,
        actions: Actions | None,
        reads_letters: ReadsLetters = letters_read,
    ) -> None:
        """Prepare. `log_if_reachable`, `build_showing_errors`, `reads_letters` are those of `LogPages`.

        Without `actions` (None) the pages are read-only.
        """
        self._topics = topics
        self._log_if_reachable = log_if_reachable
        self._now_ms = now_ms
        self._build_showing_errors = build_showing_errors
        self._jobs = jobs
        self._actions = actions
        self._reads_letters = reads_letters

    def routes(self) -> list[tuple[str, Build]]:
        """Return what builds each page, by its address."""
        return [
            ("/redrives", self._build_showing_errors(self._list_page)),
            ("/redrives/new", self._build_showing_errors(self._trial_page)),
            ("/redrives/{redrive:path}", self._build_showing_errors(self._redrive_page)),
        ]

    def form_actions(self) -> list[tuple[str, Build]]:
        """Return what changes something, by its address; the form is `request.state.form`."""
        return [
            ("/redrives", self._if_allowed(self._start_redrive)),
            ("/redrives/{redrive:path}/cancel", self._if_allowed(self._cancel_redrive)),
        ]

    def _if_allowed(self, change: LogBuild) -> Build:
        """Return a page that makes a change, or answers 403 if the request may change nothing."""
        build_after_change = self._build_showing_errors(change)

        def answer(request: Request, latest: LatestState) -> PageContent:
            refusal = action_refusal(request, request.state.form, self._actions)
            if refusal:
                json = {"error": refusal}
                return PageContent("message.html", "Refused", {"text": refusal}, json, status=403)
            return build_after_change(request, latest)

        return answer

    def _list_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show the redrives that began within a time."""
        since = query_of(request).get("since", "").strip() or REDRIVES_SINCE
        # the page shows these even if the log cannot be read; None: which there are is unknown
        page_values |= {"template": "redrives.html", "title": "Redrives", "columns": REDRIVES}
        page_values |= {"since": since, "rows": None}
        page_values["links"] = {"redrive": lambda row: redrive_address(row["redrive"])}
        since_ms = named_past_ms("since", since, self._now_ms())
        inputs = inputs_named(self._topics, ())
        rows = redrive_rows(self._log_if_reachable(), self._topics, inputs, since_ms)
        page_values["rows"] = rows
        return rows

    def _redrive_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show how far a redrive is on each input, and what became of its letters, worst first."""
        redrive = request.path_params["redrive"]
        job = self._jobs.find(redrive)
        page_values |= {"title": f"Redrive {redrive}", "redrive": redrive, "job": job}
        page_values["actions"] = self._actions
        try:
            rows = redrive_details(self._log_if_reachable(), self._topics, redrive)
        except UsageError:
            if job is None:
                raise
            rows = []  # the job has not written its beginning into the log yet
        outcome_rows = [outcome_row for row in rows for outcome_row in row["outcomes"]]
        outcome_rows.sort(key=lambda row: _OUTCOMES_WORST_FIRST.index(row["outcome"]))
        letter_counts = Counter(LetterOutcome(row["outcome"]) for row in outcome_rows)
        is_running = job is not None and job.is_running
        is_open = is_running or any(row["state"] == "NOT ENDED" for row in rows)
        page_values |= {"template": "redrive.html", "rows": rows, "is_open": is_open}
        # letters that were dropped have no outcome
        is_replay = any(row["action"] == LetterAction.REPLAYED for row in rows)
        page_values["became"] = outcome_text(letter_counts) if is_replay else ""
        page_values |= {"columns": OUTCOMES, "links": LETTER_LINKS}
        page_values["outcomes"] = outcome_rows[:OUTCOMES_SHOWN]
        page_values["hidden"] = max(0, len(outcome_rows) - OUTCOMES_SHOWN)
        return rows

    def _trial_page(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Show how many letters a redrive would be of, and the form that starts it."""
        page_values |= {"title": "Redrive dead letters", "is_live": False}
        selection = self._select(query_of(request))
        page_values |= {"template": "redrive_new.html", "query": selection.query}
        page_values |= {"total": selection.total, "rows": selection.sample, "notes": selection.left_unread}
        # the last column says who has handled a letter: nobody
        page_values |= {"columns": LIST[:-1], "links": LETTER_LINKS}
        page_values |= {"actions": self._actions, "typed_above": TYPED_ABOVE}
        return {
            "letters": selection.total,
            "until": selection.query.until,
            "sample": selection.sample,
            "notes": selection.left_unread,
        }

    def _start_redrive(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Start the redrive that a form asks for, and lead to its page."""
        form: Mapping[str, str] = request.state.form
        page_values["title"] = "Not started"  # shown with an error alone
        selection = self._select(form)
        if selection.left_unread:  # unread letters may match, too, and would be handled uncounted
            why = selection.left_unread[0]
            raise UsageError(
                f"not all letters were counted, so more may match ({why}). On a page without --keep"
                " choose one input, and a time in `since`; on any page type `windhover dlq replay`"
            )
        if not selection.total:
            raise UsageError("no letter matches any more: somebody else has handled them")
        typed = form.get("count", "").replace(",", "").strip()
        # so many letters are handled only if a person has typed their number
        if selection.total > TYPED_ABOVE and typed != str(selection.total):
            wrong = Untrusted(typed) or "nothing"
            matching = f"{selection.total:,} letters match"
            raise UsageError(f"{matching}, and {wrong} was typed: type how many match")
        why = form.get("why", "").strip()
        if not why:
            cure = "say for what reason the letters live again"
            raise UsageError(f"{cure}: it is kept with the redrive")
        order = Order(
            LetterAction.REPLAYED,
            Filter(),  # selection.filters has a filter for each input
            by=self._person(form),
            why=why,
            redrive=uuid.uuid4().hex[:8],
        )
        self._jobs.start(selection.filters, order, _rate(form.get("rate", "").strip()))
        page_values["location"] = redrive_address(order.redrive)
        return {"redrive": order.redrive}

    def _cancel_redrive(self, request: Request, page_values: dict[str, Any]) -> Any:
        """Cancel a redrive, wherever it runs, and lead to its page."""
        redrive = request.path_params["redrive"]
        page_values["title"] = "Not cancelled"  # shown with an error alone
        job = self._jobs.find(redrive)
        if job is not None and job.is_running:
            job.cancel()
        else:
            person = self._person(request.state.form)
            cancel_everywhere(self._log_if_reachable(), self._topics, redrive, person, self._now_ms())
        page_values["location"] = redrive_address(redrive)
        return {"redrive": redrive}

    def _person(self, form: Mapping[str, str]) -> str:
        """Return who sends a form, for the audit records; empty: nobody knows."""
        default = self._actions.by if self._actions else ""
        return form.get("by", "").strip() or default

    def _select(self, fields: Mapping[str, str]) -> _Selection:
        """Read which letters match the fields of an address or a form.

        A filter without an end gets the present time as its end: so the form below the count is of
        the same letters, whatever dies meanwhile.

        Raises:
            UsageError: the filter cannot be parsed, or means all letters of all inputs.
        """
        query = LetterQuery.of(fields)
        # an end alone, or `all` alone, excludes no letter that is there now
        if not any(query._replace(until="", all="")):
            raise UsageError("that means every letter of every input: choose an input, or a filter")
        now_ms = self._now_ms()
        query = query._replace(until=query.until or time_text(now_ms))
        filters = query.filters(self._topics, now_ms)
        with self._reads_letters(self._log_if_reachable(), self._topics, filters) as letters:
            return _Selection(query, filters, letters.total, letters.sample(), letters.left_unread)


def redrive_address(redrive: str) -> str:
    """Return the address of the page of a redrive, whose id is in the notation."""
    return f"/redrives/{quote(redrive, safe='')}"


def _rate(text: str) -> float | None:
    """Parse letters a second; None for an empty text: as fast as it can."""
    try:
        return float(text) if text else None
    except ValueError as error:
        raise UsageError(
            f"rate {Untrusted(text)}: is no number; give letters a second, such as 100"
        ) from error

"""Somebody who asks all views again and again while a broker is missing, and keeps what they answer.

Call it from the main thread. A question is a process of its own, as an operator's is; one is asked at a time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spout.runtime import tether

ROUND_MS: Final = 20_000
"""All views are asked once in this time."""

VIEWS: Final = ("status", "check", "doctor --only live", "machinery")
PAGE: Final = "the page"
QUESTIONS: Final = (*VIEWS, PAGE)

_FETCH: Final = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read().decode())"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a view answered: between two wall times (ms), with an exit code and a text."""

    question: str
    asked_ms: int
    answered_ms: int
    exit_code: int
    text: str


@dataclass(slots=True)
class _Asked:
    question: str
    at_ms: int
    process: subprocess.Popen[bytes]
    log: Path


class Operator:
    """Asks the views of an installation in turn.

    Attributes:
        answers: in the order in which they came.
    """

    def __init__(
        self, config: Path, folder: Path, environ: Mapping[str, str], clock: Callable[[], int]
    ) -> None:
        """Start the page; nothing is asked before `step`."""
        self.answers: list[Answer] = []
        self._config = config
        self._folder = folder
        self._environ = environ
        self._clock = clock
        self._to_ask: list[str] = []
        self._asked: _Asked | None = None
        self._round_ms: int | None = None
        self._page_log = folder / "page.log"
        page = ("ui", "--port", "0", "--config", str(config))
        self._page = self._start(["-m", "spout.cli", *page], self._page_log)

    def step(self) -> None:
        """Take an answer that has come, and ask the next view when it is time to."""
        now_ms = self._clock()
        if self._asked is not None:
            self._take(self._asked, now_ms)
        elif self._to_ask:
            self._asked = self._ask(self._to_ask.pop(0), now_ms)
        elif self._round_ms is None or not 0 <= now_ms - self._round_ms < ROUND_MS:
            self._round_ms = now_ms
            self._to_ask = list(QUESTIONS)

    def close(self) -> None:
        """End the page and a question under way."""
        for process in (self._page, None if self._asked is None else self._asked.process):
            if process is not None:
                tether.kill(process)

    def _ask(self, question: str, now_ms: int) -> _Asked | None:
        if question == PAGE:
            address = self._page_address()
            if address is None:
                return None
            program = ["-c", _FETCH, address]
        else:
            program = ["-m", "spout.cli", *question.split(), "--config", str(self._config)]
        log = self._folder / "answer.log"
        log.unlink(missing_ok=True)
        return _Asked(question, now_ms, self._start(program, log), log)

    def _take(self, asked: _Asked, now_ms: int) -> None:
        exit_code = asked.process.poll()
        if exit_code is not None:
            text = asked.log.read_text(encoding="utf-8", errors="replace")
            self.answers.append(Answer(asked.question, asked.at_ms, now_ms, exit_code, text))
            self._asked = None

    def _page_address(self) -> str | None:
        """Return the address that the page has printed; None: it has not started yet."""
        lines = self._page_log.read_text(encoding="utf-8").splitlines()
        return next((word for line in lines for word in line.split() if word.startswith("http://")), None)

    def _start(self, program: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        return tether.spawn(tether.Command([sys.executable, *program], log, environ=self._environ))

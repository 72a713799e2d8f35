"""What a request asks for, and what the answer shows; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from starlette.requests import Request

from spout.ui.watch import LatestState


@dataclass(frozen=True, slots=True)
class PageContent:
    """What one page shows.

    Attributes:
        template: the file in templates/ for `<main>`.
        values: for the template.
        json: the same for programs.
        every_s: how long at least what it shows is shown.
        is_live: whether it shows what is new by itself.
        location: where a request that changed something leads.
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


class LetterQuery(NamedTuple):
    """Which dead letters are meant; the names are those of the options of ``windhover dlq``, empty: any."""

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
    def of(cls, named: Mapping[str, str]) -> Self:
        return cls(**{name: named.get(name, "").strip() for name in cls._fields})

    def texts(self) -> dict[str, str | None]:
        """Return what was named, None for what was not."""
        return {name: value or None for name, value in self._asdict().items()}

    def address(self, path: str = "/letters", **changes: str) -> str:
        """Return the address of a page with this query, a part of it changed."""
        named = {name: value for name, value in (self._asdict() | changes).items() if value}
        return f"{path}?{urlencode(named)}" if named else path

    def options(self) -> str:
        """Return it as the options of a command."""
        named = {name: value for name, value in self._asdict().items() if value and name != "place"}
        words = [
            f"--{name}" if name == "all" else f"--{name} {_word(value)}" for name, value in named.items()
        ]
        return " ".join([*([_word(self.place)] if self.place else []), *words])


def _word(text: str) -> str:
    return text if text and all(each.isalnum() or each in "-_./@:" for each in text) else repr(text)

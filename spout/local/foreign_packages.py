"""Finds packages of somebody else in the place of ours; it imports the standard library alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = Path(__file__).resolve().parents[2]
"""The folder with our packages."""


def foreign_packages() -> dict[str, str]:
    """Return where `acker` and `replay` are imported from, as far as that is not ours."""
    foreign = {}
    for name in ("acker", "replay"):
        spec = find_spec(name)
        places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
        if not any(Path(place).resolve() == OURS / name for place in places):
            foreign[name] = places[0] if places else "nowhere"
    return foreign

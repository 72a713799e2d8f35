"""Finds packages of somebody else in the place of ours; it imports the standard library alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = Path(__file__).resolve().parents[2]
"""The folder with our packages."""


def foreign_packages() -> dict[str, str]:
    """Return the folder of each of `acker` and `replay` that is not ours.

    ``nowhere``: there is none.
    """
    folder_by_package: dict[str, str] = {}
    for name in ("acker", "replay"):
        spec = find_spec(name)
        folders: list[str] = []
        if spec is not None:
            # a package has folders; a single file of this name has only its path
            folders = list(spec.submodule_search_locations or [spec.origin or ""])
        if not any(Path(folder).resolve() == OURS / name for folder in folders):
            folder_by_package[name] = folders[0] if folders else "nowhere"
    return folder_by_package

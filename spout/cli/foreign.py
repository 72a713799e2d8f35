"""Begins the command ``windhover``, also where a package of somebody else has one of our import names.

A file or folder `acker` in the folder of a user, or a distribution of that name, is imported in place of
ours; what imports it then ends with a traceback. So this module imports the standard library alone, and looks
first.
`doctor` goes on with ours, and says it (WH012); every other command ends with the cure.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spout.cli import start_path

OURS: Final = Path(__file__).resolve().parents[2]
"""The folder with our packages."""

CONFIG_ERROR: Final = 4


def foreign_packages() -> dict[str, str]:
    """Return where `acker` and `replay` are imported from, as far as that is not ours."""
    foreign = {}
    for name in ("acker", "replay"):
        spec = find_spec(name)
        places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
        if not any(Path(place).resolve() == OURS / name for place in places):
            foreign[name] = places[0] if places else "nowhere"
    return foreign


def begin() -> None:
    """Run the command and end the process; the entry point of the package."""
    foreign = foreign_packages()
    # `--debug` may stand before the command
    if foreign and "doctor" not in sys.argv[1:3]:
        for name, place in foreign.items():
            sys.stderr.write(
                f"windhover: the package {name} is imported from {place}, which is not Windhover's: rename or"
                " uninstall it; `windhover doctor` checks the rest\n"
            )
        sys.exit(CONFIG_ERROR)
    if foreign:
        # `start_path` keeps the folders of before, which `doctor` judges
        sys.path[:] = [str(OURS), *start_path.PATH]
    from spout.cli.main import main

    main()

"""Begins the command ``windhover``, also if another package has one of our import names.

A file or folder `acker` in the folder of a user, or a distribution of that name, is imported in
place of ours; what imports it then ends with a traceback. So this module imports nothing of
them, and looks first. `doctor` goes on with ours, and says it (WH012); every other command ends
with the cure.
"""

from __future__ import annotations

import sys
from typing import Final

from spout.cli import start_path
from spout.local.foreign_packages import OURS, foreign_packages

CONFIG_ERROR: Final = 4


def begin() -> None:
    """Run the command and end the process; the entry point of the package."""
    folder_by_package = foreign_packages()
    # the command may stand behind `--debug`
    is_doctor = "doctor" in sys.argv[1:3]
    if folder_by_package and not is_doctor:
        for name, folder in folder_by_package.items():
            sys.stderr.write(
                f"windhover: the package {name} is imported from {folder}, which is not Windhover's:"
                " rename or uninstall it; `windhover doctor` checks the rest\n"
            )
        sys.exit(CONFIG_ERROR)
    if folder_by_package:
        # our own folder comes first now; `doctor` judges the path as it was (`start_path`)
        sys.path[:] = [str(OURS), *start_path.PATH]
    from spout.cli.main import main

    main()

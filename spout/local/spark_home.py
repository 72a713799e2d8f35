"""Lets the Python processes of a local Spark import the installed PySpark, and not the sources in its zip.

Spark puts ``SPARK_HOME/python/lib/pyspark.zip`` before all else on the path of each Python process that it
starts. Python keeps no bytecode of what is in a zip, so each of them compiles PySpark anew: two thirds of its
start. On a slow or busy machine that is longer than the 10 s after which Spark gives a process up ("Python
worker failed to connect back"), and no setting makes that longer.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_NAME: Final = "spark-without-zip-"
_LINKED: Final = ("bin", "jars", "sbin")
"""What Spark itself takes from SPARK_HOME."""


def home_without_zip(installed: Path, environ: Mapping[str, str], cache: Path) -> Path:
    """Return the SPARK_HOME to start a local Spark with, whose workers are this interpreter.

    Args:
        installed: the folder of the installed PySpark.
        environ: a SPARK_HOME that somebody has set there is kept.
        cache: where a folder with links to the installed one is made once.
    """
    named = environ.get("SPARK_HOME")
    if named and not Path(named).name.startswith(_NAME):
        return Path(named)
    home = cache / f"{_NAME}{zlib.crc32(os.fsencode(installed)):08x}"
    if not all((home / name).exists() for name in _LINKED):
        cache.mkdir(parents=True, exist_ok=True)
        # made aside and renamed, so that another process never starts from half a folder
        with tempfile.TemporaryDirectory(prefix=f".{_NAME}", dir=cache) as folder:
            draft = Path(folder) / "home"
            draft.mkdir()
            for name in _LINKED:
                (draft / name).symlink_to(installed / name)
            try:
                draft.rename(home)
            except OSError:  # another process was first
                if not all((home / name).exists() for name in _LINKED):
                    raise
    return home

"""Lets the Python processes of a local Spark import the installed PySpark, and not the sources in its zip.

Spark puts ``SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts.
Python keeps no bytecode of modules in a zip, so each process compiles PySpark again, which takes two thirds
of its start. On a slow or busy machine that takes longer than the 10 s after which Spark gives a process up
("Python worker failed to connect back"), and no setting changes this limit.
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
"""The entries of SPARK_HOME that Spark itself uses."""


def home_without_zip(installed: Path, environ: Mapping[str, str], cache: Path) -> Path:
    """Return the SPARK_HOME with which to start a local Spark whose workers run this interpreter.

    Args:
        installed: the folder of the installed PySpark.
        environ: if SPARK_HOME is set in it, that value is returned.
        cache: where a folder with links to the installed one is created once.
    """
    named = environ.get("SPARK_HOME")
    if named and not Path(named).name.startswith(_NAME):
        return Path(named)
    home = cache / f"{_NAME}{zlib.crc32(os.fsencode(installed)):08x}"
    if not all((home / name).exists() for name in _LINKED):
        cache.mkdir(parents=True, exist_ok=True)
        # created under another name and renamed, so that no process starts from half a folder
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

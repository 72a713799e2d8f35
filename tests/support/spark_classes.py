"""Spark's classes as Java has parsed them, kept in a file: each Spark of a test starts in half the CPU time.

``python -m tests.support.spark_classes`` writes the file; `.ci/run` does so once. Without it tests start as
before. Java itself goes without a file that was written from other jars or by another Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from spout.local import java
from spout.local.jars import cache_directory
from spout.local.spark_session import home_without_zip

_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A session of a test ends before optimised machine code and a parallel garbage collector are worth the cores
that they take from the tests."""

_JOB: Final = Path(__file__).parent / "bolts" / "spark_classes_job.py"
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Where the file does not fit, as for a driver with a jar of its own, no line of Java's is in its output."""


def submit_options(environ: Mapping[str, str]) -> str:
    """Return SPARK_SUBMIT_OPTS: options of a driver's JVM, and of the executors that it asks for."""
    kept = _kept(environ)
    jvm = f"{_JVM} -XX:SharedArchiveFile={kept} {_SILENT}" if kept.exists() else _JVM
    return f'{jvm} "-Dspark.executor.defaultJavaOptions={jvm}"'


def _kept(environ: Mapping[str, str]) -> Path:
    """Return the file for the PySpark and the Java of these tests; Java is not run for it."""
    _origin, home = next(java.candidates(environ), ("", Path()))
    which = f"{pyspark.__file__} {pyspark.__version__} {home.resolve()}"
    return cache_directory(environ) / f"spark-{zlib.crc32(os.fsencode(which)):08x}.jsa"


def main(environ: Mapping[str, str]) -> None:
    """Let a first Spark work as those of the tests do, and keep what it has loaded by then."""
    kept, found = _kept(environ), java.find(environ)
    if kept.exists():
        sys.stdout.write(f"{kept} is there\n")
        return
    if not (found.home / "lib" / "server" / "classes.jsa").exists():
        sys.stdout.write(f"{found} has not kept its own classes, to which Spark's would be added\n")
        return
    cache = cache_directory(environ)
    home = home_without_zip(Path(pyspark.__file__).parent, environ, cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix="keeping-") as folder:
        draft = Path(folder) / "spark.jsa"
        further = {
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(found.home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "SPARK_SUBMIT_OPTS": f"{_JVM} -XX:ArchiveClassesAtExit={draft} {_SILENT}",
        }
        # spark-submit itself ends when Java has written the file; a Python program would end before it
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2,3]", str(_JOB), folder]
        subprocess.run(command, env={**environ, **further}, check=True, stderr=subprocess.DEVNULL)
        draft.replace(kept)
    sys.stdout.write(f"{kept}, {kept.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(os.environ)

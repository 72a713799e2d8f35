"""What the harnesses share: the corpus in a folder of its own, libFuzzer's defaults, and the loop.

Anything but an error of ``acker.errors`` ends the process with the input that did it, as does an input that
takes longer than `INPUT_SECONDS`, or a process that has more than `MEMORY_MB`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

INPUT_SECONDS = 10
MEMORY_MB = 1_024


def run(harness: Callable[[bytes], None], corpus: Iterable[bytes]) -> None:
    """Fuzz until libFuzzer's flags say that it is enough; the process ends in here.

    Args:
        harness: called with each input; what it raises is a finding.
        corpus: right inputs to begin with.
    """
    with tempfile.TemporaryDirectory(prefix="windhover-fuzz-") as folder:
        for number, data in enumerate(corpus):
            (Path(folder) / f"{number:03}").write_bytes(data)
        limits = [f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", "-max_len=8192"]
        found = f"-artifact_prefix={tempfile.gettempdir()}/windhover-fuzz-"
        # libFuzzer writes what it finds into the first folder that it is given, which is the caller's
        atheris.Setup([sys.argv[0], *limits, found, *sys.argv[1:], folder], harness)
        atheris.Fuzz()

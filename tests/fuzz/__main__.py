"""Sends records through every reader on the in-memory log, a tenth of them odd, and judges them.

    python -m tests.fuzz --records 1000000 --seed 1

Ends with 0 and prints what it did, or with 1 and prints what is wrong and the command that repeats it. The
harnesses beside it, which need atheris, are described in the package.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import cycle
from typing import Final

from tests.fuzz.odd_run import OddRun

ROUND_RECORDS: Final = 2_000
WRONG_SHOWN_MAX: Final = 20


def main() -> int:
    """Run once; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="how many, in all topics")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="begin no further round after so long")
    asked = parser.parse_args()
    begun = time.monotonic()
    runs = (OddRun(asked.seed, "spout"), OddRun(asked.seed, "query"))
    written = 0
    for run in cycle(runs):
        is_over = asked.seconds is not None and time.monotonic() - begun > asked.seconds
        if written >= asked.records or is_over:
            break
        count = min(asked.records - written, ROUND_RECORDS)
        run.round(count)
        written += count
        if wrong := run.wrong():
            again = f"again: python -m tests.fuzz --records {written} --seed {asked.seed}"
            sys.stdout.write("\n".join([*wrong[:WRONG_SHOWN_MAX], again, ""]))
            return 1
        sys.stderr.write(f"{written:,} records, {time.monotonic() - begun:,.0f} s\n")
    for run in runs:
        sys.stdout.write(f"{run.report()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

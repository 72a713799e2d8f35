"""Sends records through every reader on the in-memory log, a tenth of them odd, and looks that all is settled.

    python -m tests.fuzz --records 1000000 --seed 1

Ends with 0 and prints what it did, or with 1 and prints what is wrong and the command that repeats it. The
harnesses beside it, which need atheris, are described in the package.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.odd_run import OddRun


def main() -> int:
    """Run once; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000, help="how many, in all topics")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=None, help="begin no further round after so long")
    asked = parser.parse_args()
    begun = time.monotonic()
    run = OddRun(asked.seed)
    while run.written < asked.records:
        if asked.seconds is not None and time.monotonic() - begun > asked.seconds:
            break
        run.round(min(asked.records - run.written, 5_000))
        wrong = run.wrong()
        if wrong:
            print("\n".join(wrong), f"again: python -m tests.fuzz --records {run.written} --seed {asked.seed}")
            return 1
        print(f"{run.written:,} records, {time.monotonic() - begun:,.0f} s", file=sys.stderr)
    print(run.report())
    return 0


if __name__ == "__main__":
    sys.exit(main())

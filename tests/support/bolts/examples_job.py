"""Examples one after the other in one Spark, each as ``python examples/NAME.py`` runs it; for tests to run.

python -m tests.support.bolts.examples_job PIPE

Each line of the pipe is a JSON list: the folder to run in, the file of an example, and its arguments. It runs
until it ends, fails or Ctrl-C ends it; then its queries are stopped, and a line says which of these it was.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

from spout.local.spark_session import local_session, warm_up

ENDED = "the example has ended: "
INTERRUPTED = "the example was interrupted: "
FAILED = "the example has failed: "


def main(pipe: str) -> None:
    """Run what is asked for until the pipe is closed."""
    with tempfile.TemporaryDirectory(prefix="windhover-examples-") as cache, open(pipe) as lines:
        spark = local_session("examples", Path(cache), cores=2)
        warm_up(spark)
        for line in lines:
            folder, file, *arguments = json.loads(line)
            os.chdir(folder)
            sys.argv = [file, *arguments]
            end = ENDED
            try:
                runpy.run_path(file, run_name="__main__")
            except KeyboardInterrupt:
                end = INTERRUPTED
            except (Exception, SystemExit):  # noqa: BLE001 - the next one runs all the same
                end = FAILED
                sys.stdout.write(traceback.format_exc())
            for query in spark.streams.active:
                query.stop()
            sys.stdout.write(f"{end}{file}\n")
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

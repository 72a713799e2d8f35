"""A process that stops itself while it writes a batch into PostgreSQL, and then says how the write ended.

Its arguments are a connection string, a schema of `Tables`, and the place: `copy`, `commit`.
"""

from __future__ import annotations

import os
import signal
import sys

import pyarrow as pa

from acker.errors import WindhoverError
from spout.exactly_once.postgres_store import PostgresStore
from tests.support.exact_batches import key_of
from tests.support.postgres_tables import Copying, connecting_by


def write_and_stop(dsn: str, schema: str, place: str) -> str:
    """Write the word `late`, stopped at the place; return "written", or the name of the error."""
    writes: list[bool] = []

    def stop() -> None:
        # only where a batch is written: an `open` has locked nothing yet
        if writes:
            os.kill(os.getpid(), signal.SIGSTOP)

    class Stopping(Copying):
        """Stops its process."""

        def before_copy(self) -> None:
            if place == "copy":
                stop()

        def commit(self) -> None:
            if place == "commit":
                stop()
            super().commit()

    with connecting_by(Stopping):
        store = PostgresStore(dsn, f"{schema}.words")
        store.open("g", 1)
        writes.append(True)
        try:
            store.commit(key_of(), pa.table({"word": ["late"]}), b"late")
        except WindhoverError as error:
            return type(error).__name__
    return "written"


if __name__ == "__main__":
    sys.stdout.write(write_and_stop(*sys.argv[1:]))

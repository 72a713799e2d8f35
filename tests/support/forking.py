"""A forked child for a test: does some work, says in a text how it went, and ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

from tests.support.waiting import Watch

CHILD_S: Final = 20.0
"""A child that takes longer hangs."""


def in_a_fork(work: Callable[[], object]) -> str:
    """Fork, call `work` in the child, and return the text of what it returned, or the error that it raised.

    Raises `TimeoutError`: the child did not end, and was killed.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = f"{work()}"
        except BaseException as error:  # noqa: BLE001 - a child's top: nothing of the test may run on in it
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    watch = Watch(child)
    try:
        if not watch.ended(CHILD_S):
            os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"the forked child {child} did not end within {CHILD_S} s")
        with os.fdopen(reader, "rb") as pipe:
            return pipe.read().decode()
    finally:
        watch.close()
        os.waitpid(child, 0)

"""A bolt that fails a line the second time; in a module of its own, since the workers import it."""

from __future__ import annotations

from pathlib import Path

from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.tuples.tuple import Tuple


class FailsAgain(BasicBolt):
    """Emit the words of a line; one that begins with ``flaky`` fails the second time that it comes by."""

    output = "word string"

    def __init__(self, folder: str) -> None:
        """Leave a mark for each call in a folder."""
        self._folder = Path(folder)

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Fail before the first word, or emit all of them."""
        words = tuple["value"].decode().split()
        if words[0] == "flaky":
            calls = len(list(self._folder.iterdir()))
            (self._folder / str(calls)).touch()
            if calls == 1:
                raise ValueError("not the second time")
        for word in words:
            if word != "flaky":
                collector.emit((word,))

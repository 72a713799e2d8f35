"""Reads `_ack_verdict` for a planning process, from where it ends when the process starts.

Source: DESIGN.md, section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from acker.codec import wire_codec
from acker.errors import CodecError, Disagreement
from acker.events import Taken, Verdicts
from acker.log import Log, Record, TopicPartition
from acker.settings import AckTopics

POLL_RECORDS_MAX = 1_000


class VerdictReader:
    """Follows all acker partitions."""

    def __init__(self, log: Log, topics: AckTopics, partitions: int) -> None:
        """Stand at the ends as they are now.

        Raises:
            Disagreement: the broker's N is not ours.
        """
        names = (topics.init, topics.ack, topics.verdict)
        found = log.topics(names)
        for name in names:
            count = found[name].partitions if name in found else 0
            if count != partitions:
                raise Disagreement(
                    f"topic {name} has {count} partitions, topics.yaml says {partitions}; acker.partitions is"
                    " fixed for life: correct it, or create the topics with `windhover topics create`"
                )
        self._codec = wire_codec()
        self._reader = log.reader(committed=True)
        self._reader.assign(log.ends([TopicPartition(topics.verdict, p) for p in range(partitions)]))

    def poll(self, wait_ms: int) -> Sequence[Record]:
        """Return records, waiting at most `wait_ms` for the first."""
        return self._reader.poll(wait_ms, POLL_RECORDS_MAX)

    def decode(self, record: Record) -> Taken | Verdicts:
        """Read one record.

        Raises:
            CodecError: it is none that this version can read. Passing over it could lose verdicts, and
                what they settle would stay pending for ever.
        """
        place = f"{record.topic}/{record.partition}@{record.offset}"
        try:
            event = self._codec.decode(record.value)
        except CodecError as error:
            raise CodecError(f"{place}: {error}; run the spout with the version of the ackers") from error
        if not isinstance(event, Taken | Verdicts):
            raise CodecError(f"{place} is a {type(event).__name__}, which no acker writes there")
        return event

    def close(self) -> None:
        """Leave."""
        self._reader.close()

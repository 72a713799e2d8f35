"""Names the records of roots as people find them: ``sentences/0@4-6``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acker.config.settings import Input
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.wire.events import SourceRun
from replay.records.headers import location

PLACES_MAX: Final = 10
"""So many runs of records are named together."""


def topic_of(input: Input, source: int) -> str:
    """Return the topic that a source of an input is a partition of: its own, or that of its copies.

    The source ``copies_source(source_of(7, 3))`` of input 7, `sentences`, is a partition of
    ``sentences.word-count.replay``.
    """
    return input.replay_topic if is_replay(source) else input.topic


def record_place(source: int, position: int, inputs: Sequence[Input]) -> str:
    """Name a root's record: ``topic/partition@offset``.

    That of an input that is not among `inputs` has its source's number in place of the topic.
    """
    topic_by_input_id = {input.id: topic_of(input, source) for input in inputs}
    topic = topic_by_input_id.get(input_id_of(source), str(source))
    return location(topic, partition_of(source), offset_of(position))


def run_places(runs: Sequence[SourceRun], inputs: Sequence[Input]) -> str:
    """Name the records of some runs: ``sentences/0@4-6, sentences/1@9``; ``none`` if there is no run.

    At most `PLACES_MAX` of the runs are named; ``...`` stands for the others.
    """
    texts: list[str] = []
    for source, start, end in runs[:PLACES_MAX]:
        is_one_record = end == start + 1
        last_offset = "" if is_one_record else f"-{int(offset_of(end - 1))}"
        texts.append(f"{record_place(source, start, inputs)}{last_offset}")
    if len(runs) > PLACES_MAX:
        texts.append("...")
    return ", ".join(texts) or "none"

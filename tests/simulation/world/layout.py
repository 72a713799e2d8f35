"""The topics.yaml of a run."""

from __future__ import annotations

from functools import cache
from typing import Final

from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from tests.simulation.options import Options

YAML: Final = """
acker: {{partitions: {partitions}}}
inputs:
{inputs}
"""
INPUT: Final = """
  {name}:
    id: {id}
    topic: lines
    group: {name}
    partitions: {source_partitions}
    timeout: {timeout_ms}ms
    max_spout_pending: {max_spout_pending}
    on_data_loss: skip
    ordering: {ordering}
    max_held: {max_held}
    hold: 300ms
    retry: {{attempts: {attempts}, initial: {initial_ms}ms, max: 20s, max_abandoned: {max_abandoned},
            causes: {causes}}}
    dead_letter: {{max_ratio: 1.0, max_consecutive: 1000000}}
"""


@cache
def _topics(text: str) -> Topics:
    return topics_yaml.parse(text, file="topics.yaml", environ={})


def topics_of(options: Options) -> Topics:
    """Return the topics.yaml of a run."""
    fields = {name: getattr(options, name) for name in options.__slots__}
    inputs = "".join(
        INPUT.format(name=f"g{number}", id=number, **fields) for number in range(1, options.groups + 1)
    )
    return _topics(YAML.format(inputs=inputs, **fields))

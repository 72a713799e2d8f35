"""What `windhover validate` shows of a file."""

from __future__ import annotations

from acker.config.topics import parse
from acker.provisioning.describe import describe

LISTS = """
inputs:
  a: {id: 1, group: g, retry: {attempts: 5, delays: [1s, 2m], causes: [{error: KeyError, then: drop}]}}
"""


def test_lists_of_waits_and_rules_are_shown_with_what_holds() -> None:
    lines = list(describe(parse(LISTS, file="topics.yaml", environ={})))

    assert "      delays: 1s, 2m" in lines
    assert "      count_timed_out: true" in lines
    rules = lines.index("      causes:")
    assert lines[rules + 1 : rules + 5] == [
        "        0:",
        "          error: KeyError",
        "          operator: not given",
        "          then: drop",
    ]


def test_an_input_without_lists_says_so() -> None:
    lines = list(describe(parse("inputs: {a: {id: 1, group: g}}", file="topics.yaml", environ={})))

    assert "      delays: not given" in lines
    assert "      causes: none" in lines

"""Behaviours of Storm, its Kafka spout, Kestrel and their peers, and which of them the tests demonstrate.

``docs/design/conformance.md`` lists them. A test that demonstrates a case has its number in its docstring
(`S13`, `P54`). For every other case the page has the reason why it does not apply here, or `NOT_YET` the
reason why it is not built. ``tests/test_conformance.py`` checks that each case is in exactly one of the three
places.

S are cases of Storm's acker, spouts and bolts, of storm-kafka-client, and of Kestrel's queues; P those of
share groups, Parallel Consumer, JetStream, Spring, Decaton, uForwarder, kmq, Heron and Vector; O those of odd
records, as people report them of Kafka's clients and of Spark; D those of odd days, on which what is around
the product is slow, absent or wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/design/conformance.md"

_CASE = re.compile(r"^- \*\*([SPOD][0-9]+)\*\*: (.*?)(?: \*Does not apply:\* (.*)\.)?$", re.MULTILINE)
_FOUND = _CASE.findall(PAGE.read_text(encoding="utf-8"))

CASES: Mapping[str, str] = {case: about for case, about, _ in _FOUND}
"""Every case, with what it is about."""

NOT_APPLICABLE: Mapping[str, str] = {case: reason for case, _, reason in _FOUND if reason}
"""Cases that mean nothing here, each with the reason."""

NOT_YET: Mapping[str, str] = {}
"""Cases of what does not exist yet; each goes when a test names it."""

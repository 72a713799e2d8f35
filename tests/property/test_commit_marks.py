"""The metadata of commits say which installation made them, and no other one is taken for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acker.config.settings import AckTopics
from spout.group.starting import COMMITTED_BY, commit_mark, is_own_mark, prefix_in_mark

PREFIXES = st.text("abcXYZ019._-", max_size=100)


@given(PREFIXES, PREFIXES)
def test_a_mark_is_of_the_installation_that_wrote_it(prefix: str, other: str) -> None:
    mark, other_mark = (commit_mark(AckTopics.with_prefix(name)) for name in (prefix, other))
    assert prefix_in_mark(mark) == prefix
    assert is_own_mark(mark, mark)
    assert is_own_mark(COMMITTED_BY, mark)  # of an older version, which wrote no prefix
    if other not in (prefix, ""):
        assert not is_own_mark(other_mark, mark)


@given(st.text(max_size=50))
def test_what_other_programs_write_is_no_mark(text: str) -> None:
    if text != COMMITTED_BY and not text.startswith(f"{COMMITTED_BY} "):
        assert prefix_in_mark(text) is None
        assert not is_own_mark(text, COMMITTED_BY)

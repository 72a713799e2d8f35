"""The search for what a topic refuses, over any set of refused roots: it ends, and errs on no side."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import log2

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.worker.narrowing import AtFault, Narrowing
from replay.worker.waiting import DueRoot

WHOLE = 20_000
REFUSED_MAX = 10


@dataclass
class Topic:
    """A topic that refuses the copies of some roots, and a transaction with one of them whole."""

    count: int
    bad: AbstractSet[int]
    tried: int = 0
    left: list[DueRoot] = field(default_factory=list)
    written: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)

    def search(self, in_a_row: int = 0) -> AtFault:
        """Do what a partition does after its first transaction was refused; return whose fault it is."""
        self.left = [DueRoot(7, number) for number in range(self.count)]
        narrowing = Narrowing(WHOLE, REFUSED_MAX, in_a_row)
        if self.count > 1:
            narrowing.record_refused_together(self.count)
        while self.left and not narrowing.is_over:
            chosen = narrowing.choose_roots(self.left)
            at_fault = self.at_fault(narrowing, [entry.offset for entry in chosen])
            if at_fault is AtFault.TOPIC:
                return at_fault
            if at_fault is AtFault.RECORDS:
                found = set(narrowing.give_up_suspects())
                assert found <= self.bad, "only what was refused alone is given up"
                self.given_up |= found
                self.left = [entry for entry in self.left if entry.offset not in found]
        return AtFault.RECORDS

    def at_fault(self, narrowing: Narrowing, chosen: list[int]) -> AtFault:
        """Try some roots in one transaction."""
        if not chosen:
            return narrowing.fault_of_suspects()
        self.tried += 1
        if self.bad.isdisjoint(chosen):
            self.written |= set(chosen)
            self.left = [entry for entry in self.left if entry.offset not in chosen]
            return narrowing.record_accepted(len(chosen), len(chosen))
        if len(chosen) > 1:
            narrowing.record_refused_together(len(chosen))
            return AtFault.UNKNOWN
        return narrowing.record_refused_alone(chosen[0], "refused")


SOME = st.integers(1, 300).flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), max_size=count // 2))
)


@settings(max_examples=300, deadline=None)
@given(SOME)
def test_all_that_is_refused_is_found_and_nothing_else(some: tuple[int, set[int]]) -> None:
    """O201: whatever lies where; each refused root costs a handful of transactions at most."""
    count, bad = some
    topic = Topic(count, bad)
    if topic.search() is AtFault.TOPIC:  # of all that were tried none was accepted, by chance
        assert len(bad) >= REFUSED_MAX
        assert topic.given_up == topic.written == set()
        return
    assert topic.given_up == bad
    assert topic.written == set(range(count)) - bad
    assert topic.tried <= (len(bad) + 2) * (2 * log2(count + 1) + 4)


@given(st.integers(REFUSED_MAX, 500))
def test_where_nothing_is_accepted_nothing_is_given_up(count: int) -> None:
    """O203"""
    topic = Topic(count, set(range(count)))
    assert topic.search() is AtFault.TOPIC
    assert topic.given_up == topic.written == set()
    assert topic.tried <= log2(count) + 1 + REFUSED_MAX


@given(st.integers(1, REFUSED_MAX - 1), st.integers(0, 2 * REFUSED_MAX))
def test_a_few_that_are_all_refused_are_given_up_unless_others_were_before(count: int, before: int) -> None:
    """O202, O203"""
    topic = Topic(count, set(range(count)))
    assert (topic.search(before) is AtFault.TOPIC) == (count + before >= REFUSED_MAX)
    assert len(topic.given_up) == (count if count + before < REFUSED_MAX else 0)


def test_the_next_search_tries_other_roots() -> None:
    """O203: so the one copy that the topic takes is found some time, where all others are refused."""
    found = False
    for search in range(100):
        narrowing = Narrowing(WHOLE, REFUSED_MAX, REFUSED_MAX, search)
        left = [DueRoot(7, number) for number in range(100)]
        narrowing.record_refused_together(100)
        while len(narrowing.suspects) < REFUSED_MAX and not found:
            chosen = narrowing.choose_roots(left)
            if len(chosen) > 1:
                narrowing.record_refused_together(len(chosen))
            else:
                found = chosen[0].offset == 77
                narrowing.record_refused_alone(chosen[0].offset, "refused")
    assert found

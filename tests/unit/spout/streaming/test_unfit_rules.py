"""Rules of `causes` whose bolt is none of the query's."""

from __future__ import annotations

import pytest

from acker.config.topics import Input, parse
from spout.streaming.query_plan import label, operators_in
from spout.streaming.unfit_rules import unfit_rules


def source(causes: str) -> Input:
    text = f"inputs: {{s: {{id: 1, group: g, retry: {{causes: [{causes}]}}}}}}"
    return parse(text, file="topics.yaml", environ={}).inputs["s"]


@pytest.mark.parametrize(
    ("causes", "says"),
    [
        (
            "{operator: pars, then: drop}",
            "inputs.s.retry.causes.0: no bolt of the query is called pars, so the rule fits nothing; did you"
            " mean parse?",
        ),
        (
            "{error: A, then: drop}, {operator: zzz, error: A, then: retry}",
            "inputs.s.retry.causes.1: no bolt of the query is called zzz, so the rule fits nothing; the"
            " query's bolts are: count, parse",
        ),
        ("{operator: Parse, then: drop}", "did you mean parse?"),
    ],
)
def test_a_rule_for_a_bolt_that_is_not_there_is_named_with_the_nearest_name(causes: str, says: str) -> None:
    """D1606."""
    [line] = unfit_rules(source(causes), {"parse", "count"})
    assert says in line


@pytest.mark.parametrize("causes", ["", "{error: A, then: drop}", "{operator: parse, then: drop}"])
def test_a_rule_that_may_fit_is_not_named(causes: str) -> None:
    assert list(unfit_rules(source(causes), {"parse", "count"})) == []


def test_a_query_without_bolts_has_no_name_to_offer() -> None:
    [line] = unfit_rules(source("{operator: pars, then: drop}"), ())
    assert line.endswith("the query's bolts are: none")


def test_a_label_has_the_names_of_its_bolts() -> None:
    assert operators_in(label("parse+count")) == ["parse", "count"]
    assert operators_in("") == []

"""Logs which rules of `retry.causes` fit no bolt of a query, when the query starts.

Whether a class of exceptions exists, nobody knows before it is raised. Which bolts a query has,
its plan says.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from acker.config.settings import Input
from acker.untrusted import UntrustedName
from spout.spark.private import JavaObject, nodes
from spout.streaming.application import Application, Stream
from spout.streaming.query_plan import is_stage, operator_of, operators_in, stream_of

_LOGGER = logging.getLogger(__name__)


def unfit_rules(source: Input, operators: Collection[str]) -> Iterator[str]:
    """Yield a line for each rule of an input that names none of a query's `operators`."""
    for number, rule in enumerate(source.retry.causes):
        if rule.operator is None or rule.operator in operators:
            continue
        near_names = get_close_matches(rule.operator, sorted(operators), n=1)
        if near_names:
            cure = f"did you mean {UntrustedName(near_names[0])}?"
        else:
            names = ", ".join(str(UntrustedName(name)) for name in sorted(operators)) or "none"
            cure = f"the query's bolts are: {names}"
        yield (
            f"inputs.{source.name}.retry.causes.{number}: no bolt of the query is called"
            f" {UntrustedName(rule.operator)}, so the rule fits nothing; {cure}"
        )


def log_unfit_rules(stream: Stream, operators: Collection[str]) -> None:
    """Log, once for a stream, the rules that can fit nothing."""
    if stream.has_logged_rules:
        return
    stream.has_logged_rules = True
    for source in stream.inputs:
        for line in unfit_rules(source, operators):
            _LOGGER.warning("rule_fits_nothing %s", line)


def log_unfit_rules_of(plan: JavaObject, application: Application) -> None:
    """Log the rules that can fit nothing, of each stream that a query reads.

    `plan` is its logical plan.
    """
    plan_nodes = list(nodes(plan))
    if any(map(is_stage, plan_nodes)):
        # a topology, which has logged them: the plan does not show the bolts of its later stages
        return
    operators: set[str] = set()
    for node in plan_nodes:
        for operator in operators_in(operator_of(node)):
            # a plan shows "count/hold" where tuples go to the keyed bolt "count"
            operators |= {operator, operator.partition("/")[0]}
    for node in plan_nodes:
        stream = application.streams.get(stream_of(node))
        if stream is not None:
            log_unfit_rules(stream, operators)

"""The queries of the alerts and of the dashboard, and the metrics that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
RULES_TEST = DEPLOY / "prometheus" / "alerts.test.yaml"
DASHBOARD = DEPLOY / "grafana" / "windhover.json"


def expressions(*files: Path) -> Iterator[str]:
    """Yield every query of some files; without any, of all."""
    if ALERTS in files or not files:
        for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
            yield from (rule["expr"] for rule in group["rules"])
    if DASHBOARD in files or not files:
        for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
            yield from (target["expr"] for target in panel.get("targets", ()))


def metrics_named(expression: str) -> set[str]:
    """Return the names of the series that a query asks for; alternatives in a pattern of names apart.

    >>> sorted(metrics_named('rate({__name__=~"windhover_(a|b)_x_total"}[5m]) / windhover_y'))
    ['windhover_a_x_total', 'windhover_b_x_total', 'windhover_y']
    """
    found = set[str]()
    for name in re.findall(r"\b(?:windhover|process)_[a-z_()|]*[a-z]", expression):
        before, opens, rest = name.partition("(")
        choices, _, after = rest.partition(")")
        found |= {f"{before}{choice}{after}" for choice in choices.split("|")} if opens else {name}
    return found

"""Alerts and dashboard: they fire as they should, and name only what there is."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.lacking import lacking
from tests.support.metric_families import every_family, series_names
from tests.support.monitoring import ALERTS, DASHBOARD, DEPLOY, RULES_TEST, expressions, metrics_named

DOCS = DEPLOY.parent / "docs"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not shutil.which("promtool"):
        lacking("promtool is not installed: Debian's package prometheus has it")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_each_alert_fires_for_what_it_is_for_and_stays_silent_else() -> None:
    done = promtool("test", "rules", str(RULES_TEST))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_no_fault_in_the_rules() -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "13 rules found" in done.stdout


def test_a_changed_threshold_makes_the_rules_test_fail(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    changed = ALERTS.read_text(encoding="utf-8").replace(
        "windhover_log_headroom_ratio < 0.1", "vector(0) > 1"
    )
    (tmp_path / ALERTS.name).write_text(changed, encoding="utf-8")
    shutil.copy(RULES_TEST, tmp_path)
    done = promtool("test", "rules", str(tmp_path / RULES_TEST.name))
    assert done.returncode == 1
    assert "WindhoverRetentionClose" in done.stdout + done.stderr


def test_every_alert_is_tested_to_fire_and_to_stay_silent() -> None:
    fires, silent = set[str](), set[str]()
    for test in yaml.safe_load(RULES_TEST.read_text(encoding="utf-8"))["tests"]:
        for one in test["alert_rule_test"]:
            (fires if one["exp_alerts"] else silent).add(one["alertname"])
    names = {rule["alert"] for rule in rules()}
    assert len(names) == 13
    assert fires == silent == names


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_the_runbook_has_the_page_that_an_alert_leads_to(rule: dict[str, Any]) -> None:
    page = DEPLOY.parent / rule["annotations"]["runbook"]
    assert page.read_text(encoding="utf-8").startswith(f"# {rule['alert']}\n")
    assert rule["alert"] in (DOCS / "operate" / "monitoring.md").read_text(encoding="utf-8")


def named() -> Iterator[tuple[str, str]]:
    for expression in expressions():
        for name in metrics_named(expression):
            yield name, expression


def test_rules_and_panels_name_only_metrics_that_there_are() -> None:
    there = {name for families in every_family().values() for name in series_names(families)}
    there |= {"process_resident_memory_bytes"}
    missing = {name: expression for name, expression in named() if name not in there}
    assert missing == {}
    assert len({name for name, _ in named()}) > 40


def test_every_panel_has_a_title_a_unit_and_a_query_and_none_lies_on_another() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    taken = set[tuple[int, int]]()
    for panel in board["panels"]:
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["targets"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_prometheus_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [
        each.replace("$__rate_interval", "1m").replace("$input", ".*") for each in expressions(DASHBOARD)
    ]
    groups = [
        {
            "name": "panels",
            "rules": [{"record": f"panel:{at}", "expr": each} for at, each in enumerate(queries)],
        }
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    done = promtool("check", "rules", str(tmp_path / "panels.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr

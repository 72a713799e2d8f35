"""`docker compose up`: the main job on containers of the project's own image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from spout.local.embedded import free_ports
from tests.support.lacking import lacking
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
PROJECT = f"windhover-test-{zlib.crc32(bytes(ROOT)):08x}"
"""Another one for each checkout: one engine may serve several."""
RECORDS = 5_000
BUILD_AND_RUN_S = 1_800
SCRAPE_S = 60.0
PAGE_S = 30.0
SERVICES_BYTES_MAX = 200_000_000
"""Beside the base image; with PySpark and its Java it would be a gigabyte."""

Compose = Callable[..., str]


@pytest.fixture
def compose(docker: None) -> Iterator[Compose]:
    """Run `docker compose` on a project of its own, at free ports, that is taken down at the end."""
    names = ("KAFKA_PORT", "PAGE_PORT", "PROMETHEUS_PORT")
    ports = {name: str(port) for name, port in zip(names, free_ports(len(names)), strict=True)}
    environ = os.environ | ports | {"RECORDS": str(RECORDS)}

    def run(*arguments: str) -> str:
        command = ["docker", "compose", "--project-name", PROJECT, *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_AND_RUN_S,
        )
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        lacking("docker compose is not installed")
    run("down", "--volumes", "--timeout", "5")
    yield run
    run("down", "--volumes", "--timeout", "5")


@pytest.mark.slow
@pytest.mark.timeout(BUILD_AND_RUN_S)
def test_docker_compose_up_runs_the_main_job_and_loses_nothing(compose: Compose) -> None:
    compose("up", "--build", "--detach", "--quiet-pull")
    compose("logs", "--follow", "demo")  # until it ends; compose adds a line of its own, so it is asked again
    container = compose("ps", "--all", "--quiet", "demo").strip()
    # what it wrote to stdout: compose mixes in what went to stderr
    said = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=True).stdout
    demo = json.loads(compose("ps", "--all", "--format", "json", "demo"))
    assert demo["ExitCode"] == 0, said
    outcome = json.loads(said.strip().splitlines()[-1])
    assert (outcome["records"], outcome["pending"], outcome["lost"]) == (RECORDS, 0, 0)
    assert outcome["counts_correct"] is True
    assert outcome["acked"] + outcome["dead_lettered"] == RECORDS

    _check_that_services_are_two_and_healthy(compose)
    # what the page shows is some seconds old, more on a busy machine
    eventually(lambda: {row["pending"] for row in fetched(compose, "page", 8095, "/")} == {0}, PAGE_S)
    # two ackers, two replay workers, and the page; none of them is down
    eventually(lambda: scraped(compose) == ["up"] * 5, SCRAPE_S)
    groups = fetched(compose, "prometheus", 9090, "/api/v1/rules")["data"]["groups"]
    written = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    assert [rule["name"] for rule in groups[0]["rules"]] == [
        rule["alert"] for rule in written["groups"][0]["rules"]
    ]


def _check_that_services_are_two_and_healthy(compose: Compose) -> None:
    """Their root is read-only, they have no capability, and no user of theirs is root."""
    for service, replicas in (("acker", 2), ("replay", 2), ("page", 1)):
        containers = compose("ps", "--quiet", service).split()
        assert len(containers) == replicas
        for one in containers:
            (found,) = json.loads(docker_says("inspect", one))
            assert found["State"]["Health"]["Status"] == "healthy", found["State"]["Health"]
            assert found["RestartCount"] == 0
            assert found["HostConfig"]["ReadonlyRootfs"] is True
            assert found["HostConfig"]["CapDrop"] == ["ALL"]
            assert docker_says("exec", one, "id", "-u").strip() == "10001"


def docker_says(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def fetched(compose: Compose, service: str, port: int, path: str) -> Any:
    """Return the JSON that a published port of a service answers."""
    address = compose("port", service, str(port)).strip()
    request = Request(f"http://{address}{path}", headers={"Accept": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def scraped(compose: Compose) -> list[str]:
    """Return the health of each target of Prometheus."""
    targets = fetched(compose, "prometheus", 9090, "/api/v1/targets")["data"]["activeTargets"]
    return [target["health"] for target in targets]


@pytest.mark.slow
@pytest.mark.timeout(BUILD_AND_RUN_S)
def test_the_image_of_the_services_is_small_and_holds_the_wheel_alone(compose: Compose) -> None:
    compose("build", "page")
    (image,) = json.loads(docker_says("image", "inspect", "windhover:local"))
    (base,) = json.loads(docker_says("image", "inspect", image_of_python()))
    assert image["Size"] - base["Size"] < SERVICES_BYTES_MAX
    assert image["Config"]["User"] == "10001:10001"
    program = (
        "import importlib.util as u, pathlib, acker;"
        "print(acker.__file__, u.find_spec('pyspark'), pathlib.Path('/build').exists())"
    )
    said = docker_says("run", "--rm", "--entrypoint", "python", "windhover:local", "-c", program)
    assert said.split() == ["/opt/windhover/lib/python3.11/site-packages/acker/__init__.py", "None", "False"]


def image_of_python() -> str:
    return os.environ.get("WINDHOVER_BASE", "python:3.11-slim-bookworm")


def test_prometheus_accepts_its_configuration() -> None:
    if shutil.which("promtool"):
        config = ROOT / "deploy" / "compose" / "prometheus.yml"
        done = subprocess.run(
            ["promtool", "check", "config", "--syntax-only", str(config)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        lacking("promtool is not installed")

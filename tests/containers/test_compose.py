"""`docker compose up`: the main job on containers of the project's own image."""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spout.local.embedded import free_port
from tests.support.lacking import lacking

ROOT = Path(__file__).parents[2]
PROJECT = f"windhover-test-{zlib.crc32(bytes(ROOT)):08x}"
"""Another one for each checkout: one engine may serve several."""
RECORDS = 5_000
BUILD_AND_RUN_S = 1_800

Compose = Callable[..., str]


@pytest.fixture
def compose(docker: None) -> Iterator[Compose]:
    """Run `docker compose` on a project of its own, at a free port, that is taken down at the end."""
    environ = os.environ | {"KAFKA_PORT": str(free_port()), "RECORDS": str(RECORDS)}

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

"""The page beside a broker of this machine: its address comes first, and without it the rest goes on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from acker.errors import UsageError
from spout.cli.main import run
from spout.local.embedded import free_port
from spout.local.up import announce_page, start_page
from spout.ui.serve import INSTALL, listening


@pytest.fixture
def without_uvicorn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)


def test_the_address_is_named_before_anything_runs() -> None:
    lines: list[str] = []
    port = announce_page(lines.append)
    assert lines == [f"page: http://127.0.0.1:{port}/ answers as soon as Kafka runs"]


@pytest.mark.usefixtures("without_uvicorn")
def test_without_a_library_one_line_says_what_to_install_and_the_rest_goes_on() -> None:
    lines: list[str] = []
    port = announce_page(lines.append)
    assert lines == [f"no page: uvicorn not installed; {INSTALL}"]
    with ExitStack() as stack:
        start_page(stack, port, Path("topics.yaml"), {}, lines.append, [])
    assert len(lines) == 1


def test_a_port_that_was_taken_since_it_was_named_is_exchanged_for_another(tmp_path: Path) -> None:
    lines: list[str] = []
    with listening("127.0.0.1", 0) as taken, ExitStack() as stack:
        port = taken.getsockname()[1]
        start_page(stack, port, config_of_nobody(tmp_path), {**os.environ}, lines.append, [])
        found = re.fullmatch(r"page: (\S+) for another process has taken port (\d+)", lines[0])
        assert found is not None
        assert int(found[2]) == port
        assert lines[1].startswith("page is ready (process ")
        with urlopen(found[1], timeout=20) as answer:
            assert answer.status == 200


def test_a_port_that_was_taken_only_while_the_page_started_is_exchanged_too(tmp_path: Path) -> None:
    lines: list[str] = []
    port = free_port()
    # Python runs this file in the page's process, which so takes its own port, and frees it by its end
    (tmp_path / "sitecustomize.py").write_text(
        "import socket, sys\n"
        f"if '{port}' in sys.orig_argv:\n"
        f"    socket.taken = socket.create_server(('127.0.0.1', {port}))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with ExitStack() as stack:
        start_page(stack, port, config_of_nobody(tmp_path), environ, lines.append, [])
    assert [line.partition(" ")[0] for line in lines] == ["page:", "page"], lines
    assert lines[0].endswith(f"for another process has taken port {port}")


def test_a_page_that_fails_for_another_reason_is_not_tried_again(tmp_path: Path) -> None:
    lines: list[str] = []
    with ExitStack() as stack:
        start_page(stack, free_port(), tmp_path / "missing.yaml", {**os.environ}, lines.append, [])
    assert len(lines) == 1
    assert lines[0].startswith("no page: the ui ended with exit code 2; ")


def config_of_nobody(folder: Path) -> Path:
    """Write a topics.yaml whose broker does not answer."""
    path = folder / "topics.yaml"
    path.write_text("kafka: {bootstrap.servers: 127.0.0.1:1}\ninputs: {lines: {id: 1, group: g}}\n")
    return path


@pytest.mark.usefixtures("without_uvicorn")
def test_the_command_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of_nobody(tmp_path)
    assert run(["ui", "--config", str(config)]) == 2
    assert f"the page needs uvicorn; {INSTALL}" in capsys.readouterr().err


def test_an_address_in_use_is_wrong_usage_with_a_cure() -> None:
    with listening("127.0.0.1", 0) as taken, pytest.raises(UsageError, match="give another port"):
        listening("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(("options", "says"), [(["--allow-actions"], "every letter"), ([], "read-only")])
def test_the_command_prints_the_token_that_lets_a_form_through(
    tmp_path: Path, options: list[str], says: str
) -> None:
    config = config_of_nobody(tmp_path)
    command = [sys.executable, "-m", "spout.cli", "ui", "--config", str(config), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        token = process.stdout.readline().strip().removeprefix("token: ") if options else ""
        assert bool(token) == bool(options)
        form = urlencode({"token": token, "why": "x"}).encode()
        headers = {"origin": address.rstrip("/"), "accept": "application/json"}
        try:
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"{address}redrives", form, headers), timeout=20)
            assert says in refused.value.read().decode()
        finally:
            process.kill()
            process.wait(20)

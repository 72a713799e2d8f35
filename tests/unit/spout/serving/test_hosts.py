"""For which hosts a server answers: the page and the metrics, however a request says it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from acker.errors import UsageError
from spout.local.embedded import free_port
from spout.runtime import endpoints, metrics
from spout.serving.hosts import AllowedHosts, host_of, is_loopback
from spout.ui.serve import PageAddress
from tests.support.page_server import PageServer, serving
from tests.support.servers.http import answer_to, request, status_of
from tests.support.worlds.planning import World

ALLOWED = AllowedHosts.of("0.0.0.0", "acker-1.corp.example", ["page.example.com", "192.168.7.7"])
HERE = "10.0.0.5"


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:8095", "localhost.", "localhost.:8095", "127.0.0.1", "127.0.0.1:1",
        "127.9.9.9",
        "[::1]", "[::1]:8095", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "0.0.0.0:8095", "10.0.0.5",
        "10.0.0.5:8095", "[::ffff:10.0.0.5]", "acker-1.corp.example:9100", "acker-1", "Page.Example.COM",
        "page.example.com.", "page.example.com:443", "page.example.com:", "192.168.7.7:8095",
    ],
)  # fmt: skip
def test_a_request_for_this_machine_or_a_host_that_is_named_is_answered(host: str) -> None:
    """D2501: in each form that a host has."""
    assert ALLOWED.refusal([host], "/", HERE) == ""
    assert ALLOWED.refusal([host], f"http://{host}/", HERE) == ""


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8095", "EVIL.example.", "localhost.evil.example", "a.localhost",
        "page.example.com.evil.example", "sub.page.example.com", "xpage.example.com", "acker-1.evil.example",
        "10.0.0.6", "169.254.169.254", "[::2]", "[fe80::1]", "", " ", ":8095", "localhost:99999",
        "localhost:a", "user@localhost", "localhost, evil.example", "localhost evil.example", "..",
        "localhost..",
        "[::1", "::1", "[127.0.0.1]", "2130706433", "0x7f.1", "127.0.0.01", "*", "локалхост", "localhost\x00",
    ],
)  # fmt: skip
def test_a_request_for_any_other_host_is_refused_and_hears_none_that_is_allowed(host: str) -> None:
    """D2502: also one that only begins or ends as an allowed one does, and what is no host."""
    for refusal in (
        ALLOWED.refusal([host], "/", HERE),
        ALLOWED.refusal(["localhost"], f"http://{host}/", HERE),
        ALLOWED.refusal([host], "http://localhost/", HERE),
        ALLOWED.refusal(["localhost", host], "/", HERE),
    ):
        assert "--allow-host" in refusal
        assert not [
            name
            for name in ("page.example.com", "192.168.7.7", "acker-1.c")
            if name in refusal.replace(host, "")
        ]


def test_a_request_that_names_no_host_is_refused() -> None:
    """D2503: as one of HTTP/1.0 may."""
    assert ALLOWED.refusal([], "/", HERE).startswith("The request names no host")
    assert ALLOWED.refusal([], "http://localhost/", HERE) == ""


@pytest.mark.parametrize("target", ["evil.example:443", "ftp://localhost/", "//x", "javascript:1", "page"])
def test_a_target_of_another_form_is_refused_unless_it_is_a_path(target: str) -> None:
    assert bool(ALLOWED.refusal(["localhost"], target, HERE)) is not target.startswith("/")


@pytest.mark.parametrize(
    "text",
    [
        "", "*", "*.example.com", "http://page.example.com", "a/b", "page:8095", "a b", "ü" * 70,
        "page.example.com]", "[page.example.com", "[page.example.com]", "[::1", "::1]", "[10.0.0.5]", "[]",
        "[", "10.0.0.5%eth0", "fe80::1%",
    ],
)  # fmt: skip
def test_what_is_no_host_cannot_be_allowed(text: str) -> None:
    with pytest.raises(UsageError, match=r"--allow-host .*page\.example\.com"):
        AllowedHosts.of("127.0.0.1", "", [text])


def test_a_host_that_is_allowed_has_one_form() -> None:
    named = ["Page.Example.COM.", "[::2]", "::3", "bücher.example"]
    allowed = AllowedHosts.of("127.0.0.1", "", named)
    for host in ("page.example.com", "[0::2]:80", "[::3]", "xn--bcher-kva.example"):
        assert allowed.refusal([host], "/", HERE) == ""
    assert host_of("[fe80::1%eth0]") == "fe80::1"


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.0.0.2", True), ("0.0.0.0", False),
        ("::", False), ("10.0.0.5", False), ("page.example.com", False), ("[::1]", True), ("[::1", False),
        ("::1]", False), ("localhost]", False), ("127.0.0.1%x", False),
    ],
)  # fmt: skip
def test_a_page_that_others_can_reach_says_what_they_read(host: str, is_so: bool) -> None:
    """D2504: keys and payloads, without a login."""
    assert is_loopback(host) is is_so
    assert ("keys, payloads" in PageAddress(host, 0).exposure()) is not is_so


def test_each_file_of_deploy_that_opens_the_page_to_others_names_the_hosts_that_it_answers_for() -> None:
    """D2506."""
    project = Path(__file__).parents[4]
    texts = [project / "docker-compose.yml", *(project / "deploy").rglob("*.*")]
    opened = [path for path in texts if path.is_file() and "--host" in path.read_text(encoding="utf-8")]
    assert {path.name for path in opened} == {"docker-compose.yml", "page.yaml"}
    for path in opened:
        [command] = re.findall(r"\[ui,.*\]", path.read_text(encoding="utf-8"))
        words = yaml.safe_load(command)
        assert AllowedHosts.of("0.0.0.0", "", [words[words.index("--allow-host") + 1]]).names


@pytest.fixture(scope="module")
def page() -> Iterator[PageServer]:
    with serving(World()) as server:
        yield server


FORMS = {
    "json": request("/", "evil.example"),
    "events": request("/", "evil.example:8095", accept="text/event-stream"),
    "metrics": request("/metrics", "evil.example"),
    "probe": request("/readyz", "evil.example"),
    "static": request("/static/page.css", "evil.example"),
    "absolute": request("http://evil.example/", "localhost"),
    "absolute for us": request("http://localhost/", "evil.example"),
    "1.0": request("/", "evil.example", version="1.0"),
    "1.0 without": request("/", version="1.0"),
    "1.1 without": request("/"),
    "two": request("/", "localhost", "evil.example"),
    "two, ours last": request("/", "evil.example", "localhost"),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_page_refuses_other_hosts_in_each_form_of_a_request(page: PageServer, form: str) -> None:
    """D2502."""
    answer = answer_to(("127.0.0.1", page.port), FORMS[form])
    assert status_of(answer) in (400, 421)
    assert b"sentences" not in answer


@pytest.mark.parametrize("form", FORMS)
def test_metrics_are_refused_to_other_hosts_in_each_form_of_a_request(form: str) -> None:
    """D2505: a page of a stranger reads no names of inputs and groups."""
    port = free_port()
    endpoints.serve(metrics.StatusCollector("acker", lambda _: []), f"0.0.0.0:{port}")
    sent = FORMS[form].replace(b" / ", b" /metrics ").replace(b"example/ ", b"example/metrics ")
    answer = answer_to(("127.0.0.1", port), sent)
    assert status_of(answer) == 421
    assert b"process_cpu" not in answer


@pytest.mark.parametrize("target", ["/metrics", "http://127.0.0.1/metrics", "HTTP://LOCALHOST:1/metrics"])
@pytest.mark.parametrize("host", ["127.0.0.1", "LocalHost.", socket.gethostname(), "acker.example"])
def test_metrics_are_answered_by_a_host_that_is_allowed(target: str, host: str) -> None:
    """D2505."""
    port = free_port()
    collector = metrics.StatusCollector("acker", lambda _: [])
    endpoints.serve(collector, f"127.0.0.1:{port}", allow_hosts=["acker.example"])
    answer = answer_to(("127.0.0.1", port), request(target, host))
    assert status_of(answer) == 200
    assert b"process_cpu" in answer


def test_the_page_takes_a_target_in_absolute_form(page: PageServer) -> None:
    """D2501."""
    answer = answer_to(("127.0.0.1", page.port), request("http://localhost:8095/machinery", "localhost:8095"))
    assert status_of(answer) == 200
    assert b"acker_partitions" in answer

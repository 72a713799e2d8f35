"""Secrets are planted in every place that takes an address or a setting, and none is in anything printed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from acker.errors import ConfigError, Unreachable, UsageError, WindhoverError
from acker.kafka.client import LIBRDKAFKA
from acker.kafka.cluster import KafkaLog
from spout.cli import main as cli
from spout.local.embedded import free_port
from spout.local.jars import MIRROR, Jar, Repository
from spout.runtime import logs
from spout.runtime.endpoints import address_of
from spout.runtime.scrape import metrics_address

SECRET = "hunter2SECRET"
JAR = Jar("0" * 64, "org.example", "thing", "1")


class Answers(BaseHTTPRequestHandler):
    """A repository that has nothing, and repeats what it was asked."""

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:1/x?token={SECRET}")
        else:
            self.send_response(500, f"no http://me:{SECRET}@host{self.path}")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def answering() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


MIRRORS = (
    f"http://me:{SECRET}@127.0.0.1:1/maven2",
    f"https://me:{SECRET}@127.0.0.1:1/maven2",
    f"http://{SECRET}@127.0.0.1:1/maven2",
    f"http://me:pass/{SECRET}@127.0.0.1:1/maven2",
    f"http://me:{SECRET}/word@127.0.0.1:1/maven2",
    f"http://me:{SECRET}@pass@127.0.0.1:1/maven2",
    f"http://me:{SECRET}%20x@127.0.0.1:1/maven2",
    f"http://127.0.0.1:1/maven2?token={SECRET}",
    f"http://127.0.0.1:{SECRET}/maven2",
    f"ftp://me:{SECRET}@127.0.0.1/maven2",
    f"me:{SECRET}@127.0.0.1/maven2",
    "http://127.0.0.1:{port}/moved",
    "http://127.0.0.1:{port}/" + f"x?token={SECRET}",
)


@pytest.mark.parametrize("address", MIRRORS)
def test_the_address_of_a_mirror_is_shown_without_its_password(address: str, tmp_path: Path) -> None:
    """O2101"""
    with answering() as port:
        environ = {MIRROR: address.replace("{port}", str(port)), "HOME": str(tmp_path)}
        with pytest.raises(WindhoverError) as refused:
            Repository.of(environ | {"WINDHOVER_CACHE": str(tmp_path)}).fetch([JAR])

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("address", MIRRORS)
def test_the_mirror_of_maven_s_settings_is_shown_without_its_password(address: str, tmp_path: Path) -> None:
    """O2101"""
    settings = tmp_path / ".m2" / "settings.xml"
    settings.parent.mkdir()
    with answering() as port:
        url = address.replace("{port}", str(port)).replace("&", "&amp;")
        settings.write_text(
            f"<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors>"
            f"<servers><server><id>m</id><username>{SECRET}</username><password>{SECRET}</password></server>"
            "</servers></settings>"
        )
        environ = {"HOME": str(tmp_path), "WINDHOVER_CACHE": str(tmp_path)}
        with pytest.raises(WindhoverError) as refused:
            Repository.of(environ).fetch([JAR])

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", ["http_proxy", "https_proxy"])
def test_a_proxy_is_not_named_with_its_password(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(name, f"http://me:{SECRET}@127.0.0.1:1")
    scheme = name.partition("_")[0]
    environ = {MIRROR: f"{scheme}://example.invalid/maven2", "WINDHOVER_CACHE": str(tmp_path)}
    with pytest.raises(Unreachable) as refused:
        Repository.of(environ).fetch([JAR])

    assert SECRET not in str(refused.value)


def test_a_mirror_with_a_login_in_its_address_gets_it_when_it_asks(tmp_path: Path) -> None:
    """Python's own client takes such an address for a host of that name."""
    repository = Repository.of({MIRROR: f"https://me%40x:{SECRET}%2F1@repo.example:8443/maven2"})

    assert repository.mirror == "https://repo.example:8443/maven2"
    assert (repository.username, repository.password) == ("me@x", f"{SECRET}/1")
    assert SECRET not in f"{repository} {repository!r}"


FILES = {
    "a password": f"kafka: {{sasl.password: {SECRET}, acks: 1}}",
    "an address with a login": f"kafka: {{bootstrap.servers: 'me:{SECRET}@127.0.0.1:1'}}",
    "an address with a scheme": f"kafka: {{bootstrap.servers: 'SASL_SSL://me:{SECRET}@127.0.0.1:1'}}",
    "the second address": f"kafka: {{bootstrap.servers: 'a:1,me:{SECRET}@127.0.0.1:1'}}",
    "the old name": f"kafka: {{metadata.broker.list: 'me:{SECRET}@127.0.0.1:1'}}",
    "a number": f"kafka: {{socket.timeout.ms: {SECRET}}}",
    "an underscore": f"kafka: {{sasl_password: {SECRET}}}",
    "a list": f"kafka: {{sasl.password: [{SECRET}]}}",
    "no yaml": f"kafka: {{sasl.password: '{SECRET}\n",
    "a tag": f"kafka: {{sasl.password: !x {SECRET}}}",
    "a key that stands twice": f"kafka: {{sasl.password: {SECRET}, sasl.password: {SECRET}}}",
    "an address of an input": f"inputs: {{a: {{id: 1, group: g, topic: 'https://me:{SECRET}@host/x'}}}}",
    "a variable": "inputs: {a: {id: '${PASSWORD}', group: g}}",
    "a variable within": "inputs: {a: {id: 1, group: g, topic: 'x ${PASSWORD}', timeout: '${PASSWORD}'}}",
    "a default": f"inputs: {{a: {{id: '${{NONE:-{SECRET}}}', group: g}}}}",
    "a name": "inputs: {a: {id: 1, group: g, ${PASSWORD}: 1}}",
}


@pytest.mark.parametrize("case", FILES)
def test_what_is_wrong_with_a_file_is_said_without_its_secrets(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """O2102"""
    monkeypatch.setenv("PASSWORD", SECRET)
    file = tmp_path / "topics.yaml"
    file.write_text(FILES[case])

    assert cli.run(["validate", str(file)]) == 4
    captured = capsys.readouterr()

    assert SECRET not in captured.out + captured.err
    assert "topics.yaml:1" in captured.err or "topics.yaml: " in captured.err


def test_a_file_that_is_right_is_described_without_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text(
        f"kafka: {{bootstrap.servers: 'a:1', sasl.password: {SECRET}, sasl.oauthbearer.config: {SECRET}}}\n"
        "inputs: {a: {id: 1, group: g}}"
    )
    for arguments in (["validate"], ["acls"], ["acls", "--principal", "User:x"]):
        assert cli.run([arguments[0], str(file), *arguments[1:]]) == 0
        captured = capsys.readouterr()
        assert SECRET not in captured.out + captured.err


SETTINGS = {
    "a mechanism": {"sasl.mechanism": SECRET, "security.protocol": "SASL_PLAINTEXT"},
    "a protocol": {"security.protocol": SECRET},
    "a key": {"ssl.key.pem": SECRET, "security.protocol": "SSL"},
    "the password of a store": {"ssl.keystore.location": f"/{SECRET}", "ssl.keystore.password": SECRET},
    "a provider": {"ssl.providers": SECRET, "security.protocol": "SSL"},
    "a part of a setting": {
        "sasl.oauthbearer.config": f"principal=x {SECRET}", "sasl.mechanism": "OAUTHBEARER",
        "security.protocol": "SASL_PLAINTEXT", "enable.sasl.oauthbearer.unsecure.jwt": "true",
    },
    "the address of tokens": {
        "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "x", "sasl.mechanism": "OAUTHBEARER",
        "security.protocol": "SASL_PLAINTEXT", "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"http://me:{SECRET}@127.0.0.1:1/t?token={SECRET}",
    },
    "a plugin": {"plugin.library.paths": SECRET},
    "a password": {
        "sasl.username": SECRET, "sasl.password": SECRET, "sasl.mechanism": "PLAIN",
        "security.protocol": "SASL_PLAINTEXT", "debug": "all",
    },
}  # fmt: skip


class Kept(logging.Handler):
    """Keeps lines as a program's own handler gets them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", SETTINGS)
def test_neither_errors_nor_lines_of_librdkafka_have_a_setting_s_secret(case: str) -> None:
    """O2103"""
    handler = Kept()
    logger = logging.getLogger(LIBRDKAFKA)
    logger.addHandler(handler)
    said: list[str] = []
    try:
        settings = {"bootstrap.servers": f"127.0.0.1:{free_port()}", **SETTINGS[case]}
        log = KafkaLog(settings, client_id="test", operation_timeout_ms=1_500)
        for ask in (lambda: log.topics(["t"]), lambda: log.members("g"), lambda: log.reader(committed=True)):
            try:
                ask()
            except WindhoverError as error:
                said.append(str(error))
        log.close()
    except ConfigError as error:
        said.append(str(error))
    finally:
        logger.removeHandler(handler)

    assert said
    assert [line for line in [*said, *handler.lines] if SECRET in line] == []


ADDRESSES: dict[str, Callable[[], object]] = {
    "--driver": lambda: metrics_address(f"me:{SECRET}@127.0.0.1:9103"),
    "--driver with a scheme": lambda: metrics_address(f"http://me:{SECRET}@127.0.0.1:9103"),
    "--metrics-port": lambda: address_of(f"me:{SECRET}@127.0.0.1:9103"),
    "--metrics-port with a scheme": lambda: address_of(f"http://me:{SECRET}@127.0.0.1:9103"),
}


@pytest.mark.parametrize("case", ADDRESSES)
def test_an_address_with_a_login_is_refused_without_it(case: str) -> None:
    """O2104"""
    with pytest.raises(UsageError) as refused:
        ADDRESSES[case]()

    assert SECRET not in str(refused.value)
    assert "…@127.0.0.1" in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["latency", "--driver", f"me:{SECRET}@127.0.0.1:9103"],
        ["ui", "--port", "0", "--driver", f"me:{SECRET}@127.0.0.1:9103"],
        ["ui", "--host", f"me:{SECRET}@127.0.0.1"],
        ["demo", "--bootstrap", f"me:{SECRET}@127.0.0.1:1", "--records", "1"],
        ["acker", "run", "--metrics-port", f"me:{SECRET}@127.0.0.1:1"],
        ["inspect", f"https://me:{SECRET}@host/x"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_command_that_gets_a_secret_by_mistake_does_not_repeat_it(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """O2104"""
    monkeypatch.chdir(tmp_path)
    Path("topics.yaml").write_text("inputs: {a: {id: 1, group: g}}")
    assert cli.run(arguments) != 0
    captured = capsys.readouterr()

    assert SECRET not in captured.out + captured.err
    assert captured.err


def test_a_trace_of_an_error_that_nobody_expects_has_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """O2105"""

    def fail(*_: object, **__: object) -> int:
        raise RuntimeError(
            f"\x1b[2J https://me:{SECRET}@host/x sasl.password={SECRET}\nwindhover: all is well"
        )

    monkeypatch.setattr("acker.provisioning.describe.describe", fail)
    assert cli.run(["validate", str(Path(__file__).parents[3] / "topics.yaml")]) == 1
    error = capsys.readouterr().err

    assert "RuntimeError" in error
    assert SECRET not in error
    assert "\x1b" not in error
    assert "\nwindhover: all is well" not in error


LOGGED = """
import logging, sys
from spout.runtime import logs
logs.configure(debug=True)
logs.log_event("ui.ready", address="http://me:{secret}@host/x", detail="sasl.password={secret}",
               password="{secret}", deep={{"a": ["https://host/?token={secret}"]}})
logging.getLogger("opentelemetry.exporter").warning("cannot export to %s", "http://me:{secret}@collector:4318/v1")
logging.getLogger("librdkafka").warning("kafka: Bearer {secret}")
try:
    raise ValueError("jdbc:postgresql://h/db?user=me&password={secret}\\nforged")
except ValueError:
    logging.getLogger("x").exception("it failed")
"""


def test_no_line_of_a_log_has_a_secret_and_each_is_one_line() -> None:
    """O2106"""
    program = LOGGED.format(secret=SECRET)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert SECRET not in done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"].split(":")[0][:10] for line in lines][:1] == ["ui.ready"]
    assert len(lines) == 4
    assert "…@collector:4318" in lines[1]["event"]
    assert logs.HIDDEN == "…"

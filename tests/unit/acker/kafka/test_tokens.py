"""Logins by token: which settings are a login, and what becomes of a function that fails."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from acker.config.topics import parse
from acker.errors import ConfigError, NotAuthenticated
from acker.kafka.tokens import Tokens, token_function
from spout.cli import main as cli
from spout.doctor.client_kinds import refused_by_clients

LOGIN = "security.protocol: SASL_SSL, sasl.mechanism: OAUTHBEARER"
MODULE = """
import time

def token(config):
    return "t", time.time() + 60

def fails(config):
    raise OSError("no answer from https://me:hunter2@login.example")

class Of:
    token = staticmethod(token)

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens_of_ours.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


PAGE = Path(__file__).parents[4] / "docs" / "operate" / "logins.md"
SNIPPETS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)


def login_files(folder: Path) -> None:
    """Write the files that the snippets name: an authority, a certificate, and its key with a password."""
    authority = trustme.CA()
    client = authority.issue_cert("client.example")
    key = load_pem_private_key(client.private_key_pem.bytes(), None)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    secret = BestAvailableEncryption(b"secret")
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
    (folder / "client.key").write_bytes(encrypted)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_every_kind_of_client_is_made_with_each_login_of_the_page(
    snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1908: as it stands there, with files that are what the page says."""
    login_files(tmp_path)
    (tmp_path / "msk_login.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = snippet.replace("/etc/windhover", str(tmp_path))
    environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "secret")
    settings = parse(text, file="topics.yaml", environ=environ).kafka
    assert refused_by_clients(settings) == []


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse(f"kafka: {{{text}}}", file="topics.yaml", environ={})
    return str(refused.value)


@pytest.mark.parametrize(
    "others",
    [
        "oauth_cb: 'jobs.tokens:token'", "oauth_cb: 'tokens:Of.token'", "sasl.oauthbearer.method: oidc",
        "enable.sasl.oauthbearer.unsecure.jwt: true",
        "sasl.oauthbearer.metadata.authentication.type: azure_imds",
    ],
)  # fmt: skip
def test_a_login_by_token_needs_something_that_gives_one(others: str) -> None:
    """D1901."""
    topics = parse(f"kafka: {{{LOGIN}, {others}}}", file="topics.yaml", environ={})
    assert topics.kafka["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize("others", ["", "sasl.oauthbearer.method: default", "sasl.oauthbearer.config: x"])
@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "oauthbearer"])
def test_a_login_by_token_without_one_is_refused(others: str, mechanism: str) -> None:
    """D1902. It would wait for ever for a token that nobody gives."""
    said = refusal(f"security.protocol: SASL_SSL, sasl.mechanism: {mechanism}, {others}")
    assert "kafka.sasl.mechanism: is a login by token, and nothing here gives one; set oauth_cb" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("oauth_cb: 'm:f'", "gives tokens, which only sasl.mechanism: OAUTHBEARER asks for"),
        (f"{LOGIN}, oauth_cb: m.f", "names no function that returns a token; write module:function"),
        (f"{LOGIN}, oauth_cb: 3", "write module:function"),
        (f"{LOGIN}, oauth_cb: 'm:'", "write module:function"),
        ("error_cb: 'm:f'", "is a function of the client library, not a setting"),
    ],
)
def test_a_function_that_is_named_wrongly_is_refused(text: str, says: str) -> None:
    """D1903."""
    assert says in refusal(text)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("no_such_module:token", "no module is called no_such_module; install it on every machine"),
        ("tokens_of_ours:tokne", "cannot be imported: module 'tokens_of_ours' has no attribute 'tokne'"),
        ("tokens_of_ours:number", "is no function"),
    ],
)
def test_validate_imports_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str, says: str
) -> None:
    """D1904. It asks for no token: that is for those that run."""
    file = tmp_path / "topics.yaml"
    file.write_text(f"kafka: {{{LOGIN}, oauth_cb: '{named}'}}")
    assert cli.run(["validate", str(file)]) == ConfigError.exit_code
    assert says in capsys.readouterr().err
    for function in ("token", "fails", "Of.token"):
        file.write_text(f"kafka: {{{LOGIN}, oauth_cb: 'tokens_of_ours:{function}'}}")
        assert cli.run(["validate", str(file)]) == 0


RAISING = {
    "a variable that is not set": ("import os; os.environ['NO_SUCH_REGION']", "KeyError: 'NO_SUCH_REGION'"),
    "a script": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "an error of its own": ("class Odd(Exception): pass\nraise Odd('password=hunter2')", "Odd: "),
    "no text": ("raise RuntimeError", "RuntimeError;"),
    "an import without a name": ("raise ModuleNotFoundError('gone')", "gone"),
    "a name that is looked up": ("def __getattr__(name): raise LookupError(name)", "LookupError: "),
    "no Python": ("def", "invalid syntax"),
    "a null byte": ("x = '\0'", "null bytes"),
}


@pytest.mark.parametrize("kind", RAISING)
def test_whatever_a_module_raises_when_it_is_imported_is_one_line_with_its_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, says = RAISING[kind]
    module_name = f"raises_{list(RAISING).index(kind)}"
    (tmp_path / f"{module_name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "topics.yaml"
    file.write_text(f"kafka: {{{LOGIN}, oauth_cb: '{module_name}:token'}}")
    assert cli.run(["validate", str(file)]) == ConfigError.exit_code
    [line] = capsys.readouterr().err.splitlines()
    assert f"oauth_cb = {module_name}:token: cannot be imported: " in line
    assert says in line
    assert "correct it" in line
    assert "hunter2" not in line


def test_a_function_that_ends_its_script_ends_no_process() -> None:
    def token(config: str) -> tuple[str, float]:
        raise SystemExit(config)

    tokens = Tokens("m:f", token)
    assert tokens("2")[1] < time.time()
    with pytest.raises(NotAuthenticated, match="m:f raised SystemExit: 2; correct it"):
        tokens.take_first("2")


def answers(value: Any) -> Tokens:
    return Tokens("m:f", lambda _config: value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "returned no tuple of a token and its end"),
        ("hunter2", "returned no tuple"),
        (("hunter2",), "returned no tuple"),
        (("", 9e9), "returned no tuple"),
        (("hunter2", "9"), "returned no tuple"),
        (("hunter2", 3600), "has ended already; return its end in seconds since 1970, not its length"),
    ],
)
def test_a_function_that_gives_no_token_is_named_before_there_is_a_client(value: Any, says: str) -> None:
    """D1905."""
    with pytest.raises(NotAuthenticated) as refused:
        answers(value).take_first("")
    assert says in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.usefixtures("module")
def test_a_function_that_fails_later_ends_no_process(caplog: pytest.LogCaptureFixture) -> None:
    """D1906. librdkafka is given a token that has ended, and asks again; the log has the reason."""
    tokens = Tokens("tokens_of_ours:fails", token_function("tokens_of_ours:fails"))
    with caplog.at_level(logging.WARNING):
        assert tokens("")[1] < time.time()
    [line] = caplog.records
    assert "raised OSError: no answer from" in line.error  # type: ignore[attr-defined]
    assert "hunter2" not in line.error  # type: ignore[attr-defined]


def test_the_first_token_is_asked_for_once() -> None:
    calls: list[str] = []

    def token(config: str) -> tuple[str, float]:
        calls.append(config)
        return str(len(calls)), time.time() + 60

    tokens = Tokens("m:f", token)
    tokens.take_first("c")
    assert [tokens("c")[0], tokens("c")[0]] == ["1", "2"]
    assert calls == ["c", "c"]

"""The archive for a report: secrets of every kind are planted, and none of them is in it."""

from __future__ import annotations

import json
import resource
import stat
import zipfile
from pathlib import Path

import pytest
import yaml

from acker.errors import UsageError
from spout.doctor.bundle import LOG_LINES, BundleSources, write_bundle
from spout.doctor.codes import LOGIN, REACHABLE
from spout.doctor.redaction import HIDDEN, LEFT_OUT, Redactor, redacted_log

SECRETS = {
    "password": "hunter2",
    "user": "alice-of-kafka",
    "jaas": "jaas-s3cr3t",
    "key password": "kp-9f2c",
    "key line": "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    "key of somebody else": "MIIForeignKeyOfNoFile",
    "certificate line": "MIIDazCCAlOgAwIBAgIUQm9ndXM",
    "keystore": "/etc/kafka/alice.p12",
    "oauth": "oauth-client-77",
    "variable": "from-the-environment",
    "default": "fallback-of-variable",
    "userinfo": "bob:b0bs",
    "query token": "qt0ken",
    "bearer": "abc.def-ghi",
    "jwt": "eyJhbGciOi.eyJzdWIiOi.c2ln",
    "unknown setting": "of-a-plugin",
    "payload": "order 1042 of Mrs Miller",
    "traceback": "ValueError: Mrs Miller",
}

TOPICS = f"""\
kafka:
  bootstrap.servers: "kafka:9092"
  security.protocol: SASL_SSL
  sasl.mechanism: PLAIN
  sasl.username: {SECRETS["user"]}
  sasl.password: {SECRETS["password"]}
  sasl.jaas.config: 'Plain required password="{SECRETS["jaas"]}";'
  sasl.oauthbearer.client.secret: {SECRETS["oauth"]}
  ssl.key.password: {SECRETS["key password"]}
  ssl.keystore.location: {SECRETS["keystore"]}
  ssl.key.pem: |
    -----BEGIN PRIVATE KEY-----
    {SECRETS["key line"]}
    -----END PRIVATE KEY-----
  ssl.certificate.pem: |
    -----BEGIN CERTIFICATE-----
    {SECRETS["certificate line"]}
    -----END CERTIFICATE-----
  plugin.library.paths: {SECRETS["unknown setting"]}
  socket.timeout.ms: 4000
inputs:
  a: {{id: 1, group: "${{GROUP}}", topic: "${{TOPIC:-{SECRETS["default"]}}}"}}
"""
ENVIRON = {"GROUP": SECRETS["variable"], "HOME": "/home/alice"}

QUOTED = (
    f"{SECRETS['user']} was refused with {SECRETS['password']}; https://{SECRETS['userinfo']}@registry/x"
    f"?token={SECRETS['query token']} Authorization: Bearer {SECRETS['bearer']} {SECRETS['jwt']}\n"
    f"-----BEGIN EC PRIVATE KEY-----\n{SECRETS['key of somebody else']}\n-----END EC PRIVATE KEY-----\n"
    f"-----BEGIN PRIVATE KEY-----\n{SECRETS['key line']}"
)
LOG = [
    json.dumps({"event": "acker.unreachable", "level": "warning", "error": QUOTED, "partition": 3}),
    f'Nov 24 host windhover[1]: {{"event": "replay.dead_lettered", "cause": "{SECRETS["payload"]}"}}',
    json.dumps({"event": "replay.undecodable", "error": SECRETS["payload"], "topic": "t"}),
    f"bolt_raised operator=split\n{SECRETS['traceback']}",
    '{"event": "acker.unreachable", "error": "' + SECRETS["payload"],
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    file, log = tmp_path / "topics.yaml", tmp_path / "acker.log"
    file.write_text(TOPICS)
    log.write_text("\n".join(["{}"] * LOG_LINES + LOG) + "\n")
    results = [
        REACHABLE.failed("kafka:9092", QUOTED, cure=f"curl https://{SECRETS['userinfo']}@x"),
        LOGIN.unknown("kafka:9092", f"group {SECRETS['variable']} of topic {SECRETS['default']}"),
    ]
    path = tmp_path / "report.zip"
    write_bundle(path, BundleSources(file, None, results, [log], 0), ENVIRON)
    return path


def texts_of(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.parametrize("kind", SECRETS)
def test_no_secret_is_anywhere_in_the_archive(archive: Path, kind: str) -> None:
    found = [name for name, text in texts_of(archive).items() if SECRETS[kind] in f"{name}\n{text}"]
    assert found == []


def test_what_a_report_needs_is_in_the_archive(archive: Path) -> None:
    texts = texts_of(archive)
    assert list(texts) == [
        "results.json", "versions.json", "topics.yaml", "status.json", "topics.json", "logs/1-acker.log",
    ]  # fmt: skip
    assert [each["code"] for each in json.loads(texts["results.json"])] == ["WH020", "WH021"]
    assert json.loads(texts["versions.json"])["packages"]["windhover-kafka"]
    shown = yaml.safe_load(texts["topics.yaml"])
    assert shown["kafka"]["bootstrap.servers"] == "kafka:9092"
    assert shown["kafka"]["socket.timeout.ms"] == 4000
    assert shown["kafka"]["sasl.mechanism"] == HIDDEN
    assert shown["inputs"]["a"] == {"id": 1, "group": "${GROUP}", "topic": "${TOPIC}"}
    event = json.loads(texts["logs/1-acker.log"].splitlines()[0])
    assert (event["event"], event["partition"]) == ("acker.unreachable", 3)
    assert "was refused with" in event["error"]


def test_the_archive_is_for_its_owner_alone_and_replaces_nothing(archive: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="is there already"):
        write_bundle(archive, BundleSources(tmp_path / "none", None, [], [], 0), {})


def test_a_disk_that_is_full_leaves_no_part_of_an_archive(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"report\.zip: cannot be written: File too large"):
            write_bundle(tmp_path / "report.zip", BundleSources(tmp_path / "none", None, [], [], 0), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_lines_of_other_programs_are_left_out_and_counted() -> None:
    lines = list(redacted_log([*LOG, "26/11/24 INFO Executor: (a,1)"], Redactor("", {})))
    assert lines[-1] == LEFT_OUT.format(3)
    assert len(lines) == 4


def test_a_short_variable_is_hidden_as_a_word_and_a_figure_stays() -> None:
    redactor = Redactor('a: ${WHO}\nb: "${MANY}"', {"WHO": "al", "MANY": "12"})
    assert redactor.value({"who": "al", "also": "alas", "many": 12}) == {
        "who": "${WHO}", "also": "alas", "many": 12,
    }  # fmt: skip


def test_a_file_that_is_no_yaml_shows_nothing_of_itself(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("kafka: {sasl.password: 'hunter2\ninputs: [")
    write_bundle(tmp_path / "r.zip", BundleSources(file, None, [], [], 0), {})
    assert "hunter2" not in "".join(texts_of(tmp_path / "r.zip").values())

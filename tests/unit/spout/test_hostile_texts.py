"""Texts that want to be more than text, in every place that can hold one, and shown by every view.

The rule (`tests.support.hostile`): all that is printed can be seen and stays in its place, a command to copy
is one of ours, and a document can be read and gives back just what was in it.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pytest
import yaml
from confluent_kafka import KafkaError
from starlette.testclient import TestClient
from typer.main import get_command

from acker.config.topics import Topics
from acker.config.yaml_text import read_yaml
from acker.errors import SessionRefused
from acker.kafka.client import LIBRDKAFKA, Background, KafkaClient
from acker.kafka.port import GroupMember, Log, Outgoing
from acker.notation import parse_text
from acker.untrusted import sentence_line
from acker.wire.codec import wire_codec
from acker.wire.events import FailCause, Fails, pack_positions
from replay.records.due import Pause, due_codec, pause_key
from replay.records.redrives import RedriveBegun, RedriveEnded, audit_record
from spout.cli import check as cli_check
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.doctor.bundle import BundleSources, write_bundle
from spout.doctor.codes import TOPICS_FILE
from spout.group.presence import Who
from spout.inspect.overview import Overview
from spout.inspect.tables import OutputFormat, encoded
from spout.planning.journal import BEGINNING
from spout.runtime.scrape import MetricSample
from spout.ui.graph import Drivers
from spout.ui.jobs import Actions
from spout.ui.redrive_pages import redrive_address
from spout.ui.serve import LOOPBACK
from spout.ui.watch import CauseWatch, Watch
from tests.support.hostile import HOSTILE, MARK, texts_in, unseen, wrong_document, wrong_lines, wrong_page
from tests.support.memory.cluster import MemoryLog
from tests.support.narrow import KINDS_OF_NARROW, Narrow, written_on
from tests.support.page_server import pages_of
from tests.support.worlds.planning import World, batch, yaml_of

LETTERS = "sentences.g.dlq"
YAML = yaml_of(retry="{attempts: 1}", dead_letter="{max_ratio: 1, max_consecutive: 1000}", timeout="4s")
ALL = " ".join(HOSTILE)
"""All of them in one, for places that hold one text."""

JSON = {"accept": "application/json"}
DRIVER = "127.0.0.1:9103"


def fail_each(world: World, count: int) -> None:
    """Let each of the first records fail by a cause of its own, whose parts are all hostile."""
    end = batch(world.ready(who=Who(ALL, ALL, 7, world.now_ms)), BEGINNING, world)
    world.publish(BEGINNING, end, skip=range(count))
    run = next(run for run in end.ranges)
    head = ("q/other", 1, "g", end.session, end.epoch, run.source, 0)
    causes = tuple(
        FailCause(text, text, text, pack_positions(np.array([at], np.int64)))
        for at, text in enumerate(HOSTILE)
    )
    producer = world.log.producer()
    for partition in range(world.topics.acker.partitions):
        value = wire_codec().encode(Fails(*head, causes))
        producer.send(Outgoing(world.topics.ack_topics.fail, partition, value))
    producer.flush(30_000)
    world.run(5_000)


def forge(world: World) -> None:
    """Write letters, marks, redrives and a pause that no Windhover has written."""
    producer = world.log.producer()
    for text in HOSTILE:
        value = text.encode()
        headers = [
            (name, value)
            for name in (
                "windhover.dead", "windhover.reason", "windhover.cause", "windhover.operator",
                "__dlq.errors.group", "windhover.missing", "windhover.redrive", "windhover.stack",
            )
        ]  # fmt: skip
        history = [
            {
                "attempt": 1, "reason": "FAILED", "operator": text, "error": text, "message": text,
                "emitted_ms": 1, "age_ms": 1, "root": text,
            }
        ]  # fmt: skip
        header_name = writable_header_name(text)
        headers += [
            ("windhover.history", json.dumps(history).encode()),
            (header_name, value),
            (f"{header_name}2", None),
        ]
        producer.send(Outgoing(LETTERS, 0, value, value, tuple(headers)))
        mark = ("windhover.letter", f"{LETTERS}/0@3".encode())
        handled = ("windhover.handled", b"REPLAYED")
        why = tuple((name, value) for name in ("windhover.by", "windhover.why", "windhover.redrive"))
        producer.send(Outgoing(LETTERS, 0, None, None, (handled, mark, *why)))
        at = (0,) * 3
        begun = RedriveBegun(text, "REPLAYED", text, text, text, 1, at, at, at, world.now_ms)
        producer.send(audit_record(begun, LETTERS))
        producer.send(audit_record(RedriveEnded(text, "DONE", text, 1, 1, 0, world.now_ms), LETTERS))
    pause = due_codec().encode(Pause(1, world.now_ms, ALL))
    producer.send(Outgoing(world.topics.ack_topics.due, 0, pause, pause_key(1)))
    producer.flush(30_000)


def writable_header_name(text: str) -> str:
    """Return a text without null bytes, at which Kafka's client would cut the name of a header."""
    return text.replace("\0", "")


def members(_log: MemoryLog, group: str) -> list[GroupMember]:
    """Return members that call themselves what they like."""
    return [GroupMember(text, frozenset({number} & {0, 1, 2})) for number, text in enumerate(HOSTILE)]


def samples(_address: str) -> list[MetricSample]:
    """Return what a driver serves whose bolts are called what they like."""
    return [
        MetricSample(
            "windhover_topology_executed_total",
            {"group": "g", "operator": text, "source": f"{text}1", "stream": text, "grouping": text},
            1.0,
        )
        for text in HOSTILE
    ]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = World(YAML)
        made.start_replays()
        producer = made.log.producer()
        for text in HOSTILE:
            value = text.encode()
            producer.send(Outgoing("sentences", 0, value, value, ((writable_header_name(text), value),)))
        producer.flush(30_000)
        fail_each(made, len(HOSTILE))
        forge(made)
        monkeypatch.setattr(MemoryLog, "members", members)

        @contextmanager
        def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
            yield made.topics, made.cluster.log()

        for module in (cli, cli_dlq, cli_inspect, cli_check):
            monkeypatch.setattr(module, "opened", opened)
        for module in (cli_dlq, cli_inspect, cli_check):
            monkeypatch.setattr(module, "wall_ms", lambda: made.now_ms)
        yield made


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[TestClient]:
    with (
        closing(Overview(world.cluster.log(), world.topics)) as overview,
        closing(CauseWatch(world.cluster.log(), world.topics)) as causes,
    ):
        watch = Watch(overview.snapshot, world.topics, lambda: world.now_ms, causes.read, causes.rates)
        for _ in range(3):
            watch.read()
            world.cluster.now_ms += 2_500
        actions = Actions("token", ALL)
        pages, _ = pages_of(world, watch, None, actions, Drivers([DRIVER], samples), Path(f"{MARK}.yaml"))
        yield TestClient(pages.application(LOOPBACK), base_url="http://localhost", follow_redirects=False)


COMMANDS = (
    "status", "machinery", "roots", "failures", "latency", "check", "check -o prometheus",
    "dlq list --all", "dlq stats --all", "dlq redrives",
    " ".join(["dlq show", *(f"sentences/0@{offset}" for offset in range(len(HOSTILE)))]),
    " ".join(["dlq show", *(f"{LETTERS}/0@{offset}" for offset in range(len(HOSTILE), 5 * len(HOSTILE)))]),
    *(f"inspect sentences/0@{offset}" for offset in range(0, len(HOSTILE), 5)),
    "topics repair", "replay resume sentences",
)  # fmt: skip


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_gets_lines_that_can_be_seen_and_commands_of_ours(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """O2001"""
    cli.run(command.split())
    captured = capsys.readouterr()

    assert captured.out + captured.err
    assert wrong_lines(captured.out) == []
    assert wrong_lines(captured.err) == []


MORE_COMMANDS = (
    "replay drop sentences", "dlq drop --all", "dlq replay --all", "dlq replay --key \u2264\u05e9",
    "inspect --key \u2264\u05e9 --from 1h", "inspect \u2264\u05e9",
    "dlq redrives \u2264", "dlq cancel \u2264\u05e9", "status --watch \u2264\u05e9",
    "replay resume \u2264\u05e9",
)  # fmt: skip
"""Commands that need other words than a view, and some that are wrong in signs that a terminal may lack."""

DOCUMENTS = ("status", "machinery", "roots", "failures", "latency", "dlq list --all", "dlq stats --all",
             "dlq redrives", "dlq show sentences/0@0", "inspect sentences/0@0", "check")  # fmt: skip


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("command", DOCUMENTS)
def test_json_and_yaml_can_be_seen_read_and_are_the_same(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """O2002"""
    cli.run([*command.split(), "-o", "json"])
    document = capsys.readouterr().out

    assert wrong_document(document) == []
    if command == "check":
        return
    cli.run([*command.split(), "-o", "yaml"])
    text = capsys.readouterr().out
    assert unseen(text) == []
    assert yaml.safe_load(text) == json.loads(document)


NUMBERS_OF_YAML: Final = (
    *("12e4", "1E5", "7e10", "1e400", "1.5e3", "+.5", ".1e1", "-1e-3", "0o17", "0O17", "089"),
    *("0x1f", "0b101", "1_000", "12:30", "-0", "+5", "1.", ".inf", "2026-1-2", "2026-01-02"),
    *("y", "N", "no", "null", "~", "true"),
)
"""Keys of records, such as parts of a hash, that a version of YAML reads as something else."""


@pytest.mark.parametrize("key", [*NUMBERS_OF_YAML, "\u202e12e4", "12e4\x85"])
def test_a_text_is_no_number_in_any_version_of_yaml(key: str) -> None:
    """O2002: of the key 12e4 a program in Go read 120000, and so did the reader of topics.yaml."""
    text = encoded([{"key": key}], OutputFormat.YAML)
    assert yaml.safe_load(text) == [{"key": key}]
    # plain scalars are numbers there as in YAML 1.2
    assert read_yaml(text, {}).data == [{"key": key}]
    assert re.fullmatch(r"- key: (['\"]).*\1\n", text)


@pytest.mark.parametrize("key", ["12e4 apples", "a1", "order-7", "sentences/0@7", "é"])
def test_a_text_that_nobody_takes_for_a_number_has_no_quotation_marks(key: str) -> None:
    assert encoded([{"key": key}], OutputFormat.YAML) == f"- key: {key}\n"


@pytest.mark.usefixtures("world")
def test_json_gives_back_messages_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    """O2002"""
    cli.run(["dlq", "list", "--limit", "1000", "--all", "-o", "json"])
    rows = json.loads(capsys.readouterr().out)

    found = {row["message"] for row in rows}
    assert [text for text in HOSTILE if text not in found] == []


@pytest.mark.usefixtures("world")
def test_an_operator_and_an_error_as_they_are_shown_find_their_letters_alone(
    client: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1608: as `failures`, a list and a page show them, whatever they are called."""
    cli.run(["failures", "-o", "json"])
    rows = [row for row in json.loads(capsys.readouterr().out) if row["operator"] is not None]

    assert {parse_text(row["operator"]) for row in rows} == set(HOSTILE)
    for row in rows:
        asked = ["--operator", row["operator"], "--error", row["cause"]]
        cli.run(["dlq", "list", "--all", "-o", "json", *asked])
        letters = json.loads(capsys.readouterr().out)
        assert {(letter["operator"], letter["error"]) for letter in letters} == {
            (row["operator"], row["cause"])
        }
        text = parse_text(row["operator"])
        assert {letter["message"] for letter in letters} == {text}
    addresses = re.findall(
        r'href="(/letters\?input=sentences[^"]*operator[^"]*)"', client.get("/failures").text
    )
    assert len(addresses) == len(rows)
    found = [client.get(html.unescape(address), headers=JSON).json() for address in addresses]
    assert [len({letter["operator"] for letter in letters}) for letters in found] == [1] * len(rows)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("narrow", KINDS_OF_NARROW, ids=str)
@pytest.mark.parametrize("command", [*COMMANDS, *MORE_COMMANDS])
def test_a_command_works_where_the_terminal_lacks_signs(command: str, narrow: Narrow) -> None:
    """D1501: with any text, and with the same exit code."""
    with written_on(Narrow("utf-8")) as whole:
        code = cli.run(command.split())
    with written_on(narrow) as written:
        assert cli.run(command.split()) == code

    assert "defect of Windhover" not in written.err
    assert bool(written.out) == bool(whole.out)
    # a table has other borders in ASCII
    assert wrong_lines(re.sub(r"^\|", "│", written.out, flags=re.MULTILINE)) == []
    assert wrong_lines(written.err) == []
    assert not re.search(r"\\u[0-9a-f]{4}|\?{3}|\ufffd", written.out)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("narrow", KINDS_OF_NARROW, ids=str)
@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_document_is_the_same_where_the_terminal_lacks_signs(command: str, narrow: Narrow) -> None:
    """D1502: its signs are escapes of JSON and YAML."""
    for output in ("json", "yaml") if command != "check" else ("json",):
        read = json.loads if output == "json" else yaml.safe_load
        with written_on(Narrow("utf-8")) as whole:
            cli.run([*command.split(), "-o", output])
        with written_on(narrow) as written:
            cli.run([*command.split(), "-o", output])
        assert read(written.out) == read(whole.out)
        assert written.out.isascii()


@pytest.mark.usefixtures("world")
def test_a_key_that_is_shown_without_signs_finds_its_record() -> None:
    """D1503: it is in the notation."""
    with written_on(Narrow("ascii")) as written:
        cli.run(["dlq", "list", "--all", "--limit", "1000"])
    shown = re.search(r"%D7%A9\S+ EvIl 7", " ".join(written.out.split()))
    assert shown
    assert parse_text(shown[0]) == "\u05e9\u05dc\u05d5\u05dd EvIl 7"


def subcommands() -> list[str]:
    """Return all commands, and the groups of them."""

    def below(command: Any, path: str) -> Iterator[str]:
        yield path
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, f"{path} {name}".strip())

    return list(below(get_command(cli.app), ""))


@pytest.mark.sample(2)
@pytest.mark.parametrize("narrow", KINDS_OF_NARROW, ids=str)
def test_the_help_and_the_errors_of_each_command_work_where_the_terminal_lacks_signs(
    narrow: Narrow, tmp_path: Path
) -> None:
    """D1501"""
    file = tmp_path / "\u2264\u05e9.yaml"
    file.write_text("inputs: {\u05e9\u05dc: {id: \u2264}}", encoding="utf-8")
    calls = [[*path.split(), last] for path in subcommands() for last in ("--help", "--\u2264\u05e9\u05dc")]
    calls += [["validate", str(file)], ["topics", "check", str(file)], ["status", "--config", str(file)]]
    for call in calls:
        with written_on(narrow) as written:
            code = cli.run(call)
        assert written.out + written.err, call
        # 3 is UNKNOWN of a monitor
        assert code in (0, 2, 4) or (code == 3 and call[0] == "check"), (call, written.err)
        assert "defect of Windhover" not in written.err


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=str,
)
def test_a_process_works_where_the_terminal_lacks_signs(environment: dict[str, str], tmp_path: Path) -> None:
    """D1501: also the checks before anything is installed, and a log of a service."""
    file = tmp_path / "topics.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: 'a:1'}\ninputs: {a: {id: 1, topic: t, group: \u2264}}\n", encoding="utf-8"
    )
    log = "from spout.runtime import logs; logs.configure(); logs.log_event('a.b', detail='\\u2264 \\u05e9')"
    programs = [
        ["-m", "spout.cli", "--help"], ["-m", "spout.cli", "dlq", "list", "--help"],
        ["-m", "spout.cli", "validate", str(file)], ["-m", "spout.doctor"], ["-c", log],
    ]  # fmt: skip
    for program in programs:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **environment}
        done = subprocess.run(
            [sys.executable, *program], env=env, capture_output=True, timeout=60, check=False
        )
        assert b"UnicodeEncodeError" not in done.stderr, done.stderr.decode(errors="replace")
        assert b"defect of" not in done.stderr
        assert done.returncode in (0, 1, 4), done.stderr


PAGES = (
    "/", "/partition/sentences/0", "/machinery", "/topology", "/failures", "/letters", "/letters?all=on",
    "/latency", "/redrives", "/record", "/redrives/new?input=sentences",
    *(f"/record/sentences/0@{offset}" for offset in range(0, len(HOSTILE), 20)),
    *(f"/letter/{LETTERS}/0@{offset}" for offset in range(3, 280, 40)),
)  # fmt: skip
FIELDS = ("place", "key", "from", "since", "until", "error", "operator", "reason", "input", "timeout")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_element_or_command_but_those_of_its_templates(client: TestClient, path: str) -> None:
    """O2003"""
    page = client.get(path)

    assert wrong_page(page.text) == []
    assert wrong_document(client.get(path, headers=JSON).text) == []


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize(
    "path", ["/record", "/letters", "/failures", "/redrives", "/latency", "/redrives/new", "/x"]
)
def test_what_a_request_asks_for_is_a_text_on_the_page(client: TestClient, path: str, text: str) -> None:
    """O2004: a link may have been made by somebody else."""
    own = {"from": "1h", "since": "1h", "input": "sentences"}
    for query in (dict.fromkeys(FIELDS, text), own | {"key": text}, own | {"place": text}):
        assert wrong_page(client.get(path, params=query).text) == [], text
    assert wrong_page(client.get(f"{path}/{quote(text, safe='')}").text) == []


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_a_form_says_is_a_text_in_the_answer(client: TestClient, text: str) -> None:
    """O2004"""
    origin = {"origin": "http://localhost"}
    forms = (
        {"token": text, "why": text},
        {"token": "token", "input": text, "why": text},
        {"token": "token", "operator": text, "error": text, "key": text, "why": text, "rate": text},
        {"token": "token", "input": "sentences", "all": "on", "why": text, "rate": text, "count": text},
    )
    for form in forms:
        answer = client.post("/redrives", data=form, headers=origin)
        assert answer.status_code in (403, 404), answer.headers
        assert wrong_page(answer.text) == []
    cancelled = client.post(
        f"/redrives/{quote(text, safe='')}x/cancel", data={"token": "token"}, headers=origin
    )
    assert wrong_page(cancelled.text) == []
    ascii_only = text.encode("ascii", "ignore").decode().translate(dict.fromkeys(range(32)))
    refused = client.post("/redrives", data={"token": "token"}, headers={"origin": f"http://{ascii_only}"})
    assert refused.status_code == 403
    assert wrong_page(refused.text) == []


def test_the_links_of_a_page_lead_to_what_they_stand_at(client: TestClient) -> None:
    """O2004: also where a redrive, an operator or an error has such a name."""
    rows = client.get("/redrives?since=1h", headers=JSON).json()
    assert len(rows) == len(HOSTILE)
    for row in rows:
        # the client decodes an address twice, a server once
        address = quote(redrive_address(row["redrive"])).replace("%2F", "/")
        found = client.get(address)
        assert found.status_code == 200, row["redrive"]
        assert wrong_page(found.text) == []


def test_the_metrics_of_a_page_have_labels_that_can_be_seen(client: TestClient) -> None:
    text = client.get("/metrics").text

    assert wrong_lines(text) == []


def test_attention_names_a_hostile_cause_and_is_not_turned_around(client: TestClient) -> None:
    """O2005: letters that are written from the right stand alone, and ours around them where they belong."""
    page = client.get("/").text

    assert "<bdi>\u05e9\u05dc\u05d5\u05dd EvIl 7</bdi>" in page
    assert "fails records by" in page


def test_the_texts_are_where_they_can_do_harm(client: TestClient) -> None:
    """So the tests above are worth something."""
    places = (
        "/failures",
        "/letters?all=on",
        "/redrives?since=1h",
        f"/letter/{LETTERS}/0@100",
        "/machinery",
        "/topology",
    )
    for path in places:
        texts = list(texts_in(client.get(path, headers=JSON).json()))
        assert sum(MARK in text for text in texts) >= 5, path


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_is_wrong_with_a_file_is_one_line_for_each_key(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """O2008"""
    file = tmp_path / "topics.yaml"
    places = {"timeout": text, "topic": text, "start": text, text: 1}
    causes = {"retry": {"causes": [{"error": text, "operator": text, "then": text}]}}
    settings = {"id": text, "group": text * 2, **places, **causes}
    file.write_text(
        yaml.safe_dump({"kafka": {text: [text], "acks": text}, "inputs": {"a": settings, text: settings}})
    )

    assert cli.run(["validate", str(file)]) == 4

    error = capsys.readouterr().err
    assert wrong_lines(error) == []
    lines = error.splitlines()
    assert all(line.removeprefix("windhover: ").startswith(f"{file}:") for line in lines), lines


def broker_error(code: int, text: str) -> KafkaError:
    """Return an error as a broker's answer gives it, whose text ends at a zero in C."""
    return KafkaError(code, text.replace("\0", ""))


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_a_broker_says_is_a_part_of_one_line(text: str) -> None:
    """O2008"""
    client = KafkaClient({"bootstrap.servers": "kafka:9092"}, "test", 1_000, lambda: 0.0)
    errors = [
        client.error(broker_error(code, text), "reading a/0")
        for code in (KafkaError.POLICY_VIOLATION, KafkaError._ALL_BROKERS_DOWN, KafkaError.UNKNOWN)
    ]

    assert [wrong for error in errors for wrong in wrong_lines(sentence_line(str(error)))] == []


def test_a_line_of_librdkafka_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """O2008"""
    for text in HOSTILE:
        Background(lambda: 0.0)(broker_error(KafkaError._TRANSPORT, text))

    lines = [record.getMessage() for record in caplog.records if record.name == LIBRDKAFKA]
    assert len(lines) == len(HOSTILE)
    assert [line for line in lines if unseen(line)] == []


def test_who_holds_a_group_is_named_in_one_line() -> None:
    """O2008"""
    world = World(YAML)
    world.ready(who=Who(ALL, ALL, 7, world.now_ms))
    world.planner()
    with pytest.raises(SessionRefused) as refused:
        world.run(5_000)

    text = str(refused.value)
    assert MARK in text
    assert wrong_lines(sentence_line(text)) == []


def test_a_log_has_one_line_for_each_event_and_gives_back_the_text() -> None:
    """O2002"""
    program = (
        "import json, logging, sys\nfrom spout.runtime import logs\nlogs.configure(debug=True)\n"
        "for text in json.load(sys.stdin):\n"
        "    logs.log_event('a.b', detail=text, deep=[text])\n"
        "    logging.getLogger('x').warning('%s', text)\n"
    )
    command = [sys.executable, "-c", program]
    asked = json.dumps(HOSTILE)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=True)

    assert unseen(done.stderr) == []
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["detail"] for line in lines[::2]] == list(HOSTILE)
    assert [line["event"] for line in lines[1::2]] == list(HOSTILE)


def test_a_report_of_the_doctor_can_be_seen_and_read(tmp_path: Path) -> None:
    """O2002"""
    log = tmp_path / "acker.log"
    log.write_text(
        "\n".join(json.dumps({"event": "acker.unreachable", "topic": text, "why": text}) for text in HOSTILE)
    )
    results = [TOPICS_FILE.failed(text, text, cure=text) for text in HOSTILE]
    file = tmp_path / "topics.yaml"
    file.write_text(yaml.safe_dump({"inputs": {"a": {"group": ALL}}}))
    write_bundle(tmp_path / "r.zip", BundleSources(file, None, results, [log], 0), {})

    with zipfile.ZipFile(tmp_path / "r.zip") as whole:
        texts = {name: whole.read(name).decode() for name in whole.namelist()}
    assert {name: unseen(text) for name, text in texts.items() if unseen(text)} == {}
    assert [row["observed"] for row in json.loads(texts["results.json"])] == list(HOSTILE)
    assert yaml.safe_load(texts["topics.yaml"])["inputs"]["a"]["group"] == ALL
    lines = texts["logs/1-acker.log"].splitlines()
    assert [json.loads(line)["topic"] for line in lines] == list(HOSTILE)

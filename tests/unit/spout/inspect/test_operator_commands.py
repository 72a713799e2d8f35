"""The operators' commands as they are called: output, exit codes, and what a wrong call is told."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

from acker.config.topics import Topics
from acker.errors import Unreachable
from acker.kafka.port import Log, Outgoing
from acker.units import time_text
from acker.wire.verdict import Verdict
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive
from replay.records.due import Pause, due_codec, pause_key
from replay.records.letters import Filter, LetterAction
from spout.cli import check as cli_check
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.cli.common import parse_time
from spout.group.presence import SILENT_MS_MAX
from spout.inspect.readings import OLD_MS
from spout.inspect.tables import Column, OutputFormat, count, cut_to, span, write
from spout.planning.journal import Journal
from spout.planning_process.planner import Planner
from tests.support.memory.cluster import NoFaults
from tests.support.worlds import planning
from tests.support.worlds.order_world import OrderWorld
from tests.support.worlds.replay_world import LETTERS, World, topics


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the commands see a cluster in memory, with three letters in it, the second replayed."""
    made = World()
    one_life = topics(attempts=1)
    worker = made.worker(of=one_life)
    made.lose(*(made.emit(b"%d" % number, key=b"k%d" % number) for number in range(3)))
    made.settle(worker)
    worker.close()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield one_life, made.cluster.log()

    for module in (cli_dlq, cli_inspect):
        monkeypatch.setattr(module, "opened", opened)
    assert cli.run(["dlq", "replay", "sentences/0@1", "--execute", "--by", "kim"]) == 0
    return made


class NoMembers(NoFaults):
    """A broker that does not say who is in a group."""

    def before(self, operation: str) -> None:
        if operation == "members":
            raise Unreachable("members: the coordinator does not answer")


def let_see(monkeypatch: pytest.MonkeyPatch, group: planning.World, faults: NoFaults | None = None) -> None:
    """Let the commands that look see a group's cluster, at its time."""

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield group.topics, group.cluster.log(faults)

    monkeypatch.setattr(cli_inspect, "opened", opened)
    monkeypatch.setattr(cli_inspect, "wall_ms", lambda: group.now_ms)


@pytest.mark.parametrize(
    "command",
    [
        *("status", "machinery", "roots", "failures", "latency", "check", "inspect sentences/0@0"),
        *("dlq list", "dlq stats", "dlq redrives", "dlq show sentences/0@0"),
    ],
)
def test_the_questions_of_a_command_share_a_deadline(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """One silent broker of three kept each question that it should answer waiting for half a minute."""
    group = planning.World()
    log = group.cluster.log()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield group.topics, log

    for module in (cli_dlq, cli_inspect, cli_check):
        monkeypatch.setattr(module, "opened", opened)
    cli.run(command.split())
    assert log.deadlines_shared > 0


def sleeping(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> list[float]:
    """Let something happen whenever a command sleeps, Ctrl-C the third time; return how long it slept."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        happens()
        if len(slept) == 3:
            raise KeyboardInterrupt

    # the command's own view of the module: what sleeps on other threads is not counted, nor interrupted
    monkeypatch.setattr(cli_inspect, "time", SimpleNamespace(sleep=sleep))
    return slept


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit code, stdout and stderr."""
    capsys.readouterr()
    exit_code = cli.run(list(arguments))
    captured = capsys.readouterr()
    return exit_code, captured.out, captured.err


@pytest.mark.usefixtures("world")
def test_rows_are_the_same_in_json_and_yaml_and_a_table_is_for_people(
    capsys: pytest.CaptureFixture[str],
) -> None:
    as_json = json.loads(printed(capsys, "dlq", "list", "-o", "json")[1])
    assert as_json == yaml.safe_load(printed(capsys, "dlq", "list", "-o", "yaml")[1])
    assert [row["origin"] for row in as_json] == ["sentences/0@0", "sentences/0@2"]
    table = printed(capsys, "dlq", "list")[1]
    assert "sentences/0@2" in table
    assert "ValueError" in table
    assert "handled" not in table
    assert "REPLAYED" in printed(capsys, "dlq", "list", "--all")[1]


@pytest.mark.usefixtures("world")
def test_what_is_not_shown_is_named_beside_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, out, err = printed(capsys, "dlq", "list", "--limit", "1", "-o", "json", "--exit-code")
    assert (exit_code, [row["origin"] for row in json.loads(out)]) == (5, ["sentences/0@2"])
    assert "1 more are not shown" in err
    assert printed(capsys, "dlq", "list", "--cause", "KeyError", "--exit-code")[0] == 0


@pytest.fixture
def mixed(world: World) -> World:
    """Let two more letters die an hour later: of another cause and bolt, and of a timeout."""
    world.now_ms += 3_600_000
    worker = world.worker(of=topics(attempts=1))
    world.lose(world.emit(b"3", key=b"\xff"), error="KeyError", operator="count")
    world.lose(world.emit(b"4", partition=1), reason=Verdict.TIMED_OUT)
    world.settle(worker)
    worker.close()
    return world


DIED = time_text(1_000_000)
LATER = time_text(1_000_000 + 3_600_000)
FILTERS = {
    "--input sentences": "0@0 0@2 0@3 1@0",
    "--topic sentences": "0@0 0@2 0@3 1@0",
    f"--topic {LETTERS}": "0@0 0@2 0@3 1@0",
    "--cause ValueError": "0@0 0@2",
    "--cause TIMED_OUT": "1@0",
    "--operator count": "0@3",
    "--reason ATTEMPTS": "0@0 0@2 0@3 1@0",
    "--reason attempts": "0@0 0@2 0@3 1@0",
    "--reason GONE": "",
    "--key k2": "0@2",
    "--key %FF": "0@3",
    "--key null": "1@0",
    f"--since {LATER}": "0@3 1@0",
    f"--until {LATER}": "0@0 0@2",
    f"--since {DIED} --until {LATER} --key k0": "0@0",
    "sentences/1@0": "1@0",
    f"{LETTERS}/0@2 sentences/0@0": "0@0 0@2",
}
"""What people type to say which letters they mean, and the origins of those letters."""


@pytest.mark.sample(4)
@pytest.mark.usefixtures("mixed")
@pytest.mark.parametrize(("words", "meant"), FILTERS.items())
def test_each_command_means_the_letters_that_its_words_say(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    origins = [f"sentences/{place}" for place in meant.split()]
    for output, read in ((["-o", "json"], json.loads), (["-o", "yaml"], yaml.safe_load)):
        rows = read(printed(capsys, "dlq", "list", *words.split(), *output)[1])
        assert sorted(row["origin"] for row in rows) == origins
    many = "1 letter" if len(origins) == 1 else f"{len(origins)} letters"
    for action, more in (("replay", []), ("drop", ["--why", "x"])):
        _, out, _ = printed(capsys, "dlq", action, *words.split(), *more)
        assert f"{many} would be {action.rstrip('p')}" in out
        assert all(origin in out for origin in origins)
    if "/" not in words:
        counted = json.loads(printed(capsys, "dlq", "stats", *words.split(), "-o", "json")[1])
        assert sum(row["letters"] for row in counted if row["of"] == "dead") == len(origins)


def test_what_is_replayed_by_a_filter_and_a_rate_is_the_record_as_it_was(
    mixed: World, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("dlq", "replay", "--cause", "ValueError", "--rate", "1000", "--execute", "--why", "fixed")
    assert "2 letters replayed" in printed(capsys, *call)[1]
    copies = mixed.copies()[-2:]
    assert [(copy.key, copy.value, copy.partition) for copy in copies] == [(b"k0", b"0", 0), (b"k2", b"2", 0)]
    assert (
        "2 letters dropped" in printed(capsys, "dlq", "drop", "--since", LATER, "--why", "x", "--execute")[1]
    )
    assert printed(capsys, "dlq", "list", "--exit-code")[0] == 0


def test_ctrl_c_cancels_a_redrive_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker that does not answer holds it up for half a minute, in which nothing else would be seen."""
    asleep = SimpleNamespace(sleep=lambda _seconds: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(cli_dlq, "time", asleep)
    assert cli.run(["dlq", "replay", "--input", "sentences", "--rate", "0.001", "--execute"]) == 130
    out, err = capfd.readouterr()
    assert out == "1 letter replayed\n"
    assert "cancelled as soon as this transaction is written; Ctrl-C ends it at once" in err


def test_nothing_is_written_without_execute(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(world.letters()), len(world.copies())
    assert "2 letters would be replayed" in printed(capsys, "dlq", "replay", "--input", "sentences")[1]
    assert "1 letter would be dropped" in printed(capsys, "dlq", "drop", "sentences/0@0", "--why", "x")[1]
    assert (len(world.letters()), len(world.copies())) == before
    assert "1 letter dropped" in printed(capsys, "dlq", "drop", "--key", "k0", "--why", "x", "--execute")[1]
    assert "1 letter replayed" in printed(capsys, "dlq", "replay", "--cause", "ValueError", "--execute")[1]
    assert [copy.value for copy in world.copies()] == [b"1", b"2"]


@pytest.mark.usefixtures("world")
def test_everything_of_a_letter_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, out, _ = printed(capsys, "dlq", "show", f"{LETTERS}/0@1")
    assert exit_code == 0
    for part in ("sentences/0@1", "bad line", "payload  1", "REPLAYED", "by kim"):
        assert part in out
    counted = json.loads(printed(capsys, "dlq", "stats", "--all", "-o", "json")[1])
    assert {row["value"]: row["letters"] for row in counted if row["of"] == "handled"} == {
        "no": 2,
        "REPLAYED": 1,
    }


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["dlq", "show"], "name a letter"),
        (["dlq", "show", "sentences/0@77"], "no dead letter at sentences/0@77"),
        (["dlq", "list", "nowhere"], "no place of a letter"),
        (["dlq", "list", "--input", "nope"], "no tracked input"),
        (["dlq", "list", "--since", "soon"], "2h for so long ago"),
        (["dlq", "list", "--key", "50%"], "%25"),
        (
            ["dlq", "list", "--reason", "ATEMPTS"],
            "--reason ATEMPTS: is none; give ATTEMPTS, ABANDONED, CAUSE,",
        ),
        (["dlq", "stats", "--reason", "FAILED"], "--reason FAILED: is none"),
        (["dlq", "replay", "--reason", ""], "--reason : is none"),
        (["dlq", "drop", "--reason", "x", "--why", "y"], "--reason x: is none"),
        (["dlq", "list", "-o", "xml"], "json"),
        (["dlq", "replay", "--execute"], "every letter of every input"),
        (["dlq", "replay", "--rate", "0"], "--rate"),
        (["dlq", "drop", "sentences/0@0", "--execute"], "--why"),
        (["inspect"], "name a record"),
        (["inspect", "sentences/0@1", "--key", "k"], "name a record"),
        (["inspect", "--key", "k"], "--from"),
        (
            ["inspect", "--key", "50%", "--from", "2h"],
            "--key 50%: has a % that begins no escape; write %25 for a percent sign",
        ),
        (["inspect", "sentences/0@1", "--from", "2h"], "go with --key"),
        (["inspect", "sentences/0@1", "--input", "sentences"], "go with --key"),
        (["roots", "--older-than", "10"], "give 10s or 5m"),
        (["roots", "--group", "nope"], "no tracked input"),
    ],
)
def test_a_wrong_call_is_explained_in_one_line_with_exit_code_2(
    arguments: list[str], cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, out, err = printed(capsys, *arguments)
    assert (exit_code, out, len(err.splitlines())) == (2, "", 1)
    assert cure in err


def test_a_topic_that_is_missing_is_exit_code_4(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The world has neither State nor inits: whoever needs them says which topics are missing."""
    for command in (["status"], ["inspect", "sentences/0@0"]):
        exit_code, _, err = printed(capsys, *command)
        assert (exit_code, "_ack_state" in err, "topics create" in err) == (4, True, True)
    world.cluster.delete_topic(LETTERS)
    assert printed(capsys, "dlq", "list")[0] == 4


def test_where_nothing_was_found_a_command_says_so_beside_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty screen could also mean that nothing was read."""
    group = planning.World(planning.YAML)
    group.start_replays()
    group.run(100)
    let_see(monkeypatch, group)
    monkeypatch.setattr(cli_dlq, "opened", cli_inspect.opened)
    for command, says in (
        (["dlq", "list"], "no dead letter matches"),
        (["dlq", "stats"], "no dead letter matches"),
        (["dlq", "redrives"], "no redrive was found"),
        (
            ["failures", "--since", "1970-01-01T00:00:00Z"],
            "note: no failure since 1970-01-01T00:00:00Z was found",
        ),
    ):
        assert printed(capsys, *command)[1:] == ("", f"{says}\n")
    group.cluster.delete_topic("sentences")
    exit_code, _, err = printed(capsys, "inspect", "--key", "k", "--from", "2h")
    assert (exit_code, "topic sentences is missing; run `windhover topics create`" in err) == (4, True)


def test_status_shows_what_it_can_and_ends_with_4_where_a_topic_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = planning.World(planning.YAML + "  words: {id: 2, group: h, partitions: 1}\n")
    group.cluster.delete_topic("words")
    let_see(monkeypatch, group)
    exit_code, out, err = printed(capsys, "status")
    assert (exit_code, "sentences/0" in out, "words/?" in out) == (4, True, True)
    assert "since topic words is missing; run `windhover topics create`" in err
    rows = json.loads(printed(capsys, "status", "-o", "json")[1])
    assert [(row["source"], row["end"]) for row in rows] == [
        ("sentences/0", 0),
        ("sentences/1", 0),
        ("words/?", None),
    ]
    assert "topics create" in rows[2]["unknown"]["end"]


def test_a_time_is_read_as_a_time_or_as_how_long_ago() -> None:
    assert parse_time("--since", None, 10) is None
    assert parse_time("--since", "1.5s", 10_000) == 8_500
    assert parse_time("--since", "9d", 10_000) == 0
    assert parse_time("--since", "1970-01-01T00:00:01Z", 10_000) == 1_000
    with pytest.raises(typer.BadParameter):
        parse_time("--since", "yesterday", 10_000)


def test_what_came_out_of_a_topic_is_no_command_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is it markup of the table's, nor does it break a row; unknown is neither 0 nor empty."""
    rows: list[Mapping[str, Any]] = [{"a": "\x1b[31mred\n[bold]x", "b": None, "c": 12_345, "d": "none"}]
    columns = [Column("a", "a"), Column("b", "b", count), Column("c", "c", count), Column("d", "d", span)]
    write(rows, columns, OutputFormat.TABLE)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "%1B[31mred%0A[bold]x" in out
    assert ("unknown" in out, "12,345" in out, "none" in out) == (True, True, True)


def test_durations_and_long_texts_are_cut_to_what_a_reader_wants() -> None:
    assert [span(value) for value in (0, 999, 1_500, 90_000, 5_400_000, 172_800_000, "never")] == [
        "0 ms", "999 ms", "1.5 s", "1.5 min", "1.5 h", "2.0 d", "never",
    ]  # fmt: skip
    assert (cut_to(5)("123456"), cut_to(5)("12345")) == ("1234…", "12345")


def test_a_wide_table_is_not_folded_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    write([{"a": "x" * 300, "b": "y" * 300}], [Column("a", "a"), Column("b", "b")], OutputFormat.TABLE)
    assert f"{'x' * 300} │ {'y' * 300}" in capsys.readouterr().out


def test_the_commands_ask_the_broker_of_their_topics_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is not there is a usage error, before anything is connected."""
    for command in (["status"], ["roots"], ["dlq", "list"], ["inspect", "sentences/0@0"]):
        exit_code, _, err = printed(capsys, *command, "--config", str(tmp_path / "none.yaml"))
        assert (exit_code, "cannot be read" in err) == (2, True)


LOOKS = (
    ("status",),
    ("roots", "--older-than", "500ms"),
    ("inspect", "sentences/0@3"),
    ("inspect", "--key", "k", "--from", "2020-01-01T00:00:00Z"),
)


def test_commands_that_read_print_the_same_in_json_and_yaml_and_a_table_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before an acker has written its State what it alone knows is null there, and unknown in the table."""
    group = planning.World()
    group.produce(10)
    let_see(monkeypatch, group)
    row = json.loads(printed(capsys, "status", "-o", "json")[1])[0]
    assert (row["pending"], row["lag"], row["oldest_ms"], row["end"]) == (None, None, None, 10)
    assert "unknown" in printed(capsys, "status")[1]
    planner = group.ready()
    end = planning.batch(planner, planning.BEGINNING, group)
    group.publish(planning.BEGINNING, end, skip=(3,))
    producer = group.log.producer()
    producer.send(Outgoing("sentences", 0, b"keyed", b"k"))
    producer.flush(0)
    group.run(1_000)
    for words in LOOKS:
        as_json = json.loads(printed(capsys, *words, "-o", "json")[1])
        assert as_json == yaml.safe_load(printed(capsys, *words, "-o", "yaml")[1])
        assert as_json
        exit_code, table, _ = printed(capsys, *words)
        assert (exit_code, "sentences/0" in table) == (0, True)
    (root,) = json.loads(printed(capsys, *LOOKS[1], "-o", "json")[1])
    assert root["root"] == "sentences/0@3"
    assert printed(capsys, "roots")[1].endswith("\n1 open root\n")
    assert printed(capsys, "roots", "--older-than", "1h", "--exit-code")[0] == 0
    assert "no acker lives" not in printed(capsys, "roots")[2]
    (story,) = json.loads(printed(capsys, *LOOKS[3], "-o", "json")[1])
    assert (story["record"], story["key"], story["now"]) == (
        "sentences/0@10",
        "k",
        "in the log, not emitted yet",
    )
    assert "no record with key x" in printed(capsys, "inspect", "--key", "x", "--from", "1h")[2]


def test_open_roots_without_an_acker_are_no_news_and_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is emitted after the last acker ended is in no State, so that its roots are not listed."""
    group = planning.World()
    group.produce(10)
    let_see(monkeypatch, group)
    planner = group.ready()
    group.run(100)
    group.kill_acker()
    planning.batch(planner, planning.BEGINNING, group)
    _, out, err = printed(capsys, "roots")
    assert "0 open roots" in out
    assert "no acker lives" in err
    assert "windhover acker run" in err


def with_one_open_root(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[planning.World, Planner, Journal]:
    """Run a query of which record 3 stays open; the commands see its cluster."""
    group = planning.World()
    group.produce(10)
    let_see(monkeypatch, group)
    planner = group.ready()
    end = planning.batch(planner, planning.BEGINNING, group)
    group.publish(planning.BEGINNING, end, skip=(3,))
    group.run(1_000)
    return group, planner, end


def test_no_command_prints_a_zero_that_nobody_knows_while_no_acker_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was emitted since the last State is in none, and a table with 0 would look as on a quiet day."""
    group, planner, end = with_one_open_root(monkeypatch)
    assert "≥" not in printed(capsys, "status")[1]
    group.kill_acker()
    group.produce(10, partition=1)
    planning.batch(planner, end, group)
    group.run(OLD_MS)
    first, second = json.loads(printed(capsys, "status", "-o", "json")[1])
    assert (first["pending"], first["unknown"]) == (1, {})
    assert (second["pending"], second["oldest_ms"], second["blocking"], second["why"]) == (None,) * 4
    assert second["lag"] == 10, "of what is not emitted or not done the ends of the log say enough"
    _, out, err = printed(capsys, "status")
    assert ("≥ 1 " in out, "unknown" in out) == (True, True)
    unknown = (
        "emitted, emitted_to, pending, oldest_ms, in_state, oldest_in_state_ms, blocking, why, too_late,"
        " dropped_rows"
    )
    assert f"sentences/1: unknown are {unknown}, since the State" in err
    _, out, err = printed(capsys, "roots")
    assert out.endswith("1 open root, and those that are unknown\n")
    assert re.search(r"the State of acker partition 0 is 1\d\.\d s old: roots emitted since are unknown", err)
    for command in ("roots", "failures", "latency"):
        assert "no acker lives" in printed(capsys, command)[2]
    assert printed(capsys, "roots", "--exit-code")[0] == 5
    assert printed(capsys, "roots", "--older-than", "1h", "--exit-code")[0] == 3, (
        "nobody knows that there is none"
    )


@pytest.mark.parametrize("dead", ["acker", "query"])
def test_a_deadline_that_nobody_keeps_is_not_printed(
    dead: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an acker nothing times out, and without a query no clock goes on."""
    group, planner, _ = with_one_open_root(monkeypatch)
    assert printed(capsys, "roots")[2] == ""
    if dead == "acker":
        group.kill_acker()
    else:
        group.kill(planner)
    group.run(SILENT_MS_MAX + 1_000)
    says = {
        "acker": "does not time out before an acker works again",
        "query": "the clock of its timeout is stopped",
    }
    record = printed(capsys, "inspect", "sentences/0@3")[1]
    assert (record.count(says[dead]), record.count("times out in")) == (2, 0)
    assert says[dead] in printed(capsys, "status")[1]
    _, out, err = printed(capsys, "roots", "-o", "json")
    (root,) = json.loads(out)
    assert ((root["left_ms"] is None), f"no {dead}" in err) == (dead == "acker", True)


def test_without_a_replay_worker_an_empty_list_of_dead_letters_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = planning.World()
    let_see(monkeypatch, group)
    monkeypatch.setattr(cli_dlq, "opened", cli_inspect.opened)
    for command in ("list", "stats"):
        assert "no replay worker lives" in printed(capsys, "dlq", command)[2]


def test_whether_an_acker_lives_may_be_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = planning.World()
    group.run(100)
    let_see(monkeypatch, group, NoMembers())
    says = (
        "whether a member of group windhover-acker lives is unknown, since members: the coordinator does not"
        " answer"
    )
    assert says in printed(capsys, "roots")[2]


def test_a_resumed_input_goes_on_soon_where_a_replay_worker_lives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = planning.World()
    let_see(monkeypatch, group)
    monkeypatch.setattr(cli, "opened", cli_inspect.opened)

    def resumed() -> tuple[int, str, str]:
        producer = group.log.producer()
        pause = due_codec().encode(Pause(1, 5, "3 in a row"))
        producer.send(Outgoing("_ack_due", 1, pause, pause_key(1)))
        producer.flush(0)
        return printed(capsys, "replay", "resume", "sentences")

    _, out, err = resumed()
    assert out.endswith("sentences goes on in _ack_due/1, when a replay worker lives\n")
    assert "start one with `windhover replay run`" in err
    group.start_replays()
    group.run(500)
    exit_code, out, err = resumed()
    assert (exit_code, err) == (0, "")
    assert out.endswith("sentences goes on in _ack_due/1, at most 11 s from now\n")
    assert printed(capsys, "replay", "resume", "sentences")[1] == "sentences is not paused\n"


def test_a_status_is_watched_until_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each look reads what came since; Ctrl-C ends it with 130."""
    group = planning.World()
    let_see(monkeypatch, group)
    slept = sleeping(monkeypatch, lambda: group.produce(1))
    exit_code, out, _ = printed(capsys, "status", "--watch", "2", "-o", "yaml")
    assert (exit_code, slept) == (130, [2.0, 2.0, 2.0])
    assert [row["end"] for row in yaml.safe_load(out) if row["source"] == "sentences/0"] == [0, 1, 2]


@pytest.mark.parametrize("words", [("roots",), ("inspect", "sentences/0@3")])
def test_roots_and_a_record_are_watched_too(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = planning.World()
    group.produce(10)
    planner = group.ready()
    end = planning.batch(planner, planning.BEGINNING, group)
    group.publish(planning.BEGINNING, end, skip=(3,))
    group.run(1_000)
    let_see(monkeypatch, group)
    slept = sleeping(monkeypatch, lambda: group.run(1_000))
    exit_code, out, _ = printed(capsys, *words, "--watch", "2", "-o", "yaml")
    assert (exit_code, slept) == (130, [2.0, 2.0, 2.0])
    looks = yaml.safe_load(out)
    assert len(looks) == 3
    ages = [look["age_ms"] if "age_ms" in look else look["attempts"][-1]["age_ms"] for look in looks]
    assert ages == sorted(set(ages)), "each look is a new one"


def test_redrives_are_listed_and_cancelled_and_a_wrong_one_is_refused(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = json.loads(printed(capsys, "dlq", "redrives", "-o", "json")[1])
    assert (row["by"], row["letters"], row["handled"], row["open"], row["state"]) == ("kim", 1, 1, 1, "DONE")
    assert "DONE" in printed(capsys, "dlq", "redrives")[1]
    exit_code, _, err = printed(capsys, "dlq", "cancel", "nope")
    assert (exit_code, "there is no redrive nope" in err) == (2, True)
    exit_code, _, err = printed(capsys, "dlq", "cancel", row["redrive"])
    assert (exit_code, "it is DONE" in err) == (2, True)
    order = Order(LetterAction.REPLAYED, Filter(), "lee", "", "lost")
    one = topics(attempts=1).input("sentences")
    killed = Redrive(world.cluster.log(), topics(attempts=1), [(one, Filter())], order, RateLimit(None, 0, 1))
    killed.step(world.now_ms)
    assert printed(capsys, "dlq", "cancel", "lost")[:2] == (0, "redrive lost is cancelled: sentences\n")
    found = json.loads(printed(capsys, "dlq", "redrives", "-o", "json")[1])
    assert {row["redrive"]: row["state"] for row in found}["lost"] == "CANCELLED"


@pytest.mark.usefixtures("world")
def test_a_wait_without_a_unit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, _, err = printed(capsys, "dlq", "replay", "--input", "sentences", "--wait", "5")
    assert (exit_code, "give 30s or 5m" in err) == (2, True)


@pytest.mark.usefixtures("mixed")
def test_failures_are_listed_by_bolt_and_cause(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, out, _ = printed(capsys, "failures", "--since", "1970-01-01T00:00:00Z", "-o", "json")
    assert exit_code == 0
    assert {(row["operator"], row["cause"]): (row["failures"], row["dead"]) for row in json.loads(out)} == {
        ("split", "ValueError"): (3, 3),
        ("count", "KeyError"): (1, 1),
        (None, "TIMED_OUT"): (1, 1),
    }
    table = printed(capsys, "failures", "--since", "1970-01-01T00:00:00Z")[1]
    assert "unknown" in table
    assert "ValueError" in table


def test_latency_shows_the_times_and_what_a_timeout_would_lose(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = planning.World()
    group.produce(10)
    planner = group.ready()
    end = planning.batch(planner, planning.BEGINNING, group)
    group.run(1_000)
    group.publish(planning.BEGINNING, end)
    group.run(1_500)
    let_see(monkeypatch, group)
    exit_code, out, err = printed(capsys, "latency", "--timeout", "500ms", "-o", "json")
    (row,) = json.loads(out)
    assert (exit_code, row["emitted"], row["acked"], row["would_time_out"]) == (0, 10, 10, 1.0)
    assert 1_000 <= row["p50_ms"] <= 1_500
    assert "by bolt: the log has one verdict for a whole tree" in err
    assert "100.0 %" in printed(capsys, "latency", "--timeout", "500ms")[1]
    exit_code, _, err = printed(capsys, "latency", "--timeout", "5")
    assert (exit_code, "give 10s or 5m" in err) == (2, True)


def test_of_emissions_that_one_record_blocked_the_first_and_the_last_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A blocked record is emitted again in every `hold`, so an hour would be 3,600 equal rows."""
    world = OrderWorld("key")
    world.produce(3, keys=(b"a",))
    world.bolt = lambda _record, _partition, origin: "" if origin else "ValueError"
    let_see(monkeypatch, world)

    def blocked() -> list[str]:
        assert cli.run(["inspect", "sentences/0@2", "-o", "json"]) == 0
        (story,) = json.loads(capsys.readouterr().out)
        return [row["root"] for row in story["attempts"] if row["error"] == "HELD"]

    while len(roots := blocked()) < 5:
        world.plan()
        world.execute()
        world.run(1_000)
    assert cli.run(["inspect", "sentences/0@2"]) == 0
    table = capsys.readouterr().out
    assert [f" {root} " in table for root in roots] == [True, *[False] * (len(roots) - 2), True]
    assert f"{len(roots) - 2} more emissions, blocked by the same record; see -o json" in table

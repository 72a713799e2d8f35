"""The command: exit codes, one clear line on stderr, and nothing loaded that is not needed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from acker import errors
from spout.cli import main as cli

PROJECT = Path(__file__).resolve().parents[4]
WRONG = "kafka: {sasl.password: hunter2}\ninputs: {a: {id: 0, group: g}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("windhover 0.")


def test_a_shell_completes_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ``windhover --install-completion`` writes asks the command so."""
    monkeypatch.setenv("_WINDHOVER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "windhover st")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit, match="0"):
        cli.run([])
    assert capsys.readouterr().out.split() == ["status"]
    monkeypatch.delenv("_WINDHOVER_COMPLETE")
    assert cli.run(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["topics", "--help"], ["acker", "run", "--help"], ["replay", "run", "--help"],
        ["up", "--help"], ["demo", "--help"], ["validate", "--help"],
        ["submit", "--help"],
    ],
)  # fmt: skip
def test_help_is_there_for_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 0
    assert "Usage: windhover" in capsys.readouterr().out


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no command given"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["validate", "a", "b", "c"], "unexpected extra argument"),
        (["acker", "run", "--metrics-port", "0"], "--metrics-port"),
        (["replay", "run", "--metrics-port", "::1:9100"], "--metrics-port"),
        (["submit", "topology.yaml", "--metrics-port", "here"], "--metrics-port"),
        (["demo", "--records", "many"], "--records"),
        (["demo", "--frobnicate"], "No such option"),
        (["topics", "create", "--config", "a.yaml"], "is an argument: `windhover topics create topics.yaml`"),
        (["demo", "--port", "0"], "--port"),
        (["demo", "--port", "9092", "--bootstrap", "kafka:9092"], "give one"),
        (["validate", "no/such/file.yaml"], "No such file"),
        (["acker", "run", "--config", "no/such/file.yaml"], "No such file"),
        (["topics", "check", "no/such/file.yaml"], "No such file"),
        (["submit", "no/such/file.yaml"], "No such file"),
        (["up", "--brokers", "0"], "--brokers"),
        (["demo", "--config", "no/such/file.yaml"], "No such file"),
        (["acls", "--principal", "bob"], "give User:bob"),
        (["size", "--records", "inf"], "--records"),
        (["status", "--watch", "inf"], "--watch"),
        (["doctor", "--pre", "--only", "live"], "leave out --only"),
        (["doctor", "--pre", "--master", "local"], "leave out --only and --master"),
        (
            ["doctor", "--only", "files", "--role", "acke"],
            "--role acke: there is none; the roles are operator, a",
        ),
        (["doctor", "--py-files", "a.py"], "--py-files needs --master"),
        (["doctor", "--log", "acker.log"], "--log needs --bundle"),
        (["doctor", "--bundle", "no/such/folder/a.zip"], "its folder is missing"),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("windhover: ")
    assert says in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--dir", "topics.yaml"],
            "topics.yaml cannot keep a broker's data: File exists; name another directory",
        ),
        (
            ["--dir", "topics.yaml", "--brokers", "3"],
            "topics.yaml cannot keep a broker's data: File exists; name",
        ),
        (["--port", "65535", "--brokers", "3"], "65535 is the last; name 65533 or a lower one"),
    ],
)
def test_what_no_broker_can_have_ends_with_2_and_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is fetched or started."""
    monkeypatch.chdir(PROJECT)
    assert cli.run(["up", "--broker-only", *arguments]) == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert says in line
    assert printed.out == ""


@pytest.mark.parametrize(
    "arguments", [["demo"], ["doctor", "--only", "executors", "--master", "spark://a:1"]]
)
def test_what_needs_spark_says_so_where_there_is_none(arguments: list[str]) -> None:
    """As in the image of the services; in a process of its own, since here it may be loaded already."""
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; from spout.cli.main import run;"
        " sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("windhover: PySpark is not installed here")
    assert "run `pip install pyspark`" in line


@pytest.mark.parametrize("command", ["demo", "up"])
def test_a_cache_that_cannot_be_written_ends_with_2_and_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("WINDHOVER_CACHE", str(PROJECT / "topics.yaml"))
    assert cli.run([command]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each.startswith("windhover: ")]
    assert (
        "topics.yaml cannot keep what is fetched once: File exists; name another in WINDHOVER_CACHE" in line
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("command", ["demo", "up"])
def test_another_broker_in_the_file_of_a_command_with_its_own_ends_with_4(
    command: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is started, which nobody would use."""
    file.write_text("kafka: {bootstrap.servers: kafka:9092}\ninputs: {sentences: {id: 1, group: g}}\n")
    assert cli.run([command, "--config", str(file)]) == 4
    printed = capsys.readouterr()
    assert f'is kafka:9092, but `{command}` starts a broker of its own; write "${{KAFKA_BOOT' in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("command", ["demo", "up"])
def test_a_port_that_is_in_use_ends_with_2_and_one_line(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    monkeypatch.chdir(PROJECT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.run([command, "--port", str(port)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"windhover: port {port} on 127.0.0.1 is in use; name another")


def test_validate_says_what_a_right_file_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["validate", str(PROJECT / "topics.yaml")]) == 0

    printed = capsys.readouterr().out.splitlines()
    for line in (
        "    timeout: 5s",
        "      initial: 500ms",
        "    start: committed",
        "  verdict_retention: 7d",
        "  limits:",
        "    refold_bytes: 134217728",
        "replay:",
        "    breaker_window: 1m",
        "    # topic sentences has to keep its records for 68s: so long one may live, with all its replays",
    ):
        assert line in printed


def test_validate_warns_of_a_limit_that_is_a_constant(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("acker: {limits: {lanes: 500}}")

    assert cli.run(["validate", str(file)]) == 0

    printed = capsys.readouterr().out.splitlines()
    assert f"warning: {file}:1: acker.limits.lanes: is a constant now, 10,000; remove the key" in printed
    assert not any("lanes: 10000" in line for line in printed)


def test_validate_warns_of_records_that_may_be_needed_longer_than_topics_keep_them(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("inputs: {a: {id: 1, group: g, timeout: 0}}")

    assert cli.run(["validate", str(file)]) == 0

    printed = capsys.readouterr().out.splitlines()
    assert "    # topic a has to keep its records for ever: an open one never times out" in printed
    assert printed[-1].startswith("warning: a: input a may need a record without end (timeout: 0)")


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_validate_says_that_an_ordered_input_stops_at_a_log_that_was_cut(
    file: Path, capsys: pytest.CaptureFixture[str], ordering: str
) -> None:
    """O613: `skip` promises less there; with retention it keeps its promise, so it is no error."""
    file.write_text(f"inputs: {{a: {{id: 1, group: g, on_data_loss: skip, ordering: {ordering}}}}}")
    assert cli.run(["validate", str(file)]) == 0
    warned = "warning: inputs.a.on_data_loss: skip" in capsys.readouterr().out
    assert warned is (ordering != "none")


def test_validate_shows_names_of_kafka_settings_and_no_values(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        "kafka: {sasl.password: hunter2}\ninputs: {a: {id: 1, group: g, start: 2026-07-01T00:00:00Z}}"
    )

    assert cli.run(["validate", str(file)]) == 0

    printed = capsys.readouterr().out
    assert "sasl.password" in printed
    assert "hunter2" not in printed
    assert "start: 2026-07-01T00:00:00Z" in printed


def test_validate_of_two_files_says_who_must_start_again(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D2109."""
    newer = tmp_path / "newer.yaml"
    file.write_text("inputs: {a: {id: 1, group: g}}")
    newer.write_text("inputs: {a: {id: 1, group: g, timeout: 1m, retry: {attempts: 9}}}")

    assert cli.run(["validate", str(file), str(newer)]) == 0

    first, second, summary, to_signal = capsys.readouterr().out.splitlines()
    assert first.startswith("inputs.a.timeout: 30s -> 1m: query, page; run `windhover topics check`")
    assert second.startswith("inputs.a.retry.attempts: 10 -> 9: replay worker (SIGHUP); run `windhover ")
    assert summary == "start again: query, page"
    assert to_signal == "SIGHUP, or start again: replay worker"

    assert cli.run(["validate", str(file), str(file)]) == 0
    assert capsys.readouterr().out == f"{file} means the same as {file}\n"


def test_validate_of_two_files_refuses_what_a_living_installation_cannot_change(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D2110: the exit code is that of a wrong file, so that a pipeline stops before it is rolled out."""
    newer = tmp_path / "newer.yaml"
    file.write_text("inputs: {a: {id: 1, group: g}}")
    newer.write_text("acker: {partitions: 8}\ninputs: {a: {id: 2, group: g, timeout: 1m}}")

    assert cli.run(["validate", str(file), str(newer)]) == 4

    captured = capsys.readouterr()
    partitions, input_id = captured.err.splitlines()
    assert partitions.startswith(f"windhover: {newer}: acker.partitions: 4 -> 8: never: a root's partition")
    assert input_id.startswith(f"{newer}: inputs.a.id: 1 -> 2: never: another id is another input")
    assert "inputs.a.timeout: 30s -> 1m" in captured.out


@pytest.mark.parametrize(
    "command",
    [
        ["validate"],
        ["topics", "create"],
        ["topics", "check"],
        ["acker", "run", "--config"],
        ["replay", "run", "--config"],
    ],
    ids=" ".join,
)
def test_a_wrong_file_ends_with_4_and_names_file_key_value_and_cure(
    command: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(WRONG)

    assert cli.run([*command, str(file)]) == 4

    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line == f"windhover: {file}:2: inputs.a.id = 0: is too low; give a whole number, 1 to 16383"
    assert captured.out == ""


def test_a_setting_that_the_client_refuses_ends_with_4_and_hides_its_value(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("kafka: {security.protocol: hunter2}\n")

    assert cli.run(["topics", "check", str(file)]) == 4

    (line,) = capsys.readouterr().err.splitlines()
    assert "security.protocol" in line
    assert "hunter2" not in line


def test_debug_shows_the_trace_of_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(WRONG)

    assert cli.run(["--debug", "validate", str(file)]) == 4

    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (errors.CheckFailed, 1), (errors.UsageError, 2), (errors.Unreachable, 3), (errors.ConfigError, 4),
        (errors.TopicError, 4), (errors.Disagreement, 4), (errors.Fenced, 1),
    ],
)  # fmt: skip
def test_each_error_ends_with_the_exit_code_of_its_class(
    kind: type[errors.WindhoverError], exit_code: int
) -> None:
    assert kind.exit_code == exit_code

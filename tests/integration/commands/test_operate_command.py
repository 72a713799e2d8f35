"""`windhover release` and `windhover offsets reset` on a real broker, with an acker of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning import provision
from spout.cli import main as cli
from spout.runtime.child import Child
from tests.support.brokers import Broker


def test_an_operator_rewinds_an_input_and_releases_its_group(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(
        f"kafka: {{bootstrap.servers: '{broker.bootstrap}'}}\n"
        f"acker: {{partitions: 2, topic_prefix: '{prefix}'}}\n"
        f"inputs: {{a: {{id: 1, group: '{prefix}g', topic: '{prefix}a', partitions: 1}}}}\n"
    )
    topics = load_topics(config, {})
    provision.create_topics(topics)
    place = TopicPartition(f"{prefix}a", 0)
    log = KafkaLog(topics.kafka)
    producer = log.producer()
    for number in range(5):
        producer.send(Outgoing(*place, b"%d" % number))
    producer.flush(10_000)
    producer.close()

    def command(*arguments: str) -> tuple[int, str]:
        """Run a command; return its exit code and what it said."""
        exit_code = cli.run([*arguments, "--config", str(config)])
        captured = capsys.readouterr()
        return exit_code, captured.out + captured.err

    with Child("acker", config) as acker:
        acker.wait_ready()
        exit_code, said = command("offsets", "reset", "a", "--to", "3")
        assert (exit_code, "nothing was changed" in said) == (0, True), said
        assert log.committed(f"{prefix}g", [place]) == {}

        exit_code, said = command("offsets", "reset", "a", "--to", "3", "--execute")
        assert (exit_code, "input a is reset" in said) == (0, True), said
        assert log.committed(f"{prefix}g", [place]) == {place: 3}

        exit_code, said = command("offsets", "reset", "a", "--to", "1h")
        assert (exit_code, f"{prefix}a/0: 3 to 0, 3 offsets are emitted again" in said) == (0, True), said
        exit_code, said = command("offsets", "reset", "a", "--to", "2026-01-01T00:00:00Z", "--execute")
        assert (exit_code, f"{prefix}a/0: 3 to 0, 3 offsets are emitted again" in said) == (0, True), said
        assert log.committed(f"{prefix}g", [place]) == {place: 0}

        exit_code, said = command("offsets", "reset", "a", "--to", "4", "--partition", "0")
        assert (exit_code, f"{prefix}a/0: 0 to 4, 4 offsets are left out" in said) == (0, True), said
        exit_code, said = command("offsets", "reset", "a", "--to", "4", "--partition", "9")
        assert (exit_code, "has no partition 9" in said) == (2, True), said

        exit_code, said = command("release", f"{prefix}g")
        assert (exit_code, "is released" in said) == (0, True), said
    log.close()


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["offsets", "reset", "nope", "--to", "latest"], "no input 'nope'"),
        (["offsets", "reset", "sentences", "--to", "soon"], "give earliest, latest, an offset, a time"),
        (["offsets", "reset", "sentences"], "--to"),
        (["release", "nope"], "no tracked input"),
    ],
)
def test_a_wrong_call_is_explained_in_one_line_with_exit_code_2(
    arguments: list[str], cure: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topics_yaml = Path(__file__).parents[3] / "topics.yaml"
    assert cli.run([*arguments, "--config", str(topics_yaml)]) == 2
    said = capsys.readouterr().err
    assert cure in said
    assert len(said.splitlines()) == 1

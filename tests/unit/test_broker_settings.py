"""What the embedded broker is told of its listeners."""

from __future__ import annotations

from spout.broker_settings import Door, server_properties


def settings_of(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_a_broker_without_doors_listens_for_clients_and_for_its_controller() -> None:
    found = settings_of(server_properties(9092, 9093))
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9093"


def test_a_door_listens_at_its_own_port_and_tells_clients_another() -> None:
    found = settings_of(server_properties(9092, 9093, [Door("ACKER", 9094, 5555)]))
    assert found["listeners"].endswith(",ACKER://127.0.0.1:9094")
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092,ACKER://127.0.0.1:5555"
    assert found["listener.security.protocol.map"].endswith(",ACKER:PLAINTEXT")


def test_a_setting_is_written_so_that_java_reads_back_what_was_given() -> None:
    text = server_properties(1, 2, (), {"ssl.keystore.key": "one\ntwo", "path": "a\\b"})

    assert settings_of(text)["ssl.keystore.key"] == "one\\ntwo"
    assert settings_of(text)["path"] == "a\\\\b"


def test_further_settings_win_over_the_brokers_own() -> None:
    assert settings_of(server_properties(1, 2, (), {"num.partitions": "7", "new": "x"})) | {} == {
        **settings_of(server_properties(1, 2)),
        "num.partitions": "7",
        "new": "x",
    }

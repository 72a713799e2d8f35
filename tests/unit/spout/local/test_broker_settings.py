"""What the embedded broker is told of its listeners."""

from __future__ import annotations

from spout.local.broker_settings import Listener, server_properties, settings_of_a_cluster


def settings_of(text: str) -> dict[str, str]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_a_broker_without_doors_listens_for_clients_and_for_its_controller() -> None:
    found = settings_of(server_properties(9092, {1: 9093}))
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:9093"


def test_a_door_listens_at_its_own_port_and_tells_clients_another() -> None:
    found = settings_of(server_properties(9092, {1: 9093}, [Listener("ACKER", 9094, 5555)]))
    assert found["listeners"].endswith(",ACKER://127.0.0.1:9094")
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092,ACKER://127.0.0.1:5555"
    assert found["listener.security.protocol.map"].endswith(",ACKER:PLAINTEXT")


def test_a_setting_is_written_so_that_java_reads_back_what_was_given() -> None:
    text = server_properties(1, {1: 2}, (), {"ssl.keystore.key": "one\ntwo", "path": "a\\b"})

    assert settings_of(text)["ssl.keystore.key"] == "one\\ntwo"
    assert settings_of(text)["path"] == "a\\\\b"


def test_further_settings_win_over_the_brokers_own() -> None:
    assert settings_of(server_properties(1, {1: 2}, (), {"num.partitions": "7", "new": "x"})) | {} == {
        **settings_of(server_properties(1, {1: 2})),
        "num.partitions": "7",
        "new": "x",
    }


def test_each_node_of_a_cluster_votes_and_knows_all_voters() -> None:
    found = settings_of(server_properties(9092, {1: 7001, 2: 7002, 3: 7003}, node_id=2))
    assert found["node.id"] == "2"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:7001,2@127.0.0.1:7002,3@127.0.0.1:7003"
    assert found["listeners"].endswith(",CONTROLLER://127.0.0.1:7002")


def test_three_brokers_keep_three_copies_and_two_must_have_a_write() -> None:
    found = settings_of_a_cluster(3)
    copies = {value for name, value in found.items() if name.endswith("replication.factor")}
    assert copies == {"3"}
    in_sync = {value for name, value in found.items() if name.endswith((".isr", "insync.replicas"))}
    assert in_sync == {"2"}


def test_a_cluster_of_one_broker_takes_writes_with_one_copy() -> None:
    found = settings_of_a_cluster(1)
    assert found["min.insync.replicas"] == found["default.replication.factor"] == "1"

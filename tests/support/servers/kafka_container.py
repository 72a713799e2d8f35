"""The official image apache/kafka as a container of testcontainers.

testcontainers' own KafkaContainer starts Confluent's image only. The port on the host is fixed before the
start: it stands in what the broker advertises, and a published random port changes at every restart.
"""

from __future__ import annotations

import time
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from spout.local.embedded import free_port

IMAGE = "apache/kafka:4.3.1"
START_TIMEOUT_S = 60.0

_ENVIRONMENT = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "HOST://:9092,INSIDE://:19092,CONTROLLER://:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "HOST:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # A broker calls itself for transactions, and cannot reach the address that the host sees:
    # with HOST here every transactional produce hangs, while plain ones work.
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_BROKER_SESSION_TIMEOUT_MS": "3000",
    "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
}


class KafkaContainer(DockerContainer):
    """One KRaft broker. `bootstrap` is for clients on the host; containers beside it use kafka:19092."""

    def __init__(self, image: str = IMAGE) -> None:
        super().__init__(image)
        host = self.get_docker_client().host()
        # not "localhost": it may mean ::1 first, where Docker publishes only with IPv6 switched on
        self.bootstrap = f"{'127.0.0.1' if host == 'localhost' else host}:{free_port()}"
        self.with_bind_ports(9092, int(self.bootstrap.rpartition(":")[2]))
        self.with_kwargs(hostname="kafka")
        self.with_envs(
            **_ENVIRONMENT, KAFKA_ADVERTISED_LISTENERS=f"HOST://{self.bootstrap},INSIDE://kafka:19092"
        )

    def start(self) -> Self:
        """Start the container and wait until the broker answers."""
        # the reaper is one more image to pull; this container is stopped by its context
        testcontainers_config.ryuk_disabled = True
        super().start()
        self._wait_until_it_answers()
        return self

    def kill(self) -> None:
        """End the broker by SIGKILL; the container and its data stay."""
        self.get_wrapped_container().kill()

    def restart(self) -> None:
        """Stop the broker in order if it runs, and start it again with its data."""
        container = self.get_wrapped_container()
        container.stop(timeout=30)
        container.start()
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        """Ask for metadata: a line in the log comes again at every start, so it proves little."""
        admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        container = self.get_wrapped_container()
        while time.monotonic() < deadline:
            container.reload()
            if container.status == "exited":
                break
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return
            except KafkaException:
                continue
        raise RuntimeError(
            f"no broker in the container ({container.status}):\n{container.logs(tail=30).decode()}"
        )

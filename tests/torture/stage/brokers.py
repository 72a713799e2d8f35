"""The brokers under torture: one, or a cluster of three whose leaders and coordinators are moved about."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from acker.errors import Unreachable
from spout.local.embedded import EmbeddedBroker
from spout.runtime import tether
from tests.torture.schedule import BROKERS, Deed, Victim

ASK_SECONDS_MAX: Final = 2.0
ADMIN_SECONDS_MAX: Final = 60.0

COORDINATING: Final = ("__consumer_offsets", "__transaction_state")
"""Internal topics: the leader of a partition coordinates the groups, or transactions, that fall on it."""


class Brokers:
    """All brokers of a run. Call it from the main thread."""

    def __init__(self, brokers: Sequence[EmbeddedBroker]) -> None:
        """Begin with all of them running; with one, `Victim.BROKER` is the only one that may be struck."""
        self._brokers = dict(zip(BROKERS, brokers, strict=False))
        self._away: set[Victim] = set()
        self._moving: subprocess.Popen[bytes] | None = None

    def strike(self, victim: Victim, deed: Deed) -> None:
        """Begin a blow."""
        match deed:
            case Deed.ELECT:
                self._elect()
            case Deed.MOVE:
                self._reassign()
            case Deed.KILL:
                self._away.add(victim)
                self._brokers[victim].kill()
            case Deed.STOP:
                self._away.add(victim)
                self._brokers[victim].stop()
            case _:
                self._signal(victim, signal.SIGSTOP)

    def heal(self, victim: Victim, deed: Deed) -> bool:
        """End a blow; a broker that is started needs a while to be in sync again.

        Returns:
            Whether the blow fell: coordinators are not moved where a broker is away by itself.
        """
        match deed:
            case Deed.ELECT:
                pass
            case Deed.MOVE:
                moved = self._moved()
                self._elect()
                return moved
            case Deed.KILL | Deed.STOP:
                self._brokers[victim].launch()
                self._away.discard(victim)
            case _:
                self._signal(victim, signal.SIGCONT)
        return True

    def are_well(self) -> bool:
        """Whether all run, and each partition has all its copies in sync.

        Raises:
            Unreachable: one that should run has ended.
        """
        for victim, broker in self._brokers.items():
            if broker.pid is None and victim not in self._away:
                raise Unreachable(broker.how_it_ended())
        if self._away:
            return False
        # a fresh client: one that lives on may ask a broker that is away first
        try:
            told = self._admin().list_topics(timeout=ASK_SECONDS_MAX)
        except KafkaException:
            return False
        return len(told.brokers) == len(self._brokers) and all(
            len(each.isrs) == len(each.replicas)
            for topic in told.topics.values()
            for each in topic.partitions.values()
        )

    def release(self) -> None:
        """Let no broker stay stopped."""
        for victim in self._brokers:
            self._signal(victim, signal.SIGCONT)

    def _signal(self, victim: Victim, number: int) -> None:
        pid = self._brokers[victim].pid
        if pid is not None:
            os.kill(pid, number)

    def _admin(self) -> AdminClient:
        bootstrap = ",".join(broker.bootstrap for broker in self._brokers.values())
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def _elect(self) -> None:
        """Give each partition to the first of its brokers, if that one is there."""
        admin = self._admin()  # it has to live until the answer is there
        with suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED).result(ADMIN_SECONDS_MAX)

    def _reassign(self) -> None:
        """Let another broker be the first of each partition that coordinates; no record is copied.

        librdkafka has no call for it, so Kafka's own tool is run beside what else goes on.
        """
        moves: list[dict[str, Any]] = []
        topics = self._admin().list_topics(timeout=ADMIN_SECONDS_MAX).topics
        for name in COORDINATING:
            for number, each in topics[name].partitions.items() if name in topics else ():
                replicas = [*each.replicas[1:], each.replicas[0]]
                moves.append({"topic": name, "partition": number, "replicas": replicas})
        first = self._brokers[Victim.BROKER]
        plan = first.directory / "reassignment.json"
        plan.write_text(json.dumps({"version": 1, "partitions": moves}), encoding="utf-8")
        self._moving = first.tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *("--bootstrap-server", ",".join(broker.bootstrap for broker in self._brokers.values())),
            *("--reassignment-json-file", str(plan), "--execute"),
        )

    def _moved(self) -> bool:
        """Wait until the tool has ended, and tell whether it did its work."""
        moving, self._moving = self._moving, None
        if moving is None:
            return False
        try:
            return moving.wait(ADMIN_SECONDS_MAX) == 0
        except subprocess.TimeoutExpired:
            tether.kill(moving)
            return False

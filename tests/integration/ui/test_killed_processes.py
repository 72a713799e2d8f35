"""The strip after every process was killed, broker and page among them: it shows what the log has."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from acker.provisioning.provision import create_topics
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.programs import Program, running

YAML = """
kafka: {{bootstrap.servers: "{bootstrap}", session.timeout.ms: 6000}}
acker: {{partitions: 1, topic_prefix: "{prefix}"}}
inputs:
  lines:
    id: 1
    group: "{prefix}g"
    topic: "{prefix}lines"
    partitions: 1
    timeout: 10m
    retry: {{initial: 10m, max: 10m, jitter: 0, causes: [{{error: PoisonError, then: dead_letter}}]}}
    dead_letter: {{max_ratio: 1}}
"""
"""Who is killed is a member of its group for the session timeout: the shortest that brokers take."""

DRIVER = """
import json, sys, time
from pathlib import Path
import numpy as np
import spout
from acker.kafka.cluster import KafkaLog
from acker.identity import source_of
from acker.wire.events import Acks, pack_positions, pack_values
from spout.group.sources import PlannerSpec
from spout.planning_process.planner import Planner
from spout.planning.journal import BEGINNING, batch_ranges, journal_of
from spout.planning.plan import BatchPlan
from spout.publishing.fold import BatchOutcome
from spout.publishing.publish import BatchLane, Publication, Publisher, publication_of
from spout.tuples.failures import Cause
from tests.support.outcomes import outcome_from

topics, kept, acked = spout.load(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
one, names = topics.input("lines"), topics.ack_topics
planner = Planner(KafkaLog(topics.kafka), PlannerSpec((one,), names, 1), new_id="first")
publisher = Publisher(lambda: KafkaLog(topics.kafka), names)
edge = np.array([12_345], np.uint64)

def step():
    planner.step(planner.poll(20), time.time_ns() // 1_000_000)

end = journal_of(json.loads(kept.read_text())) if kept.exists() else BEGINNING
planner.open(end, time.time_ns() // 1_000_000)
while not planner.is_ready:
    step()
if end == BEGINNING:
    while end == BEGINNING:
        step()
        end = planner.plan(BEGINNING, None, time.time_ns() // 1_000_000)
    kept.write_text(json.dumps(end.to_json()))
    plan = BatchPlan(
        one.group, end.session, end.epoch, 1, end.now, one.timeout_ms, True, batch_ranges(BEGINNING, end)
    )
    causes = [(Cause("split", "ValueError", "bad"), 2), (Cause("split", "PoisonError", "never"), 4)]
    failed = tuple((cause, np.array([at])) for cause, at in causes)
    outcome = outcome_from(plan, failed, partial=np.array([5]), residual=edge)
    publisher.publish(publication_of(outcome, BatchLane("query/first", 1)), 1)
print("ready", flush=True)
while True:
    step()
    if acked.exists():
        acked.unlink()
        rest = Acks(
            "query/first", 2, one.group, end.session, end.epoch, source_of(one.id, 0), 0, (),
            pack_positions(np.array([5])), pack_values(edge), (), b"", end.now,
        )
        publisher.publish(Publication((), (rest,)), 1)
"""
"""A planning process, from its journal where there is one, as Spark starts it again. Of its batch one record
fails, one fails for good, and one stays open until a file says that the rest of it is acked."""

STRIP = [
    "0 to 1: committed",
    "offset 2: 1 waits for replay",
    "offset 3: committed",
    "offset 4: 1 dead",
    "offset 5: 1 open",
    "6 to 7: settled",
    "8 to 9: not emitted",
]
UNKNOWN_STRIP = [*STRIP[:-1], "8 to 9: unknown"]
"""What it shows once no acker has worked for ten seconds: more may have been emitted."""
ACKED_STRIP = [*STRIP[:4], "5 to 7: committed", STRIP[-1]]

Bands = list[tuple[str, str]]
"""What each run of offsets shows, and when its first replay is due."""


class Page:
    """What the page shows of the partition."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/partition/lines/0"

    def _get(self, accept: str) -> str:
        try:
            with urlopen(Request(self._url, headers={"accept": accept}), timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def told(self) -> str:
        """Return all that it shows, for a test that fails."""
        return f"{self.bands()} in {self._get('text/html')}"

    def bands(self) -> Bands:
        rows = re.findall(
            r'<th scope="row">(.*?)</th><td>.*?</td><td>(.*?)</td></tr>', self._get("text/html")
        )
        return [(text, due) for text, due in rows]

    def shows(self, strip: list[str]) -> bool:
        return [text for text, _ in self.bands()] == strip

    def row(self) -> dict[str, Any]:
        """Return its figures, without those that only say how old something is."""
        row: dict[str, Any] = json.loads(self._get("application/json") or "{}")
        return {name: value for name, value in row.items() if name not in ("oldest_ms", "as_of_ms", "why")}

    def why(self) -> str:
        """Return what blocks the commit, without figures."""
        return re.sub(r"[0-9.]+ \w+", "...", str(json.loads(self._get("application/json"))["why"]))


@pytest.fixture
def parts(broker: Broker, prefix: str, tmp_path: Path) -> Mapping[str, list[str]]:
    """The programs by name, with topics in which ten lines are."""
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    create_topics(topics := load_topics(config, {}))
    with closing(KafkaLog(topics.kafka)) as log:
        producer = log.producer()
        for number in range(8):
            producer.send(Outgoing(topics.input("lines").topic, 0, b"%d" % number))
        producer.flush(30_000)
        producer.close()
    named = ["--config", str(config)]
    command = ["-m", "spout.cli"]
    return {
        "page": [*command, "ui", "--port", str(free_port()), *named],
        "acker": [*command, "acker", "run", *named],
        "replay": [*command, "replay", "run", *named],
        "driver": ["-c", DRIVER, str(config), str(tmp_path / "journal"), str(tmp_path / "acked")],
    }


def _two_more_lines(broker: Broker, prefix: str) -> None:
    with closing(KafkaLog({"bootstrap.servers": broker.bootstrap})) as log:
        producer = log.producer()
        for number in (8, 9):
            producer.send(Outgoing(f"{prefix}lines", 0, b"%d" % number))
        producer.flush(30_000)
        producer.close()


@pytest.mark.slow
def test_the_strip_is_what_the_log_has_after_every_process_was_killed(
    broker: Broker, prefix: str, tmp_path: Path, parts: Mapping[str, list[str]]
) -> None:
    page = Page(int(parts["page"][4]))
    with ExitStack() as stack:

        def start(*names: str) -> Iterator[Program]:
            for name in names:
                yield stack.enter_context(running(parts[name], tmp_path / name))

        programs = list(start(*parts))
        _, acker, _, driver = programs
        driver.until(lambda: "ready" in driver.said)
        _two_more_lines(broker, prefix)
        driver.until(lambda: page.shows(STRIP), told=page.told)
        before, row, why = page.bands(), page.row(), page.why()
        assert (row["blocking"], row["committed"], row["pending"], row["emitted"]) == (5, 5, 1, 8)
        assert why == "open for ..., times out in ..."
        assert row["unknown"] == {}
        assert before[1][1] != "-", "it is known when the replay is due"

        # the driver, which lives, gives signs of life that no State has
        acker.send(signal.SIGKILL)
        driver.until(lambda: page.shows(UNKNOWN_STRIP), told=page.told)
        broker.kill()
        try:
            for each in programs:
                each.send(signal.SIGKILL)
            assert {each.ended() for each in programs} == {-signal.SIGKILL}
        finally:
            broker.restart()

        [alone] = start("page")
        alone.until(lambda: page.shows(UNKNOWN_STRIP), told=page.told)
        assert page.bands() == [*before[:-1], (UNKNOWN_STRIP[-1], "-")], "the topics have it all"
        assert page.row()["blocking"] == 5

        *_, driver = start("acker", "replay", "driver")
        driver.until(lambda: driver.said.count("ready") == 2)
        # the figures may be those of before while the last State is still the one that is too old
        driver.until(lambda: page.shows(STRIP), told=page.told)
        driver.until(lambda: page.row() == row, told=page.row)
        assert (page.bands(), page.why()) == (before, why)

        (tmp_path / "acked").touch()
        driver.until(lambda: page.shows(ACKED_STRIP), told=page.told)
        assert (page.row()["blocking"], page.row()["pending"], page.row()["committed"]) == (None, 0, 8)

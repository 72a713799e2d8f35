"""The recipe of docs/operate/spark-cluster.md for a PEX, run on a Spark of two workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from tests.support.brokers import Broker
from tests.support.programs import ROOT
from tests.support.worlds.stream_worlds import serving
from tests.torture.stage.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.by_turns]

RECIPE = ROOT / "docs" / "operate" / "spark-cluster.md"
PACK_S = 300
RUN_S = 200
RECORDS = 4_000
"""Enough for four read tasks: fewer than a thousand records are not worth one."""

JOB = """
import os
import subprocess
from collections import Counter
import pyspark
from pyspark.sql import SparkSession
import spout


class Where(spout.BasicBolt):
    output = "file string"

    def execute(self, tuple, collector):
        import acker

        collector.emit((acker.__file__,))


def write(batch, batch_id):
    for file, count in Counter(row.file for row in batch.collect()).items():
        print("rows", count, file, flush=True)
    # the processes that Spark's JVM has started beside this one
    children = ["ps", "--no-headers", "-ww", "-o", "args", "--ppid", str(os.getppid())]
    for line in subprocess.run(children, capture_output=True, text=True, check=True).stdout.splitlines():
        if "python_streaming_source_runner" in line:
            print("planning", line, flush=True)


spark = SparkSession.builder.getOrCreate()
topics = spout.load("topics.yaml")
lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest", minPartitions=4)
rows = lines.transform(spout.bolt(Where()))
query = rows.writeStream.foreachBatch(spout.sink(write)).option("checkpointLocation", "checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
print("driver", spout.__file__, flush=True)
print("pyspark", pyspark.__file__, flush=True)
"""


def recipe(heading: str) -> list[str]:
    """Return the commands of a section of the guide, each on a line of its own."""
    section = RECIPE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^    (.*)$", section, re.MULTILINE)
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def run_line(line: str, folder: Path, environ: dict[str, str], seconds: int) -> str:
    command = ["bash", "-euo", "pipefail", "-c", line]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=seconds
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


@pytest.mark.timeout(PACK_S + RUN_S + 100)
def test_a_pex_runs_a_query_on_two_workers_that_have_nothing(
    broker: Broker, prefix: str, tmp_path: Path
) -> None:
    """Driver, planning process and executors run the Windhover of the PEX, and Spark's own PySpark."""
    make, submit = recipe("A PEX")
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PEX", "PYSPARK", "PYTHON", "VIRTUAL"))  # what other tests set too
    }
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    run_line(f"uv build --quiet --wheel --out-dir dist '{ROOT}'", tmp_path, environ, PACK_S)
    run_line(make, tmp_path, environ, PACK_S)

    config = tmp_path / "topics.yaml"
    config.write_text(
        f'kafka: {{bootstrap.servers: "{broker.bootstrap}"}}\n'
        f'acker: {{partitions: 2, topic_prefix: "{prefix}"}}\n'
        f'inputs: {{sentences: {{id: 1, topic: "{prefix}s", group: "{prefix}g", partitions: 4,'
        " timeout: 5m}}\n"
    )
    topics = load_topics(config, {})
    create_topics(topics)
    (tmp_path / "job.py").write_text(JOB)
    log = KafkaLog(topics.kafka)
    producer = log.producer()
    for number in range(RECORDS):
        producer.send(Outgoing(topics.input("sentences").topic, number % 4, b"line%d" % number))
    producer.flush(30_000)
    producer.close()
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        # no task runs before both executors are there
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{RUN_S}s",
    }
    own = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    # where each of the three machines unpacks it
    first, second, here = ({"PEX_ROOT": str(tmp_path / name)} for name in ("first", "second", "here"))
    with (
        SparkCluster(tmp_path / "cluster", 2, environ | first, second, home=home) as cluster,
        serving(config, "acker"),
    ):
        line = submit.replace("spark://master:7077", cluster.master)
        line = line.replace("spark-submit", f"{home}/bin/spark-submit {own}")
        there = environ | here | {"SPARK_HOME": str(home), "JAVA_HOME": cluster.java_home}
        said = run_line(line, tmp_path, there, RUN_S)
    rows = re.findall(r"^rows (\d+) (\S+)$", said, re.MULTILINE)
    assert sum(int(count) for count, _ in rows) == RECORDS, said
    assert {root_of(file, tmp_path) for _, file in rows} == {"first", "second"}, rows
    (driver,) = re.findall(r"^driver (\S+)$", said, re.MULTILINE)
    planning = set(re.findall(r"^planning (\S+) ", said, re.MULTILINE))
    assert {root_of(each, tmp_path) for each in (driver, *planning)} == {"here"}
    assert len(planning) == 1, said
    (spark,) = re.findall(r"^pyspark (\S+)$", said, re.MULTILINE)
    assert Path(spark).is_relative_to(home)
    places = [TopicPartition(topics.input("sentences").topic, part) for part in range(4)]
    assert log.committed(topics.input("sentences").group, places) == dict.fromkeys(places, RECORDS // 4)
    log.close()


def root_of(file: str, folder: Path) -> str:
    """Return the name of the `PEX_ROOT` in which a file lies."""
    return Path(file).relative_to(folder).parts[0]

"""Writes a whole installation of a former commit, its query and its Spark checkpoint, as <commit>.tar.xz.

    git archive COMMIT acker replay spout | tar -x -C CODE
    uv run python tests/data/former/write_checkpoint.py COMMIT CODE tests/data/former

Services and query run that commit's code, on a broker of today. The query is killed in a batch, and the
services with it. The archive has what outlives them, and what a roll-back needs:

    topics.yaml, job.py   of the user, who does not change them; KAFKA_BOOTSTRAP is where the broker listens
    checkpoint/           of Spark
    kafka/data/           of the broker, which was stopped in order
    code/                 acker, replay and spout of the commit, without their tools
"""

import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from spout.local.embedded import EmbeddedBroker
from spout.runtime.child import Child
from tests.support.programs import running

TOPICS = """
kafka: {bootstrap.servers: "${KAFKA_BOOTSTRAP}"}
acker: {partitions: 2, limits: {retention_interval: 1d}}
inputs: {sentences: {id: 1, group: g, partitions: 2, timeout: 10m}}
"""

JOB = '''
"""Writes what it reads to standard output, until all is read; with "hang" it stays in its first batch."""

import sys
import time

from pyspark.sql import SparkSession

import spout


class Decode(spout.BasicBolt):
    output = "value string"

    def execute(self, tuple, collector):
        collector.emit((tuple["value"].decode(),))


def write(batch, batch_id):
    print("wrote", batch_id, *sorted(row.value for row in batch.collect()), flush=True)
    if sys.argv[1] == "hang":
        time.sleep(600)


builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
print("code", spout.__file__, flush=True)
lines = spout.read_stream(spark, spout.load("topics.yaml"), "sentences", startingOffsets="earliest")
rows = lines.transform(spout.bolt(Decode()))
query = rows.writeStream.foreachBatch(spout.sink(write)).option("checkpointLocation", "checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
'''

SETTLED, OPEN = 20, 10
UNUSED = re.compile(
    r"code/spout/(bench|demo|kestrel|simulation|torture|cli\w*|embedded\w*|flux|up)(/.*|\.py)?|.*/__pycache__(/.*)?"
)


def produce(bootstrap, first, count):
    log = KafkaLog({"bootstrap.servers": bootstrap})
    producer = log.producer()
    for number in range(first, first + count):
        producer.send(Outgoing("sentences", number % 2, b"r%d" % number))
    producer.flush(30_000)
    producer.close()
    log.close()


def play(folder, code):
    """Leave an installation whose last batch was written and not published."""
    settings = {"log.retention.ms": "-1"}
    with EmbeddedBroker(folder / "kafka", settings=settings) as broker:
        ours = {"PYTHONPATH": str(code), "KAFKA_BOOTSTRAP": broker.bootstrap}
        environ = {**os.environ, **ours}
        config = folder / "topics.yaml"
        create = [sys.executable, "-m", "spout.cli", "topics", "create", str(config)]
        subprocess.run(create, env=environ, cwd=folder, check=True)
        with ExitStack() as stack:
            kinds = ("acker", "replay")
            children = [stack.enter_context(Child(kind, config, environ=environ)) for kind in kinds]
            for child in children:
                child.wait_ready()
            produce(broker.bootstrap, 0, SETTLED)
            with running([folder / "job.py", "run"], folder / "log", folder=folder, environ=ours) as job:
                assert job.ended() == 0, job.said
                assert f"code {code}/" in job.said, job.said
            produce(broker.bootstrap, SETTLED, OPEN)
            with running([folder / "job.py", "hang"], folder / "log2", folder=folder, environ=ours) as job:
                job.until(lambda: "wrote" in job.said)
                job.send(signal.SIGKILL)
            for child in children:
                child.kill()


def main(commit, code, target):
    code = Path(code).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "topics.yaml").write_text(TOPICS)
        (folder / "job.py").write_text(JOB)
        play(folder, code)
        with tarfile.open(Path(target) / f"{commit}.tar.xz", "w:xz", preset=9) as packed:
            for each in ("topics.yaml", "job.py", "checkpoint", "kafka/data"):
                packed.add(folder / each, each)
            for each in ("acker", "replay", "spout"):
                packed.add(code / each, f"code/{each}", filter=used)


def used(member):
    return None if UNUSED.fullmatch(member.name) else member


main(*sys.argv[1:])

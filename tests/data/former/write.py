"""Writes what an installation of a former commit has in Kafka and in a checkpoint, as <commit>.avro.

    git archive COMMIT | tar -x -C FOLDER
    cd FOLDER && PYTHONPATH=. python .../tests/data/former/write.py COMMIT .../tests/data/former

It runs with that commit's code, from its acker, replay worker and planning process on a Kafka in memory. All
of them are killed while a root is open, one waits for its replay, and one is a dead letter.
"""

import inspect
import json
import sys
from pathlib import Path

import fastavro
from tests.planning import BEGINNING, World, batch

TEXT = """
acker: {partitions: 2}
inputs:
  sentences:
    id: 1
    group: g
    partitions: 2
    timeout: 1h
    retry: {attempts: 2, initial: 1s, max: 1s, jitter: 0}
"""

SCHEMA = {
    "type": "record",
    "name": "FormerRecord",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "offset", "type": "long"},
        {"name": "timestamp_ms", "type": "long"},
        {"name": "is_marker", "type": "boolean"},
        {"name": "key", "type": ["null", "bytes"]},
        {"name": "value", "type": ["null", "bytes"]},
        {"name": "headers", "type": {"type": "map", "values": "bytes"}},
    ],
}


def played():
    """Return the world when everything is killed, the offset before its last batch, and the one behind it."""
    world = World(TEXT)
    world.start_replays()
    planner = world.ready()
    journals = [BEGINNING]

    world.produce(10)
    journals.append(batch(planner, journals[-1], world))
    world.publish(journals[-2], journals[-1], fail=(2,))
    world.run(2_000)  # its copy was due a second later
    journals.append(batch(planner, journals[-1], world))
    ((source, position, _),) = journals[-1].ranges
    fail_of(world, journals, source, position)
    world.run(2_000)  # the copy failed too: a dead letter
    world.produce(10)
    journals.append(batch(planner, journals[-1], world))
    world.publish(journals[-2], journals[-1], fail=(12,))
    world.run(500)  # 12 waits for its replay
    world.produce(5)
    journals.append(batch(planner, journals[-1], world))
    world.run(100)  # announced, and never published: the whole batch is open
    return world, journals


def fail_of(world, journals, source, position):
    if "of" in inspect.signature(world.publish).parameters:
        world.publish(journals[-2], journals[-1], fail=(position,), of=source)
    else:  # the first of the commits takes any source
        world.publish(journals[-2], journals[-1], fail=(position,))


def records(cluster):
    for name, topic in sorted(cluster._topics.items()):
        for partition in topic.partitions:
            assert partition.start == 0
            for record, state in zip(partition._records, partition._states, strict=True):
                assert state in (0, 2), "aborted records are not kept"
                yield {
                    "topic": name,
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp_ms": record.timestamp_ms,
                    "is_marker": state == 2,
                    "key": record.key,
                    "value": record.value,
                    "headers": dict(record.headers),
                }


def main(commit, folder):
    world, journals = played()
    committed = {
        group: [
            [place[0], place[1], found.offset, found.metadata] for place, found in sorted(offsets.items())
        ]
        for group, offsets in world.cluster._committed.items()
    }
    schemas = [
        fastavro.schema.to_parsing_canonical_form(json.loads(path.read_text()))
        for path in sorted(Path().glob("*/wire/*.avsc"))
    ]
    metadata = {
        "commit": commit,
        "now_ms": str(world.now_ms),
        "topics.yaml": TEXT,
        "journals": json.dumps([each.to_json() for each in journals]),
        "committed": json.dumps(committed),
        "schemas": json.dumps(schemas),
        "ids": json.dumps(
            {name: info.id for name, info in world.cluster.infos(world.cluster._topics).items()}
        ),
    }
    with (Path(folder) / f"{commit}.avro").open("wb") as out:
        fastavro.writer(out, SCHEMA, list(records(world.cluster)), codec="deflate", metadata=metadata)


main(*sys.argv[1:])

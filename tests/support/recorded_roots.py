"""What `windhover roots` printed of recorded installations: text, JSON, YAML and exit codes.

``python -m tests.support.recorded_roots`` writes ``tests/data/recorded_roots.json`` anew. Do that only
where the change is meant: a command that answers in another way has to say the same.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final
from unittest.mock import patch

from acker.config.topics import Topics, parse
from acker.errors import Unreachable
from acker.kafka.port import Log, MissingBroker, Outgoing, TopicPartition
from acker.service.state import StatePart, part_key, state_codec
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.inspect.readings import OLD_MS
from tests.support.memory.cluster import Faults, NoFaults
from tests.support.recorded import Printed, write_recorded
from tests.support.worlds.planning import World, batch
from tests.support.worlds.roots_world import YAML, world_of_roots

PATH: Final = Path(__file__).parents[1] / "data" / "recorded_roots.json"

FEW_COMMANDS: Final = ("roots", "roots -o json", "roots --exit-code", "roots --older-than 1h --exit-code")

COMMANDS: Final = (
    *FEW_COMMANDS,
    "roots -o yaml",
    "roots --older-than 1800ms",
    "roots --older-than 1801ms",
    "roots --older-than 10s --exit-code",
    "roots --group g",
    "roots --group h -o json",
    "roots --group u",
    "roots --group nobody",
    "roots --limit 1",
    "roots --limit 4 -o json",
    "roots --limit 8",
    "roots --group g --older-than 1s --limit 2",
)


class UnknownMembers(NoFaults):
    """A broker that does not say who is in a group."""

    def before(self, operation: str) -> None:
        if operation == "members":
            raise Unreachable("members: the coordinator does not answer")


class _View:
    """How a command sees an installation: by which topics.yaml, and by what a client lacks."""

    def __init__(self) -> None:
        self.world, self.end = world_of_roots()
        self.topics: Topics = self.world.topics
        self.faults: Faults | None = None


def _as_it_is(view: _View) -> None:
    """Change nothing."""


def _without_state(view: _View) -> None:
    """Show an installation to which no acker has ever written."""
    view.world = World(YAML)


def _with_old_states(view: _View) -> None:
    """Let records be emitted that no acker reads, until its States are old."""
    world = view.world
    world.kill_acker()
    world.produce(3, topic="lines")
    (planner,) = world.planners
    batch(planner, view.end, world)
    world.run(OLD_MS)


def _with_a_slow_clock(view: _View) -> None:
    """Let whoever looks have a clock that is behind those that emit."""
    view.world.cluster.now_ms -= 5_000


def _with_garbage(view: _View) -> None:
    """Write records that nobody can read behind those that are settled."""
    producer = view.world.log.producer()
    for topic in ("_ack_verdict", "_ack_init"):
        for partition in range(3):
            producer.send(Outgoing(topic, partition, b"garbage"))
    producer.flush(0)


def _with_a_broken_state(view: _View) -> None:
    """Let one State be one that no acker can load."""
    producer = view.world.log.producer()
    broken = state_codec().encode(StatePart(0, 0, 1, b"no State"))
    producer.send(Outgoing("_ack_state", 0, broken, part_key(0, 0)))
    producer.flush(0)


def _with_cleaned_verdicts(view: _View) -> None:
    """Let the verdicts be deleted that the States do not have yet."""
    log = view.world.log
    log.delete_before(log.ends([TopicPartition("_ack_verdict", number) for number in range(3)]))


def _with_other_partitions(view: _View) -> None:
    """Look with the topics.yaml of another installation."""
    text = YAML.replace("partitions: 3", "partitions: 2")
    view.topics = parse(text, file="topics.yaml", environ={})


def _without_an_input(view: _View) -> None:
    """Look with a topics.yaml that lacks an input with open roots."""
    text = "\n".join(line for line in YAML.splitlines() if "orders" not in line)
    view.topics = parse(text, file="topics.yaml", environ={})


def _with_unknown_members(view: _View) -> None:
    view.faults = UnknownMembers()


def _without_an_acker(view: _View) -> None:
    view.world.kill_acker()
    view.world.cluster.now_ms += OLD_MS


def _with_a_missing_broker(view: _View) -> None:
    view.world.kill_acker()
    view.world.cluster.missing = [MissingBroker(3, replicas=21)]


def _without(topic: str) -> Callable[[_View], None]:
    """Return what deletes a topic."""
    return lambda view: view.world.cluster.delete_topic(topic)


def _without_leader(topic: str) -> Callable[[_View], None]:
    """Return what leaves partition 1 of a topic without a leader."""
    return lambda view: view.world.cluster.lose_leader(topic, 1)


SITUATIONS: Final[Mapping[str, tuple[Callable[[_View], None], tuple[str, ...]]]] = {
    "whole": (_as_it_is, COMMANDS),
    "without State": (_without_state, FEW_COMMANDS),
    "old States": (_with_old_states, FEW_COMMANDS),
    "a slow clock": (_with_a_slow_clock, FEW_COMMANDS),
    "garbage": (_with_garbage, FEW_COMMANDS),
    "a broken State": (_with_a_broken_state, FEW_COMMANDS),
    "cleaned verdicts": (_with_cleaned_verdicts, FEW_COMMANDS),
    "other partitions": (_with_other_partitions, FEW_COMMANDS),
    "without an input": (_without_an_input, FEW_COMMANDS),
    "unknown members": (_with_unknown_members, FEW_COMMANDS),
    "without an acker": (_without_an_acker, FEW_COMMANDS),
    "a missing broker": (_with_a_missing_broker, FEW_COMMANDS),
    **{
        f"without {topic}": (_without(topic), FEW_COMMANDS)
        for topic in ("_ack_state", "_ack_verdict", "_ack_init", "lines", "lines.g.replay")
    },
    **{
        f"without a leader of {topic}": (_without_leader(topic), FEW_COMMANDS)
        for topic in ("_ack_state", "_ack_verdict", "_ack_init")
    },
}
"""What befalls the installation, and the commands that are called then."""


def printed_in(situation: str) -> dict[str, Printed]:
    """Run all commands of a situation, by their words."""
    befall, commands = SITUATIONS[situation]
    view = _View()
    befall(view)
    return {words: _printed_by(view, words) for words in commands}


def _printed_by(view: _View, words: str) -> Printed:
    @contextmanager
    def opened(_config: Path, _command: str) -> Iterator[tuple[Topics, Log]]:
        yield view.topics, view.world.cluster.log(view.faults)

    out, err = StringIO(), StringIO()
    with (
        patch.object(cli_inspect, "opened", opened),
        patch.object(cli_inspect, "wall_ms", lambda: view.world.now_ms),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        exit_code = cli.run(shlex.split(words))
    return Printed(exit_code, out.getvalue().splitlines(), err.getvalue().splitlines())


if __name__ == "__main__":
    write_recorded(PATH, {situation: printed_in(situation) for situation in SITUATIONS})

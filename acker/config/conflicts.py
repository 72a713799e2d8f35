"""What is wrong between inputs, each of which is right alone: one of two names too many.

A topic has one role, with one exception: the dead letters of an input may be read by another one, as long
as nothing goes round in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping

from acker.config.problems import Problem, show
from acker.config.settings import AckerSettings, Input

Inputs = Mapping[str, Input]


def conflicts(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Yield each problem at the key of the later of the two sections."""
    yield from _ids(inputs)
    yield from _groups(acker, inputs)
    yield from _readers(inputs)
    yield from _roles(acker, inputs)
    yield from _circles(inputs)
    yield from _collisions(acker, inputs)


def _repeated(inputs: Inputs, of: Callable[[Input], Hashable]) -> Iterator[tuple[Input, Input]]:
    """Yield (first, later) for each input that says the same as an earlier one."""
    first: dict[Hashable, Input] = {}
    for found in inputs.values():
        other = first.setdefault(of(found), found)
        if other is not found:
            yield other, found


def _at(found: Input, key: str, value: object, text: str) -> Problem:
    return Problem(("inputs", found.name, *key.split(".")), text, show(value))


def _topics_of(found: Input) -> list[tuple[str, str]]:
    names = (found.topic, found.replay_topic, found.dead_letter.topic)
    return list(zip(("topic", "replay_topic", "dead_letter.topic"), names, strict=True))


def _ids(inputs: Inputs) -> Iterator[Problem]:
    for first, later in _repeated(inputs, lambda found: found.id):
        unused = max(found.id for found in inputs.values()) + 1
        cure = f"give an id that was never used, such as {unused}"
        yield _at(later, "id", later.id, f"is the id of {first.name} already; {cure}")


def _groups(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    if acker.group == acker.replay_group:
        text = "is the group of the ackers already; give the replay workers their own"
        yield Problem(("acker", "replay_group"), text, show(acker.replay_group))
    for found in inputs.values():
        if found.group in (acker.group, acker.replay_group):
            yield _at(found, "group", found.group, "is a group of Windhover's own; give another")


def _readers(inputs: Inputs) -> Iterator[Problem]:
    for first, later in _repeated(inputs, lambda found: (found.group, found.topic)):
        text = (
            f"is read by group {later.group} as input {first.name} already; remove one, or give another group"
        )
        yield _at(later, "topic", later.topic, text)
    partitioned = {name: found for name, found in inputs.items() if found.partitions is not None}
    for first, later in _repeated(partitioned, lambda found: found.topic):
        if first.partitions != later.partitions:
            text = f"differs from inputs.{first.name}.partitions of the same topic; give {first.partitions}"
            yield _at(later, "partitions", later.partitions, text)


def _roles(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    own = acker.topics.names()
    sources = {found.topic: found for found in inputs.values()}
    replays = {found.replay_topic: found for found in inputs.values()}
    for found in inputs.values():
        for key, topic in _topics_of(found):
            if topic in own:
                text = "is an ack topic; give another topic, or another acker.topic_prefix"
                yield _at(found, key, topic, text)
        if found.replay_topic in sources:
            text = (
                f"is the topic that {sources[found.replay_topic].name} reads; give one that only holds copies"
            )
            yield _at(found, "replay_topic", found.replay_topic, text)
        if found.dead_letter.topic in replays:
            text = f"is the replay topic of {replays[found.dead_letter.topic].name}; give another topic"
            yield _at(found, "dead_letter.topic", found.dead_letter.topic, text)
    for first, later in _repeated(inputs, lambda found: found.replay_topic):
        text = f"is the replay topic of {first.name} already; give each input its own"
        yield _at(later, "replay_topic", later.replay_topic, text)
    for first, later in _repeated(inputs, lambda found: found.dead_letter.topic):
        text = f"is the dead-letter topic of {first.name} already; give each input its own"
        yield _at(later, "dead_letter.topic", later.dead_letter.topic, text)


def _circles(inputs: Inputs) -> Iterator[Problem]:
    """Find dead letters that come back to the input they left, directly or through others."""
    for found in inputs.values():
        reached = {found.dead_letter.topic}
        grown = True
        while grown:
            more = {other.dead_letter.topic for other in inputs.values() if other.topic in reached}
            grown = not more <= reached
            reached |= more
        if found.topic in reached:
            text = "leads its dead letters back to the topic they come from; give a topic that no input reads"
            yield _at(found, "dead_letter.topic", found.dead_letter.topic, text)


def _collisions(acker: AckerSettings, inputs: Inputs) -> Iterator[Problem]:
    """Find names that Kafka takes for one in its metrics: it creates only the first of them."""
    seen = {name.replace(".", "_"): name for name in acker.topics.names()}
    for found in inputs.values():
        for key, topic in _topics_of(found):
            other = seen.setdefault(topic.replace(".", "_"), topic)
            if other != topic:
                text = f"differs from {other} only in dots and underscores, which Kafka refuses; rename one"
                yield _at(found, key, topic, text)

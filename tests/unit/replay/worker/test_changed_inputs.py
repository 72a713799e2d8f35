"""Roots wait, and the worker's topics.yaml has their input otherwise than when they were lost."""

from __future__ import annotations

import pytest

from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.identity import source_of
from tests.support.worlds.replay_world import PARTITIONS, Emission, World, header

YAML = """
acker: {partitions: 2}
inputs:
%s
  other: {id: 7, group: h, topic: words, retry: {initial: 1s}}
"""
AS_BEFORE = "  sentences: {id: 1, group: g, retry: {initial: 1s}}"
CHANGES = {
    "its group": ("  sentences: {id: 1, group: new, retry: {initial: 1s}}", "sentences"),
    "its id": ("  sentences: {id: 3, group: g, retry: {initial: 1s}}", "id 1"),
    "its topic": ("  sentences: {id: 1, group: g, topic: fresh, retry: {initial: 1s}}", None),
    "it was removed": ("", "id 1"),
    "it has no ackers": ("  sentences: {id: 1, group: g, ackers: 0}", None),
    "the name of its copies": (
        "  sentences: {id: 1, group: g, replay_topic: copies, retry: {initial: 1s}}",
        None,
    ),
}
"""What was changed, and the name by which its roots are put aside; None: they are not."""

TOPICS = (
    *("sentences.new.replay", "sentences.new.dlq", "words", "words.h.replay", "words.h.dlq"),
    *("fresh", "fresh.g.replay", "fresh.g.dlq", "copies"),
)


def topics_with(of_sentences: str) -> Topics:
    return topics_yaml.parse(YAML % of_sentences, file="topics.yaml", environ={})


@pytest.fixture
def world() -> World:
    world = World()
    for topic in TOPICS:
        world.cluster.create_topic(topic, PARTITIONS)
    return world


def lose_of_other(world: World) -> None:
    root = world.emit(b"other", topic="words")
    world.lose(Emission(source_of(7, 0), *root[1:]), group="h")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_taken_over", [True, False])
def test_other_inputs_go_on_and_its_own_roots_too_once_it_is_as_it_was(
    world: World, change: str, *, is_taken_over: bool
) -> None:
    """O1811: whether what becomes of them was decided before the change or not."""
    of_sentences, aside = CHANGES[change]
    before = world.worker(of=topics_with(AS_BEFORE))
    if is_taken_over:
        world.lose(world.emit(b"own"))
        world.settle(before)
    before.close()
    if not is_taken_over:
        world.lose(world.emit(b"own"))

    changed = world.worker(of=topics_with(of_sentences))
    lose_of_other(world)
    world.settle(changed, until_ms=world.now_ms + 60_000)

    assert [copy.value for copy in world.records("words.h.replay")] == [b"other"]
    if aside is None:
        return
    assert changed.status().aside_by_input == {aside: 1}
    assert any(event.name == "put_aside" and event.fields["input"] == aside for event in world.events)
    world.kill(changed)
    world.settle(world.worker(of=topics_with(AS_BEFORE)), until_ms=world.now_ms + 120_000)
    assert [header(copy, "windhover.origin") for copy in world.copies()] == ["sentences/0@0"]


def test_roots_of_the_former_group_hold_up_none_of_the_new_one(world: World) -> None:
    """O1812: the whole input was left alone for up to a minute, again and again, for their sake."""
    before = world.worker(of=topics_with(AS_BEFORE))
    world.lose(world.emit(b"former"))
    world.settle(before)
    before.close()
    changed = world.worker(of=topics_with(CHANGES["its group"][0]))
    begun_ms = world.now_ms
    for number in range(5):
        world.settle(changed, until_ms=begun_ms + 10_000 * (number + 1))
        world.lose(world.emit(b"new%d" % number), group="new")
        world.settle(changed, until_ms=world.now_ms + 1_500)
        assert len(world.records("sentences.new.replay")) == number + 1

    assert changed.status().aside_by_input == {"sentences": 1}
    put_aside = [event for event in world.events if event.name == "put_aside"]
    why = str(put_aside[-1].fields["why"])
    assert why.startswith(
        "roots of input id 1 were emitted by group g, and topics.yaml has it as sentences of group new"
    )
    world.kill(changed)
    world.settle(world.worker(of=topics_with(AS_BEFORE)), until_ms=world.now_ms + 120_000)
    assert [copy.value for copy in world.copies()] == [b"former"]

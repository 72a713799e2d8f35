"""Why a record is not done: each situation is brought about, recognised, and given its next command."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from acker.errors import NOT_UNPACKED, TOO_LARGE, Unreachable, UnreadableKind
from acker.identity import Root, position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.causes import DAMAGED, HELD
from acker.wire.events import SourceRun
from acker.wire.verdict import Verdict
from replay.policy.damage import held_up_cure
from replay.records.due import Due, Loss
from replay.records.headers import Lineage
from spout.group.presence import SILENT_MS_MAX
from spout.inspect.diagnosis import LEFT_OPEN, Circumstances, diagnose, explained
from spout.inspect.readings import Reading
from spout.inspect.story import Evidence, TracedEmission
from spout.inspect.trail import EvidenceReader
from spout.planning.journal import BEGINNING
from spout.ui.serve import LOOPBACK
from spout.ui.watch import Watch
from tests.support.memory.partition import DAMAGE_TEXT
from tests.support.page_server import pages_of
from tests.support.worlds.order_world import OrderWorld
from tests.support.worlds.planning import COPIES, World, batch, emit_ten, yaml_of

YAML = yaml_of(
    timeout="4s",
    max_spout_pending="5",
    retry="{attempts: 2, initial: 1s, jitter: 0}",
    dead_letter="{max_ratio: 1}",
)
A = source_of(1, 0)
RETRY_MS = 60_000
"""After so long the replay workers try a damaged batch again."""

WATCH = "windhover inspect sentences/0@3 --watch 2"


@pytest.fixture
def world() -> World:
    return World(YAML)


def why(world: World, place: str = "sentences/0@3", **bounds: int) -> tuple[str, str, str]:
    """Return situation, sentences and next command."""
    story = story_of(world, place, **bounds)
    assert story["unknown"] == {}
    return story["situation"], story["why"], story["next"]


def story_of(world: World, place: str = "sentences/0@3", **bounds: int) -> dict[str, Any]:
    trail = EvidenceReader(world.cluster.log(), world.topics, **bounds)
    (here,) = trail.records_at(place)
    evidence = trail.read_evidence(here)
    story = explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)
    if not bounds:
        check_page(world, place, story)
    return story


def check_page(world: World, place: str, story: dict[str, Any]) -> None:
    """The page shows the same situation, the same reason and the same command."""
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, _ = pages_of(world, watch)
    client = TestClient(pages.application(LOOPBACK), base_url="http://localhost")
    assert client.get(f"/record/{place}", headers={"accept": "application/json"}).json() == [story]
    page = html.unescape(re.sub("</?code>", "`", client.get(f"/record/{place}").text))
    situation = story["situation"].replace("_", " ").lower()
    assert f'<strong class="situation">{situation}</strong> {story["why"]}' in page
    assert (f"Next: `{story['next']}`" in page) == bool(story["next"])


def why_unknown(world: World, place: str = "sentences/0@0") -> tuple[str, str, str]:
    """Return the same of a record while what is around it may be unknown."""
    story = story_of(world, place)
    return story["situation"], story["why"], story["next"]


def test_a_record_that_nobody_wrote_or_emitted_yet(world: World) -> None:
    story = story_of(world)
    assert (story["situation"], story["next"]) == ("NOT_WRITTEN", WATCH)
    assert story["unknown"]["pending"].startswith("acker partition 0 has no State yet")
    world.produce(1)
    world.run(100)
    assert why_unknown(world)[0::2] == ("UNKNOWN", "windhover status"), "an acker lives, and no query"
    world.kill_acker()
    assert why_unknown(world)[0::2] == ("UNKNOWN", "windhover acker run")
    world.start_acker()
    world.produce(10)
    planner = world.ready()
    assert why(world) == (
        "NOT_EMITTED",
        "It is in the log, not emitted yet: the query has not come so far.",
        WATCH,
    )
    world.kill(planner)
    world.run(SILENT_MS_MAX + 500)
    assert why(world) == (
        "NOT_EMITTED",
        "It is not emitted yet, and no query of group g lives: start it.",
        "windhover status",
    )


def test_a_gate_that_is_closed_names_the_limit_and_shows_what_is_pending(world: World) -> None:
    emit_ten(world, skip=(0, 1, 2, 3, 4))
    situation, text, then = why(world, "sentences/0@7")
    assert (situation, then) == ("GATE_CLOSED", "windhover roots --group g")
    assert "5 roots of sentences are pending, and `max_spout_pending` is 5" in text


def test_a_record_in_a_running_micro_batch(world: World) -> None:
    world.produce(10)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    assert why(world)[0] == "IN_BATCH", "just announced"
    world.run(1_500)
    situation, text, then = why(world)
    assert (situation, then) == ("IN_BATCH", WATCH)
    assert text.startswith("Emitted 1.5 s ago: its micro-batch is running")
    assert "It times out in 2." in text
    assert LEFT_OPEN in text, "it may also be a bolt that forgot it"


@pytest.mark.parametrize("state_ms", [0, 1_500], ids=["announced", "in its State"])
def test_an_open_record_that_no_acker_can_settle_says_to_start_one(world: World, state_ms: int) -> None:
    world.produce(10)
    planner = world.ready()
    world.run(100)
    batch(planner, BEGINNING, world)
    world.run(state_ms)
    world.kill_acker()
    situation, text, command = why(world)
    assert (situation, command) == ("IN_BATCH", "windhover acker run")
    assert "no acker lives: nothing gets a verdict." in text.lower()


@pytest.mark.parametrize("state_ms", [0, 1_500], ids=["announced", "in its State"])
@pytest.mark.parametrize(
    ("away", "says", "then"),
    [(True, "no acker lives.", "windhover acker run"), (False, "the acker is behind.", WATCH)],
)
def test_a_record_whose_acks_the_acker_has_not_read(state_ms: int, away: bool, says: str, then: str) -> None:
    world = World(YAML)
    world.produce(10)
    planner = world.ready()
    world.run(100)
    end = batch(planner, BEGINNING, world)
    if state_ms:
        world.run(state_ms)
    if away:
        world.kill_acker()
    world.publish(BEGINNING, end)
    situation, text, command = why(world)
    assert (situation, command) == ("ACKED_LATE", then)
    assert text.endswith(says)
    now = story_of(world)["now"]
    assert "all of it is acked in the log, and its acker has not read that yet" in now
    assert "planned" not in now


def test_a_record_that_sparks_state_holds_waits_for_its_window(world: World) -> None:
    """O1405: it is open for longer than the timeout, and nobody has to do anything."""
    world.produce(4)
    end = batch(world.ready(), BEGINNING, world)
    world.publish_held(BEGINNING, end, held=(3,))
    world.run(9_000)
    situation, text, command = why(world)
    assert (situation, command) == ("IN_STATE", WATCH)
    assert re.match(r"Emitted 9\.\d s ago, and in Spark's state since: it waits for its window", text)
    assert text.endswith("so it closes no window. It times out in 3.0 d.")
    world.kill_acker()
    assert why(world)[::2] == ("IN_BATCH", "windhover acker run")


def test_a_failed_record_names_bolt_cause_and_when_it_is_due(world: World) -> None:
    emit_ten(world, fail=(3,))
    failed = "Bolt split failed it by ValueError: boom."
    assert why(world) == (
        "DUE",
        f"{failed} No replay worker lives that takes it over.",
        "windhover replay run",
    )
    world.start_replays()
    world.run(300)
    situation, text, then = why(world)
    assert (situation, then) == ("DUE", WATCH)
    assert text.startswith(f"{failed} It is replayed as attempt 2 in ")


def test_a_record_that_timed_out_says_after_how_long_and_what_was_acked_of_it(world: World) -> None:
    emit_ten(world, skip=(3,))
    world.run(4_000)
    situation, text, then = why(world)
    assert (situation, then) == ("TIMED_OUT", "windhover replay run")
    assert text.startswith("It timed out after 4.")
    assert "nothing of it was acked, so its micro-batch took longer, or a bolt neither acked nor" in text
    assert LEFT_OPEN in text


def test_an_open_record_whose_session_is_dead(world: World) -> None:
    planner, _ = emit_ten(world, skip=(3,))
    world.kill(planner)
    world.run(SILENT_MS_MAX + 500)
    situation, text, then = why(world)
    assert (situation, then) == ("SESSION_DEAD", "windhover release g")
    assert "by a process that is gone, so nobody acks it, and the clock of its timeout is stopped" in text
    now = story_of(world)["now"]
    assert "the clock of its timeout is stopped" in now
    assert "times out in" not in now


def test_a_record_that_is_blocked_points_to_the_one_that_it_waits_for() -> None:
    world = OrderWorld("key")
    world.produce(3, keys=(b"a",))
    failures = ["ValueError"]
    world.bolt = lambda _record, _partition, origin: failures.pop() if origin == 0 and failures else ""
    world.plan()
    world.execute()
    found = set()
    for _ in range(10):
        world.run(100)
        found.add(why(world, "sentences/0@2")[::2])
    assert ("BLOCKED", "windhover inspect sentences/0@0") in found


def test_a_record_that_is_blocked_is_so_while_its_next_copy_is_written_too() -> None:
    world = OrderWorld("key")
    world.produce(3, keys=(b"a",))
    world.bolt = lambda _record, _partition, origin: "" if origin else "ValueError"
    world.plan()
    world.execute()
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at("sentences/0@2")
    for _ in range(10):
        world.run(100)
        if (evidence := trail.read_evidence(here)).dues:
            break
    assert evidence.dues
    # its copies were read before the newest one was written, and what waits after that
    between = replace(evidence, dues={})
    story = explained(between, trail.circumstances(here, between, world.now_ms), world.now_ms)
    assert (story["situation"], story["next"]) == ("BLOCKED", "windhover inspect sentences/0@0")
    assert story["now"] == "blocked: it waits for sentences/0@0; its newest copy came after this was read"


def test_a_record_that_retention_took_before_it_was_done(world: World) -> None:
    world.produce(10)
    world.ready()
    world.log.delete_before({TopicPartition("sentences", 0): 5})
    assert why(world)[::2] == ("LOST_FROM_LOG", "windhover topics check")


def test_a_lost_record_that_retention_took_before_its_replay(world: World) -> None:
    emit_ten(world, fail=(3,))
    world.log.delete_before({TopicPartition("sentences", 0): 5})
    world.start_replays()
    world.run(2_500)
    situation, text, then = why(world)
    assert (situation, then) == ("LOST_FROM_LOG", "windhover topics check")
    assert "the dead letter sentences.g.dlq/0@0" in text.lower()


def damage_three(world: World, until: int = 4, why: str = DAMAGE_TEXT) -> None:
    """Let nobody read the records from sentences/0@2 on."""
    world.cluster.partition(TopicPartition("sentences", 0)).damage(2, until, why)


DAMAGED_THERE = "there, and nobody can read it: it lies in a batch that is damaged on its broker's disk"
OTHER_KINDS = pytest.mark.parametrize(
    ("kind", "why_not"),
    [
        (UnreadableKind.OVERSIZED, f"{TOO_LARGE}a record of 200,000,000 bytes"),
        (UnreadableKind.NOT_UNPACKED, f"{NOT_UNPACKED}, or to more"),
    ],
)


def test_a_record_in_a_damaged_batch_that_nobody_emitted_yet(world: World) -> None:
    """O371: the way past it is named before a query meets it."""
    world.produce(10)
    damage_three(world)
    world.ready()
    situation, text, then = why(world)
    assert (situation, then) == ("HELD_UP", "windhover offsets reset sentences --help")
    assert "damaged" in text
    assert story_of(world)["in_the_log"] == DAMAGED_THERE
    assert why(world, "sentences/0@5")[0] == "NOT_EMITTED"


@OTHER_KINDS
def test_a_record_that_nobody_can_read_for_another_reason_is_not_called_damaged(
    world: World, kind: UnreadableKind, why_not: str
) -> None:
    """O1918: not before it is emitted, nor where it lies, nor while the replay workers hold it up."""
    damage_three(world, why=why_not)
    emit_ten(world, fail=(2, 3), error=kind.value)
    world.start_replays()
    world.run(2_500)
    situation, text, _ = why(world)
    story = story_of(world)
    assert situation == "HELD_UP"
    assert text.startswith(f"It {kind.phrase}.")
    assert held_up_cure(kind) in text
    assert story["in_the_log"] == f"there, and nobody can read it: it {kind.phrase}"
    assert "damaged" not in f"{text} {story}"


def test_a_record_that_only_a_query_finds_too_large_is_not_held_up(world: World) -> None:
    """O1918: the replay workers read it, and go on with it."""
    emit_ten(world, fail=(2, 3), error=UnreadableKind.OVERSIZED.value)
    situation, text, then = why(world)
    assert (situation, then) == ("DUE", "windhover replay run")
    assert text.startswith("It is larger than any reader can handle, so no bolt has seen it.")
    assert "damaged" not in text


def test_a_lost_record_that_the_replay_workers_hold_up_says_so_and_how_it_goes_on(world: World) -> None:
    """O372: alone; with the cure that the workers' log has."""
    damage_three(world)
    planner, end = emit_ten(world, fail=(2, 3), error=DAMAGED)
    situation, text, then = why(world)
    assert (situation, then) == ("HELD_UP", "windhover replay run")
    assert text.startswith("It lies in a batch that is damaged on its broker's disk, so no bolt has seen it.")
    world.start_replays()
    world.run(2_500)
    situation, text, then = why(world)
    assert (situation, then) == ("HELD_UP", WATCH)
    assert "hold it up, alone" in text
    assert held_up_cure(UnreadableKind.DAMAGED) in text
    story = story_of(world)
    assert story["now"] == "held up: it lies in a batch that is damaged on its broker's disk"
    world.cluster.partition(TopicPartition("sentences", 0)).mend()
    assert why(world)[0] == "HELD_UP", "the workers have not tried again yet"
    world.run(RETRY_MS)
    assert why(world)[0] == "NOT_EMITTED", "its copy is on the replay topic"
    world.publish(end, batch(planner, end, world))
    world.run(1_500)
    assert why(world)[0] == "DONE"


def test_a_record_that_was_left_out_with_its_damaged_batch_is_not_done() -> None:
    """O373: with skip it is absent for the acker, or a dead letter, and nobody has processed it."""
    world = World(yaml_of(timeout="4s", on_data_loss="skip", dead_letter="{max_ratio: 1}"))
    damage_three(world)
    world.start_replays()
    world.produce(10)
    planner = world.ready()
    world.run(100)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, absent=[SourceRun(A, 3, 4)], fail=(2,), error=DAMAGED)
    world.run(2_500)
    situation, text, then = why(world)
    assert (situation, then) == ("LOST_FROM_LOG", "")
    assert "nobody has processed it: input sentences has `on_data_loss: skip`" in text
    assert why(world, "sentences/0@2") == (
        "LOST_FROM_LOG",
        "It lies in a batch that is damaged on its broker's disk, and input sentences has"
        " `on_data_loss: skip`. The dead letter sentences.g.dlq/0@0 has its history, and no payload.",
        "windhover dlq show sentences.g.dlq/0@0",
    )
    assert why(world, "sentences/0@5")[0] == "DONE"
    world.cluster.partition(TopicPartition("sentences", 0)).mend()
    situation, text, then = why(world)
    assert (situation, then) == ("LEFT_OUT", "windhover offsets reset sentences --help")
    assert "could not be read when its batch was emitted" in text


def test_a_record_whose_verdict_was_not_read_is_too_old_to_know(world: World) -> None:
    planner, end = emit_ten(world)
    following = batch(planner, end, world)
    world.publish(end, following)
    world.run(1_500)
    story = story_of(world, records_max=1)
    assert (story["situation"], story["next"]) == ("TOO_OLD", "windhover dlq list sentences/0@3 --all")


def test_a_record_whose_verdict_has_left_the_log_is_too_old_to_know(world: World) -> None:
    emit_ten(world, fail=(3,))
    world.start_replays()
    world.run(300)
    places = [TopicPartition("_ack_verdict", number) for number in range(3)]
    world.log.delete_before(world.log.ends(places))
    story = story_of(world, "sentences/0@0")
    assert (story["situation"], story["next"]) == ("TOO_OLD", "windhover dlq list sentences/0@0 --all")


def test_a_record_that_is_done_needs_no_command(world: World) -> None:
    emit_ten(world)
    assert why(world) == ("DONE", "It is fully processed.", "")


def test_a_dead_letter_says_why_it_died_and_how_it_is_replayed(world: World) -> None:
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    following = batch(planner, end, world)
    world.publish(end, following, fail=(0,), of=COPIES)
    world.run(1_500)
    situation, text, then = why(world)
    assert (situation, then) == ("DEAD", "windhover dlq replay sentences.g.dlq/0@0")
    assert text == (
        "It is a dead letter (ATTEMPTS) after 2 attempts. Bolt split failed it by ValueError: boom. Repair"
        " what failed it first, then replay it."
    )


def test_what_a_rewind_emits_again_is_no_dead_letter_before_it_dies_again(world: World) -> None:
    """The letter of the generation before it has the same place; who replayed it would have two copies."""
    world = World(yaml_of(timeout="4s", retry="{attempts: 1}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    planner, _ = emit_ten(world, fail=(3,))
    assert why(world)[0] == "DEAD"
    world.kill(planner)
    world.rewind(2)
    fresh = world.ready()
    assert why(world)[0] == "NOT_EMITTED"
    end = batch(fresh, BEGINNING, world)
    assert why(world)[0] == "IN_BATCH"
    world.run(1_500)
    assert why(world)[0] == "IN_BATCH"
    world.stop_replays()
    world.publish(BEGINNING, end, fail=(position_at(1, 3),))
    world.run(500)
    assert why(world)[::2] == ("DUE", "windhover replay run")


def test_what_a_rewind_emitted_again_and_no_verdict_tells_of_is_too_old_to_know(world: World) -> None:
    world = World(yaml_of(timeout="4s", retry="{attempts: 1}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    planner, _ = emit_ten(world, fail=(3,))
    world.kill(planner)
    world.rewind(2)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_500)
    assert why(world)[0] == "DONE"
    places = [TopicPartition("_ack_verdict", number) for number in range(3)]
    world.log.delete_before(world.log.ends(places))
    assert why(world)[::2] == ("TOO_OLD", "windhover dlq list sentences/0@3 --all")


@pytest.mark.parametrize("fail", [(), (0,)])
def test_a_copy_of_an_earlier_generation_says_nothing_of_what_a_rewind_emits_again(
    fail: tuple[int, ...],
) -> None:
    """Such a copy was acked, or died; the record is not done, and who replays its letter has two copies."""
    world = World(
        yaml_of(timeout="4s", retry="{attempts: 2, initial: 1s, jitter: 0}", dead_letter="{max_ratio: 1}")
    )
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    world.publish(end, batch(planner, end, world), fail=fail, of=COPIES)
    world.run(1_500)
    before = [("sentences/0@3", "FAILED"), ("sentences.g.replay/0@0", "FAILED" if fail else "ACKED")]
    assert why(world)[0] == ("DEAD" if fail else "DONE")
    world.kill(planner)
    world.rewind(2)
    fresh = world.ready()

    def story() -> tuple[str, list[tuple[str, str]]]:
        found = story_of(world)
        return found["situation"], [(row["root"], row["state"]) for row in found["attempts"]]

    present = "sentences/0@3 (generation 1)"
    assert story() == ("NOT_EMITTED", [*before, (present, "not emitted")])
    end = batch(fresh, BEGINNING, world)
    world.run(1_500)
    assert story() == ("IN_BATCH", [*before, (present, "pending")])
    world.publish(BEGINNING, end, fail=(position_at(1, 3),))
    world.run(300)
    assert story() == ("DUE", [*before, (present, "FAILED")])
    world.run(2_500)
    (copy,) = {root for root, _ in story()[1]} - {root for root, _ in [*before, (present, "")]}
    assert story() == ("NOT_EMITTED", [*before, (present, "FAILED"), (copy, "not emitted")])


def test_a_copy_on_a_replay_topic_that_was_made_again_has_the_state_of_its_own_root() -> None:
    """The one that had the same offset on the former topic was acked."""
    world = World(yaml_of(timeout="4s", retry="{initial: 1s, jitter: 0}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    world.publish(end, batch(planner, end, world), of=COPIES)
    world.run(1_500)
    world.kill(planner)
    world.stop_replays()
    world.cluster.delete_topic("sentences.g.replay")
    world.cluster.create_topic("sentences.g.replay", 2)
    world.rewind(2)
    fresh = world.ready()
    world.start_replays()
    end = batch(fresh, BEGINNING, world)
    world.publish(BEGINNING, end, fail=(position_at(1, 3),))
    world.run(2_500)
    assert why(world)[0] == "NOT_EMITTED"
    batch(fresh, end, world)
    world.run(1_500)
    assert why(world)[0] == "IN_BATCH"


def test_a_record_of_a_topic_that_was_made_again_was_not_emitted(world: World) -> None:
    """The former topic's record at the same place was acked; of one that the new topic lacks that is all."""
    planner, _ = emit_ten(world)
    world.kill(planner)
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 2)
    world.produce(4)
    situation, text, command = why(world)
    assert (situation, command) == ("NOT_EMITTED", "windhover offsets reset sentences --help")
    assert "was created again" in text
    assert why(world, "sentences/0@4")[0] == "DONE"
    world.rewind("earliest")
    assert why(world)[::2] == ("NOT_EMITTED", "windhover status")


def test_a_dead_letter_is_one_where_the_topic_of_its_record_was_made_again() -> None:
    world = World(yaml_of(timeout="4s", retry="{attempts: 1}", dead_letter="{max_ratio: 1}"))
    world.start_replays()
    emit_ten(world, fail=(3,))
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 2)
    assert why(world)[::2] == ("DEAD", "windhover dlq replay sentences.g.dlq/0@0")


def test_a_record_behind_the_begin_of_an_open_transaction_is_written(world: World) -> None:
    emit_ten(world)
    transactions = world.log.transactions("their-producer")
    transactions.init(1_000)
    transactions.begin()
    transactions.send(Outgoing("sentences", 0, b"theirs"))
    transactions.flush(1_000)
    world.produce(1)
    for offset in (10, 11):
        story = story_of(world, f"sentences/0@{offset}")
        assert (story["situation"], story["now"]) == (
            "NOT_EMITTED",
            "in the log, behind the begin of a transaction that is open",
        )
        assert story["in_the_log"] == "there, behind the begin of a transaction that is open"
    assert why(world, "sentences/0@12")[0] == "NOT_WRITTEN"


def test_an_explicit_fail_has_a_message_and_no_error(world: World) -> None:
    emit_ten(world, fail=(3,))
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at("sentences/0@3")
    evidence = trail.read_evidence(here)
    (one,) = evidence.emissions
    assert one.verdict is not None
    assert one.verdict.lost is not None
    verdict = replace(one.verdict, lost=one.verdict.lost._replace(error="", message="comma"))
    evidence = replace(evidence, emissions=[replace(one, verdict=verdict)])
    found = diagnose(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)
    assert found.text.startswith("Bolt split failed it: comma.")


@pytest.mark.parametrize("topic", ["_ack_due", "_ack_verdict", "_ack_state"])
def test_what_a_missing_topic_would_show_is_unknown_and_the_cure_creates_it(world: World, topic: str) -> None:
    emit_ten(world, fail=(3,))
    world.cluster.delete_topic(topic)
    situation, text, then = why_unknown(world, "sentences/0@3")
    assert (situation, then) == ("UNKNOWN", "windhover topics create")
    assert text.endswith(f"is unknown, since a topic is missing: {topic}.")


class NoMembers:
    """A broker that does not say who is in a group."""

    def before(self, operation: str) -> None:
        if operation == "members":
            raise Unreachable("members: the coordinator does not answer")

    def after(self, operation: str) -> None:
        pass


def test_what_is_around_a_record_may_be_unknown_and_the_rest_is_named(world: World) -> None:
    emit_ten(world, skip=(3,))
    trail = EvidenceReader(world.cluster.log(NoMembers()), world.topics)
    (here,) = trail.records_at("sentences/0@3")
    evidence = trail.read_evidence(here)
    story = explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)
    assert story["situation"] == "IN_BATCH"
    assert story["unknown"] == dict.fromkeys(
        ("ackers", "replay_workers"), "members: the coordinator does not answer"
    )


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ("waits for sentences/0@1", "windhover inspect sentences/0@1"),
        ("waits for $(reboot)@1", WATCH),
        ("waits for sentences/0@1;reboot", WATCH),
        ("waits for `sentences/0@1`", WATCH),
    ],
)
def test_the_command_to_type_next_has_a_place_of_a_record_and_no_other_word_of_it(
    message: str, command: str
) -> None:
    """O2009: a forged verdict of an ordered input names what its record waits for."""
    root = Root(source_of(1, 0), position_at(0, 3))
    loss = Loss(1, Verdict.FAILED, "order", HELD, message, 1_000, 10, "sentences/0@3")
    place = "sentences/0@3"
    due = Due(*root, 5_000, "", "g", "sentences", "id", place, 1, 0, 1_000, (loss,))
    emission = TracedEmission(root, place, place, Lineage(place), copy=False)
    evidence = Evidence(place, "sentences", "g", None, written=True, emissions=[emission], dues={root: due})
    lives = Circumstances(Reading(True), Reading(True), Reading(1), Reading(1), Reading(0), 5)

    found = diagnose(evidence, lives, 2_000)

    assert (found.situation, found.next) == ("BLOCKED", command)


@pytest.mark.parametrize(
    ("topic", "limit", "says"),
    [
        (
            "sentences.g.replay",
            "message.timestamp.before.max.ms",
            "Its copy is refused (sentences.g.replay: INVALID",
        ),
        (
            "sentences.g.dlq",
            "max.message.bytes",
            "Its dead letter is refused (sentences.g.dlq: INVALID_RECORD",
        ),
    ],
    ids=["copy", "letter"],
)
def test_a_record_that_a_topic_refuses_is_put_aside_with_the_brokers_words(
    world: World, topic: str, limit: str, says: str
) -> None:
    """O205, O212: and the next step is to look at the topic."""
    settings = {limit: "1000"} if "before" in limit else {"cleanup.policy": "compact"}
    world.cluster.delete_topic(topic)
    world.cluster.create_topic(topic, 2, settings=settings)
    place = TopicPartition("sentences", 0)
    for number in range(4):
        old = Outgoing(*place, b"%d" % number, timestamp_ms=world.now_ms - 60_000)
        world.cluster.partition(place).append(old, world.now_ms)
    world.start_replays()
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, fail=(3,), error="RejectTuple" if topic.endswith("dlq") else "ValueError")
    world.run(10_000)
    situation, text, command = why(world)
    assert (situation, command) == ("PUT_ASIDE", "windhover topics check")
    assert says in text

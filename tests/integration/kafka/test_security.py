"""A broker that trusts nobody: each role works with exactly its rights, and says which one it lacks.

Whoever it does not let in says so within a deadline, and no password shows anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # public, but without __all__
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spout
from acker.config.topics import Topics
from acker.errors import NotAuthenticated, NotAuthorized
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Operation, Outgoing, Resource, Right
from acker.provisioning.command_roles import COMMAND_ROLES
from acker.provisioning.provision import create_topics
from acker.provisioning.roles import Role, rights
from spout.cli import main as cli
from spout.local.embedded import free_port
from spout.runtime.child import Child
from spout.streaming.consume import KeptConsumers, RangeReader, Share
from tests.support.bolts.sample_bolts import Split
from tests.support.leaks import leaks, processes
from tests.support.refusals import not_refused
from tests.support.servers.secured import Secured, secured
from tests.support.waiting import eventually
from tests.support.worlds import command_plays, plays
from tests.support.worlds.plays import Stagehand, text_for, topics_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.by_turns]

HOUSE = "house-"
"""The installation in which an acker and a replay worker run, with exactly their rights."""
BARE = "bare-"
"""The installation in which nobody runs but who is tested."""
WATCHED = "watched-"
"""An installation with a past in which nobody runs, for those who look at it from outside."""

Play = Callable[[Topics, Stagehand], None]
PLAYS: dict[Role, tuple[Play, str]] = {
    Role.ACKER: (plays.play_acker, BARE),
    Role.REPLAY: (plays.play_replay, BARE),
    Role.SPOUT: (plays.play_spout, HOUSE),
    Role.OBSERVER: (command_plays.play_observer, WATCHED),
    Role.KEEPER: (command_plays.play_keeper, WATCHED),
}
PREFIXES = (HOUSE, BARE, WATCHED)
INCLUDES_DESCRIBE = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE}

WRONG = "never-right-4711"
"""A password that nobody has."""
REFUSALS = {
    "wrong-password": ({"sasl.password": WRONG}, "Authentication failed"),
    "unknown-user": ({"sasl.username": "nobody-knows"}, "Authentication failed"),
    "other-mechanism": ({"sasl.mechanism": "PLAIN"}, "supported mechanisms: SCRAM-SHA-512"),
    "untrusted-authority": ({"ssl.ca.location": "probe"}, "certificate verify failed"),
}
"""What is wrong with the settings, and what the message has to say."""
PATIENCE_S = 15.0

COMMANDS = [("topics", "check"), ("acker", "run", "--config"), ("replay", "run", "--config")]
LOOKS = [
    ("status",),
    ("roots",),
    ("inspect", "lines/0@0"),
    ("machinery",),
    ("failures",),
    ("latency",),
    ("dlq", "list"),
    ("dlq", "show", "LETTER"),
    ("dlq", "stats"),
]
DEEDS = [
    ("dlq", "drop", "LETTER", "--why", "no use", "--execute"),
    ("dlq", "replay", "LETTER", "--execute"),
]
"""What people type; LETTER stands for the place of one."""
FREE = ("acker", "free", "--group", "a-stranger", "--execute")


@dataclass(frozen=True)
class Lack:
    """Who lacks which right, in which play, in which installation."""

    role: Role
    right: Right
    play: Play
    prefix: str

    def __str__(self) -> str:
        return f"{self.role} without {self.right}"

    @property
    def user(self) -> str:
        return str(self).replace(" ", "-")

    @property
    def left(self) -> list[Right]:
        return [right for right in rights(topics_for({}, self.prefix), self.role) if right != self.right]


def rights_of_reset() -> Iterator[Right]:
    """Yield what an operator needs to rewind an input, beside the right to know of topics."""
    topics = topics_for({}, HOUSE)
    lines, names = topics.input("lines"), topics.ack_topics
    read = (names.init, names.verdict, lines.topic, lines.replay_topic)
    yield from (Right(Operation.READ, Resource.TOPIC, name) for name in read)
    yield Right(Operation.WRITE, Resource.TOPIC, names.init)
    yield Right(Operation.READ, Resource.GROUP, lines.group)


def lacks() -> Iterator[Lack]:
    """Yield one for each right of each role; of the operator's rights on all topics one for each kind."""
    for role, (play, prefix) in PLAYS.items():
        yield from (Lack(role, right, play, prefix) for right in rights(topics_for({}, prefix), role))
    for number, operation in enumerate(("Create", "Describe", "DescribeConfigs", "Alter")):
        prefix = f"new-{number}-"
        topics = topics_for({}, prefix)
        lines = topics.input("lines")
        topic = lines.replay_topic if operation == "Alter" else lines.dead_letter.topic
        found = {(right.name, right.operation): right for right in rights(topics, Role.OPERATOR)}
        yield Lack(Role.OPERATOR, found[topic, Operation(operation)], plays.play_provision, prefix)
    of_reset = {(right.name, right.operation) for right in rights_of_reset()}
    of_provision = {Operation.CREATE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER}
    for right in rights(topics_for({}, HOUSE), Role.OPERATOR):
        if (right.name, right.operation) in of_reset:
            yield Lack(Role.OPERATOR, right, plays.play_reset, HOUSE)
    for right in rights(topics_for({}, BARE), Role.OPERATOR):
        in_house = (right.name.replace(BARE, HOUSE), right.operation)
        is_of_mending = right.operation not in of_provision or right.resource is Resource.GROUP
        if is_of_mending and in_house not in of_reset:
            yield Lack(Role.OPERATOR, right, command_plays.play_mend, BARE)


LACKS = list(lacks())


class Part(Child):
    """An acker or a replay worker that tells all it can: at --debug, with metrics, and librdkafka's logs."""

    def __init__(self, kind: Literal["acker", "replay"], folder: Path, locked: Secured) -> None:
        self.port = free_port()
        config = folder / f"{kind}.yaml"
        config.write_text(text_for(locked.settings(f"{HOUSE}{kind}", debug="conf,security"), HOUSE))
        command = ("-m", "spout.cli", "--debug", kind, "run", "--config", str(config))
        super().__init__(kind, config, program=(*command, "--metrics-port", str(self.port)))

    def told(self) -> list[str]:
        """Return its output and its metrics."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return [self.log.read_text(), str(answer.read().decode())]


@dataclass
class House:
    """An installation that its operator has made, with everybody in it; the stagehand may do everything."""

    stagehand: Stagehand
    parts: tuple[Part, Part]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The broker, with a user for each role, and one for each right that a role may lack."""
    with secured(tmp_path_factory.mktemp("secured")) as broker:
        users = {f"{p}{role}": rights(topics_for({}, p), role) for role in Role for p in PREFIXES}
        broker.add({**users, **{lack.user: lack.left for lack in LACKS}})
        yield broker


@pytest.fixture(scope="module")
def inhabited(locked: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The house."""
    create_topics(topics_for(locked.settings(f"{HOUSE}operator"), HOUSE))
    folder = tmp_path_factory.mktemp("house")
    stagehand = Stagehand(topics_for({"bootstrap.servers": locked.broker.bootstrap}, HOUSE))
    with Part("acker", folder, locked) as acker, Part("replay", folder, locked) as worker:
        acker.wait_ready()
        worker.wait_ready()
        # a replay topic that was read is what an operator's rewind commits too
        plays.play_spout(stagehand.topics, stagehand)
        yield House(stagehand, (acker, worker))
    stagehand.close()


@pytest.fixture(scope="module")
def house(inhabited: House) -> Stagehand:
    """Who may do everything in the house."""
    return inhabited.stagehand


@contextmanager
def with_a_past(locked: Secured, prefix: str) -> Iterator[Stagehand]:
    """Make an installation with verdicts, state and copies."""
    topics = topics_for({"bootstrap.servers": locked.broker.bootstrap}, prefix)
    create_topics(topics)
    stagehand = Stagehand(topics)
    stagehand.open_roots()
    plays.play_acker(topics, stagehand)
    plays.play_replay(topics, stagehand)
    yield stagehand
    stagehand.close()


@pytest.fixture(scope="module")
def stagehands(locked: Secured, house: Stagehand) -> Iterator[Mapping[str, Stagehand]]:
    """Who may do everything in an installation, by its prefix; new ones have that of the house."""
    with with_a_past(locked, BARE) as bare, with_a_past(locked, WATCHED) as watched:
        command_plays.furnish(watched)
        yield dict.fromkeys((lack.prefix for lack in LACKS), house) | {BARE: bare, WATCHED: watched}


@pytest.mark.parametrize("role", PLAYS)
def test_a_role_works_with_exactly_its_rights(
    role: Role, locked: Secured, stagehands: Mapping[str, Stagehand]
) -> None:
    """Each of its rights is taken away in a test below."""
    play, prefix = PLAYS[role]

    with not_refused(f"a {role} with its rights"):
        play(topics_for(locked.settings(f"{prefix}{role}"), prefix), stagehands[prefix])


def test_an_operator_works_with_exactly_its_rights(locked: Secured, house: Stagehand) -> None:
    with not_refused("an operator with its rights"):
        plays.play_reset(topics_for(locked.settings(f"{HOUSE}operator"), HOUSE), house)


def test_an_operator_repairs_and_resumes_with_exactly_its_rights(
    locked: Secured, stagehands: Mapping[str, Stagehand]
) -> None:
    """D2802"""
    with not_refused("an operator with its rights"):
        command_plays.play_mend(topics_for(locked.settings(f"{BARE}operator"), BARE), stagehands[BARE])


def test_a_query_without_tracking_works_with_the_right_to_read_and_commit(
    locked: Secured, house: Stagehand
) -> None:
    untracked = {"group": "untracked", "ackers": 0}
    locked.add({"untracked": rights(topics_for({}, HOUSE, **untracked), Role.SPOUT)})

    with not_refused("a query without tracking"):
        plays.play_untracked(topics_for(locked.settings("untracked"), HOUSE, **untracked), house)


@pytest.mark.parametrize("lack", LACKS, ids=str)
def test_a_role_that_lacks_a_right_says_which_and_how_to_grant_it(
    lack: Lack, locked: Secured, stagehands: Mapping[str, Stagehand]
) -> None:
    if lack.play is plays.play_provision:
        _make_a_replay_topic_that_has_to_grow(locked, lack.prefix)
    topics = topics_for(locked.settings(lack.user), lack.prefix, partitions=2)

    with pytest.raises((NotAuthorized, plays.PutAside, command_plays.NotRead)) as refused:
        lack.play(topics, stagehands[lack.prefix])

    message = str(refused.value)
    still = {right.operation for right in lack.left if right.name == lack.right.name}
    # who may do nothing at all with a topic is told that he may not even know of it
    said = {lack.right.operation} if still & INCLUDES_DESCRIBE else {lack.right.operation, Operation.DESCRIBE}
    place = f"on {lack.right.resource} {lack.right.name}"
    assert any(f"the right to {operation} {place}" in message for operation in said), message
    assert "`windhover acls`" in message
    if isinstance(refused.value, NotAuthorized):
        assert refused.value.exit_code == 4
    if isinstance(refused.value, plays.PutAside):  # what one input lacks stops no other
        assert lack.right.name.startswith(topics.input("lines").topic)


def _make_a_replay_topic_that_has_to_grow(locked: Secured, prefix: str) -> None:
    lines = topics_for({}, prefix).input("lines")
    kept = {"retention.ms": "-1", "retention.bytes": "-1", "max.message.bytes": "3000000"}
    topics = [NewTopic(lines.topic, 2), NewTopic(lines.replay_topic, 1, config=kept)]
    admin = locked.admin
    for future in admin.create_topics(topics).values():
        future.result(30)
    eventually(lambda: {topic.topic for topic in topics} <= admin.list_topics(timeout=30).topics.keys())


@pytest.mark.parametrize(("wrong", "says"), REFUSALS.values(), ids=REFUSALS)
def test_a_client_that_is_not_let_in_says_so_within_a_deadline(
    wrong: dict[str, str], says: str, locked: Secured, house: Stagehand
) -> None:
    settings = {**locked.settings(f"{HOUSE}acker"), **wrong}
    began_s = time.monotonic()

    with pytest.raises(NotAuthenticated, match=says) as refused:
        KafkaLog(settings).topics([house.names.init])

    assert time.monotonic() - began_s < PATIENCE_S
    assert refused.value.exit_code == 4
    assert "correct security.protocol, the sasl.* and the ssl.* settings" in str(refused.value)
    assert leaks(settings["sasl.password"], [str(refused.value)]) == []


def write(settings: dict[str, str], topic: str) -> None:
    """Write a record, and wait until it is durable."""
    producer = KafkaLog(settings).producer()
    producer.send(Outgoing(topic, 0, b""))
    producer.flush(30_000)


WAITS: dict[str, Callable[[dict[str, str], str], object]] = {
    "producer": write,
    "transactions": lambda settings, _: KafkaLog(settings).transactions("any").init(30_000),
    "range": lambda settings, topic: list(
        RangeReader(settings, Share(topic, 0, 0, 1), KeptConsumers(0)).chunks()
    ),
}


@pytest.mark.parametrize("use", WAITS)
def test_whatever_waits_for_the_broker_hears_that_it_is_not_let_in(
    use: str, locked: Secured, house: Stagehand
) -> None:
    with pytest.raises(NotAuthenticated):
        WAITS[use]({**locked.settings(f"{HOUSE}acker"), "sasl.password": WRONG}, house.names.init)


@pytest.mark.parametrize(
    ("role", "command"),
    [(Role.OBSERVER, look) for look in LOOKS]
    + [(Role.KEEPER, each) for each in (*LOOKS[6:], *DEEDS)]
    + [(Role.ACKER, FREE)],
)
def test_a_command_works_with_the_rights_of_its_role(
    role: Role,
    command: tuple[str, ...],
    locked: Secured,
    stagehands: Mapping[str, Stagehand],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(text_for(locked.settings(f"{WATCHED}{role}"), WATCHED))
    letter = command_plays.let_die(stagehands[WATCHED])
    words = [letter if word == "LETTER" else word for word in command]

    assert cli.run([*words, "--config", str(config)]) == 0

    told = "".join(capfd.readouterr())
    assert "Traceback" not in told
    assert command not in DEEDS or told.startswith("1 letter ")


ONCE = {
    "acker free": ("acker", "free", "--group", "a-stranger", "--config", "FILE"),
    "check": ("check", "--config", "FILE"),
    "dlq cancel": ("dlq", "cancel", "no-such", "--config", "FILE"),
    "dlq drop": ("dlq", "drop", "--all", "--config", "FILE"),
    "dlq list": ("dlq", "list", "--config", "FILE"),
    "dlq redrives": ("dlq", "redrives", "--config", "FILE"),
    "dlq replay": ("dlq", "replay", "LETTER", "--config", "FILE"),
    "dlq show": ("dlq", "show", "LETTER", "--config", "FILE"),
    "dlq stats": ("dlq", "stats", "--config", "FILE"),
    "doctor": ("doctor", "--only", "live", "--config", "FILE"),
    "failures": ("failures", "--config", "FILE"),
    "inspect": ("inspect", "lines/0@0", "--config", "FILE"),
    "latency": ("latency", "--config", "FILE"),
    "machinery": ("machinery", "--config", "FILE"),
    "offsets reset": ("offsets", "reset", "lines", "--to", "earliest", "--config", "FILE"),
    "picture": ("picture", "--out", "OUT", "--config", "FILE"),
    "replay drop": ("replay", "drop", "lines", "--config", "FILE"),
    "replay resume": ("replay", "resume", "lines", "--config", "FILE"),
    "roots": ("roots", "--config", "FILE"),
    "sql": ("sql", "SELECT * FROM unknown", "--config", "FILE"),
    "status": ("status", "--config", "FILE"),
    "topics check": ("topics", "check", "FILE"),
    "topics create": ("topics", "create", "FILE"),
    "topics repair": ("topics", "repair", "FILE"),
}
"""Commands that end by themselves where nobody runs, each in one form."""

ELSEWHERE = {"acker run", "release", "replay run", "submit", "ui"}
"""Commands that run in other tests: two as `Part`s, and what `release`, a query and the page do as plays."""


def test_every_command_that_asks_a_broker_runs_under_its_role_somewhere() -> None:
    """D2801"""
    assert {name for name, role in COMMAND_ROLES.items() if role is not None} == set(ONCE) | ELSEWHERE


@pytest.mark.parametrize("name", ONCE)
def test_a_command_is_not_refused_under_the_role_that_the_page_names(
    name: str,
    locked: Secured,
    stagehands: Mapping[str, Stagehand],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """D2802"""
    config = tmp_path / "topics.yaml"
    config.write_text(text_for(locked.settings(f"{WATCHED}{COMMAND_ROLES[name]}"), WATCHED))
    letter = command_plays.let_die(stagehands[WATCHED])
    places = {"FILE": str(config), "LETTER": letter, "OUT": str(tmp_path / "picture.sqlite")}

    code = cli.run([places.get(word, word) for word in ONCE[name]])

    told = "".join(capfd.readouterr())
    assert code != 4, told
    assert "Traceback" not in told
    if name != "doctor":  # which tells what the other roles need
        assert "the right to" not in told


@pytest.mark.parametrize(
    "command", [*COMMANDS, *((*words, "--config") for words in LOOKS), ("dlq", "replay", "--config")]
)
def test_a_command_without_a_right_ends_with_4_and_says_which(
    command: tuple[str, ...],
    locked: Secured,
    house: Stagehand,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(text_for(locked.settings(f"{BARE}acker"), HOUSE))
    words = [f"{house.input.dead_letter.topic}/0@0" if word == "LETTER" else word for word in command]

    assert cli.run([*words, str(config)]) == 4

    told = "".join(capfd.readouterr())
    assert f"the right to Describe on Topic {HOUSE}" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_with_a_wrong_password_ends_with_4_and_shows_neither_it_nor_a_trace(
    command: tuple[str, ...], locked: Secured, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(text_for({**locked.settings("any"), "sasl.password": WRONG}, HOUSE))

    assert cli.run([*command, str(config)]) == 4

    told = "".join(capfd.readouterr())
    assert "windhover: describing " in told
    assert "Traceback" not in told
    assert leaks(WRONG, [told]) == []


def test_a_query_runs_with_exactly_the_rights_of_a_spout_and_shows_no_password(
    spark: SparkSession, locked: Secured, inhabited: House, tmp_path: Path
) -> None:
    user = f"{HOUSE}spout"
    topics = topics_for(locked.settings(user), HOUSE)
    inhabited.stagehand.write(topics.input("lines").topic, b"a tuple", b"bad", b"a tree")
    status = tmp_path / "status.json"
    frame = spout.read_stream(spark, topics, "lines", status_path=status).transform(spout.bolt(Split()))
    words: list[str] = []
    shown: list[str] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        words.extend(row.word for row in batch.collect())
        shown.extend([*plan_of(batch), *processes()])

    query = _start(frame, write, tmp_path / "checkpoint")
    assert query.awaitTermination(120)

    assert {"a", "tuple", "tree"} <= set(words)
    journals = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    shown += [journal.decode(errors="replace") for journal in journals]
    shown += [status.read_text(), *plan_of(frame), str(topics), repr(topics)]
    shown += [str(query.lastProgress), str(query._jsq.explainInternal(True))]
    shown += [told for part in inhabited.parts for told in part.told()]
    assert any("[redacted]" in text for text in shown), "librdkafka was to show its settings"
    for name in (user, f"{HOUSE}acker", f"{HOUSE}replay"):
        assert leaks(locked.passwords[name], shown) == []


def test_a_query_with_a_wrong_password_fails_by_name_and_does_not_show_it(
    spark: SparkSession, locked: Secured, tmp_path: Path
) -> None:
    topics = topics_for({**locked.settings(f"{HOUSE}spout"), "sasl.password": WRONG}, HOUSE)
    frame = spout.read_stream(spark, topics, "lines")

    query = _start(frame, lambda _batch, _id: None, tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="NotAuthenticated") as failed:
        query.awaitTermination(120)

    assert leaks(WRONG, [str(failed.value), repr(failed.value), str(query.exception())]) == []


def plan_of(frame: DataFrame) -> Iterable[str]:
    """Return what Spark tells of a plan: all that `explain` can show, and the plans as data."""
    execution = frame._jdf.queryExecution()
    yield str(execution.toString())
    yield str(execution.logical().toJSON())
    yield str(execution.analyzed().toJSON())


def _start(frame: DataFrame, write: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    return (
        frame.writeStream.foreachBatch(spout.sink(write))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )

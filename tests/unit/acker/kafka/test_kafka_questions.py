"""What the real log asks its admin client and its consumer, and what it makes of each kind of answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupState, IsolationLevel, KafkaError, KafkaException

from acker.errors import LogError, NotAuthorized, OutOfRange, PartitionStands, TopicError, Unreachable
from acker.kafka.client import RETRIED_PART, SINGLE_TRY_S, WAIT_MS_MAX, KafkaClient
from acker.kafka.cluster import (
    LAST_PATIENCE_MS,
    LEADERS_EVERY_S,
    SILENT_AGAIN_S,
    TEXT_S,
    KafkaLog,
    describe_group,
)
from acker.kafka.port import Bound, GroupMember, MissingBroker, Operation, TopicInfo, TopicPartition
from acker.kafka.reader import DEFAULTS, ONE_BATCH
from tests.support.steady_clock import SteadyClock

A, B, OTHER = TopicPartition("lines", 0), TopicPartition("lines", 1), TopicPartition("words", 0)
NO_RIGHT = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
NO_GROUP_RIGHT = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
SILENT = KafkaError(KafkaError._TIMED_OUT, "no answer")
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "not yet")
REFUSED = KafkaError(KafkaError.INVALID_CONFIG, "no")
NO_ENTRY = KafkaError(KafkaError._NOENT, "not found")
NOT_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "not me")
NO_LEADER = KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "none")


def answered(value: object) -> Future[Any]:
    """Return the answer of a client: a value, or an error."""
    future: Future[Any] = Future()
    if isinstance(value, KafkaError):
        future.set_exception(KafkaException(value))
    else:
        future.set_result(value)
    return future


class Brokers:
    """Brokers behind admin clients and consumers: each question takes the next of its answers, or the last.

    Attributes:
        answers: by the name of a call, its answers: values or errors, or what makes them of the arguments.
        asked: the calls, with their arguments.
        admins: how many admin clients were made.
        leaders: by partition, the number of its leader; -1: it has none.
        topic_errors: by topic, the error that stands in its metadata.
    """

    def __init__(self, **answers: list[Any]) -> None:
        self.clock = SteadyClock()
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self.admins = 0
        self.leaders = {A: 7, B: 7, OTHER: 8}
        self.topic_errors: dict[str, KafkaError] = {}
        self.is_deaf = False
        self.log = KafkaLog(
            {"bootstrap.servers": "kafka:9092"}, clock=self.clock, sleep=self.sleep, make_admin=self._make
        )

    def sleep(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def _make(self, _settings: object) -> Any:
        self.admins += 1
        return self

    def _answer(self, call: str, *arguments: Any, timeout_s: float = 0.0) -> Any:
        self.asked.append((call, arguments[0] if len(arguments) == 1 else arguments))
        answers = self.answers[call]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, KafkaError) and answer.code() == KafkaError._TIMED_OUT:
            self.clock.now_s += timeout_s
        return answer

    def calls(self, name: str) -> list[Any]:
        """Return the arguments of all calls of a name."""
        return [arguments for call, arguments in self.asked if call == name]

    def poll(self, _timeout_s: float) -> None:
        return None

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.asked.append(("list_topics", topic))
        assert 0 < timeout <= LAST_PATIENCE_MS / 1_000
        if self.is_deaf:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        names = {place.topic for place in self.leaders} if topic is None else {topic}
        topics = {}
        for name in names:
            partitions = {
                place.partition: SimpleNamespace(leader=leader, replicas=[7, 8], isrs=[7])
                for place, leader in self.leaders.items()
                if place.topic == name
            }
            topics[name] = SimpleNamespace(partitions=partitions, error=self.topic_errors.get(name))
        brokers = {
            number: SimpleNamespace(host=f"kafka-{number}", port=9092)
            for number in set(self.leaders.values()) - {-1}
        }
        return SimpleNamespace(topics=topics, brokers=brokers)

    def describe_cluster(self, request_timeout: float) -> Future[Any]:
        return answered(self._answer("describe_cluster", timeout_s=request_timeout))

    def describe_topics(
        self, topics: Any, *, request_timeout: float, include_authorized_operations: bool = False
    ) -> dict[str, Future[Any]]:
        names = topics.topic_names if hasattr(topics, "topic_names") else list(topics)
        answer = self._answer("describe_topics", names, timeout_s=request_timeout)
        return {name: answered(answer if isinstance(answer, KafkaError) else answer[name]) for name in names}

    def describe_configs(self, resources: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        answer = self._answer("describe_configs", [resource.name for resource in resources])
        return {resource: answered(answer[resource.name]) for resource in resources}

    def describe_consumer_groups(
        self, groups: list[str], *, include_authorized_operations: bool, request_timeout: float
    ) -> dict[str, Future[Any]]:
        answer = self._answer("describe_consumer_groups", groups, timeout_s=request_timeout)
        return {group: answered(answer) for group in groups}

    def alter_consumer_group_offsets(
        self, requests: list[Any], request_timeout: float
    ) -> dict[str, Future[Any]]:
        [request] = requests
        answer = self._answer("alter_consumer_group_offsets", request, timeout_s=request_timeout)
        return {request.group_id: answered(answer)}

    def delete_records(self, partitions: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        answer = self._answer("delete_records", list(partitions), timeout_s=request_timeout)
        return {part: answered(answer[TopicPartition(part.topic, part.partition)]) for part in partitions}

    def list_offsets(
        self, specs: Mapping[Any, Any], *, isolation_level: IsolationLevel, request_timeout: float
    ) -> dict[Any, Future[Any]]:
        places = [TopicPartition(part.topic, part.partition) for part in specs]
        answer = self._answer("list_offsets", places, isolation_level)
        if any(
            isinstance(answer[place], KafkaError) and answer[place].code() == KafkaError._TIMED_OUT
            for place in places
        ):
            self.clock.now_s += request_timeout
        return {
            part: answered(answer[place] if isinstance(answer[place], KafkaError) else offset(answer[place]))
            for part, place in zip(specs, places, strict=True)
        }


def offset(answer: int | tuple[int, int | None]) -> Any:
    """Return an answer about an offset: it alone, or with the leader's epoch."""
    number, epoch = answer if isinstance(answer, tuple) else (answer, None)
    return SimpleNamespace(offset=number, leader_epoch=epoch)


# the cluster and its topics ---------------------------------------------------------------------------------


def test_the_id_of_the_cluster_is_asked_once_for_each_client() -> None:
    brokers = Brokers(describe_cluster=[SimpleNamespace(cluster_id="one"), SimpleNamespace(cluster_id="two")])
    assert [brokers.log.cluster_id() for _ in range(3)] == ["one"] * 3
    assert len(brokers.calls("describe_cluster")) == 1
    brokers.log._give_up_admin()
    assert brokers.log.cluster_id() == "two", "another cluster may stand behind the same name"
    assert brokers.admins == 2


def test_brokers_that_name_no_cluster_have_an_empty_id() -> None:
    brokers = Brokers(describe_cluster=[SimpleNamespace(cluster_id=None)])
    assert brokers.log.cluster_id() == ""


def described(partitions: int, *replicas: int) -> Any:
    """Return the description of a topic."""
    parts = [SimpleNamespace(replicas=list(range(count))) for count in replicas or [1] * partitions]
    return SimpleNamespace(topic_id="id", partitions=parts, authorized_operations=None)


def test_topics_are_described_each_once_in_the_order_of_the_question() -> None:
    topics = {
        "b": described(2, 3, 2),
        "a": described(0),
        "gone": KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART),
    }
    brokers = Brokers(describe_topics=[topics])
    assert brokers.log.topics([]) == {}
    assert not brokers.asked
    found = brokers.log.topics(iter(["b", "gone", "a", "b"]))
    assert list(found.items()) == [
        ("b", TopicInfo("b", "id", 2, 2, {})),
        ("a", TopicInfo("a", "id", 0, 0, {})),
    ]
    assert brokers.calls("describe_topics") == [["b", "gone", "a"]]
    assert not brokers.calls("describe_configs")


def test_settings_are_asked_for_only_where_they_are_wanted_and_there_is_a_topic() -> None:
    entries = {"retention.ms": SimpleNamespace(value="1"), "secret": SimpleNamespace(value=None)}
    topics = {"a": described(1), "gone": KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)}
    brokers = Brokers(describe_topics=[topics], describe_configs=[{"a": entries}])
    assert brokers.log.topics(["a", "gone"], settings=True)["a"].settings == {"retention.ms": "1"}
    assert brokers.log.topics(["gone"], settings=True) == {}
    assert brokers.calls("describe_configs") == [["a"]]


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (NO_RIGHT, NotAuthorized, "describing a: the right to Describe on Topic a is missing"),
        (REFUSED, LogError, "describing a: refused by kafka:9092: INVALID_CONFIG"),
        (SILENT, Unreachable, "describing a: no answer from Kafka at kafka:9092 within 30000 ms"),
    ],
)
def test_a_question_that_is_refused_says_what_it_was_for(
    error: KafkaError, raised: type[Exception], text: str
) -> None:
    with pytest.raises(raised, match=text):
        Brokers(describe_topics=[error]).log.topics(["a"])


def test_brokers_that_are_missing_or_were_silent_a_moment_ago_are_named() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: SILENT}])
    assert brokers.log.missing_brokers(["lines"]) == []
    brokers.log.bounds(Bound.END, [A, OTHER])
    silent = MissingBroker(8, 2, is_silent=True)
    assert brokers.log.missing_brokers(["lines"]) == [silent]
    brokers.clock.now_s += SILENT_AGAIN_S - 0.01
    assert brokers.log.missing_brokers(["lines"]) == [silent]
    brokers.clock.now_s += 0.02
    assert brokers.log.missing_brokers(["lines"]) == []
    brokers.leaders = {A: -1, B: 7}
    assert brokers.log.missing_brokers(["lines", "words"]) == [MissingBroker(8, replicas=2, leaderless=1)]


# groups -----------------------------------------------------------------------------------------------------


class CommitAsker:
    """A consumer that is asked what its group has committed."""

    def __init__(self, settings: Mapping[str, Any], answers: list[Any], event: KafkaError | None) -> None:
        self.group = settings["group.id"]
        self.settings = settings
        self._answers = answers
        self._event = event

    def committed(self, partitions: list[Any], timeout_s: float) -> list[Any]:
        self.requested = [TopicPartition(part.topic, part.partition) for part in partitions]
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return [
            commit for commit in answer if TopicPartition(commit.topic, commit.partition) in self.requested
        ]

    def poll(self, _timeout_s: float) -> Any:
        return None if self._event is None else SimpleNamespace(error=lambda: self._event)


def commit(
    place: TopicPartition,
    number: int,
    error: KafkaError | None = None,
    epoch: int | None = None,
    metadata: str | None = None,
) -> Any:
    """Return what a broker says of a commit."""
    return SimpleNamespace(
        topic=place.topic,
        partition=place.partition,
        offset=number,
        error=error,
        leader_epoch=epoch,
        metadata=metadata,
    )


@pytest.fixture
def askers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[CommitAsker]]:
    """Let consumers answer what a test says; return the list of those that are made."""

    def answering(*answers: Any, event: KafkaError | None = None) -> list[CommitAsker]:
        made: list[CommitAsker] = []
        left = list(answers)

        def make(
            _client: object, _kind: object, defaults: Any, forced: Any, _background: object
        ) -> CommitAsker:
            made.append(CommitAsker({**defaults, **forced}, left, event))
            return made[-1]

        monkeypatch.setattr(KafkaClient, "make_client", make)
        return made

    return answering


def test_commits_are_those_that_there_are_with_what_was_kept_beside_them(
    askers: Callable[..., list[CommitAsker]],
) -> None:
    made = askers(
        [commit(A, 0, epoch=0, metadata="text"), commit(B, 7), commit(OTHER, OFFSET_INVALID, epoch=3)]
    )
    log = Brokers().log
    places = [A, B, OTHER]
    assert log.committed("g", places) == {A: 0, B: 7}
    assert log.committed_epochs("g", places) == {A: 0}
    assert log.commit_metadata("g", places) == {A: "text", B: ""}
    assert log.committed("g", iter([B])) == {B: 7}
    assert log.committed("g", []) == {}
    assert [asker.group for asker in made] == ["g"]
    assert made[0].settings["isolation.level"] == "read_committed"
    log.committed("h", places)
    log.committed("h", places)
    log.committed("g", places)
    assert [asker.group for asker in made] == ["g", "h", "g"]


def test_a_group_that_is_there_for_some_partitions_only_has_committed_the_others(
    askers: Callable[..., list[CommitAsker]],
) -> None:
    unknown = KafkaError(KafkaError.GROUP_ID_NOT_FOUND)
    askers([commit(A, 5, unknown), commit(B, 6)])
    assert Brokers().log.committed("g", [A, B]) == {B: 6}


def test_a_right_that_is_missing_for_one_topic_is_named(askers: Callable[..., list[CommitAsker]]) -> None:
    askers([commit(A, 5), commit(OTHER, 5, NO_RIGHT)])
    with pytest.raises(NotAuthorized, match="of group g: the right to Describe on Topic words is missing"):
        Brokers().log.committed("g", [A, OTHER])


@pytest.mark.parametrize("event", [NO_GROUP_RIGHT, None, REFUSED])
def test_only_the_consumers_own_thread_knows_of_a_missing_right_to_the_group(
    askers: Callable[..., list[CommitAsker]], event: KafkaError | None
) -> None:
    made = askers(SILENT, event=event)
    log = Brokers().log
    is_right = event is NO_GROUP_RIGHT
    with pytest.raises(NotAuthorized if is_right else Unreachable) as raised:
        log.committed("g", [A])
    if is_right:
        assert "offsets of group g: the right to Describe on Group g is missing" in str(raised.value)
        assert len(made) == 1
    else:
        assert len(made) > 1, "each attempt asks by another one"


def test_an_asker_that_got_an_error_is_replaced_and_one_that_got_an_answer_is_kept(
    askers: Callable[..., list[CommitAsker]],
) -> None:
    made = askers(LOADING, LOADING, [commit(A, 5)])
    log = Brokers().log
    assert log.committed("g", [A]) == {A: 5}
    assert log.committed("g", [A]) == {A: 5}
    assert len(made) == 3
    log.close()
    assert log.committed("g", [A]) == {A: 5}
    assert len(made) == 4


def test_offsets_are_committed_with_their_text_and_their_epochs() -> None:
    brokers = Brokers(
        alter_consumer_group_offsets=[LOADING, SimpleNamespace(topic_partitions=[commit(A, 5)])]
    )
    brokers.log.commit("g", {})
    assert not brokers.asked
    brokers.log.commit("g", {A: 5, B: 0}, "text", {B: 3})
    requests = brokers.calls("alter_consumer_group_offsets")
    assert len(requests) == 2
    for request in requests:
        assert request.group_id == "g"
        assert [
            (part.topic, part.partition, part.offset, part.metadata, part.leader_epoch)
            for part in request.topic_partitions
        ] == [("lines", 0, 5, "text", None), ("lines", 1, 0, "text", 3)]


def test_a_commit_that_is_refused_for_one_topic_is_an_error_of_it() -> None:
    parts = [commit(A, 5), commit(OTHER, 5, NO_RIGHT)]
    brokers = Brokers(alter_consumer_group_offsets=[SimpleNamespace(topic_partitions=parts)])
    with pytest.raises(NotAuthorized, match="group g: the right to Read on Topic words is missing"):
        brokers.log.commit("g", {A: 5, OTHER: 5})
    brokers = Brokers(alter_consumer_group_offsets=[NO_GROUP_RIGHT])
    with pytest.raises(NotAuthorized, match="group g: the right to Read on Group g is missing"):
        brokers.log.commit("g", {A: 5})


def group_of(state: ConsumerGroupState) -> Any:
    """Return the description of a group of two members."""
    members = [
        SimpleNamespace(
            client_id=client_id,
            host=host,
            member_id=f"{client_id}-1",
            assignment=SimpleNamespace(
                topic_partitions=[SimpleNamespace(partition=number) for number in numbers]
            ),
        )
        for client_id, host, numbers in [("z", "/10.0.0.1", [0, 1, 0]), ("a", "10.0.0.2", [])]
    ]
    return SimpleNamespace(state=state, members=members)


def test_members_are_named_with_their_share_once_the_group_has_one() -> None:
    brokers = Brokers(describe_consumer_groups=[group_of(ConsumerGroupState.STABLE)])
    assert brokers.log.members("g") == [
        GroupMember("a on 10.0.0.2", frozenset(), id="a-1"),
        GroupMember("z on 10.0.0.1", frozenset({0, 1}), id="z-1"),
    ]
    brokers.answers["describe_consumer_groups"] = [group_of(ConsumerGroupState.PREPARING_REBALANCING)]
    assert [member.partitions for member in brokers.log.members("g")] == [None, None]
    assert brokers.admins == 2, "each question has a client of its own"


def test_a_group_that_is_not_there_has_no_members_and_one_without_a_right_is_an_error() -> None:
    assert (
        Brokers(describe_consumer_groups=[KafkaError(KafkaError.GROUP_ID_NOT_FOUND)]).log.members("g") == ()
    )
    with pytest.raises(
        NotAuthorized, match="members of group g: the right to Describe on Group g is missing"
    ):
        Brokers(describe_consumer_groups=[NO_GROUP_RIGHT]).log.members("g")


def test_a_group_may_be_described_with_our_rights() -> None:
    asked: list[bool] = []

    class Admin:
        def describe_consumer_groups(
            self, groups: list[str], *, include_authorized_operations: bool, request_timeout: float
        ) -> dict[str, Future[Any]]:
            asked.append(include_authorized_operations)
            return {groups[0]: answered("described")}

    make: Any = Admin
    assert describe_group(make, "g", 1.0) == "described"
    assert describe_group(make, "g", 1.0, rights=True) == "described"
    assert asked == [False, True]


# records and offsets ----------------------------------------------------------------------------------------


def test_records_are_deleted_where_somebody_answers_and_the_others_are_named() -> None:
    brokers = Brokers(delete_records=[{A: "low", B: NO_LEADER, OTHER: SILENT}])
    brokers.leaders[B] = -1
    assert brokers.log.delete_before({}) == {}
    assert not brokers.asked
    assert brokers.log.delete_before({A: 5, B: 0, OTHER: 7}) == {
        B: "has no leader: its replicas are on brokers 7, 8",
        OTHER: "has no answer from its leader, kafka-8:9092 (_TIMED_OUT)",
    }
    [requested] = brokers.calls("delete_records")
    assert [(part.topic, part.partition, part.offset) for part in requested] == [
        ("lines", 0, 5),
        ("lines", 1, 0),
        ("words", 0, 7),
    ]
    assert brokers.admins == 2, "a client that waited for a silent leader may not meet it again"


REFUSED_OFFSET = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize(
    ("start_of_a", "start_of_other", "asked_again"), [(6, 0, [("words", 0, 7)]), (5, 7, [])]
)
def test_what_a_broker_has_deleted_already_and_refuses_is_deleted(
    start_of_a: int, start_of_other: int, asked_again: list[tuple[str, int, int]]
) -> None:
    """Kafka takes an offset below the start of the log, kfake answers OFFSET_OUT_OF_RANGE."""
    brokers = Brokers(
        delete_records=[{A: REFUSED_OFFSET, OTHER: "low"}, {OTHER: "low"}],
        list_offsets=[{A: start_of_a, OTHER: start_of_other}],
    )
    assert brokers.log.delete_before({A: 5, OTHER: 7}) == {}
    _, *later = brokers.calls("delete_records")
    assert [(part.topic, part.partition, part.offset) for parts in later for part in parts] == asked_again


def test_an_offset_behind_the_end_is_refused_once() -> None:
    brokers = Brokers(delete_records=[{A: REFUSED_OFFSET}], list_offsets=[{A: 4}])
    with pytest.raises(OutOfRange, match="deleting records of lines"):
        brokers.log.delete_before({A: 5})
    assert len(brokers.calls("delete_records")) == 1


def test_a_right_to_delete_that_is_missing_names_the_topic() -> None:
    brokers = Brokers(delete_records=[{A: "low", OTHER: NO_RIGHT}])
    with pytest.raises(NotAuthorized, match="of lines, words: the right to Delete on Topic words is missing"):
        brokers.log.delete_before({A: 5, OTHER: 1})


def test_where_nobody_answers_nothing_was_deleted() -> None:
    with pytest.raises(Unreachable, match="deleting records of lines: no answer"):
        Brokers(delete_records=[{A: SILENT}]).log.delete_before({A: 5})


@pytest.mark.parametrize(
    ("ask", "isolation"),
    [
        (KafkaLog.ends, IsolationLevel.READ_UNCOMMITTED),
        (KafkaLog.starts, IsolationLevel.READ_UNCOMMITTED),
        (KafkaLog.stable_ends, IsolationLevel.READ_COMMITTED),
    ],
)
def test_only_a_stable_end_lies_before_open_transactions(
    ask: Callable[[KafkaLog, list[TopicPartition]], Mapping[TopicPartition, int]], isolation: IsolationLevel
) -> None:
    brokers = Brokers(list_offsets=[{A: 0, OTHER: 9}])
    assert ask(brokers.log, []) == {}
    assert ask(brokers.log, [A, OTHER]) == {A: 0, OTHER: 9}
    assert brokers.calls("list_offsets") == [([A, OTHER], isolation)]


@pytest.mark.parametrize("bound", list(Bound))
def test_epochs_are_those_of_the_leaders_that_answered(bound: Bound) -> None:
    """Those of the first records say nothing of them."""
    brokers = Brokers(list_offsets=[{A: (5, 0), B: (6, -1), OTHER: (7, None)}])
    answers = brokers.log.bounds(bound, [A, B, OTHER, A])
    assert answers.offsets == {A: 5, B: 6, OTHER: 7}
    assert answers.epochs == ({} if bound is Bound.START else {A: 0})


def test_all_partitions_are_waited_for_and_what_has_no_answer_is_named() -> None:
    brokers = Brokers(list_offsets=[{A: 5, B: NO_LEADER}])
    brokers.leaders[B] = -1
    begun_s = brokers.clock.now_s
    with pytest.raises(PartitionStands, match="ends of lines: lines/1 has no leader: its replicas are on"):
        brokers.log.ends([A, B])
    assert brokers.clock.now_s - begun_s == pytest.approx(30, abs=0.5)
    brokers.answers["list_offsets"] = [{A: 5, B: NO_LEADER}, {A: 6, B: 7}]
    assert brokers.log.ends([A, B]) == {A: 6, B: 7}


def test_times_of_which_a_part_has_no_answer_are_answered_for_the_others() -> None:
    """The end stands in where there is no record so late: of what comes meanwhile nothing is left out."""
    brokers = Brokers(list_offsets=[{A: 8, B: 9, OTHER: NO_LEADER}, {A: -1, B: NO_LEADER}])
    brokers.leaders |= {B: -1, OTHER: -1}
    answers = brokers.log.bounds(1_000, [A, B, OTHER])
    assert answers.offsets == {A: 8}
    assert answers.troubles.keys() == {B, OTHER}
    assert [places for places, _ in brokers.calls("list_offsets")] == [[A, B, OTHER], [A, B]]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_partition_that_librdkafka_does_not_find_has_no_leader_or_is_not_there(is_there: bool) -> None:
    place = B if is_there else TopicPartition("lines", 9)
    brokers = Brokers(list_offsets=[{A: 5, place: NO_ENTRY}])
    if is_there:
        brokers.leaders[B] = -1
        assert brokers.log.bounds(Bound.END, [A, B]).troubles.keys() == {B}
    else:
        with pytest.raises(TopicError, match="lines/9"):
            brokers.log.bounds(Bound.END, [A, place])
    assert ("list_topics", "lines") in brokers.asked


def test_a_topic_that_may_not_be_described_is_not_called_gone() -> None:
    brokers = Brokers(list_offsets=[{OTHER: NO_ENTRY, A: NO_ENTRY}])
    brokers.topic_errors["words"] = NO_RIGHT
    with pytest.raises(NotAuthorized, match="the right to Describe on Topic words is missing"):
        brokers.log.bounds(Bound.END, [A, OTHER])
    brokers.topic_errors["words"] = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    assert brokers.log.bounds(Bound.END, [A, OTHER]).troubles.keys() == {A, OTHER}


def test_a_broker_that_leads_no_more_makes_the_client_ask_who_does() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: NOT_LEADER}])
    brokers.log.bounds(Bound.END, [A, OTHER])
    brokers.asked.clear()
    brokers.log.bounds(Bound.END, [A, OTHER])
    assert brokers.calls("list_topics") == ["words"], "of the topic whose leader is another one"
    brokers.answers["list_offsets"] = [{A: 5, OTHER: LOADING}]
    brokers.asked.clear()
    brokers.log.bounds(Bound.END, [A, OTHER])
    assert brokers.calls("list_topics") == []


def test_an_error_that_will_not_pass_is_one_of_the_whole_question() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: NO_RIGHT}])
    with pytest.raises(NotAuthorized, match="ends of lines, words: the right to Describe on Topic words is"):
        brokers.log.bounds(Bound.END, [A, OTHER])
    assert len(brokers.calls("list_offsets")) == 1


def test_the_trouble_of_a_partition_is_asked_for_once_in_ten_seconds() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: NO_LEADER}])
    brokers.leaders[OTHER] = -1
    told = {OTHER: "has no leader: its replicas are on brokers 7, 8"}
    for _ in range(3):
        assert brokers.log.bounds(Bound.END, [A, OTHER]).troubles == told
    assert brokers.calls("list_topics").count("words") == 2, "who leads it, and why nobody does"
    brokers.clock.now_s += TEXT_S
    brokers.log.bounds(Bound.END, [A, OTHER])
    assert brokers.calls("list_topics").count("words") == 3


def test_a_trouble_about_which_nobody_can_be_asked_is_told_in_general_words() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: NO_LEADER}])
    brokers.is_deaf = True
    assert brokers.log.bounds(Bound.END, [A, OTHER]).troubles == {OTHER: "has no answer from its leader"}


def test_a_client_that_finds_no_leader_for_long_is_replaced_and_one_that_found_all_is_kept() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: NO_LEADER}])
    brokers.log.bounds(Bound.END, [A, OTHER])
    brokers.clock.now_s += SILENT_AGAIN_S - 0.01
    brokers.log.bounds(Bound.END, [A, OTHER])
    assert brokers.admins == 1
    brokers.clock.now_s += 0.02
    brokers.log.bounds(Bound.END, [A, OTHER])
    brokers.log.bounds(Bound.END, [A, OTHER])
    assert brokers.admins == 2
    brokers.answers["list_offsets"] = [{A: 5, OTHER: 6}]
    brokers.clock.now_s += 60
    for _ in range(3):
        brokers.log.bounds(Bound.END, [A, OTHER])
    assert brokers.admins == 2
    brokers.log.close()
    brokers.log.bounds(Bound.END, [A])
    assert brokers.admins == 3


@pytest.mark.parametrize("every_s", [0.05, 0.1, LEADERS_EVERY_S, 1.0])
@pytest.mark.parametrize("silent_number", [0, 8])
def test_another_leader_than_the_silent_one_is_found_soon_however_often_it_is_asked(
    every_s: float, silent_number: int
) -> None:
    """O431. Who asks all the time asks who leads the other partitions, too: that counted as looked."""
    brokers = Brokers(list_offsets=[{A: 5, OTHER: SILENT}])
    brokers.leaders[OTHER] = silent_number
    brokers.log.bounds(Bound.END, [A, OTHER])
    for _ in range(3):
        brokers.clock.now_s += every_s
        assert brokers.log.bounds(Bound.END, [A, OTHER]).offsets == {A: 5}
    brokers.leaders[OTHER], brokers.answers["list_offsets"] = 7, [{A: 5, OTHER: 6}]
    begun_s = brokers.clock.now_s
    while OTHER not in brokers.log.bounds(Bound.END, [A, OTHER]).offsets:
        brokers.clock.now_s += every_s
    assert brokers.clock.now_s - begun_s <= LEADERS_EVERY_S + every_s


def test_who_leads_the_partition_of_a_silent_broker_is_asked_twice_a_second_at_most() -> None:
    brokers = Brokers(list_offsets=[{A: 5, OTHER: SILENT}])
    brokers.log.bounds(Bound.END, [A, OTHER])
    brokers.asked.clear()
    for _ in range(20):
        brokers.log.bounds(Bound.END, [A, OTHER])
        brokers.clock.now_s += 0.125
    assert brokers.calls("list_topics").count("words") == 5


def test_a_reader_of_messages_sees_what_is_committed_and_fetches_one_batch_at_once() -> None:
    reader = Brokers().log.message_reader()
    assert reader._forced["isolation.level"] == "read_committed"
    assert dict(reader._defaults) == {**DEFAULTS, **ONE_BATCH}
    reader.close()


# rights -----------------------------------------------------------------------------------------------------


def test_topics_to_which_a_right_is_missing_are_those_without_it() -> None:
    acl = confluent_kafka.admin.AclOperation  # type: ignore[attr-defined]  # the package has no __all__
    topics = {
        "may": SimpleNamespace(authorized_operations=[acl.READ, acl.WRITE]),
        "reads": SimpleNamespace(authorized_operations=[acl.READ]),
        "unknown": SimpleNamespace(authorized_operations=None),
    }
    brokers = Brokers(describe_topics=[LOADING, topics])
    assert brokers.log._forbidden_topics(Operation.WRITE, list(topics)) == ["reads", "unknown"]
    assert brokers.admins == 2, "a client that got no answer is given up"
    assert brokers.log._forbidden_topics(Operation.READ, ["may", "reads"]) == []
    brokers = Brokers(describe_topics=[NO_RIGHT])
    with pytest.raises(NotAuthorized, match="for rights to may: the right to Describe on Topic may is"):
        brokers.log._forbidden_topics(Operation.WRITE, ["may"])


# how long it waits ------------------------------------------------------------------------------------------


def test_calls_that_share_a_deadline_have_less_and_less_of_it_and_then_one_attempt_each() -> None:
    client = KafkaClient({}, "test", 30_000, SteadyClock())
    assert (client.deadline().timeout_ms, client.deadline(500).timeout_ms) == (30_000, 500)
    client.share_deadline()
    assert client.deadline().timeout_ms == 20_000
    for waited_ms, timeout_ms, single_ms in [
        (0.0, 20_000, WAIT_MS_MAX),
        (5_000.0, 15_000, WAIT_MS_MAX),
        (20_000.0, 0, WAIT_MS_MAX),
        (28_000.0, 0, 2_000),
        (29_999.9, 0, 1),
        (40_000.0, 0, 1),
    ]:
        client._shared_wait_ms = waited_ms
        deadline = client.deadline()
        assert deadline.timeout_ms == timeout_ms
        assert deadline.wait_min_s == pytest.approx(single_ms / 1_000)
        assert client.deadline(500).timeout_ms == 500
        silent = client.deadline(is_one_silent=True)
        assert (silent.timeout_ms, silent.wait_min_s) == (0, SINGLE_TRY_S)
    assert pytest.approx(20_000 / 30_000) == RETRIED_PART
    assert KafkaClient({}, "test", 800, SteadyClock()).deadline(is_one_silent=True).timeout_ms == 800
    hasty = KafkaClient({}, "test", 800, SteadyClock())
    hasty.share_deadline()
    assert hasty.deadline(is_one_silent=True).wait_min_s == 0.8

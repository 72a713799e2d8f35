"""What all Kafka clients of the port share: settings, deadlines, and the translation of errors.

librdkafka's error codes fall into nine classes, which are distinguished here
and nowhere else:

==============  ==================================================================================
class           what happens
==============  ==================================================================================
transient       retried until the deadline, then `Unreachable`: elections, coordinators that load; of a
                question about partitions `PartitionStands`, which names those that have no answer
silence         the same; the broker does not answer at all
topic           `TopicError`, after a second of grace for a topic that was created just now
fence           `Fenced`: the transactional id has another owner
abort           `Aborted`: the transaction cannot be committed any more; `RecordRefused`: for a record's sake
credentials     `NotAuthenticated`: at once where nothing has answered yet, else in place of `Unreachable`
right           `NotAuthorized`, with the right and the resource
damage          `Damaged`, with the place; see `DAMAGE`
the rest        `OutOfRange`, or `LogError` with what the broker said
==============  ==================================================================================

That a broker does not let us in only librdkafka's own threads learn; whoever
waits learns that nothing answers. So `Background` keeps it, and the waiting
ends with it. That a right is missing comes as the answer to a request, which
knows what the request was for: its `Use`.

No message holds the value of a setting other than the bootstrap servers.
Waits are cut in pieces of `WAIT_MS_MAX`: between them Python's signal handlers
run, and the log says that the broker does not answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    OffsetSpec,
)

from acker.clocks import refused_time_text, wrong_clock_text
from acker.config.kafka_bounds import reconciled
from acker.config.kafka_settings import TOKEN_FUNCTION, hide_values, refused_setting
from acker.errors import (
    NOT_UNPACKED,
    Aborted,
    ConfigError,
    Damaged,
    Fenced,
    LogError,
    NotAuthenticated,
    NotAuthorized,
    OutOfRange,
    PartitionStands,
    RecordRefused,
    TopicError,
    Unreachable,
    WindhoverError,
)
from acker.kafka.port import DamagedRun, Operation, Resource, Right, TopicPartition
from acker.kafka.tokens import Tokens, token_function
from acker.notation import readable
from acker.redaction import HIDDEN, SecretValues, setting_secrets
from acker.untrusted import Untrusted

if TYPE_CHECKING:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
        ClusterMetadata,
    )

T = TypeVar("T")
Clock = Callable[[], float]
"""Monotonic seconds."""

RETRY_PAUSE_S: Final = 0.05
"""How long a call pauses before it is tried again."""

PROPAGATION_MS: Final = 1000
"""How long a topic may be unknown to the broker that is asked after another one has created it."""

WAIT_MS_MAX: Final = 3_000
"""How long one call into librdkafka waits; then it is called again, until its deadline."""

LEADERS_S: Final = 2.0
"""How long the question who leads the partitions of a topic may take, after something has waited too long."""

MARKERS_S: Final = 0.1
"""How long a coordinator may take to end an aborted transaction in its partitions, before these are asked."""

SINGLE_TRY_S: Final = 1.5
"""How long the one try waits of calls that share a deadline, once a broker is
known to be silent. A view has some ten questions, and of three
brokers the silent one coordinates a third of the groups."""

RETRIED_PART: Final = 2 / 3
"""Calls that share a deadline are tried again in so large a part of it: an
election fits in. In the rest each is tried once, so that one silent broker
leaves time for what the others answer."""

OUTAGE_AGAIN_MS: Final = 60_000
"""How often the log says that the broker still does not answer."""

OUTAGE_OVER_MS: Final = 5_000
"""An outage is over when something was answered and nothing has waited for so long."""

THROTTLED_LOGGED_FROM_S: Final = 1.0
"""A quota is logged if it has held answers back for so long within a minute."""

THROTTLED_LOGGED_EVERY_S: Final = 60.0
"""How often it is logged; and it is over when nothing was throttled for so long."""

THROTTLED_RECENT_S: Final = 10.0
"""So long after a throttled answer a wait counts as one for the quota."""

THROTTLED_CURE: Final = (
    "a quota of the broker slows this client down: see `kafka-configs.sh --describe --entity-type clients`,"
    " and the same for users, and raise producer_byte_rate, consumer_byte_rate or request_percentage"
)

LIBRDKAFKA: Final = "librdkafka"
"""Name of the logger that gets librdkafka's own lines, and what its threads report."""


class SettingsHidden(logging.Filter):
    """Takes out of librdkafka's lines what the settings of a client say is secret, for whatever
    handler.

    librdkafka itself leaves passwords out, and not what an address or a part
    of a setting has of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._secrets: frozenset[str] = frozenset()
        self._secret_values = SecretValues({})  # replaces each of the secrets in a text

    def add(self, settings: Mapping[str, str]) -> None:
        """Hide the secrets of these settings, too, from now on."""
        secrets = self._secrets | frozenset(setting_secrets(settings))
        if secrets == self._secrets:  # the usual case: all clients of a process have the same
            return
        # first what hides them: another thread may find `_secrets` as it needs
        # them, and log at once
        self._secret_values = SecretValues(dict.fromkeys(secrets, HIDDEN))
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Make a message one line without secrets, and let it through."""
        record.msg = readable(self._secret_values.hide(record.getMessage()))
        record.args = ()  # they are part of the message now
        return True


SETTINGS_HIDDEN: Final = SettingsHidden()

_log = logging.getLogger(__name__)
_librdkafka = logging.getLogger(LIBRDKAFKA)
_librdkafka.addFilter(SETTINGS_HIDDEN)
# without a handler of the application's, Python would print to stderr what
# comes as an exception anyhow
for _logger in (_log, _librdkafka):
    _logger.addHandler(logging.NullHandler())

LOGGED: Mapping[str, Any] = MappingProxyType({"logger": _librdkafka})
"""Sends librdkafka's own log lines to Python's logging, from the calls that serve callbacks."""

CHECKED: Mapping[str, Any] = MappingProxyType(
    {
        "check.crcs": True,
        # A consumer uses it for nothing, but librdkafka lets
        # `fetch.max.bytes` not be less. Its default, and not what a user set
        # for producers.
        "message.max.bytes": 1_000_000,
    }
)
"""For each consumer: librdkafka's default is to hand out what was changed on a broker's disk."""

SILENT: Mapping[str, Any] = MappingProxyType({"log.queue": True, "log_level": 0})
"""Drops librdkafka's own log lines. For producers: they die in the ordinary
course (fenced), and confluent-kafka then runs Python callbacks with the
exception already set, which Python does not survive."""

TRANSIENT: Final = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._DESTROY_BROKER,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
    }
)
SILENCE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
    }
)
NO_SUCH_TOPIC: Final = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
FENCE: Final = frozenset({KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._FENCED})
RECORD_REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""What a broker, or the client, says of records that the settings of a topic do not allow."""
DAMAGE: Final[Mapping[int, str]] = MappingProxyType(
    {
        KafkaError._BAD_COMPRESSION: f"{NOT_UNPACKED}, or to more than receive.message.max.bytes",
        KafkaError._BAD_MSG: "its checksum is wrong",
        KafkaError._NOT_IMPLEMENTED: "it names a codec or a version that there is none of",
        KafkaError.INVALID_MSG: "the broker cannot read its head",
    }
)
"""What an event of a partition means by which the client reports a batch that
cannot be read. Only the first one can be believed: behind a wrong checksum
librdkafka (2.16) goes on in the middle of the batch, takes what it finds
there for heads of further batches, and fetches from where they seem to
lie."""

PASSED_OVER_MAX: Final = 1_000
"""So many runs of damaged offsets are remembered, to be shown."""

NOT_IN_LOG: Final = frozenset(
    {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._NO_OFFSET}
)

UNAUTHENTICATED: Final = frozenset(
    {
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
"""The broker does not accept us, or we do not accept it."""

_RESOURCES: Final = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
}

UNAUTHORIZED: Final = frozenset({*_RESOURCES, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
"""The broker knows us, and a right is missing."""

SILENT_BROKER_MS: Final = 10_000
"""How long a broker may be silent before a request to it has failed.

The client then asks who leads now.
"""

CONNECTION_MS: Final = 5_000
"""How long a new connection may take, and its first request."""

COMMON: Mapping[str, Any] = MappingProxyType(
    {
        # the defaults, 100 and 10,000 ms, make a client of a restarted broker
        # late by seconds
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        # A broker that is cut off in silence loses its leaders after nine
        # seconds, or some more where it was the controller. What was on its
        # way to it goes elsewhere when it has timed out; until the client
        # knows of another leader, it connects to the silent broker again. By
        # default a request takes 60 s, a connection 30 s and its first
        # request 10 s.
        "socket.timeout.ms": SILENT_BROKER_MS,
        "socket.connection.setup.timeout.ms": CONNECTION_MS,
        "api.version.request.timeout.ms": CONNECTION_MS,
    }
)


@dataclass(frozen=True, slots=True)
class Use:
    """What a request does with resources; of those that it does not touch the name is empty."""

    operation: Operation
    topic: str = ""
    group: str = ""
    transactional_id: str = ""

    def right(self, code: int) -> Right | None:
        """Return the right that an error code says is missing; None where the code does not say
        which.

        A broker gives a producer its id only if the producer may write to
        some topic. Else it refuses with the code of the cluster, though the
        right to a topic is missing.
        """
        is_producer_id_refused = (
            code == KafkaError.CLUSTER_AUTHORIZATION_FAILED and self.operation is Operation.WRITE
        )
        resource = Resource.TOPIC if is_producer_id_refused else _RESOURCES.get(code)
        if resource is None:
            return None
        names_by_resource = {
            Resource.TOPIC: self.topic,
            Resource.GROUP: self.group,
            Resource.TRANSACTIONAL_ID: self.transactional_id,
        }
        name = names_by_resource[resource]
        return Right(self.operation, resource, name) if name else None


class Refused(KafkaException):
    """A part of an answer was an error.

    `use` is what the request did with the resource of that part.
    """

    def __init__(self, cause: KafkaError, use: Use) -> None:
        super().__init__(cause)
        self.use = use


class Troubled(KafkaException):
    """Kafka answered, but not for some partitions.

    `texts` asks for the trouble text of each of these.
    """

    def __init__(self, cause: KafkaError, texts: Callable[[], Mapping[TopicPartition, str]]) -> None:
        super().__init__(cause)
        self.texts = texts


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return partitions by their topic, for questions about one topic each.

    Topics and partitions ascend.
    """
    partitions_by_topic: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        partitions_by_topic.setdefault(partition.topic, []).append(partition)
    return partitions_by_topic


def trouble_text(metadata: ClusterMetadata, partition: TopicPartition, error_name: str = "") -> str:
    """Return why a partition has no answer: its *trouble text*, words that follow its name.

    `error_name` is the error that came instead of the answer. Without it only
    a missing leader is a trouble: the text is empty where there is a leader,
    or no such partition.
    """
    description = metadata.topics[partition.topic].partitions.get(partition.partition)
    leader = None if description is None else metadata.brokers.get(description.leader)
    if description is not None and leader is None:
        brokers = "brokers" if len(description.replicas) > 1 else "broker"
        numbers = ", ".join(map(str, sorted(description.replicas)))
        return f"has no leader: its replicas are on {brokers} {numbers}"
    if not error_name:
        return ""
    if leader is None:
        return f"is not there ({error_name})"
    return f"has no answer from its leader, {leader.host}:{leader.port} ({error_name})"


def missing_right_text(doing: str, right: Right | None, bootstrap: str, text: str) -> str:
    """Return the message of a missing right (None: it is not known which), with how it is granted.

    `doing` begins it, as "reading sentences/3"; `text` is what the broker said.
    """
    missing = f"the right to {right} is missing" if right else "a right is missing"
    return (
        f"{doing}: {missing} at {bootstrap} ({text}); `windhover acls` prints what each role needs: grant it"
    )


def refused_login_text(doing: str, bootstrap: str, text: str) -> str:
    """Return the message of a broker that was reached and accepted no connection.

    `doing` begins it, as "reading sentences/3"; `text` is the error's.
    """
    return (
        f"{doing}: no connection to {bootstrap} was accepted ({text}); correct security.protocol, the sasl.*"
        " and the ssl.* settings of `kafka` in topics.yaml"
    )


class Deadline:
    """The moment at which a timeout is over, so that several calls can share one timeout.

    Attributes:
        timeout_ms: the timeout that it was made from; it began at that moment.
        wait_min_s: how long one try may last at least, also when the moment is past.
    """

    __slots__ = ("_clock", "_ends_s", "timeout_ms", "wait_min_s")

    def __init__(self, clock: Clock, timeout_ms: int, wait_min_s: float = 0.001) -> None:
        self._clock = clock
        self._ends_s = clock() + timeout_ms / 1000
        self.timeout_ms = timeout_ms
        self.wait_min_s = wait_min_s

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 when it is over."""
        return max(0.0, self._ends_s - self._clock())

    @property
    def next_wait_s(self) -> float:
        """Seconds that the next call may wait; never 0, which some calls take for "without end"."""
        return min(max(self.left_s, self.wait_min_s), WAIT_MS_MAX / 1000)

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the timeout began."""
        return (self._clock() - self._ends_s) * 1000 + self.timeout_ms

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self._clock() >= self._ends_s


class Background:
    """What a client's own threads reported: the handler for librdkafka's ``error_cb``.

    Attributes:
        newest_error: the newest error, other than that all brokers are down;
            None before one.
        refusal: the newest error by which a broker did not let us in, until
            one answers; None without one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all_down_since_s: float | None = None  # None: a broker is up, or none was asked yet
        self._has_answered = False
        self._connection_lost_s: float | None = None  # when one was lost last; None: none was
        self.newest_error: KafkaError | None = None
        self.refusal: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Keep an error that one of the client's threads reports, for a caller that can raise it.

        A fatal one is raised by confluent-kafka itself.
        """
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._record_all_down(error.str())
            return
        self.newest_error = error
        if error.code() == KafkaError._TRANSPORT:
            self._connection_lost_s = self._clock()
        if error.code() in UNAUTHENTICATED:
            self.refusal = error
        _librdkafka.warning("kafka client: %s", error.str())

    def _record_all_down(self, text: str) -> None:
        """Record since when no connection is up.

        `text` is librdkafka's text, such as "2/2 brokers are down". librdkafka
        reports this of an idle client, too, once its brokers have closed its
        connections (`connections.max.idle.ms`). So it is logged for debugging
        alone, and not as a warning. A caller that waits for an answer asks the
        brokers first, and only if none answers `Outage` logs that.

        The two numbers of the text mean nothing: another thread of librdkafka
        may change them before the text is written. So the text may be "0/2",
        and no other text may come during an outage.
        """
        if self._all_down_since_s is None:
            self._all_down_since_s = self._clock()
        _librdkafka.debug("kafka client: %s", text)

    def record_answer(self) -> None:
        """Record that a broker has answered: not all are down, and we are let in."""
        self._all_down_since_s = None
        self.refusal = None
        self._has_answered = True

    def lost_connection_within(self, seconds: float) -> bool:
        """Return whether the connection to a broker was lost, or refused, in the last `seconds`."""
        return self._connection_lost_s is not None and self._clock() - self._connection_lost_s < seconds

    @property
    def is_hopeless(self) -> bool:
        """Whether waiting is of no use: the only answer so far is that we are not let in."""
        return self.refusal is not None and not self._has_answered

    def silent_ms(self) -> float:
        """Return the milliseconds since all brokers went down, 0 while one answers."""
        if self._all_down_since_s is None:
            return 0.0
        return (self._clock() - self._all_down_since_s) * 1000


class Outage:
    """Logs that the broker does not answer: soon, then once a minute, and once when it is over.

    A process may wait for one broker of several while the others answer, so
    an answer ends the outage only when nothing has waited for a while.
    """

    def __init__(self, clock: Clock, bootstrap: str, throttling: Throttling | None = None) -> None:
        """Begin without an outage.

        `throttling` knows whether a wait is for a quota, which is no outage.
        """
        self._clock = clock
        self._bootstrap = bootstrap
        self._throttling = throttling
        # times by the clock, in seconds
        self._began_s: float | None = None  # when this outage began; None: there is no outage
        self._began_iso_text = ""  # the same, as wall time
        self._waited_at_s = 0.0  # when a call waited last
        self._logged_at_s = 0.0  # when the log said last that the broker does not answer
        self._lock = Lock()  # calls side by side wait for one broker

    def record_wait(self, doing: str, waited_ms: float, why: str) -> None:
        """Record that a call has waited `waited_ms` for an answer, and waits on; log it if a log
        line is due.

        `doing` is what the call does, `why` the error of its last try.
        """
        with self._lock:
            now_s = self._clock()
            began_s = self._began_s
            if began_s is None:
                if waited_ms < WAIT_MS_MAX:  # too short a wait to be called an outage
                    return
                began_s = self._begin(now_s, waited_ms)
                is_log_due = True
            else:
                is_log_due = (now_s - self._logged_at_s) * 1000 >= OUTAGE_AGAIN_MS
            self._waited_at_s = now_s
            if is_log_due:
                self._logged_at_s = now_s
                is_throttled = self._throttling is not None and self._throttling.is_recent
                event = "the broker throttles" if is_throttled else "the broker does not answer"
                self._log_event(event, now_s - began_s, waits=doing, error=why)

    def record_answer(self) -> None:
        """Record an answer: it ends the outage, and logs that, if nothing has waited for `OUTAGE_OVER_MS`."""
        with self._lock:
            if self._began_s is None:
                return
            if (self._clock() - self._waited_at_s) * 1000 >= OUTAGE_OVER_MS:
                # it has lasted until a call waited last
                lasted_s = self._waited_at_s - self._began_s
                self._log_event("the broker answers again", lasted_s)
                self._began_s = None

    def _begin(self, now_s: float, waited_ms: float) -> float:
        """Record that the outage began `waited_ms` ago; return when, in seconds by the clock."""
        began_s = now_s - waited_ms / 1000
        began = datetime.fromtimestamp(time.time() - waited_ms / 1000, UTC)
        self._began_s = began_s
        self._began_iso_text = began.isoformat(timespec="seconds")
        return began_s

    def _log_event(self, event: str, lasted_s: float, **fields: str) -> None:
        """Log an event of the outage, which has lasted so long."""
        outage = {
            "kafka": self._bootstrap,
            "since": self._began_iso_text,
            "seconds": round(lasted_s, 1),
        }
        _log.warning(event, extra={**outage, **fields})


class ThrottledAnswer(Protocol):
    """What librdkafka says of an answer that its broker held back, or after which it lets the client wait."""

    broker_name: str
    throttle_time: float


class Throttling:
    """The handler for librdkafka's ``throttle_cb``: logs that a quota of the broker slows us down.

    Answers are held back for some milliseconds wherever a quota is nearly
    used up: that is what it is for. So it is logged when it was a second
    within a minute, then once a minute, and once when it is over.
    """

    def __init__(self, clock: Clock, bootstrap: str) -> None:
        self._clock = clock
        self._bootstrap = bootstrap
        self._lock = Lock()  # each client of a process calls it in the thread that polls it
        self._minute_began_s = 0.0
        # in this minute: how long answers were held back, and how many were
        self._throttled_s = 0.0
        self._throttled_count = 0
        # when the wait after the last throttled answer ends; None: none was throttled yet
        self._wait_ends_s: float | None = None
        # when throttling was logged last; None: it is not logged, or its end is
        self._logged_at_s: float | None = None

    def __call__(self, answer: ThrottledAnswer) -> None:
        """Count a throttled answer, and log it if a line is due.

        Its `throttle_time` is in seconds.
        """
        if answer.throttle_time <= 0:  # librdkafka reports in this form, too, that throttling has ended
            return
        with self._lock:
            now_s = self._clock()
            if now_s - self._minute_began_s >= THROTTLED_LOGGED_EVERY_S:
                self._minute_began_s = now_s
                self._throttled_s = 0.0
                self._throttled_count = 0
            self._throttled_s += answer.throttle_time
            self._throttled_count += 1
            self._wait_ends_s = now_s + answer.throttle_time
            is_log_due = self._logged_at_s is None or now_s - self._logged_at_s >= THROTTLED_LOGGED_EVERY_S
            if is_log_due and self._throttled_s >= THROTTLED_LOGGED_FROM_S:
                self._logged_at_s = now_s
                self._log_event("the broker throttles", broker=answer.broker_name, next_step=THROTTLED_CURE)

    @property
    def is_recent(self) -> bool:
        """Whether the last answers were throttled by a second or more, a moment ago."""
        if self._wait_ends_s is None or self._throttled_s < THROTTLED_LOGGED_FROM_S:
            return False
        return self._clock() - self._wait_ends_s < THROTTLED_RECENT_S

    def record_answer(self) -> None:
        """Record an answer; log that throttling is over if it was logged and a minute is past."""
        # read without the lock, since this is called for each answer of the broker
        if self._logged_at_s is None or self._wait_ends_s is None:
            return
        with self._lock:
            unthrottled_s = self._clock() - self._wait_ends_s
            # asked again: another thread may have logged the end meanwhile
            if self._logged_at_s is not None and unthrottled_s >= THROTTLED_LOGGED_EVERY_S:
                self._logged_at_s = None
                self._log_event("the broker throttles no more")

    def _log_event(self, event: str, **fields: str) -> None:
        """Log an event with how long answers were held back within this minute, and how many."""
        minute = {
            "kafka": self._bootstrap,
            "throttled_s": round(self._throttled_s, 1),
            "answers": self._throttled_count,
        }
        _log.warning(event, extra={**minute, **fields})


def _wall_ms() -> int:
    """Return wall time in milliseconds, for messages about clocks."""
    return time.time_ns() // 1_000_000


class KafkaClient:
    """What the clients of one view of a cluster share: settings, deadlines, the translation of
    errors.

    Attributes:
        settings: the user's, by librdkafka's names.
        operation_timeout_ms: how long a call without a timeout of its own may
            take.
        clock: monotonic seconds.
        throttling: which of the brokers' quotas slow us down.
        outage: whether a broker does not answer.
        passed_over: the runs of damaged offsets that readers have left out,
            each once, in their order.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        client_id: str,
        operation_timeout_ms: int,
        clock: Clock,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Keep the settings, named as in librdkafka; nothing is connected.

        `clock` gives steady seconds; `sleep` waits for so many, between two tries of a call.
        """
        self.settings = dict(settings)
        SETTINGS_HIDDEN.add(self.settings)
        self._client_id = client_id
        self.operation_timeout_ms = operation_timeout_ms
        self.clock = clock
        self._sleep = sleep
        self.throttling = Throttling(clock, self.bootstrap)
        self.outage = Outage(clock, self.bootstrap, self.throttling)
        # How long the calls have waited so far, in ms, which share the time of
        # one (`share_deadline`). None: each call has a deadline of its own.
        self._shared_wait_ms: float | None = None
        self.passed_over: dict[DamagedRun, None] = {}

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, for messages; "?" where no setting names them."""
        return self.settings.get("bootstrap.servers") or self.settings.get("metadata.broker.list", "?")

    def record_answer(self, background: Background) -> None:
        """Record that a broker has answered the client that `background` belongs to."""
        background.record_answer()
        self.outage.record_answer()
        self.throttling.record_answer()

    def make_client(
        self,
        kind: Callable[[dict[str, Any]], T],
        defaults: Mapping[str, Any],
        forced: Mapping[str, Any],
        background: Background,
    ) -> T:
        """Make a client of confluent-kafka; the user's settings may overrule `defaults`, never
        `forced`.

        Defaults that a setting of the user's contradicts give way to it.
        `kind` is the class of the client, `background` gets what its threads
        report.

        Raises:
            ConfigError: librdkafka does not accept the settings.
            NotAuthenticated: the user's function gives no token.
        """
        common_forced: dict[str, Any] = {
            "client.id": self._client_id,
            "error_cb": background,
            "throttle_cb": self.throttling,
            # Else a broker that makes the topics that somebody looks for
            # would make a missing one, with one partition and its own
            # settings. librdkafka lets producers and admin clients do it by
            # default.
            "allow.auto.create.topics": False,
        }
        if TOKEN_FUNCTION in self.settings:
            function_name = self.settings[TOKEN_FUNCTION]
            tokens = Tokens(function_name, token_function(function_name))
            tokens.take_first(self.settings.get("sasl.oauthbearer.config", ""))
            common_forced[TOKEN_FUNCTION] = tokens
        settings = reconciled({**COMMON, **defaults}, self.settings, {**common_forced, **forced})
        try:
            return kind(settings)
        except KafkaException as error:
            raise ConfigError(refused_setting(error.args[0].str(), self.settings)) from None

    def record_passed_over(self, run: DamagedRun) -> None:
        """Keep a run that a reader left out, for `Log.passed_over`; of very many the first ones.

        An empty run is not kept: the reader could read its partition again.
        """
        if run.start < run.end and len(self.passed_over) < PASSED_OVER_MAX:
            self.passed_over[run] = None

    def share_deadline(self) -> None:
        """Give all calls from now on together the time of one alone; see `Log.share_deadline`."""
        self._shared_wait_ms = 0.0

    def deadline(self, timeout_ms: int | None = None, *, is_one_silent: bool = False) -> Deadline:
        """Return until when a call is tried; `timeout_ms` None: as long as an operation may take.

        `is_one_silent`: a broker is known to be silent. Then each of the
        calls that share a deadline is tried once: to wait for that broker
        again and again would bring nothing. Other calls wait as ever: a
        service has nothing better to do until the cluster misses the broker,
        which takes nine seconds.
        """
        limit_ms = self.operation_timeout_ms
        if timeout_ms is not None:
            return Deadline(self.clock, timeout_ms)
        if self._shared_wait_ms is None:
            return Deadline(self.clock, limit_ms)
        if is_one_silent:  # a deadline of 0: one try
            return Deadline(self.clock, 0, wait_min_s=min(SINGLE_TRY_S, limit_ms / 1000))
        # Of 30 s, calls are tried again in the first 20 s, and once each in
        # the last 10 s: then `retried_ms` is 0 or less.
        retried_ms = limit_ms * RETRIED_PART - self._shared_wait_ms
        left_ms = limit_ms - self._shared_wait_ms
        single_try_ms = max(1.0, min(WAIT_MS_MAX, left_ms))
        return Deadline(self.clock, max(0, int(retried_ms)), wait_min_s=single_try_ms / 1000)

    def retry(
        self,
        doing: str,
        deadline: Deadline,
        call: Callable[[], T],
        background: Background,
        use: Use | None,
    ) -> T:
        """Call `call` until it succeeds, fails for good, or `deadline` is over; log the waits as an
        outage.

        `doing` is the subject of messages, as "reading sentences/3".
        `background` is of the client that is called. `use` is what the
        request uses, for the message of a missing right. None: it uses
        several things. If the error is a `Refused`, its own `use` counts
        instead. Raises the errors of the table at the head of this module.
        """
        # the calls that share a deadline (`share_deadline`) have used up its time: this one is not
        # tried at all
        if self._shared_wait_ms is not None and self._shared_wait_ms >= self.operation_timeout_ms:
            raise Unreachable(
                f"{doing}: not asked, since Kafka at {self.bootstrap} left other questions without an answer"
                f" for {self.operation_timeout_ms} ms; start it, or wait"
            )
        added_to_shared_ms = 0.0  # how much of this call's wait was added to the shared one already
        # the error of the try before this one if it was a `Troubled`; None: it
        # was another error, or this is the first try
        former_trouble: Troubled | None = None
        while True:
            try:
                answer = call()
            except KafkaException as error:
                if self._shared_wait_ms is not None:
                    self._shared_wait_ms += deadline.elapsed_ms - added_to_shared_ms
                    added_to_shared_ms = deadline.elapsed_ms
                cause: KafkaError = error.args[0]
                # `is_hopeless`: every broker has refused our login, so waiting is of no use.
                # `_may_pass`: it may be gone at a next try, and the deadline leaves time for one.
                if background.is_hopeless or not self._may_pass(cause, deadline):
                    error_to_raise = error
                    is_silence = cause.code() in SILENCE and not background.is_hopeless
                    # The deadline may leave the last try only a moment, in
                    # which no broker answers. The try before says more: it
                    # names the partitions.
                    if former_trouble is not None and is_silence:
                        error_to_raise = former_trouble
                    raise self._final_error(error_to_raise, doing, deadline, background, use) from error
                former_trouble = error if isinstance(error, Troubled) else None
                self.outage.record_wait(doing, deadline.elapsed_ms, self._text(cause))
            else:
                self.record_answer(background)
                return answer
            self._sleep(min(RETRY_PAUSE_S, deadline.left_s))

    def _final_error(
        self,
        error: KafkaException,
        doing: str,
        deadline: Deadline,
        background: Background,
        use: Use | None,
    ) -> WindhoverError:
        """Return, as an error of ours, the error of a call that is not tried again.

        `error` is the client's. The other arguments are those of `retry`;
        `background` may have the reason why no broker answers.
        """
        # Kafka answered, but not for some partitions: the message names these
        if isinstance(error, Troubled):
            return self.partition_stands_error(doing, error.texts())
        # a part of the answer was an error: its use is more exact than that of the whole request
        if isinstance(error, Refused):
            use = error.use
        return self.error(error.args[0], doing, deadline.timeout_ms, background, use)

    def partition_count(self, asker: Consumer, topic: str, background: Background) -> int:
        """Return how many partitions a topic has; `background` is that of the client `asker`."""
        return len(self.metadata_of(asker, topic, background).topics[topic].partitions)

    def metadata_of(self, asker: Consumer, topic: str, background: Background) -> ClusterMetadata:
        """Return the metadata of a topic and the brokers, asked for now; `TopicError` without the
        topic.

        librdkafka itself would wait for a missing topic without a word.
        """
        deadline = self.deadline()

        def ask() -> ClusterMetadata:
            metadata: ClusterMetadata = asker.list_topics(topic, deadline.next_wait_s)
            error = metadata.topics[topic].error
            if error is not None:
                raise KafkaException(error)
            return metadata

        use = Use(Operation.DESCRIBE, topic=topic)
        return self.retry(f"looking for {topic}", deadline, ask, background, use)

    def leaderless_troubles(
        self, asker: Consumer | Producer, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, str]:
        """Return the partitions that have no leader, each with its trouble text.

        When Kafka does not answer any more, the topics that are left are not
        asked about. Empty: each partition has a leader, or Kafka is silent.
        """
        texts: dict[TopicPartition, str] = {}
        for topic, partitions_of_topic in by_topic(partitions).items():
            try:
                metadata = asker.list_topics(topic, LEADERS_S)
            except KafkaException:
                break
            for partition in partitions_of_topic:
                text = trouble_text(metadata, partition)
                if text:
                    texts[partition] = text
        return texts

    def require_answers(self, asker: Consumer, topic: str, doing: str, background: Background) -> None:
        """Ask whether a broker answers, if all are said to be down; log it if none does.

        `asker` is a consumer that got nothing; it asks the brokers for
        `topic`, or for all topics if that is empty. Raises `Unreachable`:
        none has answered for as long as an operation may take.
        """
        silent_ms = background.silent_ms()
        limit_ms = self.operation_timeout_ms
        if silent_ms < min(WAIT_MS_MAX, limit_ms):  # too short a silence to be one
            return
        try:  # asked, since librdkafka does not report that a broker is back
            asker.list_topics(topic, 1.0)
        except KafkaException as error:
            text = self._text(error.args[0])
            if silent_ms >= limit_ms:
                raise self.unreachable_error(doing, limit_ms, text, background) from error
            self.outage.record_wait(doing, silent_ms, text)
        else:
            self.record_answer(background)

    def error(
        self,
        cause: KafkaError,
        doing: str,
        timeout_ms: int | None = None,
        background: Background | None = None,
        use: Use | None = None,
    ) -> WindhoverError:
        """Return an error of librdkafka as one of ours; see the table of this module.

        Args:
            doing: what was done to what, as "reading sentences/3".
            timeout_ms: how long it was tried; None: the message does not say it.
            background: of the client; it may know why nothing answers.
            use: what the request used; None: the message names no right.
        """
        code = cause.code()
        text = self._text(cause)
        if code in UNAUTHORIZED:
            right = None if use is None else use.right(code)
            return NotAuthorized(missing_right_text(doing, right, self.bootstrap, text))
        if code in UNAUTHENTICATED:
            return NotAuthenticated(refused_login_text(doing, self.bootstrap, text))
        if code in FENCE:
            return Fenced(f"{doing}: another process owns this transactional id now ({text})")
        if code == KafkaError.INVALID_TIMESTAMP:  # how far the clocks are apart is not asked here
            return self.refused_time_error(doing, cause, None)
        if code in RECORD_REFUSED:
            reason = f"{cause.name()}: {KafkaError(code).str()}"
            return RecordRefused(
                f"{doing}: the settings of a topic refuse a record ({text}); see `windhover topics check`",
                reason,
            )
        if cause.txn_requires_abort():
            return Aborted(f"{doing}: aborted instead ({text}); restore, or write it again")
        if code in SILENCE or code in TRANSIENT:
            return self.unreachable_error(doing, timeout_ms, text, background)
        if code in NO_SUCH_TOPIC:
            return TopicError(
                f"{doing}: there is no such topic or partition ({text}); run `windhover topics create`"
            )
        if code in NOT_IN_LOG:
            return OutOfRange(f"{doing}: the position is not in the log ({text})")
        return LogError(f"{doing}: refused by {self.bootstrap}: {text}")

    def refused_time_error(
        self,
        doing: str,
        cause: KafkaError,
        ahead_ms: int | None,
    ) -> RecordRefused:
        """Return the error of a record whose time the broker refuses.

        `doing` begins its message, as "writing sentences/3"; `cause` is the
        client's error. `ahead_ms` is by how much this machine's clock is ahead
        of the broker's; None: unknown.
        """
        time_text = refused_time_text(_wall_ms(), ahead_ms)
        # It begins with the name of the code: `RecordRefused.is_of_time` reads that.
        # `KafkaError(...)` has the general text of the code, while `cause.str()` may have details.
        reason = f"{cause.name()}: {KafkaError(cause.code()).str()}"
        clock_text = wrong_clock_text(ahead_ms)
        if clock_text:
            reason = f"{reason}; {clock_text}"
        cause_text = self._text(cause)
        return RecordRefused(
            f"{doing}: the broker refuses the time of a record ({cause_text}): {time_text}", reason
        )

    def ahead_of_broker_ms(self, partitions: Collection[TopicPartition]) -> int | None:
        """Return by how much this machine's clock is ahead of the broker's.

        `partitions` are the partitions of a transaction that was aborted just
        now. Its coordinator has written a marker into each, with a time of
        its own clock. None: there is no partition, the broker does not answer,
        or a partition has no record.
        """
        newest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # the client's stubs
        requested = [confluent_kafka.TopicPartition(*partition) for partition in partitions]
        specs_by_partition = dict.fromkeys(requested, newest)
        if not specs_by_partition:
            return None
        admin = self.make_client(AdminClient, {}, SILENT, Background(self.clock))
        # the markers are written some time after the abort was answered
        self._sleep(MARKERS_S)
        try:
            futures = admin.list_offsets(specs_by_partition, request_timeout=LEADERS_S)
            newest_times_ms = [future.result(LEADERS_S).timestamp for future in futures.values()]
        except (KafkaException, TimeoutError):
            # the caller raises the refusal of the record without a difference of the clocks
            return None
        # A topic may hold records that are dated ahead, so the least of the
        # newest times is the marker's.
        marker_ms: int = min(newest_times_ms)
        if marker_ms <= 0:  # a partition without a record has none
            return None
        return _wall_ms() - marker_ms

    def damage_error(self, cause: KafkaError, partition: TopicPartition, position: int) -> Damaged:
        """Return the error of a batch that cannot be read from `position` on.

        `cause` is of `DAMAGE`.
        """
        return Damaged(*partition, position, f"{DAMAGE[cause.code()]}; {self._text(cause)}")

    def unreachable_error(
        self, doing: str, timeout_ms: int | None, text: str, background: Background | None = None
    ) -> WindhoverError:
        """Return the error of a broker that does not answer, or of one that does not let us in.

        `text` is why the last try failed; the other arguments are those of
        `error`. A `timeout_ms` of 0 was one single try, of which the message
        says no time.
        """
        # what the client's own threads reported; None: nothing
        reported_error: KafkaError | None = None
        if background is not None:
            reported_error = background.refusal or background.newest_error
        if reported_error is not None:
            reported_text = self._text(reported_error)
            if reported_error.code() in UNAUTHENTICATED:
                return NotAuthenticated(refused_login_text(doing, self.bootstrap, reported_text))
            text = f"{text}; {reported_text}"
        if self.throttling.is_recent:
            text = f"{text}; {THROTTLED_CURE}"
        within = f" within {timeout_ms} ms" if timeout_ms else ""
        return Unreachable(
            f"{doing}: no answer from Kafka at {self.bootstrap}{within} ({text}); start it, or wait"
        )

    def partition_stands_error(
        self, doing: str, text_by_partition: Mapping[TopicPartition, str]
    ) -> PartitionStands:
        """Return the error of the partitions that have no answer while others have one.

        `text_by_partition` has their trouble texts; `doing` begins the message.
        """
        troubles = "; ".join(
            f"{partition.name} {text}" for partition, text in sorted(text_by_partition.items())
        )
        return PartitionStands(
            f"{doing}: {troubles}; start what is missing, or wait:"
            f" Kafka at {self.bootstrap} answers otherwise"
        )

    def _may_pass(self, cause: KafkaError, deadline: Deadline) -> bool:
        """Return whether an error may be gone at a next try, for which the deadline leaves time."""
        if deadline.is_over or cause.fatal() or cause.txn_requires_abort():
            return False
        if cause.code() in NO_SUCH_TOPIC:  # this broker may not know a new topic yet
            return deadline.elapsed_ms < PROPAGATION_MS
        return cause.retriable() or cause.code() in TRANSIENT or cause.code() in SILENCE

    def _text(self, cause: KafkaError) -> str:
        """Return an error's name and text, without the values of settings."""
        return f"{cause.name()}: {Untrusted(hide_values(cause.str(), self.settings))}"

"""What a broker says when it does not let us in, or does not let us do something, by librdkafka's codes.

That it does not let us in (`NotAuthenticated`) only librdkafka's own threads learn; whoever waits learns that
nothing answers. So `Background` keeps it, and the waiting ends with it. That a right is missing comes as the
answer to a request, which knows what the request was for: its `Use`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from acker.kafka.port import Operation, Resource, Right

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


@dataclass(frozen=True, slots=True)
class Use:
    """What a request does with resources; of those that it does not touch the name is empty."""

    operation: Operation
    topic: str = ""
    group: str = ""
    transactional_id: str = ""

    def right(self, code: int) -> Right | None:
        """Return the right that an error code says is missing; None where the code does not say which.

        A producer's id is given to whoever may write to any topic; who may not is refused it by the cluster.
        """
        wants_id = code == KafkaError.CLUSTER_AUTHORIZATION_FAILED and self.operation is Operation.WRITE
        resource = Resource.TOPIC if wants_id else _RESOURCES.get(code)
        names = {
            Resource.TOPIC: self.topic,
            Resource.GROUP: self.group,
            Resource.TRANSACTIONAL_ID: self.transactional_id,
        }
        if resource is None or not names[resource]:
            return None
        return Right(self.operation, resource, names[resource])


class Refused(KafkaException):
    """A part of an answer was an error; `use` says what the request did with that part's resource."""

    def __init__(self, cause: KafkaError, use: Use) -> None:
        super().__init__(cause)
        self.use = use


def unauthorized(doing: str, right: Right | None, bootstrap: str, text: str) -> str:
    """Say which right is missing for what, and how it is granted."""
    missing = f"the right to {right} is missing" if right else "a right is missing"
    return (
        f"{doing}: {missing} at {bootstrap} ({text}); `windhover acls` prints what each role needs: grant it"
    )


def unauthenticated(doing: str, bootstrap: str, text: str) -> str:
    """Say that the broker was reached and no connection came about."""
    return (
        f"{doing}: no connection to {bootstrap} was accepted ({text}); correct security.protocol, the sasl.*"
        " and the ssl.* settings of `kafka` in topics.yaml"
    )

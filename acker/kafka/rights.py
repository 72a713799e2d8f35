"""Rights as Kafka has them: an operation on a resource; `acker.provisioning.roles` says who needs which."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Resource(StrEnum):
    """What a right is for, as Kafka calls it."""

    TOPIC = "Topic"
    GROUP = "Group"
    TRANSACTIONAL_ID = "TransactionalId"


class Operation(StrEnum):
    """What a right allows, as Kafka calls it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource. `is_prefix`: on all whose names begin so."""

    operation: Operation
    resource: Resource
    name: str
    is_prefix: bool = False

    def __str__(self) -> str:
        """Name it as messages do, ``Read on Topic _ack_init``."""
        kind = f"{self.resource}s that begin with" if self.is_prefix else self.resource
        return f"{self.operation} on {kind} {self.name}"

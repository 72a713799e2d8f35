"""A broker that trusts nobody: SASL_SSL with SCRAM-SHA-512, and an authorizer that allows what a rule allows.

Its plain listener on the loopback interface is the administrator's: whoever comes in there may do everything,
which is how users and rules are made. All others come in by the door `SECURED`, each with a password.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from acker.kafka.port import Resource, Right
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker
from tests.support.waiting import eventually

DOOR = "SECURED"
ITERATIONS = 4096
"""The fewest that Kafka takes; more only cost time here."""

ANSWER_S = 30.0

_SETTINGS = {
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{DOOR}:SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    f"listener.name.{DOOR.lower()}.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "server.pem",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "false",
    "super.users": "User:ANONYMOUS",
}


@dataclass
class Secured:
    """A running broker, its authority, and the users that were made.

    Attributes:
        broker: the broker; its `bootstrap` is the administrator's.
        authority: PEM file of the authority that signed the broker's certificate.
        passwords: of each user.
    """

    broker: EmbeddedBroker
    authority: Path
    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """Where everybody but the administrator comes in."""
        return f"{HOST}:{self.broker.listener_port(DOOR)}"

    @property
    def admin(self) -> AdminClient:
        """A client that may do everything."""
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def add(self, users: Mapping[str, Iterable[Right]]) -> None:
        """Create users with new passwords, each with the rights of its role and no others."""
        admin = self.admin
        made = {user: secrets.token_urlsafe(16) for user in users}
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        for future in admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(user, info, word.encode()) for user, word in made.items()],
            request_timeout=ANSWER_S,
        ).values():
            future.result(ANSWER_S)
        rules = [_rule(user, right) for user, rights in users.items() for right in rights]
        for future in admin.create_acls(rules, request_timeout=ANSWER_S).values() if rules else ():
            future.result(ANSWER_S)
        # the controller answers before the broker that authenticates them has the users, and last the rules
        eventually(lambda: set(rules) <= set(admin.describe_acls(_ALL, request_timeout=ANSWER_S).result()))
        self.passwords |= made

    def settings(self, user: str, **others: str) -> dict[str, str]:
        """Return the client settings with which a user comes in; `others` have ``_`` for dots."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.passwords.get(user, "never-given"),
            **{name.replace("_", "."): value for name, value in others.items()},
        }


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run such a broker as long as the context lasts."""
    authority = trustme.CA()
    server = authority.issue_cert(HOST)
    trusted = folder / "authority.pem"
    authority.cert_pem.write_to_path(trusted)
    files = {
        "server.pem": _pkcs8(server.private_key_pem.bytes())
        + b"".join(blob.bytes() for blob in server.cert_chain_pems)
    }
    with EmbeddedBroker(listeners={DOOR: None}, settings=_SETTINGS, files=files) as broker:
        yield Secured(broker, trusted)


def _pkcs8(key: bytes) -> bytes:
    """Write a private key in the one PEM form that Java reads."""
    private = load_pem_private_key(key, None)
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


_ALL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}


def _rule(user: str, right: Right) -> AclBinding:
    operation = AclOperation[right.operation.name]
    return AclBinding(
        _RESOURCES[right.resource],
        right.name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )

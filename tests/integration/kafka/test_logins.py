"""A broker that lets in whoever has a token (OAUTHBEARER)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest

from acker.errors import NotAuthenticated
from acker.kafka.cluster import KafkaLog
from acker.provisioning.admin import KafkaAdmin
from spout.local.broker_settings import HOST
from spout.local.embedded import EmbeddedBroker
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka

DOOR = "TOKENS"
SETTINGS = {
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{DOOR}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    f"listener.name.{DOOR.lower()}.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="admin";'
    ),
}
CALLS: list[float] = []
LIFE_S = 5.0


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def token(config: str) -> tuple[str, float]:
    """Return a token without a signature, as a broker for tests takes it."""
    now = time.time()
    CALLS.append(now)
    claims = {"sub": "alice", "iat": now - 1, "exp": now + LIFE_S}
    return f"{_part({'alg': 'none'})}.{_part(claims)}.", now + LIFE_S


def no_token(config: str) -> tuple[str, float]:
    raise OSError("the login server is away")


@pytest.fixture(scope="module")
def door() -> Iterator[str]:
    with EmbeddedBroker(listeners={DOOR: None}, settings=SETTINGS) as broker:
        yield f"{HOST}:{broker.listener_port(DOOR)}"


def settings(door: str, function: str) -> dict[str, str]:
    return {
        "bootstrap.servers": door,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": f"{__name__}:{function}",
    }


def test_every_kind_of_client_logs_in_by_a_token_and_renews_it(door: str) -> None:
    """D1907."""
    admin = KafkaAdmin(settings(door, "token"))
    cluster = KafkaLog(settings(door, "token"))
    assert admin.topics(["nothing"]) == {}
    assert cluster.topics(["nothing"]) == {}
    CALLS.clear()
    # the first token ends meanwhile, and without another one nothing is answered
    eventually(lambda: admin.topics(["nothing"]) == {} and len(CALLS) >= 2)


def test_a_function_that_raises_is_named_at_once(door: str) -> None:
    """D1905, with a broker."""
    with pytest.raises(NotAuthenticated, match="raised OSError: the login server is away"):
        KafkaAdmin(settings(door, "no_token")).topics(["nothing"])

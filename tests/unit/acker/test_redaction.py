"""Addresses, settings and messages are cut for people, and nothing else of them is lost."""

from __future__ import annotations

import pytest

from acker.redaction import SecretValues, cut, setting_secrets, variable_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@repo.example/maven2", "https://…@repo.example/maven2"),
        ("https://me:p@ss@repo.example/x", "https://…@repo.example/x"),
        ("https://me:p/w@repo.example/x", "https://…@repo.example/x"),
        ("https://token@repo.example", "https://…@repo.example"),
        ("https://repo.example:8443/a@b/c", "https://repo.example:8443/a@b/c"),
        ("http://repo.example:hunter2/maven2", "http://repo.example:…/maven2"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("http://127.0.0.1:8095/ is up", "http://127.0.0.1:8095/ is up"),
        ("https://host/x?user=me&token=abc#top", "https://host/x?user=…&token=…#top"),
        ("jdbc:postgresql://h/db?user=me&password=pw", "jdbc:postgresql://h/db?user=…&password=…"),
        ("jdbc:sqlserver://h:1433;database=d;password=pw", "jdbc:sqlserver://h:1433;database=…;password=…"),
        ("me:pw@kafka-1:9092,kafka-2:9092", "…@kafka-1:9092,kafka-2:9092"),
        ("[me:pw@127.0.0.1:1]:9092/bootstrap: Failed", "[…@127.0.0.1:1]:9092/bootstrap: Failed"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer …"),
        ('x required username="me" password="p w";', 'x required username="me" password=…;'),
        ("ssl.key.password=pw, next", "ssl.key.password=…, next"),
        ("a -----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY----- b", "a … b"),
        ("a -----BEGIN PRIVATE KEY-----\nMII", "a …"),
        # what looks a little like it
        ("sentences/3@1042 is no place", "sentences/3@1042 is no place"),
        ("topics.yaml:3: kafka.sasl.mechanism: is wrong", "topics.yaml:3: kafka.sasl.mechanism: is wrong"),
        ("bad line (split.py:12)", "bad line (split.py:12)"),
        ("correct the sasl.* and the ssl.* settings", "correct the sasl.* and the ssl.* settings"),
    ],
)
def test_what_has_the_form_of_a_secret_is_cut_out(text: str, shown: str) -> None:
    """O2107"""
    assert cut(text) == shown
    assert cut(shown) == shown


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "part",
    ["x", "x.", "x-", "a:", "a@", "://", "a://", "?a=", "&", "eyJ-", "eyJ.", "password", "token=", "bearer ",
     "-----BEGIN ", "jdbc:a:b:", "me:pw@", "/", "'", '"', " ", "\n"],
)  # fmt: skip
def test_a_long_text_takes_no_longer_for_each_of_its_characters(part: str) -> None:
    """O2108: a record's author writes it; one of 100,000 characters kept a log busy for minutes."""
    text = part * (500_000 // len(part))

    assert cut(text)


def test_a_setting_is_found_whole_and_in_parts_and_a_short_one_as_a_word() -> None:
    settings = {
        "sasl.password": "pw",
        "sasl.oauthbearer.config": "principal=me scope=abcdef",
        "ssl.key.pem": "-----BEGIN-----\nMIIabcdef\n-----END-----",
        "client.rack": "rack-17",
    }
    values = SecretValues(dict.fromkeys(setting_secrets(settings), "…"))

    assert values.hide("pw is wrong, and spwan is not") == "… is wrong, and spwan is not"
    assert values.hide("beginning at: scope=abcdef") == "beginning at: scope=…"
    assert values.hide("line MIIabcdef of it, at rack-17") == "line … of it, at rack-17"


def test_a_variable_is_shown_by_its_name_also_as_python_quotes_it() -> None:
    variables = variable_secrets(
        "a: ${ONE}, b: ${TWO:-default}, c: $${NO}, d: ${N}", {"ONE": "it's\\", "N": "12"}
    )
    values = SecretValues(variables)

    assert values.hide("it's\\ and default") == "${ONE} and ${TWO}"
    assert values.hide(f"{chr(34)}it's{chr(92) * 2}{chr(34)}") == '"${ONE}"'
    assert values.hide("12 roots") == "12 roots"

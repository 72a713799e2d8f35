"""Fuzzes topics.yaml: only a `ConfigError` comes out, and nothing in a file is executed."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["acker", "yaml"]):
    from acker.config.topics import parse
    from acker.errors import ConfigError

from tests.fuzz.harness import run
from tests.support.garbage import YAML

ENVIRON = {"A": "1", "KAFKA_BOOTSTRAP": "[[["}


def one(data: bytes) -> None:
    """Read an input as a topics.yaml; what is no UTF-8 is replaced, as `load` refuses it before."""
    try:
        parse(data.decode("utf-8", "replace"), file="topics.yaml", environ=ENVIRON)
    except ConfigError as error:
        if not str(error).startswith("topics.yaml"):
            raise AssertionError(f"{error!r} does not name the file") from error


if __name__ == "__main__":
    run(one, [text.encode("utf-8", "replace") for text in YAML])

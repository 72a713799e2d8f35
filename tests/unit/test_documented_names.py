"""Every public name has an example, and those that need no server do what they say."""

from __future__ import annotations

import doctest
from types import SimpleNamespace

import pytest

import spout
from tests.support.documented import (
    NAMES,
    ON_KAFKA,
    ON_POSTGRES,
    ON_SPARK,
    ROOT,
    examples_of,
    kestrel_names,
    plain_names,
    run_examples,
)

ON_MEMORY = frozenset({"Client", "Item", "Items", "Part"})


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_shows_what_comes_out(name: str) -> None:
    examples = [example for test in examples_of(name) for example in test.examples]
    assert any(name in example.source or example.want for example in examples), "no example"
    assert any(example.want for example in examples), "nothing comes out"


@pytest.mark.parametrize("name", NAMES)
def test_no_example_is_skipped(name: str) -> None:
    for test in examples_of(name):
        assert not any(example.options.get(doctest.SKIP) for example in test.examples)


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_python_also_where_it_needs_a_server(name: str) -> None:
    """Otherwise an example on Spark that was cut into lines wrongly is seen by the slow tests alone."""
    for test in examples_of(name):
        assert ">>>" not in "".join(example.source + example.want for example in test.examples)
        for example in test.examples:
            compile(example.source, test.name, "single")


@pytest.mark.parametrize("name", sorted(set(NAMES) - ON_SPARK - ON_KAFKA - ON_POSTGRES))
def test_an_example_without_a_server_does_what_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new name falls here when its example needs more: say so in `tests.support.documented`."""
    monkeypatch.chdir(ROOT)
    run_examples(name, plain_names() | (kestrel_names() if name in ON_MEMORY else {}))


def test_an_example_that_says_something_else_is_found() -> None:
    """So the two tests above are worth something."""
    wrong = SimpleNamespace(shuffle=lambda _: spout.shuffle(9))
    with pytest.raises(AssertionError, match=r"partitions=8\)\nGot:\n    Grouping.*partitions=9"):
        run_examples("shuffle", {"spout": wrong})

"""The header with the stacks of causes: bounded, and nothing where nobody of ours wrote it."""

from __future__ import annotations

import json

import pytest

from acker.wire.causes import with_code_line
from acker.wire.stacks import (
    STACK,
    STACK_BYTES_MAX,
    STACKS,
    STACKS_BYTES_MAX,
    CauseKey,
    cut_stack,
    key_of,
    read_stack,
    read_stacks,
    stack_header,
    stacks_header,
)

SPLIT = CauseKey.of("split", "ValueError", "split.py:12")


def test_stacks_go_with_the_causes_that_have_them() -> None:
    """D1401"""
    other = CauseKey.of("split", "ValueError", "split.py:13")
    headers = stacks_header([SPLIT, other, SPLIT], {SPLIT: "Traceback\n  é", CauseKey.of("x", "", ""): "y"})
    assert read_stacks(headers) == {SPLIT: "Traceback\n  é"}
    assert stacks_header([other], {SPLIT: "Traceback"}) == ()
    assert key_of("split", "ValueError", with_code_line("no number", "split.py:12")) == SPLIT


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f985", "\x00", '"', "\udc80"])
def test_stacks_of_any_length_have_room(letter: str) -> None:
    """D1403"""
    keys = [CauseKey.of("split" * 200, "E" * 2_000, f"split.py:{line}") for line in range(256)]
    headers = stacks_header(keys, dict.fromkeys(keys, letter * 100_000))
    [(name, value)] = headers
    assert name == STACKS
    assert value is not None
    assert len(value) <= STACKS_BYTES_MAX
    assert read_stacks(headers)
    assert all(len(stack.encode()) <= STACK_BYTES_MAX for stack in read_stacks(headers).values())
    assert stacks_header(keys, dict.fromkeys(keys, letter), 10) == ()


def test_a_cut_stack_has_its_beginning_and_its_end() -> None:
    """D1403"""
    text = "Traceback\n" + "é" * 10_000 + "\nValueError: no"
    assert cut_stack(text).startswith("Traceback\n")
    assert cut_stack(text).endswith("\nValueError: no")
    assert read_stack(stack_header(text)) == cut_stack(text)


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"x", b"{}", b"[1]", b'[["a", "b", "c"]]', b'[["a", "b", "c", 1]]', b"\xff", b"[" * 40_000,
        json.dumps([["a", "b", "c", "x" * STACKS_BYTES_MAX]]).encode(),
    ],
)  # fmt: skip
def test_a_header_that_no_program_of_ours_wrote_says_nothing(value: bytes | None) -> None:
    """D1403"""
    assert read_stacks(((STACKS, value),)) == {}


def test_a_stack_that_somebody_wrote_is_a_text_of_that_length() -> None:
    """D1403"""
    assert read_stack(()) == read_stack(((STACK, None),)) == ""
    assert read_stack(((STACK, b"\xff\x00"),)) == "\ufffd\x00"
    assert len(read_stack(((STACK, b"x" * 100_000),))) == STACK_BYTES_MAX

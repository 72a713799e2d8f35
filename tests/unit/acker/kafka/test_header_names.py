"""Headers whose names are no UTF-8: confluent-kafka leaves empty slots in them, which nobody may read."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from confluent_kafka import Message

from acker.kafka import headers
from acker.kafka.headers import LOGGED_CHARACTERS, headers_of
from acker.kafka.port import UnreadableName

new_tuple = ctypes.pythonapi.PyTuple_New
new_tuple.restype, new_tuple.argtypes = ctypes.py_object, [ctypes.c_ssize_t]
set_item = ctypes.pythonapi.PyTuple_SetItem
set_item.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.py_object]


def broken(value: bytes | None) -> Any:
    """Return a header's tuple as confluent-kafka leaves it: its name is an empty slot."""
    header = new_tuple(2)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    set_item(id(header), 1, value)
    return header


class BrokenMessage:
    """A message that raises when its headers are asked for first, and keeps what it has made of them.

    `names` are those that it cannot decode: the first one's bytes are told.
    """

    def __init__(self, made: list[Any], *names: bytes, keeps: bool = True, topic: str = "words") -> None:
        self._made: list[Any] | None = made
        self._names = names
        self._keeps = keeps
        self._has_raised = False
        self._topic = topic

    def headers(self) -> list[Any] | None:
        if self._names and not (self._has_raised and self._keeps):
            self._has_raised = True
            error: BaseException | None = None
            for name in self._names:
                try:
                    if error is not None:
                        raise SystemError("returned a result with an exception set") from error
                    name.decode()
                except (UnicodeDecodeError, SystemError) as raised:
                    error = raised
            raise SystemError("returned a result with an exception set") from error
        return self._made

    def set_headers(self, made: list[Any]) -> None:
        self._made, self._names = made, ()

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 7


def headers_of_fake(message: BrokenMessage) -> Any:
    faked: Any = message
    return headers_of(faked)


def test_names_that_can_be_read_are_handed_out_as_they_are() -> None:
    """Null is not empty."""
    whole = [("a", b"1"), ("a", None), ("", b"")]
    assert headers_of(Message(topic="words", headers=whole)) == tuple(whole)
    assert headers_of(Message(topic="words")) == ()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("value", [b"v", b"", None])
def test_a_name_that_cannot_be_read_is_a_placeholder_wherever_it_stands(
    place: int, value: bytes | None
) -> None:
    made: list[Any] = [("a", b"1"), ("b", None)]
    made.insert(place, broken(value))
    message = BrokenMessage(made, b"\xff\xfeb")
    for _ in range(2):
        names, values = zip(*headers_of_fake(message), strict=True)
        assert names[place] == "\\xff\\xfeb"
        assert type(names[place]) is UnreadableName
        assert values[place] == value
        assert [name for name in names if type(name) is str] == ["a", "b"]


def test_of_several_names_only_the_first_ones_bytes_are_known() -> None:
    message = BrokenMessage([broken(b"1"), ("a", b"2"), broken(b"3")], b"\xff", b"\xfe")
    assert headers_of_fake(message) == (("\\xff", b"1"), ("a", b"2"), ("\\x??", b"3"))


def test_a_client_that_keeps_no_list_leaves_one_placeholder() -> None:
    """The record is known to have had a header, and nothing else."""
    [(name, value)] = headers_of_fake(BrokenMessage([], b"\xff", keeps=False))
    assert (name, type(name), value) == ("\\xff", UnreadableName, None)


def test_the_first_such_record_of_each_topic_is_logged_and_not_of_a_thousand_topics(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "TOPICS_LOGGED_MAX", len(headers._topics_logged) + 2)
    for topic in ("first", "first", "second", "third"):
        headers_of_fake(BrokenMessage([broken(b"1"), ("a", b"2")], b"\xff" * 300, topic=topic))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" names=")[0] for line in lines] == [
        "header_name_unreadable record=first/3@7",
        "header_name_unreadable record=second/3@7",
    ]
    shown = lines[0].partition("names=")[2].partition(": it is not UTF-8")[0]
    assert shown == repr(("\\xff" * 300)[:LOGGED_CHARACTERS])

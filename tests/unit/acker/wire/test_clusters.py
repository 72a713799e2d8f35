"""The cluster's id in records: what names another cluster is found, and what names none is this one's."""

from __future__ import annotations

import pytest

from acker.errors import Disagreement
from acker.wire.clusters import CLUSTER, cluster_header, cluster_of, other_cluster, require_cluster
from acker.wire.codec import MAGIC

HERE, THERE = "MkU3OEVBNTcwNTJENDM2Qg", "bmV4dC1kb29yLWNsdXN0ZQ"
OURS = MAGIC + bytes(20)
"""As each record of ours begins."""


def test_a_record_of_another_cluster_is_refused_by_its_place_and_both_ids() -> None:
    """D2301: and the sentence says what to do."""
    with pytest.raises(
        Disagreement, match=rf"^_ack_due/3@17 .*cluster {THERE}.*cluster {HERE}.*failover\.md"
    ):
        require_cluster("_ack_due/3@17", cluster_header(THERE), OURS, HERE)


@pytest.mark.parametrize(
    ("headers", "here"),
    [
        (cluster_header(HERE), HERE),
        ((), HERE),
        ((("other", b"x"),), HERE),
        (((CLUSTER, None),), HERE),
        (((CLUSTER, b""),), HERE),
        (((CLUSTER, b"\xff\xfe"),), HERE),
        (((CLUSTER, b"x" * 201),), HERE),
        (cluster_header(THERE), ""),
        ((), ""),
    ],
)
def test_what_names_no_other_cluster_is_taken_as_of_this_one(
    headers: tuple[tuple[str, bytes | None], ...], here: str
) -> None:
    """D2302: a former version wrote it, its header is none of ours, or the brokers say no id."""
    require_cluster("_ack_state/0@1", headers, OURS, here)
    assert other_cluster(headers, here) == ""


@pytest.mark.parametrize("value", [None, b"", b"v", MAGIC[:1], b"{}", MAGIC[::-1] + bytes(20)])
def test_what_is_none_of_our_records_is_of_no_other_cluster(value: bytes | None) -> None:
    """O126: it is garbage with a header by chance, or by somebody's will, and stops nobody for good."""
    headers = cluster_header(THERE)
    require_cluster("_ack_due/0@1", headers, value, HERE)
    assert other_cluster(headers, HERE), "of a record of ours it would be"


def test_a_cluster_without_an_id_is_named_in_no_record() -> None:
    """D2302: an empty id would be compared with others."""
    assert cluster_header("") == ()
    assert cluster_of(cluster_header(HERE)) == HERE


def test_an_id_that_commands_something_commands_nothing() -> None:
    """D2301: whoever may write a record may choose it."""
    assert "`" not in other_cluster(cluster_header("`rm -rf /`\n"), HERE)

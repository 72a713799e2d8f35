"""Which cluster a record was written in, so that topics of another one are not taken for this one's.

A failover copies topics to another cluster. There a record has another offset, and a topic another id. So
State, verdicts, what waits for its replay, and what sessions announce would name other records there, or
none. Their writers add the cluster's id as a header, `CLUSTER`, and their readers refuse what names another
cluster.

The schemas of these records are published and stay as they are. Readers of former versions pass the header
over. A record without it, as former versions wrote, is taken as one of this cluster.

Source: docs/design/protocol.md, section 4, "The cluster's id"; docs/operate/failover.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from acker.errors import Disagreement
from acker.untrusted import Untrusted

Headers = tuple[tuple[str, bytes | None], ...]

CLUSTER: Final = "windhover.cluster"

UNKNOWN_CLUSTER: Final = ""
"""A broker may say no id, and a record may have none; nothing is compared then."""

CLUSTER_BYTES_MAX: Final = 200
"""Kafka's ids have 22 characters; a longer value than this was written by something else."""

MIRRORED_CURE: Final = (
    "such topics are never mirrored: delete what was copied, and begin with empty ones, as"
    " docs/operate/failover.md says, or under another acker.topic_prefix"
)


@lru_cache(maxsize=8)  # it stands in every record that a process writes
def cluster_header(cluster_id: str) -> Headers:
    """Return the header that names a cluster; nothing where its id is unknown."""
    return ((CLUSTER, cluster_id.encode()),) if cluster_id else ()


def cluster_of(headers: Headers) -> str:
    """Return the cluster's id in headers; `UNKNOWN_CLUSTER` where there is none, or none of ours."""
    value = dict(headers).get(CLUSTER) or b""
    if len(value) > CLUSTER_BYTES_MAX:
        return UNKNOWN_CLUSTER
    try:
        return value.decode()
    except UnicodeDecodeError:
        return UNKNOWN_CLUSTER


def is_of_another(written_in: str, here: str) -> bool:
    """Return whether two ids are of different clusters; where one is unknown, nobody can say so."""
    return UNKNOWN_CLUSTER not in (written_in, here) and written_in != here


def other_cluster(headers: Headers, here: str) -> str:
    """Return what is wrong with a record of another cluster, by its headers; empty: nothing shows that."""
    written_in = cluster_of(headers) if headers else UNKNOWN_CLUSTER
    if not is_of_another(written_in, here):
        return ""
    return f"it was written in cluster {Untrusted(written_in)}, and this is cluster {here}"


def require_cluster(place: str, headers: Headers, here: str) -> None:
    """Raise `Disagreement`, which names the place of a record, if it was written in another cluster."""
    if wrong := other_cluster(headers, here):
        raise Disagreement(f"{place} is not of this cluster: {wrong}; {MIRRORED_CURE}")

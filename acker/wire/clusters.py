"""Writes into each record of ours in which cluster it was written, and refuses those of another
cluster.

A failover copies topics to another cluster. There a record has another offset, and a topic another
id: what is ``sentences/3@1042`` here may be ``sentences/3@17`` there. So State, verdicts,
`_ack_due` and what sessions announce would name wrong records there. Their writers add the
cluster's id as a header, `CLUSTER`, and their readers refuse a record that names another cluster.

A header is no part of the published schemas. Readers of former versions pass over it, and a record
without it, as former versions wrote, counts as one of this cluster.

Source: docs/design/protocol.md, section 4, "The cluster's id"; docs/operate/failover.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from acker.errors import Disagreement
from acker.untrusted import Untrusted
from acker.wire.codec import MAGIC
from acker.wire.headers import Headers

CLUSTER: Final = "windhover.cluster"

UNKNOWN_CLUSTER: Final = ""
"""The id where a broker tells none, or a record has none; then nothing is compared."""

CLUSTER_BYTES_MAX: Final = 200
"""Kafka's ids have 22 characters; a longer value than this was written by something else."""

MIRRORED_CURE: Final = (
    "such topics are never mirrored: delete what was copied, and begin with empty ones, as"
    " docs/operate/failover.md says, or under another acker.topic_prefix"
)


@lru_cache(maxsize=8)  # a process needs the same one for every record that it writes
def cluster_header(cluster_id: str) -> Headers:
    """Return the header that names a cluster; nothing where its id is unknown."""
    return ((CLUSTER, cluster_id.encode()),) if cluster_id else ()


def cluster_of(headers: Headers) -> str:
    """Return the id of the cluster that headers say a record was written in.

    It is `UNKNOWN_CLUSTER` if there is none, or none that we wrote.
    """
    value = dict(headers).get(CLUSTER) or b""
    if len(value) > CLUSTER_BYTES_MAX:  # another program wrote it
        return UNKNOWN_CLUSTER
    try:
        return value.decode()
    except UnicodeDecodeError:
        return UNKNOWN_CLUSTER


def is_of_another(written_in: str, cluster_id: str) -> bool:
    """Return whether two ids are of different clusters; False if one of them is unknown."""
    return UNKNOWN_CLUSTER not in (written_in, cluster_id) and written_in != cluster_id


def other_cluster(headers: Headers, cluster_id: str) -> str:
    """Return a text that names both clusters, if the headers of a record name another one; else "".

    `cluster_id` is that of this cluster. A record that names none counts as written in this one.
    """
    written_in = cluster_of(headers) if headers else UNKNOWN_CLUSTER
    if not is_of_another(written_in, cluster_id):
        return ""
    return f"it was written in cluster {Untrusted(written_in)}, and this is cluster {cluster_id}"


def require_cluster(place: str, headers: Headers, value: bytes | None, cluster_id: str) -> None:
    """Raise `Disagreement` if a record was written in another cluster than `cluster_id`.

    `place` names the record, ``topic/3@1042``, with these headers and this value. What does not
    begin as our records do was written by no acker or replay worker, in no cluster. Its headers
    mean
    nothing: each reader passes over it, or says that it is garbage.
    """
    is_ours = value is not None and value.startswith(MAGIC)
    difference = other_cluster(headers, cluster_id) if is_ours else ""
    if difference:
        raise Disagreement(f"{place} is not of this cluster: {difference}; {MIRRORED_CURE}")

"""What the port promises of the cluster's id."""

from __future__ import annotations

from tests.contract.clusters import Cluster


def test_all_clients_of_a_cluster_get_one_id(cluster: Cluster) -> None:
    """It is written into records, and compared by other processes."""
    first = cluster.log.cluster_id()
    assert first
    assert [cluster.log.cluster_id(), cluster.new_log().cluster_id()] == [first, first]

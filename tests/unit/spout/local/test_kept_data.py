"""Directories that hold the data of brokers: only as many brokers as have written it begin there."""

from __future__ import annotations

from pathlib import Path

import pytest

from acker.errors import UsageError
from spout.local.embedded import EmbeddedBroker, refuse_data_of_others
from spout.local.embedded_cluster import EmbeddedCluster


def keep_data(directory: Path, cluster_size: int) -> None:
    """Leave what brokers leave that were formatted; 0 is a broker alone."""
    names = [f"broker-{node}" for node in range(1, cluster_size + 1)] or ["."]
    for name in names:
        data = directory / name / "data"
        data.mkdir(parents=True)
        (data / "meta.properties").write_text("cluster.id=c\n")


def begin(directory: Path, cluster_size: int) -> int:
    """Make a cluster, or start a broker alone, which is to be refused; return how many brokers it has."""
    if cluster_size:
        return len(EmbeddedCluster(directory, cluster_size).brokers)
    EmbeddedBroker(directory).launch()
    return 1


TEXTS = {
    0: "1 broker without a cluster",
    1: "a cluster of 1 broker",
    2: "a cluster of 2 brokers",
    3: "a cluster of 3 brokers",
}


OTHERS = [(kept, named) for kept in TEXTS for named in TEXTS if kept != named]


@pytest.mark.parametrize(("kept", "named"), OTHERS)
def test_another_number_of_brokers_does_not_begin_empty(kept: int, named: int, tmp_path: Path) -> None:
    keep_data(tmp_path, kept)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError) as refused:
        begin(tmp_path, named)
    assert str(refused.value) == (
        f"{tmp_path} holds the data of {TEXTS[kept]}, not of {TEXTS[named]}; start {TEXTS[kept]} there, or"
        " name another directory"
    )
    assert sorted(tmp_path.rglob("*")) == files


@pytest.mark.parametrize("size", TEXTS)
def test_as_many_brokers_find_what_they_have_written(size: int, tmp_path: Path) -> None:
    keep_data(tmp_path, size)
    files = sorted(tmp_path.rglob("*"))
    refuse_data_of_others(tmp_path, size)
    assert sorted(tmp_path.rglob("*")) == files


def test_brokers_of_both_kinds_find_their_own_data(tmp_path: Path) -> None:
    keep_data(tmp_path, 0)
    keep_data(tmp_path, 3)
    begin(tmp_path, 3)
    refuse_data_of_others(tmp_path, 0)
    with pytest.raises(UsageError, match=r"a cluster of 3 brokers, not of a cluster of 2 brokers"):
        begin(tmp_path, 2)


@pytest.mark.parametrize("named", [1, 2, 3])
def test_a_start_that_failed_before_there_was_data_binds_nobody(named: int, tmp_path: Path) -> None:
    """Its folders are there, as where no Java was found: the next start may have other brokers."""
    (tmp_path / "data").mkdir()
    (tmp_path / "broker-1" / "data").mkdir(parents=True)
    assert begin(tmp_path, named) == named

"""What one batch of a source topic may unpack to, and the memory that readers have in deploy/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from acker.config.topics import parse
from acker.kafka.port import TopicInfo
from acker.provisioning.topic_specs import Finding, Level
from acker.provisioning.unpacking import (
    OWN_BYTES,
    READER_BYTES,
    ZSTD_BYTES_MAX,
    large_batches,
    unpacked_bytes_max,
)

DEPLOY = Path(__file__).parents[4] / "deploy"
MEGABYTE = "1048588"


def findings(settings: Mapping[str, str]) -> list[Finding]:
    """Hold a source topic with these settings against what readers have."""
    topics = parse("inputs: {a: {id: 1, group: g, topic: lines}}", file="topics.yaml", environ={})
    return list(large_batches(topics, {"lines": TopicInfo("lines", "id", 1, 1, settings)}))


@pytest.mark.parametrize(
    ("codec", "unpacked"),
    [
        ("producer", 1_082_142_816),
        ("gzip", 1_082_142_816),
        ("lz4", 267_389_940),
        ("snappy", 23_068_936),
        ("zstd", ZSTD_BYTES_MAX),
        ("uncompressed", 1_048_588),
        ("a codec of tomorrow", 1_082_142_816),
    ],
)
def test_a_batch_unpacks_to_what_its_codec_can_make_of_it(codec: str, unpacked: int) -> None:
    """O1921: of a topic that leaves the codec to producers it may be gzip."""
    assert unpacked_bytes_max({"max.message.bytes": MEGABYTE, "compression.type": codec}) == unpacked


@pytest.mark.parametrize("settings", [{}, {"max.message.bytes": MEGABYTE, "compression.type": "producer"}])
def test_what_kafka_takes_by_default_fits_into_what_deploy_gives(settings: Mapping[str, str]) -> None:
    """O1921: unpacked once, and one record copied out of it."""
    assert 2 * unpacked_bytes_max(settings) + OWN_BYTES <= READER_BYTES
    assert findings(settings) == []


@pytest.mark.parametrize(
    ("codec", "is_large"),
    [("producer", True), ("gzip", True), ("lz4", True), ("zstd", False), ("snappy", False)],
)
def test_a_topic_of_larger_batches_is_a_warning_where_its_codec_packs_too_well(
    codec: str, is_large: bool
) -> None:
    """O1922: it says how much a reader needs, and each way out."""
    found = findings({"max.message.bytes": "10000000", "compression.type": codec})
    assert [finding.level for finding in found] == [Level.WARNING] * is_large
    for finding in found:
        assert finding.topic == "lines"
        assert f"has max.message.bytes=10000000 and compression.type={codec}" in finding.text
        assert "deploy/ gives 2,560: lower max.message.bytes" in finding.text


def test_topics_that_are_not_there_are_no_finding() -> None:
    """`topics check` says so anyway."""
    topics = parse("inputs: {a: {id: 1, group: g, topic: lines}}", file="topics.yaml", environ={})
    assert list(large_batches(topics, {})) == []


@pytest.mark.parametrize("service", ["replay", "page"])
def test_readers_of_source_topics_have_in_deploy_what_the_check_reckons_with(service: str) -> None:
    """O1921: in Kubernetes and under systemd."""
    text = (DEPLOY / "kubernetes" / "base" / f"{service}.yaml").read_text(encoding="utf-8")
    limits = [
        container["resources"]["limits"]["memory"]
        for manifest in yaml.safe_load_all(text)
        if manifest and manifest["kind"] in ("Deployment", "StatefulSet")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    ]
    assert limits == [f"{READER_BYTES >> 20}Mi"]
    unit = (DEPLOY / "systemd" / f"windhover-{service}.service").read_text(encoding="utf-8")
    assert f"MemoryMax={READER_BYTES >> 20}M\n" in unit

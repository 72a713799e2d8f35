"""What is not settled yet, once everything was healed."""

from __future__ import annotations

from tests.simulation.world.process import Setting


def left_of(world: Setting) -> str:
    """Say what is not settled yet."""
    truth = world.truth
    for found in world.topics.inputs.values():
        committed = world.cluster.committed(found.group)
        for topic, first in ((found.topic, found.id), (found.replay_topic, found.id + 16_384)):
            for log in world.cluster.topic(topic).partitions:
                source = first << 16 | log.name.partition
                generation = max((g for s, g in truth.froms if s == source), default=None)
                if generation is None:
                    return f"source {source} was not taken"
                base = generation << 48
                end = base + log.stable_end
                watermark = max((p.watermarks.get(source, 0) for p in truth.partitions), default=0)
                if max(watermark, truth.froms[source, generation]) < end:
                    return f"{log.name} is emitted up to {watermark - base} of {log.stable_end}"
                kept = committed.get(log.name)
                if (
                    topic == found.topic
                    and log.end > log.start
                    and (kept is None or kept.offset < log.stable_end)
                ):
                    return f"{log.name} is committed up to {kept}, not {log.stable_end}"
    if truth.open_roots:
        left = [str(root) for root in truth.roots.values() if root.verdict is None]
        return f"open: {', '.join(left[:5])}"
    if truth.undisposed:
        left = [str(root) for root in truth.roots.values() if truth.is_owed(root)]
        return f"neither put back nor buried: {', '.join(left[:5])}"
    if truth.forged:
        return f"written in another's name, and not quarantined: {', '.join(sorted(truth.forged)[:5])}"
    return ""

"""What a seed draws: sizes, policies, and which faults happen how often.

Each fault is absent in some runs, so that a run that needs its absence (a clock that is exact, a crash that
is the only one) is drawn too. A *profile* biases the draw, for an ablation that needs a rare constellation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Final

FAULTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "crash": 0.012,  # a process dies before or after an effect
        "pause": 0.010,  # a process is held in the middle of a step while the others go on
        "zombie": 0.006,  # a process is replaced and goes on all the same
        "sleep": 0.010,  # a process does nothing for a while
        "stall": 0.004,  # time passes for everybody, beyond the timeout
        "duplicate": 0.060,  # a batch of records outside transactions is appended twice
        "partial": 0.030,  # a flush makes only a part durable, the rest comes later
        "unreachable": 0.010,  # one call fails, with or without its effect
        "aborted": 0.010,  # a transaction is aborted at its commit
        "away": 0.004,  # the broker does not answer anybody for a while
        "uneven": 0.500,  # topics are read at different speeds
        "rebalance": 0.006,  # a member loses its place in the group
        "expiry": 0.010,  # the broker ends transactions that are open too long
        "takeover": 0.006,  # a fresh checkpoint takes the group
        "rewind": 0.004,  # the operator begins a new generation
        "release": 0.003,  # a session takes the group and does nothing with it
        "retention": 0.006,  # records leave the source topic before they were read
        "compaction": 0.010,  # compacted topics are compacted
        "shorten": 1.000,  # ackers delete what nobody needs, often
        "skew": 0.500,  # processes have clocks of their own
        "markers": 0.400,  # source records stand in transactions, some of them aborted
        "poison": 0.100,  # records that fail at every attempt
        "flaky": 0.150,  # records that fail at the first attempts
        "slow": 0.120,  # records that are never acked at the first attempts, so time out
        "touch": 0.060,  # slow records whose timeout is reset
        "fickle": 0.100,  # records that bolts treat differently on every evaluation
        "remote": 0.250,  # tuples that a program in another lane acks
        "twice": 0.100,  # Spark evaluates a batch twice
        "garbage": 0.010,  # somebody else writes into the ack topics
        "foreign": 0.006,  # a transaction of somebody else is left open in an ack topic
        "forged": 0.010,  # somebody else writes in the name of a session, or of a group of his own
        "cut": 0.010,  # a source log loses its last records, and grows again
        "lagging": 0.700,  # a transaction of an acker, or a takeover, that is under way is not over yet
        "lost": 0.200,  # an executor is lost, and a task evaluated again before its rows are written
    }
)
"""Every fault with the rate that it has where it is drawn: for each chance, whatever a chance is for it."""

LATER: Final = frozenset({"forged", "cut", "lagging", "lost"})
"""Faults that came later: each is drawn apart, so that a seed draws of the others what it always drew."""

CHOSEN: Final = frozenset({"cut", "lagging", "lost"})
"""Faults that only a profile brings that always has them: an ordered input stops at a log that was cut; where
transactions lag, everything that the world draws afterwards is drawn otherwise; and who writes each row as it
comes writes what a lost executor made anew as well.
"""


EXACT: Final[Mapping[str, object]] = MappingProxyType({"exact": True, "skipping_sink": False})
"""Sizes of a run that writes exactly once; its sink skips nothing by itself."""

NO_RULES: Final = "[]"
RULES: Final = ("[{error: ValueError, then: dead_letter}]", "[{error: ValueError, then: drop}]")
"""Rules by cause; records that fail do so by a ValueError, or by what Windhover itself finds wrong."""

OLDER: Final = 0.3
"""How likely replay workers start with an older topics.yaml; a calm run has none."""

RULED: Final = 0.2
"""How likely the inputs have one of them."""


@dataclass(frozen=True, slots=True)
class Options:
    """What one run is.

    Attributes:
        seed: of everything that is drawn while the run goes.
        profile: its name.
        partitions: N.
        source_partitions: partitions of the source topic.
        first_offset: where the source topic begins: 0, or shortly before the end of a block.
        records: source records in all.
        steps: scheduler steps before everything is healed.
        ackers: acker processes.
        replayers: replay workers.
        groups: groups that read the topic.
        timeout_ms: of a root.
        max_spout_pending: of an input.
        attempts: emissions before a dead letter.
        max_abandoned: takeovers before a dead letter.
        initial_ms: first back-off.
        batch_records: most records of a batch.
        tasks: read tasks of a batch.
        skipping_sink: whether the sink skips a batch id that it has written.
        compacted_source: whether the source topic is compacted.
        is_warm: whether the groups are taken before the first fault.
        bytes_kept: bytes of contributions that a restart reads again before a range is carried by value.
        rates: how often each fault happens; those that are absent do not.
        ordering: of every input.
        max_held: of every input; matters where they are ordered.
        causes: rules by cause of every input, as topics.yaml has them.
        hole_min: so many empty positions in a row planning passes, where it has seen them.
        older: whether replay workers start with a topics.yaml that lacks an input, and read the newer one
            some time later.
        exact: whether the queries write rows and acks in one transaction of a store.
    """

    seed: int
    profile: str
    partitions: int
    source_partitions: int
    first_offset: int
    records: int
    steps: int
    ackers: int
    replayers: int
    groups: int
    timeout_ms: int
    max_spout_pending: int
    attempts: int
    max_abandoned: int
    initial_ms: int
    batch_records: int
    tasks: int
    skipping_sink: bool
    compacted_source: bool
    is_warm: bool
    bytes_kept: int
    rates: Mapping[str, float] = field(default_factory=dict)
    ordering: str = "none"
    max_held: int = 10_000
    causes: str = NO_RULES
    hole_min: int = 10_000
    older: bool = False
    exact: bool = False

    def rate(self, fault: str) -> float:
        """Return how often a fault happens, 0 where it is absent."""
        return self.rates.get(fault, 0.0)

    def without(self, *faults: str) -> Options:
        """Return the same run without some faults."""
        left = {name: rate for name, rate in self.rates.items() if name not in faults}
        return replace(self, rates=MappingProxyType(left))


@dataclass(frozen=True, slots=True)
class Profile:
    """A bias of the draw.

    Attributes:
        always: faults that every run has, with their rates.
        never: faults that no run has.
        sizes: fields of `Options` that are fixed.
        share: how likely each other fault is drawn.
        orders: how likely the inputs are ordered.
    """

    always: Mapping[str, float] = field(default_factory=dict)
    never: frozenset[str] = frozenset()
    sizes: Mapping[str, object] = field(default_factory=dict)
    share: float = 0.5
    orders: float = 0.0


def draw(seed: int, profile: Profile, name: str = "mixed") -> Options:
    """Draw the options of a run."""
    rng = Random(f"windhover/{seed}/options")
    rates: dict[str, float] = {}
    for fault, rate in FAULTS.items():
        dice = Random(f"windhover/{seed}/{fault}") if fault in LATER else rng
        drawn, strength = dice.random() < profile.share, dice.choice((0.5, 1.0, 1.0, 2.0))
        if fault in profile.always:
            rates[fault] = profile.always[fault]
        elif drawn and fault not in profile.never | CHOSEN:
            rates[fault] = min(1.0, rate * strength)
    sizes: dict[str, object] = {
        "partitions": rng.choice((1, 2, 2, 3)),
        "source_partitions": rng.choice((1, 2)),
        "first_offset": rng.choice((0, 0, 32_764, 65_532)),
        "records": rng.randint(3, 24),
        "steps": rng.randint(60, 400),
        "ackers": rng.choice((1, 1, 2)),
        "replayers": rng.choice((1, 1, 2)),
        "groups": rng.choice((1, 1, 1, 2)),
        "timeout_ms": rng.choice((1_500, 3_000, 6_000)),
        "max_spout_pending": rng.choice((2, 5, 1_000)),
        "attempts": rng.choice((1, 2, 3)),
        "max_abandoned": rng.choice((0, 1, 2)),
        "initial_ms": rng.choice((0, 500, 2_000)),
        "batch_records": rng.choice((2, 4, 8, 50)),
        "tasks": rng.choice((1, 1, 3)),
        "skipping_sink": rng.random() < 0.2,
        "compacted_source": rng.random() < 0.2,
        "is_warm": rng.random() < 0.8,
        "bytes_kept": rng.choice((0, 8_192, 1 << 27)),
    }
    order = Random(f"windhover/{seed}/order")  # of its own, so that nothing else is drawn otherwise for it
    if order.random() < profile.orders:
        sizes |= {"ordering": order.choice(("key", "partition")), "max_held": order.choice((1, 3, 1_000))}
    policy = Random(f"windhover/{seed}/policy")
    if policy.random() < RULED:
        sizes["causes"] = policy.choice(RULES)
    sizes["hole_min"] = Random(f"windhover/{seed}/holes").choice((1, 1, 3, 10_000))
    if profile.share and Random(f"windhover/{seed}/older").random() < OLDER:
        sizes["older"] = True
    return Options(
        seed=seed,
        profile=name,
        rates=MappingProxyType(rates),
        **{**sizes, **profile.sizes},  # type: ignore[arg-type]
    )

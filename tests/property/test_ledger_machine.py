"""The acker against a model of plain dicts; re-reading, crash and restore are ordinary rules.

Rules 1 to 4 and 7 of docs/design/protocol.md hold when both agree on every verdict, whatever is written,
repeated, contradicted or killed.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from acker.config.limits import AckerLimits
from acker.errors import Aborted, Unreachable
from acker.identity import root_edge, source_of
from acker.kafka.port import Outgoing
from acker.wire.events import Init, SourceRun, Take, TakeSource, Tick
from tests.support.memory.cut import CuttingLog
from tests.support.worlds.acker_model import Model
from tests.support.worlds.acker_world import CODEC, TOPIC, TOPIC_ID, TOPICS, World, Writer

SOURCES = (source_of(1, 0), source_of(1, 0, replay=True))
FIRST = 32_755
"""Positions begin just below the end of a wire block, so that runs are cut."""

BACK = 12
"""What is drawn lies at most so far below the newest position, so that histories meet."""

TIMEOUTS = (0, 1_000, 5_000)
SESSIONS = ("s1", "s2", "s3", "s4")

back = st.integers(-2, BACK)
sources = st.sampled_from(SOURCES)
small = st.integers(1, 8)
few = st.lists(back, max_size=5)
faults = st.sampled_from(
    [
        "before commit",
        "after commit",
        "abort commit",
        "before commit_soon",
        "before ends",
        "before poll",
        "after poll",
        "before init",
        "after init",
        "before stable_ends",
    ]
)


class Script:
    """Lets the next calls go wrong: what is drawn is done once, at the operation that it names."""

    def __init__(self) -> None:
        self.next: list[str] = []
        self.cut_behind = 0

    def before(self, operation: str) -> None:
        """Fail before the operation has any effect."""
        if self.next and self.next[0] == f"before {operation}":
            self.next.pop(0)
            raise Unreachable("drawn")
        if self.next and self.next[0] == f"abort {operation}":
            self.next.pop(0)
            raise Aborted("drawn")

    def after(self, operation: str) -> None:
        """Fail although the effect stands."""
        if self.next and self.next[0] == f"after {operation}":
            self.next.pop(0)
            raise Unreachable("drawn")

    def is_last(self, record: Outgoing | None) -> bool:
        """Cut a transaction behind a record, counted from the draw on; a flush counts as one."""
        self.cut_behind -= 1
        return self.cut_behind == 0


class AckerMachine(RuleBasedStateMachine):
    """Writes anything, lets the acker work or die, and compares every verdict with the model's.

    S13, S26, S35, S168, S169, P53, P54 and P55 are histories that it plays.
    """

    @initialize(
        refold=st.sampled_from([0, 9_000, 1 << 30, 1 << 30]),
        pace=st.integers(1, 6),
        health=st.integers(1, 6),
        put_off_ms=st.sampled_from([0, 3, 1_000_000]),
    )
    def begin(self, refold: int, pace: int, health: int, put_off_ms: int) -> None:
        """Start an acker that carries by value, and commits what can wait, early, late or never."""
        self.pace = pace
        self.health = health
        self.works = 0
        self.script = Script()
        limits = AckerLimits(
            poll_ms=0, pace_ms=0, refold_bytes=refold, retention_interval_ms=7, put_off_ms=put_off_ms
        )
        self.world = World(limits=limits)
        self.start()
        self.model = Model()
        self.inits: list[object] = []
        self.fails: list[bytes] = []
        self.acks: list[bytes] = []
        self.old_acks: list[bytes] = []
        self.old_fails: list[bytes] = []
        self.seq = 0
        self.held = 0
        self.now = 0
        self.newest = dict.fromkeys(SOURCES, FIRST)
        self.take(0)
        for source in SOURCES:
            self.init(source, 0, 6, 5_000, zombie=False)

    def start(self) -> None:
        """Start an acker in the place of the one that runs."""
        self.world.crash(log=CuttingLog(self.world.cluster, self.script, self.script.is_last))

    def writer(self) -> Writer:
        """Return the session that holds the group, or is about to."""
        return self.world.session(SESSIONS[self.held], self.held + 1)

    def name(self, session: Writer) -> tuple[str, str, int]:
        """Return the fields that every record of a session begins with."""
        return session.group, session.session, session.epoch

    def at(self, source: int, back: int) -> int:
        """Return a position, so far below the first that was never initialised."""
        return max(0, self.newest[source] - back)

    def write_init(self, event: Take | Init | Tick) -> None:
        """Write to the first topic."""
        self.inits.append(event)
        self.world.write(TOPICS.init, event)
        self.keep_pace()

    # -- what a session does

    @rule(step=st.sampled_from([0, 0, 0, 0, 1]))
    def take(self, step: int) -> None:
        """Let the session start again, or the next one take over."""
        self.held = min(self.held + step, len(SESSIONS) - 1)
        named = tuple(
            TakeSource(source, TOPIC if source >> 16 == 1 else "copies", TOPIC_ID, 0, 0) for source in SOURCES
        )
        self.write_init(Take(*self.name(self.writer()), self.now, 1, named))

    @rule(
        source=sources,
        start=st.integers(-2, 3),
        length=small,
        timeout=st.sampled_from(TIMEOUTS),
        zombie=st.sampled_from([False, False, False, True]),
    )
    def init(self, source: int, start: int, length: int, timeout: int, zombie: bool) -> None:
        """Emit a range, perhaps in part again; perhaps by a session that lost the group."""
        session = self.world.session("s0", 0) if zombie else self.writer()
        topic = TOPIC if source >> 16 == 1 else "copies"
        first = self.at(source, start)
        run = SourceRun(source, first, first + length)
        if not zombie:
            self.newest[source] = max(self.newest[source], run.end)
        self.write_init(Init(*self.name(session), self.now, 0, timeout, 1, topic, TOPIC_ID, (run,)))

    @rule(passed=st.integers(0, 2_000))
    def tick(self, passed: int) -> None:
        """Let the session's clock go on."""
        self.now += passed
        self.write_init(Tick(*self.name(self.writer()), self.now))

    @rule(source=sources, start=back, length=small)
    def ack_run(self, source: int, start: int, length: int) -> None:
        """Contribute root edges."""
        self.seq += 1
        for first, end in cut(self.at(source, start), length):
            self.note_acks(self.writer().acks(runs=[(first, end)], source=source, seq=self.seq))

    @rule(source=sources, start=back, lengths=st.lists(st.integers(1, 3), min_size=3, max_size=7))
    def ack_runs(self, source: int, start: int, lengths: list[int]) -> None:
        """Contribute root edges in several runs of one record, with gaps between them."""
        self.seq += 1
        ends = [self.at(source, start) + sum(lengths[:number]) for number in range(len(lengths) + 1)]
        pieces = [
            piece
            for first, end in zip(ends[::2], ends[1::2], strict=False)
            for piece in cut(first, end - first)
        ]
        for block in {first >> 15 for first, _ in pieces}:
            runs = [(first, end) for first, end in pieces if first >> 15 == block]
            self.note_acks(self.writer().acks(runs=runs, source=source, seq=self.seq))

    @rule(source=sources, drawn=st.lists(st.tuples(back, st.integers(0, 3)), min_size=1, max_size=8))
    def ack_values(self, source: int, drawn: list[tuple[int, int]]) -> None:
        """Contribute values, to roots named once or several times, that complete some of them."""
        self.seq += 1
        named = [(self.at(source, back), value) for back, value in drawn]
        for block in {position >> 15 for position, _ in named}:
            values = [(p, v ^ root_edge(source, p) if v % 2 else v) for p, v in named if p >> 15 == block]
            self.note_acks(self.writer().acks(values=values, source=source, seq=self.seq))

    @rule(source=sources, start=back, length=small, some=few, others=few)
    def ack_mixed(self, source: int, start: int, length: int, some: list[int], others: list[int]) -> None:
        """Contribute everything that a record can say, overlaps included."""
        self.seq += 1
        mixed = [self.at(source, back) for back in some]
        touched = [self.at(source, back) for back in others]
        for first, end in cut(self.at(source, start), length):
            block = first >> 15
            self.note_acks(
                self.writer().acks(
                    runs=[(first, end), (first, min(end, first + 2))][: 1 + self.seq % 2],
                    values=[(p, 5) for p in mixed if p >> 15 == block],
                    absent=[(end - 1, end)],
                    touched=[p for p in touched if p >> 15 == block],
                    touched_at=self.now,
                    source=source,
                    seq=self.seq,
                )
            )

    @precondition(lambda self: self.model.open)
    @rule(data=st.data())
    def ack_rest(self, data: st.DataObject) -> None:
        """Contribute what a root still misses, so that it is complete."""
        self.seq += 1
        begun = {root: found for root, found in self.model.open.items() if found.value}
        pool = sorted((begun or self.model.open).items(), key=str)
        (source, position), found = data.draw(st.sampled_from(pool))
        missing = root_edge(source, position) ^ found.value
        self.note_acks(self.writer().acks(values=[(position, missing)], source=source, seq=self.seq))

    @rule(source=sources, drawn=st.lists(back, min_size=1, max_size=4))
    def fail(self, source: int, drawn: list[int]) -> None:
        """Fail some roots."""
        self.seq += 1
        named = [self.at(source, back) for back in drawn]
        for block in {position >> 15 for position in named}:
            here = [position for position in named if position >> 15 == block]
            self.note_fails(self.writer().fails(*here, source=source, seq=self.seq))

    # -- what goes wrong on the way

    @precondition(lambda self: self.old_acks)
    @rule(data=st.data())
    def repeat_acks(self, data: st.DataObject) -> None:
        """Write contributions again, as they were."""
        raw = data.draw(st.sampled_from(self.old_acks[-4:]))
        self.acks.append(self.world.write_raw(TOPICS.ack, bytes(bytearray(raw))))

    @precondition(lambda self: self.old_fails)
    @rule(data=st.data())
    def repeat_fails(self, data: st.DataObject) -> None:
        """Write fails again, as they were."""
        raw = data.draw(st.sampled_from(self.old_fails[-4:]))
        self.fails.append(self.world.write_raw(TOPICS.fail, bytes(bytearray(raw))))

    @precondition(lambda self: self.seq)
    @rule(source=sources, start=back)
    def contradict(self, source: int, start: int) -> None:
        """Write other contributions under the name of the last batch."""
        first = self.at(source, start)
        self.note_acks(self.writer().acks(runs=[(first, first + 1)], source=source, seq=self.seq))

    @rule(rubbish=st.binary(max_size=20), topic=st.sampled_from([TOPICS.init, TOPICS.ack, TOPICS.fail]))
    def rubbish(self, rubbish: bytes, topic: str) -> None:
        """Write what no acker can read."""
        self.world.write_raw(topic, rubbish)

    @rule(fault=faults)
    def break_next(self, fault: str) -> None:
        """Let a coming call to the broker fail."""
        self.script.next.append(fault)

    @rule()
    def crash(self) -> None:
        """Kill the acker and start another."""
        self.script.next.clear()
        self.start()

    @rule(records=st.integers(1, 6))
    def cut_next(self, records: int) -> None:
        """Let a coming transaction be committed in part."""
        self.script.cut_behind = records

    @rule()
    def work(self) -> None:
        """Let the acker work until it has nothing to do; what it decided must be what the model decides."""
        self.world.settle()
        self.script.next.clear()
        self.world.settle()
        self.model.apply(self.inits, self.fails, self.acks, CODEC.decode)
        self.inits, self.fails, self.acks = [], [], []
        found = self.world.outcomes()
        note(f"verdicts {found}")
        assert {root: [verdict] for root, verdict in self.model.verdicts.items()} == {
            root: [(reason, "" if reason == "TIMED_OUT" else error) for reason, error in given]
            for root, given in found.items()
        }
        assert self.world.status().open_roots == len(self.model.open)
        self.works += 1
        if self.works % self.health == 0:
            self.crash()

    @invariant()
    def nothing_is_decided_twice(self) -> None:
        """Hold at any moment, not only when the acker is at rest."""
        if hasattr(self, "world"):
            assert all(len(given) == 1 for given in self.world.outcomes().values())

    def note_acks(self, raw: bytes) -> None:
        """Remember contributions."""
        self.acks.append(raw)
        self.old_acks.append(raw)
        self.keep_pace()

    def note_fails(self, raw: bytes) -> None:
        """Remember fails."""
        self.fails.append(raw)
        self.old_fails.append(raw)
        self.keep_pace()

    def keep_pace(self) -> None:
        """Let the acker work after so many records."""
        if len(self.inits) + len(self.fails) + len(self.acks) >= self.pace:
            self.work()


def cut(start: int, length: int) -> list[tuple[int, int]]:
    """Cut a run at wire blocks."""
    edge, end = (start // 32_768 + 1) * 32_768, start + length
    return [(start, end)] if end <= edge else [(start, edge), (edge, end)]


AckerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAcker = AckerMachine.TestCase

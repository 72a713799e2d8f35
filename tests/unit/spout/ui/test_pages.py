"""The pages as a browser and a program get them, from a Kafka in memory."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.resources import files
from types import FrameType
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from acker.errors import Unreachable
from acker.kafka.port import MissingBroker, Outgoing
from acker.service.view import OpenRange
from spout.inspect.diagnosis import explained
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.readings import OLD_MS, DeadRecords, Reading, SourceProgress
from spout.inspect.summary import RateSeries
from spout.inspect.trail import EvidenceReader
from spout.planning.journal import BEGINNING
from spout.ui.pages import unknown_reasons
from spout.ui.requests import HEADERS
from spout.ui.serve import LOOPBACK
from spout.ui.watch import Watch
from tests.support.memory.cluster import NoFaults
from tests.support.page_server import pages_of
from tests.support.worlds.planning import World, batch, yaml_of

VENDORED = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",  # 2.0.11
    "htmx-ext-sse.min.js": "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",  # 2.2.4
    "idiomorph-ext.min.js": "5811b9a7eda14878b7dab4378bf60432e1bb6f11fcfb970cc26540642650181e",  # 0.8.0
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",  # 1.6.32
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",  # 1.6.32
}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def overview(world: World) -> Iterator[Overview]:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        yield overview


@pytest.fixture
def watch(world: World, overview: Overview) -> Watch:
    return Watch(overview.snapshot, world.topics, lambda: world.now_ms)


@pytest.fixture
def client(world: World, watch: Watch) -> TestClient:
    application = pages_of(world, watch)[0].application(LOOPBACK)
    return TestClient(application, base_url="http://localhost:8095")


def begin(world: World, *, skip: tuple[int, ...] = ()) -> None:
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, skip=skip)
    world.run(1_000)


def test_the_overview_says_of_each_input_in_a_sentence_what_is_pending(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world, skip=(2, 7))
    watch.read()
    page = client.get("/")
    assert page.status_code == 200
    assert "g on sentences: 2 pending, oldest 1.0 s of 4.0 s; 0 due; 0 dead, 0 of them today" in page.text
    assert "sentences/0: offset 2 blocks the commit: open for 1.0 s" in page.text
    assert 'href="/partition/sentences/0"' in page.text


def test_the_page_is_live_at_once_and_ready_after_its_first_reading(watch: Watch, client: TestClient) -> None:
    assert client.get("/livez").text == "ok\n"
    assert (client.get("/readyz").status_code, client.get("/readyz").text) == (503, "nothing was read yet\n")
    watch.read()
    assert (client.get("/readyz").status_code, client.get("/readyz").text) == (200, "ok\n")


def test_a_page_names_the_brokers_that_it_reads_from_since_installations_look_alike() -> None:
    text = 'kafka: {bootstrap.servers: "prod-1:9092, prod-2:9092,prod-3:9092"}\n' + yaml_of()
    world = World(text.replace("acker: {", "acker: {topic_prefix: blue-, "))
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    client = TestClient(pages_of(world, watch)[0].application(LOOPBACK), base_url="http://localhost")
    assert "prod-1:9092, and 2 more, prefix blue-; " in client.get("/").text


def test_while_no_acker_works_the_pages_show_at_least_how_many_are_pending(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world, skip=(2, 7))
    world.kill_acker()
    world.run(OLD_MS)
    watch.read()
    assert "<td>≥ 2</td>" in client.get("/").text
    assert "≥ 2 pending" in client.get("/partition/sentences/0").text
    assert "<td>≥ 2</td>" in client.get("/machinery").text
    assert client.get("/", headers={"accept": "application/json"}).json()[0]["pending"] == 2


def test_that_nothing_failed_says_little_without_an_acker_and_the_page_says_so(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world)
    watch.read()
    assert "no acker lives" not in client.get("/failures").text
    world.kill_acker()
    watch.read()
    page = client.get("/failures").text
    assert "No failure since" in page
    assert "no acker lives" in page


@pytest.mark.parametrize("path", ["/", "/machinery", "/failures", "/partition/sentences/0"])
def test_each_page_names_a_missing_broker_before_all_else(
    world: World, watch: Watch, client: TestClient, path: str
) -> None:
    """D1004: the page said that nothing needs anybody, beside what it did not know."""
    begin(world, skip=(2,))
    world.kill_acker()
    world.run(2 * OLD_MS)
    world.cluster.missing = [MissingBroker(3, replicas=21)]
    watch.read()
    page = client.get(path).text
    assert page.index("broker 3 is missing") < page.index("<h1")
    assert "windhover release" not in page
    assert "windhover acker run" not in page
    assert "needs anybody" not in page


def test_the_machinery_has_a_missing_broker_by_the_same_keys_as_ever(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world)
    world.cluster.missing = [MissingBroker(3, replicas=21, leaderless=2)]
    watch.read()
    found = client.get("/machinery", headers={"Accept": "application/json"}).json()
    assert found["missing_brokers"] == [{"number": 3, "copies": 21, "leaderless": 2, "is_silent": False}]


def test_before_the_first_reading_the_page_says_so(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "nothing was read yet" in page.text


def test_what_is_unknown_is_called_unknown_and_has_its_reason(
    world: World, watch: Watch, client: TestClient
) -> None:
    """Without an acker's State nothing is 0 that nobody can know."""
    world.produce(4)
    watch.read()
    page = client.get("/").text
    assert "unknown pending, oldest unknown of 4.0 s; 0 due" in page
    why = "unknown, since acker partition 0 has no State yet"
    assert f"<li>sentences/0, sentences/1: {why}" in page
    assert "Nothing that is known needs anybody." in page
    page = client.get("/partition/sentences/0").text
    assert f"<li>sentences/0: {why}" in page
    assert 'What blocks the commit is <span class="unknown">unknown</span>.' in page
    page = client.get("/record/sentences/0@170").text
    assert "Attempts" not in page, "nothing is known to have happened"


def test_the_header_marks_the_page_and_the_one_that_it_belongs_to(client: TestClient) -> None:
    assert re.findall(r'<a href="(\S+)" aria-current="(\w+)"', client.get("/").text) == [("/", "page")]
    found = re.findall(r'<a href="(\S+)" aria-current="(\w+)"', client.get("/record/sentences/0@2").text)
    assert found == [("/record", "true")]


def test_a_reason_names_few_of_the_partitions_that_it_concerns() -> None:
    rows = [{"source": f"s/{number}", "unknown": {"lag": "no leader"}} for number in range(7)]
    assert unknown_reasons(rows) == ["s/0, s/1, s/2, s/3, and 3 more: unknown, since no leader"]


def test_what_blocks_the_commits_has_those_partitions_alone(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world, skip=(2,))
    world.run(1_000)
    watch.read()
    blocked = client.get("/").text.partition("What blocks the commits")[2]
    assert re.findall(r"<li>(sentences/\d)", blocked) == ["sentences/0"]


def test_a_partition_is_unknown_and_not_away_where_its_topic_cannot_be_asked(world: World) -> None:
    outages = Outages(world)
    with closing(Overview(world.cluster.log(outages), world.topics)) as overview:
        watch = Watch(overview.snapshot, world.topics, lambda: world.now_ms)
        client = TestClient(pages_of(world, watch)[0].application(LOOPBACK), base_url="http://localhost")
        before = client.get("/partition/sentences/0")
        assert (before.status_code, "nothing was read yet" in before.text) == (200, True)
        outages.begin("broker")
        watch.read()
        during = client.get("/partition/sentences/0")
        assert during.status_code == 200
        assert "What sentences/0 has is unknown: topics: the broker does not answer" in during.text
        assert client.get("/partition/sentences/0", headers={"accept": "application/json"}).json()["unknown"]
        assert client.get("/partition/other/0").status_code == 404
        outages.end()
        watch.read()
        assert client.get("/partition/sentences/0").status_code == 200
        assert client.get("/partition/sentences/7").status_code == 404


def test_a_partition_shows_its_band_as_a_table_too(world: World, watch: Watch, client: TestClient) -> None:
    begin(world, skip=(2,))
    watch.read()
    page = client.get("/partition/sentences/0").text
    assert 'class="k-open" d="M2 2h1v22h-1z"' in page
    assert '<th scope="row">offset 2: 1 open</th>' in page
    assert re.search(r'Offset <a href="/record/sentences/0@2">2</a> blocks the commit: open for 1.0 s', page)


def test_programs_get_what_the_command_prints(
    world: World, watch: Watch, client: TestClient, overview: Overview
) -> None:
    begin(world, skip=(2,))
    watch.read()
    rows = overview.snapshot(world.now_ms).rows()
    assert client.get("/", headers={"accept": "application/json"}).json() == rows
    one = client.get("/partition/sentences/0", headers={"accept": "application/json"})
    assert one.json() == rows[0]


def test_a_record_says_why_it_is_not_done_and_what_to_type(world: World, client: TestClient) -> None:
    begin(world, skip=(2,))
    page = client.get("/record/sentences/0@2").text
    assert '<strong class="situation">in batch</strong> Emitted 1.0 s ago' in page
    assert "Next: <code>windhover inspect sentences/0@2 --watch 2</code>" in page
    assert 'aria-label="attempt 1: written to its topic, emitted, times out, now"' in page
    assert client.get("/record", params={"place": "sentences/0@2"}).text.count("<section") == 1


def test_a_record_for_programs_is_what_inspect_prints(world: World, client: TestClient) -> None:
    begin(world, skip=(2,))
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at("sentences/0@2")
    evidence = trail.read_evidence(here)
    story = explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)
    assert client.get("/record/sentences/0@2", headers={"accept": "application/json"}).json() == [story]


def test_records_are_found_by_key_and_time(world: World, client: TestClient) -> None:
    world.produce(4, keys=[b"a", b"b"])
    world.ready()
    page = client.get("/record", params={"key": "b", "from": "1h", "input": "sentences"}).text
    assert re.findall(r'aria-label="Record (\S+)"', page) == ["sentences/0@1", "sentences/0@3"]
    assert "no record with key c was found" in client.get("/record", params={"key": "c", "from": "1h"}).text


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"place": "nonsense"}, "is no place of a record"),
        ({"place": "none/0@1"}, "no tracked input of topics.yaml is called"),
        ({"key": "a"}, "a key needs a time to search from"),
        ({"key": "a", "from": "soon"}, "from soon: is no time in ISO 8601; give a time such as "),
    ],
)
def test_a_search_that_cannot_be_says_what_is_wrong(
    client: TestClient, query: dict[str, str], problem: str
) -> None:
    page = client.get("/record", params=query)
    assert page.status_code == 404
    assert problem in page.text


def test_a_payload_is_text_and_no_part_of_the_page(world: World, client: TestClient) -> None:
    producer = world.log.producer()
    producer.send(Outgoing("sentences", 0, b"<script>alert(1)</script>", b"<b>key</b>"))
    producer.flush(1_000)
    page = client.get("/record/sentences/0@0").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "<b>key" not in page


@pytest.mark.parametrize("path", ["/partition/sentences/9", "/partition/none/0", "/nothing"])
def test_what_there_is_not_is_not_found(watch: Watch, client: TestClient, path: str) -> None:
    watch.read()
    page = client.get(path)
    assert page.status_code == 404
    assert f"There is no page {path}" in page.text


def test_an_address_cannot_bring_script_into_the_page(watch: Watch, client: TestClient) -> None:
    watch.read()
    assert "<script>alert" not in client.get("/partition/<script>alert(1)</script>/0").text


def test_every_answer_forbids_foreign_script_and_other_sites(client: TestClient) -> None:
    for path in ("/", "/static/page.css", "/nothing"):
        headers = client.get(path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8095", "localhost.evil.example", ""])
def test_a_request_for_another_host_is_refused(client: TestClient, host: str) -> None:
    """A site that lets its own name lead here could read the page else."""
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "[::1]", "[::1]:8095"])
def test_a_request_for_this_machine_is_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


def test_the_pages_name_no_other_host(world: World, watch: Watch, client: TestClient) -> None:
    begin(world)
    watch.read()
    for path in ("/", "/partition/sentences/0", "/static/page.css", "/static/page.js", "/static/chart.js"):
        assert set(re.findall(r"(?:https?:)?//[a-z0-9.]+\.[a-z]+", client.get(path).text)) == set()


def test_the_rates_are_a_table_without_any_script_and_unknown_where_nobody_knows(
    world: World, overview: Overview
) -> None:
    begin(world, skip=(2,))
    rates = RateSeries(world.now_ms - world.now_ms % 60_000, [7] * 6 + [None] * 6, [0] * 12, [0] * 12)
    watch = Watch(overview.snapshot, world.topics, lambda: world.now_ms, rates=lambda _: {"sentences": rates})
    watch.read()
    client = TestClient(pages_of(world, watch)[0].application(LOOPBACK), base_url="http://localhost")
    page = client.get("/").text
    label = "over fifteen minutes: at most 0.7 acked, at most 0.0 failed, at most 0.0 timed out"
    assert f'role="img" aria-label="Verdicts of sentences a second {label}"' in page
    unknown, known = re.findall(r"Z</th>(<td>.*</td>)</tr>", page.partition('id="minutes-sentences"')[2])[:2]
    assert unknown.startswith('<td><span class="unknown">unknown</span></td><td>0</td>')
    assert known == "<td>42</td><td>0</td><td>0</td>"


def test_no_template_has_an_inline_script_or_style() -> None:
    templates = list(files("spout.ui").joinpath("templates").iterdir())
    assert templates
    for each in templates:
        assert not re.search(r"<script(?! src=)|\sstyle=|\son[a-z]+=", each.read_text(encoding="utf-8")), (
            each.name
        )


def test_files_of_others_are_what_they_were_and_have_their_licence() -> None:
    static = files("spout.ui").joinpath("static")
    foreign = {each.name for each in static.iterdir() if ".min." in each.name}
    assert foreign == VENDORED.keys()
    for name, digest in VENDORED.items():
        assert hashlib.sha256(static.joinpath(name).read_bytes()).hexdigest() == digest
        assert static.joinpath(f"{name.partition('.')[0]}.LICENSE").is_file()


def test_the_machinery_has_each_acker_partition_and_the_owner_of_each_group(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world, skip=(2,))
    watch.read()
    found = client.get("/machinery", headers={"accept": "application/json"}).json()
    assert [each["partition"] for each in found["acker_partitions"]] == [0, 1, 2]
    assert sum(each["open"] for each in found["acker_partitions"]) == 1
    assert found["groups"] == [
        {"group": "g", "session": "s1", "epoch": 1, "query_lives": True, "stopped": "", "unknown": {}}
    ]
    assert (found["ackers"], found["replay_workers"]) == (1, 0)


def test_what_a_restart_of_an_acker_reads_grows_while_it_is_away(
    world: World, watch: Watch, client: TestClient
) -> None:
    begin(world)
    world.kill_acker()
    watch.read()
    before = client.get("/machinery", headers={"accept": "application/json"}).json()["acker_partitions"]
    world.run(2_000)
    watch.read()
    after = client.get("/machinery", headers={"accept": "application/json"}).json()["acker_partitions"]
    assert sum(each["unsaved"] for each in after) > sum(each["unsaved"] for each in before)


def test_the_machinery_without_any_state_is_unknown(world: World, watch: Watch, client: TestClient) -> None:
    watch.read()
    found = client.get("/machinery", headers={"accept": "application/json"}).json()
    assert {each["open"] for each in found["acker_partitions"]} == {None}
    assert "acker partition 0 has no State yet" in client.get("/machinery").text


def test_a_million_pending_records_are_a_small_snapshot_with_the_work_of_a_tenth(
    world: World, watch: Watch
) -> None:
    """Half of a log is open, in the least regular way, and every cell shows something else: cells, and not
    records, are what a page takes work for.
    """
    begin(world)
    watch.read()

    def snapshot_of(records: int) -> tuple[str, int]:
        """Return the page of a log of so many records, and how many lines of Python it took."""
        page = _half_open(world, watch.latest.snapshot, records)
        page.get("/partition/sentences/0")  # the templates are compiled once
        with _counted_lines() as lines:
            text = page.get("/partition/sentences/0").text
        return text, lines.total()

    few, lines_of_few = snapshot_of(200_000)
    many, lines_of_many = snapshot_of(2_000_000)
    assert few.count("data-first") == many.count("data-first") > 200
    assert len(many) < 50_000
    assert lines_of_many < 1.5 * lines_of_few


def _half_open(world: World, snapshot: Snapshot, records: int) -> TestClient:
    """Return a client of pages that show a log of so many records, half as many roots open in 20 ranges."""
    width = records // 10
    at = np.arange(0, width // 2, 2)
    ranges = [
        OpenRange(1 << 16, start, at, "g", "s", 1, world.now_ms, 0, False, 1_000, world.now_ms)
        for start in range(0, records, width)
    ] * 2
    dead = np.arange(0, records, 2 * (records // 240))
    first, *others = snapshot.partitions
    state = replace(
        first,
        end=Reading(records),
        progress=Reading(SourceProgress(True, 0, records, ranges)),
        dead_at=Reading(DeadRecords(dead, dead)),
    )
    full = Watch(lambda _: replace(snapshot, partitions=[state, *others]), world.topics, lambda: world.now_ms)
    full.read()
    return TestClient(pages_of(world, full)[0].application(LOOPBACK), base_url="http://localhost")


@contextmanager
def _counted_lines() -> Iterator[Counter[str]]:
    """Count the lines, by file, that threads run which start meanwhile: a request has its own ones.

    A loop counts a line for each round. No clock is read, so it is all the same what else the machine does.
    """
    lines = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> Any:
        lines[frame.f_code.co_filename] += event == "line"
        return count

    before = threading.gettrace()
    threading.settrace(count)
    try:
        yield lines
    finally:
        threading.settrace(before)


POISON = yaml_of(
    timeout="60s",
    retry="{attempts: 2, initial: 60s, jitter: 0, causes: [{error: PoisonError, then: dead_letter}]}",
    dead_letter="{max_ratio: 1}",
)


class Outages(NoFaults):
    """What a client cannot reach: nothing, the whole broker, or the leader of one partition."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._broker = False

    def before(self, operation: str) -> None:
        if self._broker:
            raise Unreachable(f"{operation}: the broker does not answer")

    def begin(self, outage: str) -> None:
        self._broker = outage == "broker"
        if outage == "leader":
            self._world.cluster.lose_leader("sentences", 1)

    def end(self) -> None:
        self._broker = False
        self._world.cluster.elect_leader("sentences", 1)


@pytest.mark.parametrize("outage", ["broker", "leader", "acker", "driver"])
def test_no_figure_turns_0_while_a_part_is_away_and_all_is_right_again_after_it(outage: str) -> None:
    world = World(POISON)
    outages = Outages(world)
    world.start_replays()
    world.produce(10)
    world.produce(6, partition=1)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=(2, 3, 7), fail=(4,))
    world.publish(BEGINNING, end, skip=(0, 1, 2, *range(4, 10)), fail=(3,), error="PoisonError")
    world.run(1_500)
    world.produce(3)
    log = world.cluster.log(outages)
    with closing(Overview(log, world.topics)) as overview:
        watch = Watch(overview.snapshot, world.topics, lambda: world.now_ms)
        client = TestClient(pages_of(world, watch)[0].application(LOOPBACK), base_url="http://localhost")
        watch.read()
        before = client.get("/", headers={"accept": "application/json"}).json()
        assert {name: before[0][name] for name in ("pending", "replays_due", "dead_letters", "lag")} == {
            "pending": 2, "replays_due": 1, "dead_letters": 1, "lag": 6,
        }  # fmt: skip
        if outage in ("broker", "leader"):
            outages.begin(outage)
        elif outage == "acker":
            world.kill_acker()
            world.run(20_000)
        else:
            world.kill(planner)
            world.run(20_000)
        watch.read()
        during = client.get("/", headers={"accept": "application/json"}).json()
        page = client.get("/").text
        # where its acker has written that nothing is open, nobody knows what came since
        away = {"broker": {"sentences/?"}, "leader": {"sentences/1"}, "acker": {"sentences/1"}}
        assert {row["source"] for row in during if row["unknown"]} == away.get(outage, set())
        counted = (
            "pending",
            "oldest_ms",
            "committed",
            "lag",
            "replays_due",
            "dead_letters",
            "end",
            "emitted",
        )
        for was in before:
            now = next((row for row in during if row["source"] in (was["source"], "sentences/?")), None)
            assert now is not None
            turned = [name for name in counted if was[name] and now[name] == 0]
            assert turned == []
            unexplained = [
                name for name in counted if was[name] and now[name] is None and name not in now["unknown"]
            ]
            assert unexplained == []
        says = {
            "broker": "The broker does not answer:", "leader": "sentences/1 has no leader",
            "acker": "2 pending", "driver": "the clock of its timeout is stopped",
        }  # fmt: skip
        assert says[outage] in page
        if outage == "acker":
            assert during[0]["as_of_ms"] >= 20_000, "its part is as old as its State"
        for path in (
            "/machinery",
            "/partition/sentences/0",
            "/failures",
            "/letters",
            "/latency",
            "/topology",
        ):
            assert client.get(path).status_code in ((200, 503) if outage == "broker" else (200,))
        if outage in ("broker", "leader"):
            outages.end()
            watch.read()
            assert client.get("/", headers={"accept": "application/json"}).json() == before

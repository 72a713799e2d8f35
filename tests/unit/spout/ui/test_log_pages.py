"""The pages that read the log when they are opened: they show what the commands print."""

from __future__ import annotations

import html
import re
import shlex
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from acker.errors import Unreachable
from acker.kafka.port import Outgoing, TopicPartition
from replay.records.letters import Filter
from spout.inspect.dead_letters import filters_of_inputs, inputs_named
from spout.inspect.failures import FailureLog
from spout.inspect.latency import CompletionLog
from spout.inspect.overview import Snapshot
from spout.inspect.tables import span
from spout.planning.journal import BEGINNING, Journal
from spout.questions.letters import details_of, letters_read
from spout.ui.jobs import Actions
from spout.ui.log_pages import LETTERS_SHOWN
from spout.ui.serve import LOOPBACK
from spout.ui.watch import LatestState, Watch
from tests.support.memory.cluster import MemoryLog, NoFaults
from tests.support.page_server import client_of, pages_of
from tests.support.waiting import eventually
from tests.support.worlds.planning import World, batch, yaml_of

YAML = yaml_of(retry="{attempts: 1}", dead_letter="{max_ratio: 1}")
JSON = {"accept": "application/json"}


class ReadersAway(NoFaults):
    """Readers of logs get no answer while it is on."""

    is_on = False

    def before(self, operation: str) -> None:
        if self.is_on and operation == "poll":
            raise Unreachable("the broker does not answer to poll")


@pytest.fixture
def world() -> World:
    return World(YAML)


@pytest.fixture
def client(world: World) -> TestClient:
    return client_of(world)[0]


def die(world: World, *failing: int, records: int = 20) -> Journal:
    """Let some of the records fail, each of which becomes a dead letter at once."""
    world.start_replays()
    world.produce(records, keys=[b"a", b"b"])
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=failing)
    world.run(3_000)
    return end


def failures_of(world: World, since_ms: int) -> list[dict[str, Any]]:
    found = FailureLog(world.cluster.log(), world.topics, inputs_named(world.topics, ()), since_ms)
    found.read()
    return found.rows(world.now_ms)


def test_failures_are_those_that_the_command_prints(world: World, client: TestClient) -> None:
    die(world, 2, 3, 4)
    rows = failures_of(world, world.now_ms - 3_600_000)
    assert rows[0]["failures"] == 3
    assert client.get("/failures", headers=JSON).json() == rows
    page = client.get("/failures").text
    assert "3 failures since" in page
    cells = re.findall(r"<t[hd][^>]*>([^<]*)<", page)
    assert cells[cells.index("sentences") :][:4] == ["sentences", "split", "ValueError", "3"]
    assert (
        'href="/letters?input=sentences&amp;error=ValueError&amp;operator=split&amp;since=1h&amp;all=on"'
        in page
    )


def test_the_page_shows_to_the_second_when_a_failure_came_first_and_last(
    world: World, client: TestClient
) -> None:
    """With milliseconds the table is wider than a screen, and its last column unseen."""
    die(world, 2, 3, 4)
    (row,) = client.get("/failures", headers=JSON).json()
    assert row["first"][19] == ".", "programs get the milliseconds"
    page = client.get("/failures").text
    assert f"{row['first'][:19]}Z" in page
    assert row["first"] not in page


def test_failures_go_on_where_the_last_request_has_read_to(world: World, client: TestClient) -> None:
    end = die(world, 2)
    assert client.get("/failures", headers=JSON).json()[0]["failures"] == 1
    (planner,) = world.planners
    world.produce(10)
    world.run(1_000)
    world.publish(end, batch(planner, end, world), fail=[25])
    world.run(1_000)
    assert client.get("/failures", headers=JSON).json()[0]["failures"] == 2


def test_the_window_of_failures_moves_on(world: World, client: TestClient) -> None:
    """A page that is open for a day does not count a day as an hour."""
    die(world, 2)
    assert client.get("/failures?since=10m", headers=JSON).json()[0]["failures"] == 1
    world.cluster.now_ms += 900_000
    assert client.get("/failures?since=10m", headers=JSON).json() == []


def test_no_failures_are_none_and_no_verdicts_are_unknown(world: World, client: TestClient) -> None:
    assert "No failure since" in client.get("/failures").text
    world.cluster.delete_topic("_ack_verdict")
    page = client_of(world)[0].get("/failures")
    assert page.status_code == 503
    assert "topic _ack_verdict is missing; run <code>windhover topics create</code>" in page.text
    assert "0 failures" not in page.text


def test_a_broker_that_is_away_makes_the_page_unknown_until_it_is_back(world: World) -> None:
    faults = ReadersAway()
    client, _ = client_of(world, faults)
    die(world, 2)
    for path in ("/failures", "/letters", "/latency"):
        faults.is_on = True
        page = client.get(path)
        assert page.status_code == 503
        assert "the broker does not answer to poll" in page.text
        assert '<span class="unknown">unknown</span>' in page.text
        faults.is_on = False
        assert client.get(path).status_code == 200


class Unasked(NoFaults):
    """Nothing may be asked of the broker."""

    def before(self, operation: str) -> None:
        pytest.fail(f"{operation} would wait as long as the newest reading has")


def test_in_an_outage_a_page_answers_by_the_newest_reading_and_asks_nothing(world: World) -> None:
    """All of them are read in one thread: who waits for the broker there lets all others wait."""
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, jobs = pages_of(world, watch, Unasked(), Actions("secret", "ann"))
    client = TestClient(pages.application(LOOPBACK), base_url="http://localhost")
    watch.latest = LatestState(1, Snapshot(world.now_ms, (), broker_error=Unreachable("no broker answers")))
    letter, record = "/letter/sentences.g.dlq/0@0", "/record/sentences/0@1"
    with closing(jobs):
        for path in ("/failures", "/letters", "/latency", letter, record, "/redrives", "/redrives/ab"):
            page = client.get(path)
            assert (page.status_code, "no broker answers" in page.text) == (503, True), path
        form = {"input": "sentences", "why": "repaired", "token": "secret"}
        for path in ("/redrives", "/redrives/ab/cancel"):
            page = client.post(path, data=form, headers={"origin": "http://localhost"})
            assert (page.status_code, "no broker answers" in page.text) == (503, True), path
        assert client.get("/record").status_code == 200, "its form needs no broker"


def test_failures_are_not_counted_anew_after_an_outage(world: World) -> None:
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, jobs = pages_of(world, watch, read_max=2)
    client = TestClient(pages.application(LOOPBACK), base_url="http://localhost")
    die(world, 2, 3, 4)
    well, away = watch.latest, Snapshot(world.now_ms, (), broker_error=Unreachable("no broker answers"))
    with closing(jobs):
        eventually(lambda: isinstance(client.get("/failures", headers=JSON).json(), list))
        watch.latest = LatestState(1, away)
        assert client.get("/failures").status_code == 503
        watch.latest = well
        assert client.get("/failures", headers=JSON).json()[0]["failures"] == 3


@pytest.mark.parametrize("path", ["/failures", "/latency"])
def test_no_figure_is_known_before_the_log_was_read_and_the_page_says_how_far_it_is(
    world: World, path: str
) -> None:
    """A log of hours is read piece by piece, a piece for each request; a page asks again by itself."""
    die(world, 2, 3, 4)
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, jobs = pages_of(world, watch, read_max=2)
    with closing(jobs):
        client = TestClient(pages.application(LOOPBACK), base_url="http://localhost")
        page = client.get(path)
        assert (page.status_code, "problem" in page.text) == (200, False)
        assert re.search(r'<span class="unknown">unknown</span>: reading .*, \d+ % read\.', page.text)
        seen = client.get(path, headers=JSON).json()
        assert re.match(r"reading (verdicts since \S+|the ack topics), \d+ % read", seen["unknown"])
        for _ in range(200):
            seen = client.get(path, headers=JSON).json()
            if isinstance(seen, list):
                break
        assert seen == client_of(world)[0].get(path, headers=JSON).json()


def test_a_record_of_any_time_and_a_place_beyond_every_log_are_shown_and_refused(
    world: World, client: TestClient
) -> None:
    """A producer may write microseconds, and anybody may type a place."""
    die(world, 2)
    producer = world.cluster.log().producer()
    producer.send(Outgoing("sentences", 0, b"x", timestamp_ms=1_700_000_000_000_000))
    producer.flush(1_000)
    ((_, end),) = world.log.stable_ends([TopicPartition("sentences", 0)]).items()
    page = client.get(f"/record/sentences/0@{end - 1}")
    assert page.status_code == 200
    assert "1700000000000000 ms after 1970" in page.text
    page = client.get(f"/record/sentences/0@{1 << 48}")
    assert page.status_code == 404
    assert "is no place of a record" in page.text


def test_letters_are_those_that_the_command_lists(world: World, client: TestClient) -> None:
    die(world, 2, 3, 4)
    meant = filters_of_inputs(inputs_named(world.topics, ()), (), Filter())
    with letters_read(world.cluster.log(), world.topics, meant) as letters:
        rows = letters.rows()
    assert len(rows) == 3
    assert client.get("/letters", headers=JSON).json() == rows
    page = client.get("/letters").text
    assert "3 letters match." in page
    assert 'href="/letters?error=ValueError">ValueError</a>' in page
    assert 'href="/letters?key=a">a</a>' in page
    assert "boom" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"key": "a"}, 2),
        ({"key": "%62"}, 1),
        ({"key": "0x62"}, 0),
        ({"error": "KeyError"}, 0),
        ({"operator": "split", "reason": "attempts"}, 3),
        ({"place": "sentences/0@3"}, 1),
        ({"since": "1h"}, 3),
        ({"until": "1h"}, 0),
        ({"input": "sentences", "all": "on"}, 3),
    ],
)
def test_letters_are_filtered_as_by_the_command(
    world: World, client: TestClient, query: dict[str, str], found: int
) -> None:
    die(world, 2, 3, 4)
    assert len(client.get("/letters", params=query, headers=JSON).json()) == found
    page = client.get("/letters", params=query).text
    assert f"{found} letter" in page
    name, value = next(iter(query.items()))
    assert ("windhover dlq list " + (value if name == "place" else f"--{name} {value}")) in page


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"reason": "BAD"}, "reason BAD: is none; give ATTEMPTS"),
        ({"key": "50%"}, "key 50%: has a % that begins no escape"),
        ({"since": "soon"}, "since soon: is no time"),
        ({"place": "nonsense"}, "is no place of a letter or a record"),
        ({"input": "none"}, "no tracked input of topics.yaml is called"),
    ],
)
def test_a_filter_that_cannot_be_says_what_is_wrong(
    client: TestClient, query: dict[str, str], problem: str
) -> None:
    page = client.get("/letters", params=query)
    assert page.status_code == 404
    assert problem in page.text
    assert next(iter(query.values())) in page.text, "what was typed stays"


def test_a_key_that_cannot_be_is_refused_on_the_page_of_a_record_too(client: TestClient) -> None:
    page = client.get("/record", params={"key": "50%", "from": "2h"})
    assert page.status_code == 404
    assert "key 50%: has a % that begins no escape; write %25 for a percent sign" in page.text


def test_the_command_below_is_one_that_a_shell_takes_as_it_was_meant(client: TestClient) -> None:
    page = html.unescape(client.get("/letters", params={"error": "it's; rm", "operator": "split"}).text)
    assert shlex.split(page.split("windhover dlq list ")[1].split("</code>")[0]) == [
        "--error", "it's; rm", "--operator", "split"
    ]  # fmt: skip


def test_of_many_letters_the_latest_are_shown_and_the_others_counted(
    world: World, client: TestClient
) -> None:
    die(world, *range(LETTERS_SHOWN + 7), records=200)
    page = client.get("/letters").text
    assert f"{LETTERS_SHOWN + 7} letters match." in page
    assert "7 more are not shown: narrow the filter" in page
    assert page.count('href="/letter/') == LETTERS_SHOWN


def test_a_letter_shows_what_the_command_shows_and_its_payload_behind_a_click(
    world: World, client: TestClient
) -> None:
    producer = world.log.producer()
    producer.send(Outgoing("sentences", 0, b"<script>alert(1)</script>", b"k", headers=(("trace", b"7"),)))
    producer.flush(1_000)
    die(world, 0)
    details = details_of(world.cluster.log(), world.topics, ["sentences.g.dlq/0@0"])
    path = "/letter/sentences.g.dlq/0@0"
    assert client.get(path, headers=JSON).json() == details
    page = client.get(path).text
    before, hidden = page.split("<details>", 1)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in hidden
    assert "header trace: 7" in hidden
    assert "alert" not in before
    assert 'href="/record/sentences/0@0"' in before
    assert client.get("/letter/sentences.g.dlq/0@9").status_code == 404


def test_texts_of_others_are_no_part_of_the_page(client: TestClient) -> None:
    bad = "<script>alert(1)</script>"
    for path in ("/letters", "/failures", f"/letter/{bad}"):
        page = client.get(path, params={"error": bad, "since": bad, "key": bad})
        assert bad not in page.text


def test_latency_is_that_of_the_command_and_its_bolts_are_unknown(world: World, client: TestClient) -> None:
    die(world, 2)
    found = CompletionLog(world.cluster.log(), world.topics, inputs_named(world.topics, ()))
    found.read()
    rows = found.rows(world.now_ms, 2_000)
    assert rows[0]["acked"] == 19
    assert client.get("/latency?timeout=2s", headers=JSON).json() == rows
    page = client.get("/latency").text
    assert f'<th scope="row">{span(rows[0]["histogram"][-1]["to_ms"])}</th>' in page
    assert page.count("<tr data-ms=") == len(rows[0]["timeouts"])
    assert '<span class="unknown">unknown</span>: the log has one verdict for a whole tree' in page


def test_times_without_any_emission_are_unknown(world: World, client: TestClient) -> None:
    page = client.get("/latency")
    assert page.status_code == 200
    assert "how long records take is <span" in page.text
    assert client.get("/latency?timeout=soon").status_code == 404
    world.cluster.delete_topic("_ack_init")
    page = client_of(world)[0].get("/latency")
    assert page.status_code == 503
    assert "topic _ack_init is missing" in page.text


class Gate(NoFaults):
    """Readers of logs get their answer when the test says so."""

    def __init__(self) -> None:
        self.is_shut, self.came, self.opens = False, threading.Event(), threading.Event()

    def before(self, operation: str) -> None:
        if self.is_shut and operation == "poll":
            self.came.set()
            self.opens.wait(30)


@contextmanager
def waiting_tabs(world: World, count: int) -> Iterator[tuple[Watch, list[Future[Any]]]]:
    """Let tabs wait for a broker that is away, until the context ends; meanwhile the overview answers."""
    die(world, 2)
    gate = Gate()
    watch = Watch(lambda now_ms: Snapshot(now_ms, ()), world.topics, lambda: world.now_ms)
    pages, _ = pages_of(world, watch, gate)
    gate.is_shut = True
    with (
        TestClient(pages.application(LOOPBACK), base_url="http://localhost") as client,
        ThreadPoolExecutor(count + 1) as tabs,
    ):
        waiting = [tabs.submit(client.get, "/letters") for _ in range(count)]
        try:
            assert gate.came.wait(10)
            assert tabs.submit(client.get, "/").result(10).status_code == 200
            yield watch, waiting
        finally:
            gate.opens.set()


def test_pages_that_wait_for_the_broker_hold_up_no_other(world: World) -> None:
    """In an outage many tabs wait for it, and the overview says so."""
    with waiting_tabs(world, 40) as (_, waiting):
        pass
    assert [each.result(60).status_code for each in waiting] == [200] * 40


def test_a_page_that_waited_for_another_one_is_built_from_the_reading_that_came_meanwhile(
    world: World,
) -> None:
    with waiting_tabs(world, 10) as (watch, waiting):
        watch.latest = LatestState(
            1, Snapshot(world.now_ms, (), broker_error=Unreachable("no broker answers"))
        )
    assert sorted(each.result(60).status_code for each in waiting) == [200] + [503] * 9


@pytest.mark.parametrize("path", ["/record/sentences/0@3", "/failures", "/letters", "/latency"])
def test_the_questions_of_a_page_share_a_deadline(
    world: World, client: TestClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent broker would keep each of them waiting, and all other pages behind them."""
    die(world, 3)
    shared = list[MemoryLog]()

    def share_deadline(log: MemoryLog) -> None:
        shared.append(log)

    monkeypatch.setattr(MemoryLog, "share_deadline", share_deadline)

    assert client.get(path).status_code == 200
    assert len(shared) == 1

"""Redrives on the page: tried, started, followed and cancelled, and refused to who may not."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from acker.kafka.port import TopicPartition
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.outcomes import find_redrives
from replay.handling.redrive import AT_ONCE, Redrive
from replay.records.letters import Filter, LetterAction
from spout.inspect.dead_letters import carry_out
from spout.planning.journal import BEGINNING, Journal
from spout.questions.redrives import redrive_rows
from spout.ui.jobs import Actions
from spout.ui.redrive_pages import TYPED_ABOVE
from tests.support.memory.cluster import Faults, NoFaults
from tests.support.page_server import client_of
from tests.support.waiting import eventually
from tests.support.worlds.planning import COPIES, World, batch, yaml_of

YAML = yaml_of(timeout="60s", retry="{attempts: 1}", dead_letter="{max_ratio: 1, max_consecutive: 100000}")
ACTIONS = Actions("secret", "system user ann")
JSON = {"accept": "application/json"}
ORIGIN = {"origin": "http://localhost"}


class Bug(NoFaults):
    """An error in our own code, when a handler fences the one before."""

    is_on = True

    def before(self, operation: str) -> None:
        if self.is_on and operation == "init":
            raise ZeroDivisionError("division by zero")


class Page:
    """The page of a world, and who uses it."""

    def __init__(self, actions: Actions | None = ACTIONS, faults: Faults | None = None) -> None:
        self.world = World(YAML)
        self.client, self.jobs = client_of(self.world, faults, actions)

    def die(self, *failing: int, records: int = 20) -> Journal:
        self.world.start_replays()
        self.world.produce(records, keys=[b"a", b"b"])
        end = batch(self.world.ready(), BEGINNING, self.world)
        self.world.publish(BEGINNING, end, fail=failing)
        self.world.run(3_000)
        self.world.cluster.now_ms += 1_000
        return end

    def form(self, **changes: str) -> dict[str, str]:
        return {"input": "sentences", "why": "repaired", "token": "secret", **changes}

    def start(self, headers: dict[str, str] = ORIGIN, **changes: str) -> Any:
        return self.client.post("/redrives", data=self.form(**changes), headers=headers)

    def started(self, **changes: str) -> str:
        """Start a redrive, wait for its end, and return its id."""
        answer = self.start(**changes)
        assert answer.status_code == 303, html.unescape(answer.text)
        redrive = answer.headers["location"].removeprefix("/redrives/")
        job = self.jobs.find(redrive)
        assert job is not None
        eventually(lambda: not job.is_running)
        assert job.problem == ""
        return str(redrive)

    def copies(self) -> int:
        """Count the committed copies."""
        reader = self.world.log.reader(committed=True)
        reader.assign({TopicPartition("sentences.g.replay", number): 0 for number in range(2)})
        return len(reader.poll(0, 100_000))

    def records(self) -> list[Any]:
        return find_redrives(self.world.log, self.world.topics.input("sentences"), wait_ms=1_000)


@pytest.fixture
def page() -> Page:
    return Page()


def test_a_try_counts_and_shows_five_and_changes_nothing(page: Page) -> None:
    page.die(*range(9))
    found = page.client.get("/redrives/new?input=sentences&error=ValueError")
    assert "9 letters would be emitted again; 5 of them:" in found.text
    assert found.text.count('href="/letter/') == 5
    assert "data-still" in found.text, "what was counted stays on the screen"
    assert page.copies() == 0
    assert page.records() == []
    json = page.client.get("/redrives/new?input=sentences", headers=JSON).json()
    assert (json["letters"], len(json["sample"])) == (9, 5)


def test_a_try_that_cannot_be_says_why_and_stays_on_the_screen(page: Page) -> None:
    for query, says in (("input=none", "no tracked input"), ("", "that means every letter of every input")):
        answer = page.client.get(f"/redrives/new?{query}")
        assert answer.status_code == 404
        assert says in answer.text
        assert "data-still" in answer.text


def test_a_redrive_emits_each_letter_once_and_leaves_its_audit_record(page: Page) -> None:
    page.die(2, 3, 4)
    redrive = page.started(error="ValueError", by="bea")
    assert page.copies() == 3
    (record,) = page.records()
    assert (record.begun.redrive, record.begun.by, record.begun.why) == (redrive, "bea", "repaired")
    assert (record.begun.letters, record.state) == (3, "DONE")
    assert record.begun.which.startswith("error ValueError; until 20")
    assert page.start(error="ValueError").status_code == 404, "no letter is left"
    assert page.copies() == 3


def test_who_is_the_user_of_the_process_where_nobody_is_named(page: Page) -> None:
    page.die(2)
    page.started()
    assert page.records()[0].begun.by == "system user ann"


def test_letters_that_were_dropped_have_no_outcome(page: Page) -> None:
    page.die(2, 3)
    one = page.world.topics.input("sentences")
    order = Order(LetterAction.DROPPED, Filter(), "kim", "test data", "dropped1")
    log = page.world.cluster.log()
    redrive = Redrive(log, page.world.topics, [(one, Filter())], order, RateLimit(None, page.world.now_ms))
    carry_out(redrive, clock=lambda: page.world.now_ms, sleep_ms=lambda _: None, progress=lambda _: None)
    text = page.client.get("/redrives/dropped1").text
    assert "2 of 2 letters dropped; by kim" in text
    assert "acked" not in text


def test_what_became_of_each_letter_is_that_of_the_command(page: Page) -> None:
    end = page.die(2, 3, 4)
    redrive = page.started()
    text = page.client.get(f"/redrives/{redrive}").text
    assert "0 acked, 0 died again, 3 open." in text
    (planner,) = page.world.planners
    page.world.run(1_000)
    page.world.publish(end, batch(planner, end, page.world), fail=[0], of=COPIES)
    page.world.run(3_000)
    (row,) = redrive_rows(page.world.log, page.world.topics, [page.world.topics.input("sentences")])
    assert (row["acked"], row["died"]) == (2, 1)
    assert page.client.get("/redrives", headers=JSON).json() == [row]
    (details,) = page.client.get(f"/redrives/{redrive}", headers=JSON).json()
    assert {**details, "outcomes": None} == {**row, "outcomes": None}
    assert [each["outcome"] for each in details["outcomes"]].count("ACKED") == 2
    text = page.client.get(f"/redrives/{redrive}").text
    assert "2 acked, 1 died again." in text
    assert "3 of 3 letters replayed; by system user ann, for “repaired”." in text
    first = re.findall(r'<td class="left">([A-Z]+)</td>', text)[0]
    assert first == "DIED", "those that somebody should see first"


@pytest.mark.parametrize(
    ("headers", "token", "says"),
    [
        ({}, "secret", "did not come from this page, but from no page"),
        ({"origin": "null"}, "secret", "did not come from this page"),
        ({"origin": "http://evil.example"}, "secret", "but from evil.example"),
        ({"origin": "http://localhost:1"}, "secret", "but from localhost:1"),
        ({"origin": "http://["}, "secret", "but from ["),
        (ORIGIN, "", "is not the token"),
        (ORIGIN, "Secret", "is not the token"),
        (ORIGIN, "sécret", "is not the token"),
    ],
)
def test_who_has_no_token_or_comes_from_elsewhere_is_refused(
    page: Page, headers: dict[str, str], token: str, says: str
) -> None:
    page.die(2)
    for path in ("/redrives", "/redrives/1/cancel"):
        answer = page.client.post(path, data=page.form(token=token), headers=headers)
        assert answer.status_code == 403
        assert says in answer.text
        assert "data-still" in answer.text, "the stream of this address has another page"
    assert page.copies() == 0
    assert page.records() == []


def test_a_page_without_actions_is_read_only_and_names_the_command() -> None:
    page = Page(actions=None)
    page.die(2)
    for path in ("/redrives", "/redrives/1/cancel"):
        answer = page.client.post(path, data=page.form(), headers=ORIGIN)
        assert answer.status_code == 403
        assert "The page is read-only" in answer.text
    assert page.copies() == 0
    text = html.unescape(page.client.get("/redrives/new?input=sentences").text)
    assert "<form" not in text
    assert "windhover dlq replay --input sentences --until " in text


def test_no_other_method_changes_anything(page: Page) -> None:
    page.die(2)
    for path in ("/redrives", "/redrives/new", "/redrives/1/cancel"):
        assert page.client.get(path, params=page.form(), headers=ORIGIN).status_code in (200, 404, 405)
        assert page.client.put(path, data=page.form(), headers=ORIGIN).status_code == 405
    assert page.copies() == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"why": " "}, "say for what reason"),
        ({"rate": "fast"}, "rate fast: is no number"),
        ({"rate": "0"}, "rate 0: give 0.001"),
        ({"rate": "nan"}, "rate nan: give 0.001"),
        ({"rate": "inf"}, "rate inf: give 0.001"),
        ({"input": ""}, "that means every letter of every input"),
        ({"reason": "x"}, "reason x: is none"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(
    page: Page, changes: dict[str, str], says: str
) -> None:
    page.die(2)
    answer = page.start(**changes)
    assert answer.status_code == 404
    assert says in answer.text
    assert page.copies() == 0


def test_more_than_a_thousand_letters_need_their_number_typed(page: Page) -> None:
    count = TYPED_ABOVE + 1
    page.die(*range(count), records=1_500)
    assert f"type how many, {count:,}" in page.client.get("/redrives/new?input=sentences").text
    for typed in ("", "1,000", "yes"):
        answer = page.start(count=typed)
        assert answer.status_code == 404
        assert f"{count:,} letters match" in answer.text
    assert page.copies() == 0
    redrive = page.start(count=f"{count:,}").headers["location"].removeprefix("/redrives/")
    job = page.jobs.find(redrive)
    assert job is not None
    eventually(lambda: job.progress.handled_count == AT_ONCE)
    page.jobs.close()
    assert page.copies() == AT_ONCE, "further ones wait until some are settled"


def test_a_form_of_another_kind_or_of_great_size_is_no_form(page: Page) -> None:
    page.die(2)
    large = {**page.form(), "by": "x" * 100_000}
    assert page.client.post("/redrives", data=large, headers=ORIGIN).status_code == 403
    assert page.client.post("/redrives", content=b"\xff\xfe", headers=ORIGIN).status_code == 403
    assert page.copies() == 0


def test_a_job_that_runs_is_cancelled_and_writes_its_end(page: Page) -> None:
    page.die(*range(9))
    answer = page.start(rate="0.001")
    redrive = answer.headers["location"].removeprefix("/redrives/")
    job = page.jobs.find(redrive)
    assert job is not None
    eventually(lambda: job.progress.handled_count == 1)
    assert job.is_running
    assert "handles letters of sentences" in page.start().text, "two would fence each other"
    assert "Cancel it" in page.client.get(f"/redrives/{redrive}").text
    answer = page.client.post(f"/redrives/{redrive}/cancel", data={"token": "secret"}, headers=ORIGIN)
    assert answer.status_code == 303
    eventually(lambda: not job.is_running)
    (record,) = page.records()
    assert (record.state, record.ended and record.ended.handled) == ("CANCELLED", 1)
    assert page.copies() == 1
    text = page.client.get(f"/redrives/{redrive}").text
    assert "1 of 9 letters replayed" in text
    assert "Cancel it" not in text


def test_the_end_of_the_page_cancels_its_jobs_between_two_transactions(page: Page) -> None:
    page.die(*range(9))
    page.start(rate="0.001")
    page.jobs.close()
    (record,) = page.records()
    assert record.state == "CANCELLED"
    assert page.copies() <= 1


def test_a_redrive_of_another_process_is_followed_and_cancelled(page: Page) -> None:
    page.die(*range(9))
    topics = page.world.topics
    one = topics.input("sentences")
    order = Order(LetterAction.REPLAYED, Filter(), "bea", "", "cafe")
    there = Redrive(
        page.world.cluster.log(), topics, [(one, Filter())], order, RateLimit(0.001, page.world.now_ms)
    )
    there.step(page.world.now_ms)
    text = page.client.get("/redrives/cafe").text
    assert "sentences: not ended" in text
    assert "1 of 9 letters replayed; by bea." in text
    answer = page.client.post("/redrives/cafe/cancel", data={"token": "secret"}, headers=ORIGIN)
    assert answer.status_code == 303
    assert page.records()[0].state == "CANCELLED"
    again = page.client.post("/redrives/cafe/cancel", data={"token": "secret"}, headers=ORIGIN)
    assert again.status_code == 404
    assert "it is CANCELLED" in again.text


def test_a_job_that_is_fenced_says_so_and_the_page_goes_on(page: Page) -> None:
    page.die(*range(9))
    answer = page.start(rate="1")
    redrive = answer.headers["location"].removeprefix("/redrives/")
    job = page.jobs.find(redrive)
    assert job is not None
    eventually(lambda: job.progress.handled_count == 1)
    topics = page.world.topics
    order = Order(LetterAction.REPLAYED, Filter(), "bea", "", "cafe")
    there = Redrive(
        page.world.cluster.log(), topics, [(topics.input("sentences"), Filter())], order, RateLimit(None, 0)
    )
    there.step(page.world.now_ms)
    page.world.cluster.now_ms += 2_000
    eventually(lambda: not job.is_running)
    assert job.problem
    text = page.client.get(f"/redrives/{redrive}").text
    assert "It stopped before its end:" in text
    assert page.copies() == 9


def test_a_job_that_ends_by_an_unexpected_error_shows_it_and_another_one_can_be_started() -> None:
    bug = Bug()
    page = Page(faults=bug)
    page.die(2)
    redrive = page.start().headers["location"].removeprefix("/redrives/")
    job = page.jobs.find(redrive)
    assert job is not None
    eventually(lambda: not job.is_running)
    text = page.client.get(f"/redrives/{redrive}").text
    assert "It stopped before its end: ZeroDivisionError: division by zero" in text
    bug.is_on = False
    page.started()
    assert page.copies() == 1


def test_a_redrive_that_is_not_there_is_not_found(page: Page) -> None:
    assert page.client.get("/redrives/none").status_code == 404
    assert "None." in page.client.get("/redrives").text


def test_without_the_topic_of_letters_the_redrives_are_unknown(page: Page) -> None:
    page.world.cluster.delete_topic("sentences.g.dlq")
    for path in ("/redrives", "/letters"):
        answer = page.client.get(path)
        assert answer.status_code == 503
        assert '<span class="unknown">unknown</span>' in answer.text

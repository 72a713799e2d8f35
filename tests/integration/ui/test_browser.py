"""The page in a real headless Chromium: looks, keyboard, screen readers, and what is live."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from acker.errors import Unreachable
from spout.inspect.summary import RATES_EVERY_MS
from spout.planning.journal import BEGINNING
from spout.runtime.scrape import MetricSample
from spout.ui.graph import Drivers
from spout.ui.jobs import Actions
from tests.support.lacking import lacking
from tests.support.memory.cluster import NoFaults
from tests.support.page_server import PageServer, serving
from tests.support.worlds.planning import World, batch, yaml_of

pytestmark = pytest.mark.slow

AXE = Path(__file__).resolve().parents[2] / "data" / "axe" / "axe.min.js"
PICTURES = os.environ.get("WINDHOVER_PICTURES")
"""A folder in which the screenshots are kept."""

DRIVER = "spark-driver:9103"
EXECUTED = [
    ("sentences", "split", 200, 6), ("split", "count", 1_204, 0), ("split", "spell", 1_204, 31),
    ("spell", "count", 88, 0),
]  # fmt: skip
LIVE_S = 1.0
NOT_LIVE = "not live"
ACTIONS = Actions("secret", "system user ann")
YAML = yaml_of(
    timeout="30s",
    retry="{attempts: 2, initial: 60s, jitter: 0, causes: [{error: PoisonError, then: dead_letter}]}",
    dead_letter="{max_ratio: 1}",
)
LAG = "tbody tr:first-child td:nth-of-type(5)"
LONG_NAME = "TheAmountOfThisOrderIsNotANumberInAnyCurrencyError"
EMPTY = """
acker: {partitions: 3}
inputs: {sentences: {id: 1, group: g, partitions: 1, ackers: 0}}
"""


class BrokerAway(NoFaults):
    """No call is answered while it is away."""

    def __init__(self, *, is_away: bool = True) -> None:
        self.is_away = is_away

    def before(self, operation: str) -> None:
        if self.is_away:
            raise Unreachable(f"the broker does not answer to {operation}")


def full() -> World:
    """Let some be committed, open, settled, failed, dead, and not emitted."""
    world = World(YAML)
    world.start_replays()
    world.produce(200, keys=[b"a", b"b"])
    end = batch(world.ready(), BEGINNING, world)
    failed = (170, 171, 172, 190)
    world.publish(BEGINNING, end, skip=(120, 121, 150, 160, 161), fail=failed, error=LONG_NAME)
    world.publish(BEGINNING, end, skip=[*range(160), *range(162, 200)], fail=(160, 161), error="PoisonError")
    world.run(1_500)
    world.produce(30)
    return world


def unknown() -> World:
    world = World(YAML)
    world.produce(40)
    return world


def driver_of(state: str) -> Drivers:
    """Return a driver that counts, one that has counted nothing, or one that is away."""

    def fetch(address: str) -> Iterator[MetricSample]:
        if state == "error":
            raise Unreachable(f"{address} serves no metrics: it is away")
        if state == "empty":
            return
        for source, operator, executed, failed in EXECUTED:
            labels = {"group": "g", "operator": operator, "source": source, "stream": "default"}
            yield MetricSample("windhover_topology_edge", {**labels, "grouping": "shuffle"}, 1)
            yield MetricSample("windhover_topology_executed_total", labels, executed)
            yield MetricSample("windhover_topology_failed_total", labels, failed)
            yield MetricSample("windhover_topology_execute_seconds_total", labels, executed / 2_000)
            for bound, found in (("0.001", executed - failed), ("0.005", executed), ("+Inf", executed)):
                name = "windhover_topology_execute_per_tuple_seconds_bucket"
                yield MetricSample(name, {**labels, "le": bound}, found)
        labels = {"group": "g", "operator": "count", "stream": "default"}
        yield MetricSample("windhover_topology_emitted_total", labels, 1_204)

    return Drivers(() if state == "unknown" else (DRIVER,), fetch)


VIOLATIONS = "axe.run({resultTypes: ['violations']%s}).then(found => found.violations)"
"""What holds on a page is much longer than what does not, and takes as long to fetch as to judge."""

VISIBILITY = """
Object.defineProperty(document, "hidden", {get: () => %s, configurable: true});
document.dispatchEvent(new Event("visibilitychange"));
"""
"""Lets a tab think that it was hidden or shown."""

DRAWN = """
() => {
  const canvas = document.querySelector(".chart canvas"), over = document.querySelector(".chart .u-over");
  const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let at = 0; at < data.length; at += 4)
    if ([0, 114, 178].every((part, number) => Math.abs(data[at + number] - part) < 3) && data[at + 3] > 250)
      found.add((at / 4 % width / devicePixelRatio - over.offsetLeft) / over.offsetWidth);
  return [...found];
}"""
"""In which parts of the chart's width, from 0 to 1, the line of what was acked is drawn."""

STATES: dict[str, Callable[[], World]] = {
    "full": full, "empty": lambda: World(EMPTY), "unknown": unknown, "error": full
}  # fmt: skip
PATHS = (
    "/", "/partition/sentences/0", "/record/sentences/0@170", "/failures", "/letters",
    "/letter/sentences.g.dlq/0@0", "/redrives", "/redrives/new?input=sentences", "/latency",
    "/topology", "/machinery", "/nothing",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if program is None:
        lacking("no chromium in the PATH; Debian's package is chromium-headless-shell")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return what opens a tab; at the end no tab had an error, or asked another host."""
    problems: list[str] = []
    with ExitStack() as stack:

        def open_tab(server: PageServer, path: str = "/", **options: Any) -> Page:
            context = stack.enter_context(browser.new_context(**options))
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on(
                "request",
                lambda each: None if urlsplit(each.url).port == server.port else problems.append(each.url),
            )
            page.goto(server.url + path)
            return page

        yield open_tab
    assert problems == []


@pytest.mark.parametrize("state", STATES)
def test_every_page_is_readable_in_every_state(opened: Callable[..., Page], state: str) -> None:
    """By axe-core's rules, wide and narrow, in light and dark, and without scrolling sideways.

    Dark colours change colours alone, so only contrasts are judged again. The screenshots are for people.
    """
    axe = AXE.read_text(encoding="utf-8")
    with serving(
        STATES[state](), BrokerAway() if state == "error" else None, actions=ACTIONS, drivers=driver_of(state)
    ) as server:
        page = opened(server)
        for path in PATHS:
            page.goto(server.url + path)
            expect(page.locator("#connection")).to_have_text(NOT_LIVE if "/new" in path else "live")
            page.evaluate(axe)
            for details in page.locator("details").all():
                details.locator("summary").click()
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 900})
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                    rules = "" if scheme == "light" else ", runOnly: ['color-contrast']"
                    texts = [
                        f"{path}: {each['id']}: {node['html'][:200]}: {node['failureSummary']}"
                        for each in page.evaluate(VIOLATIONS % rules)
                        for node in each["nodes"]
                    ]
                    assert texts == []
                    if PICTURES:
                        name = path.strip("/").partition("?")[0].replace("/", "-") or "overview"
                        picture = Path(PICTURES) / f"{name}-{state}-{width}-{scheme}.png"
                        page.screenshot(path=picture, full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_change_is_on_the_screen_within_a_second(opened: Callable[..., Page]) -> None:
    world = full()
    with serving(world) as server:
        page = opened(server)
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(LAG)).to_have_text("37")
        with server.lock:
            world.produce(60)
        began = time.monotonic()
        expect(page.locator(LAG)).to_have_text("97")
        assert time.monotonic() - began < LIVE_S


def test_what_a_reader_has_opened_and_focused_stays_while_figures_change(opened: Callable[..., Page]) -> None:
    world = full()
    with serving(world) as server:
        page = opened(server, "/partition/sentences/0")
        expect(page.locator("#connection")).to_have_text("live")
        page.locator("#runs summary").click()
        page.locator("#cursor").focus()
        page.keyboard.press("ArrowRight")
        with server.lock:
            world.produce(1_000)
        expect(page.locator(".ends").first).to_contain_text("1,230")
        assert page.locator("#runs").get_attribute("open") is not None
        assert page.evaluate("document.activeElement.id") == "cursor"
        expect(page.locator("#cursor")).to_have_attribute("aria-valuetext", "0 to 117: settled")


def test_what_has_not_changed_is_left_alone_and_one_stream_brings_the_rest(
    opened: Callable[..., Page],
) -> None:
    """What htmx puts in place by morphing keeps its node, how far it was scrolled, and the focus."""
    world = full()
    with serving(world) as server:
        page = opened(server, "/partition/sentences/0", viewport={"width": 400, "height": 300})
        expect(page.locator("#connection")).to_have_text("live")
        page.locator("#runs summary").click()
        page.locator("#runs .scroll").focus()
        before = page.evaluate(
            """() => {
              window.messages = 0;
              document.body.addEventListener("htmx:sseMessage", () => window.messages++);
              const table = document.querySelector("#runs .scroll");
              window.nodes = [table, document.querySelector("h1"), document.querySelector("#cursor")];
              table.scrollLeft = 30;
              scrollTo(0, 200);
              return [table.scrollLeft, scrollY];
            }"""
        )
        assert min(before) > 0
        with server.lock:
            world.produce(1_000)
        expect(page.locator(".ends").first).to_contain_text("1,230")
        assert page.evaluate("window.messages") > 0
        assert page.evaluate("window.nodes.every((node) => node.isConnected)")
        assert page.evaluate("document.activeElement === window.nodes[0]")
        assert page.evaluate("[window.nodes[0].scrollLeft, scrollY]") == before
        assert server.watch.tabs == 1


def test_the_content_policy_has_nothing_to_forbid(opened: Callable[..., Page]) -> None:
    with serving(full(), drivers=driver_of("full")) as server:
        page = opened(server)
        page.add_init_script(
            """window.forbidden = [];
            addEventListener("securitypolicyviolation", (each) =>
              window.forbidden.push(`${each.violatedDirective}: ${each.blockedURI} ${each.sourceFile}`));"""
        )
        for path in ("/", "/partition/sentences/0", "/latency", "/topology"):
            page.goto(server.url + path)
            expect(page.locator("#connection")).to_have_text("live")
            assert page.evaluate("window.forbidden") == [], path
        page.evaluate("document.body.setAttribute('style', 'color: red')")
        page.wait_for_function("window.forbidden.some((each) => each.startsWith('style-src'))")


def test_the_chart_ends_where_nobody_knows_and_is_whole_again_afterwards(opened: Callable[..., Page]) -> None:
    world, broker = full(), BrokerAway(is_away=False)
    with serving(world, broker) as server:
        page = opened(server)
        expect(page.locator("#connection")).to_have_text("live")
        chart, over = page.locator(".chart"), page.locator(".chart .u-over")
        with server.lock:
            world.run(30_000)
        # a reading that began meanwhile waited for the lock, and knows nothing of what came after its moment
        last = (world.now_ms // RATES_EVERY_MS - 1) * RATES_EVERY_MS // 1_000
        expect(chart).to_have_attribute("data-columns", re.compile(rf" {last}\]"))
        expect(chart).to_have_attribute("aria-label", re.compile(r"at most (?!0\.0)\d+\.\d acked"))
        with server.lock:
            broker.is_away = True
            world.cluster.now_ms += 300_000
        expect(page.locator("[role=alert]")).to_contain_text("The broker does not answer")
        seconds, acked, *_ = columns = json.loads(chart.get_attribute("data-columns") or "")
        busiest = max(range(len(acked)), key=lambda number: acked[number] or 0)
        gap = acked.index(None)
        assert acked[busiest] > 0
        assert set(acked[gap:]) == {None}
        assert len(acked) - gap in (30, 31)
        assert page.locator(".chart .u-value").all_text_contents()[1:] == ["unknown"] * 3, "newest"
        box = over.bounding_box()
        assert box is not None

        def read_at(number: int) -> list[str]:
            at = (seconds[number] - seconds[0]) / (seconds[-1] - seconds[0])
            page.mouse.move(box["x"] + box["width"] * at, box["y"] + 20)
            return page.locator(".chart .u-value").all_text_contents()[1:]

        assert read_at(busiest) == [f"{column[busiest]:.1f}" for column in columns[1:]]
        assert read_at(gap + 10) == ["unknown"] * 3
        last_known = (gap - 1) / (len(acked) - 1)
        assert max(page.evaluate(DRAWN)) == pytest.approx(last_known, abs=0.02), "no line, not even at 0"
        with server.lock:
            broker.is_away = False
        expect(chart).not_to_have_attribute("data-columns", re.compile("null"))
        assert max(page.evaluate(DRAWN)) > 0.99


def test_the_keyboard_alone_leads_from_the_overview_to_a_record(opened: Callable[..., Page]) -> None:
    with serving(full()) as server:
        page = opened(server)
        expect(page.locator("#connection")).to_have_text("live")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "sentences/0":
                break
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("sentences/0")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "cursor":
                break
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#pointed")).to_contain_text("120 to 121: 2 open")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("sentences/0@120")
        expect(page.locator(".situation")).to_have_text("in batch")


def test_a_pointer_reads_the_band(opened: Callable[..., Page]) -> None:
    with serving(full()) as server:
        page = opened(server, "/partition/sentences/0")
        box = page.locator("#cursor svg").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 120.5 / 230, box["y"] + 10)
        expect(page.locator("#pointed")).to_contain_text("2 open")


def test_what_a_reader_types_stays_while_the_page_is_live(opened: Callable[..., Page]) -> None:
    with serving(full()) as server:
        page = opened(server, "/record/sentences/0@120")
        expect(page.locator("#connection")).to_have_text("live")
        page.locator("input[name=place]").fill("sentences/0@121")
        before = page.locator("time").text_content()
        with server.lock:
            server.world.run(5_000)
        expect(page.locator("time")).not_to_have_text(before or "")
        assert page.locator("input[name=place]").input_value() == "sentences/0@121"
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("sentences/0@121")


def test_a_hidden_tab_reads_nothing_and_goes_on_when_it_is_shown(opened: Callable[..., Page]) -> None:
    with serving(full()) as server:
        page = opened(server)
        expect(page.locator("#connection")).to_have_text("live")
        assert server.watch.tabs == 1
        page.evaluate(VISIBILITY % "true")
        expect(page.locator("#connection")).to_have_text("paused while hidden")
        deadline = time.monotonic() + 5
        while server.watch.tabs and time.monotonic() < deadline:
            page.wait_for_timeout(50)
        assert server.watch.tabs == 0
        page.evaluate(VISIBILITY % "false")
        expect(page.locator("#connection")).to_have_text("live")


def test_a_tab_that_is_refused_tries_again_every_second_but_not_while_it_is_hidden(
    opened: Callable[..., Page],
) -> None:
    asked: list[str] = []
    with serving(full()) as server:
        page = opened(server, "/nothing")
        page.clock.install()
        page.add_init_script(
            """let refused = 0;
            addEventListener("htmx:sseError", () => document.body.setAttribute("data-refused", ++refused));"""
        )
        page.on(
            "request", lambda each: asked.append(each.url) if each.resource_type == "eventsource" else None
        )
        page.route("**/machinery?", lambda route: route.fulfill(status=503))
        page.goto(server.url + "/machinery")
        expect(page.locator("#connection")).to_have_text("connection lost: trying again")
        for number in range(1, 9):  # the extension for streams would wait twice as long each time
            expect(page.locator("body")).to_have_attribute("data-refused", str(number))
            page.clock.run_for(1_000)
        expect(page.locator("body")).to_have_attribute("data-refused", "9")
        assert len(asked) == 9
        page.evaluate(VISIBILITY % "true")
        expect(page.locator("#connection")).to_have_text("paused while hidden")
        page.unroute("**/machinery?")
        before = len(asked)
        page.clock.run_for(10_000)
        page.evaluate("fetch('/livez')")
        assert len(asked) == before
        page.evaluate(VISIBILITY % "false")
        expect(page.locator("#connection")).to_have_text("live")
        assert len(asked) == before + 1


def test_a_stream_that_says_nothing_is_opened_again_also_before_its_first_message(
    opened: Callable[..., Page],
) -> None:
    silent: list[Route] = []
    with serving(full()) as server:
        page = opened(server, "/nothing")
        page.clock.install()
        page.route("**/machinery?", lambda each: each.continue_() if silent else silent.append(each))
        with page.expect_request(server.url + "/machinery?"):
            page.goto(server.url + "/machinery")
        page.clock.run_for(20_000)
        expect(page.locator("#connection")).to_have_text("live")


def test_after_a_restart_the_page_shows_the_truth_again_by_itself(opened: Callable[..., Page]) -> None:
    world = full()
    with serving(world) as first:
        page = opened(first)
        expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#connection")).to_have_text("connection lost: trying again")
    expect(page.locator(LAG)).to_have_text("37")
    world.produce(60)
    with serving(world, port=first.port):
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(LAG)).to_have_text("97")


def test_who_has_the_token_starts_a_redrive_by_the_form_and_others_are_refused(
    opened: Callable[..., Page],
) -> None:
    with serving(full(), actions=ACTIONS) as server:
        page = opened(server, "/letters")
        page.get_by_role("link", name="PoisonError", exact=True).click()
        page.get_by_role("link", name="Emit them again …").click()
        expect(page.locator(".sentence")).to_have_text("2 letters would be emitted again:")
        for token, heading in (("wrong", "Refused"), ("secret", "Redrive ")):
            page.get_by_label("for what reason").fill("repaired")
            page.get_by_label("token").fill(token)
            page.keyboard.press("Enter")
            expect(page.locator("h1")).to_contain_text(heading)
            if token == "wrong":
                expect(page.locator("main")).to_contain_text("That is not the token")
                page.go_back()
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("main")).to_contain_text("2 of 2 letters replayed; by system user ann")
        expect(page.locator("main")).to_contain_text("0 acked, 0 died again, 2 open.")


def test_a_form_of_another_site_is_refused_although_it_has_the_token(opened: Callable[..., Page]) -> None:
    with serving(full(), actions=ACTIONS) as server:
        page = opened(server, "/nothing")
        page.route("**/elsewhere", lambda route: route.fulfill(content_type="text/html", body="<p>other</p>"))
        page.goto(server.url.replace("127.0.0.1", "localhost") + "/elsewhere")
        page.evaluate(
            """(url) => {
              const form = Object.assign(document.createElement("form"), {method: "post", action: url});
              for (const [name, value] of [["input", "sentences"], ["why", "x"], ["token", "secret"]])
                form.append(Object.assign(document.createElement("input"), {name, value}));
              document.body.append(form);
              form.submit();
            }""",
            server.url + "/redrives",
        )
        expect(page.locator("main")).to_contain_text("The request did not come from this page, but from ")
        expect(page.locator("main")).to_contain_text("localhost")


def test_a_slider_says_which_share_another_timeout_would_lose(opened: Callable[..., Page]) -> None:
    with serving(full()) as server:
        page = opened(server, "/latency")
        said = page.locator("output")
        expect(said).to_have_text("With a timeout of 30.0 s, it is unknown how many would have timed out.")
        page.get_by_role("slider").focus()
        page.keyboard.press("Home")
        share = page.locator("tr[data-ms='100'] td").text_content()
        expect(said).to_have_text(f"With a timeout of 100 ms, {share} would have timed out.")
        before = page.locator("time").text_content()
        with server.lock:
            server.world.run(5_000)
        expect(page.locator("time")).not_to_have_text(before or "", timeout=20_000)
        expect(said).to_contain_text("With a timeout of 100 ms, ")

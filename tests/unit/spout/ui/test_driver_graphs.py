"""The graph of a topology as its driver's metrics show it: read over HTTP, drawn, and unknown where it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from threading import Thread
from wsgiref.simple_server import make_server

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from acker.errors import Unreachable, UsageError
from spout.builder.streams import StreamStatus, stream_metrics
from spout.builder.submitted import TopologyStatus, topology_metrics
from spout.inspect.failures import share_text
from spout.local.embedded import free_port
from spout.runtime.endpoints import serve
from spout.runtime.metrics import Scraped
from spout.runtime.scrape import MetricSample, metrics_address, read_metrics
from spout.topology.graph import Component, Graph, Kind, StreamId, Subscription
from spout.tuples.counts import Counted, Counts, Measure, What
from spout.ui.drawing import NODE_HEIGHT, NODE_WIDTH, draw_graph
from spout.ui.graph import (
    NO_QUANTILE,
    NO_RATE,
    NO_SUCH_GROUP,
    NO_SUM,
    NOTHING_EXECUTED,
    OUT,
    RESTARTED,
    WINDOW_MS,
    Drivers,
    milliseconds,
)
from spout.ui.serve import LOOPBACK
from spout.ui.watch import Watch
from tests.support.page_server import pages_of
from tests.support.worlds.planning import World

ADDRESS = "127.0.0.1:9103"
JSON = {"accept": "application/json"}
LINES = StreamId("lines", "default")
WORDS = StreamId("split", "default")
GRAPH = Graph(
    {name: Component(name, {}) for name in ("lines", "split", "count")},
    (Subscription(LINES, "split", Kind.SHUFFLE), Subscription(WORDS, "count", Kind.FIELDS, ("word",))),
)


def counts_of(lines: int, failed: int = 0) -> Counts:
    """Return the counts of a topology that has split lines into three words each, and counted them."""
    return {
        Counted(What.EMITTED, "lines", LINES): Measure(lines, 0),
        Counted(What.EXECUTED, "split", LINES): Measure(lines, lines * 2_000_000, ((10, lines),)),
        Counted(What.FAILED, "split", LINES): Measure(failed, 0),
        Counted(What.EMITTED, "split", WORDS): Measure(3 * lines, 0),
        Counted(What.EXECUTED, "count", WORDS): Measure(3 * lines, 0, ((3, 3 * lines - 3), (24, 3))),
        Counted(What.EMITTED, "count", StreamId("count", "default")): Measure(lines, 0),
    }


class Driver:
    """A driver with counts that a test changes."""

    def __init__(self) -> None:
        self.counts: Counts = {}
        self.graph = GRAPH
        self.is_away = False

    def fetch(self, address: str) -> Iterator[MetricSample]:
        if self.is_away:
            raise Unreachable(f"{address} serves no metrics: gone")
        registry = CollectorRegistry()
        status = TopologyStatus("active", None, self.counts)
        registry.register(Scraped(lambda: topology_metrics(status, "g", 0, self.graph)))
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            yield from (MetricSample(each.name, each.labels, each.value) for each in family.samples)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World, driver: Driver) -> TestClient:
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, _ = pages_of(world, watch, drivers=Drivers([ADDRESS], driver.fetch))
    return TestClient(pages.application(LOOPBACK), base_url="http://localhost")


def test_edges_are_there_before_any_tuple_and_their_rates_are_unknown(client: TestClient) -> None:
    (graph,) = client.get("/topology", headers=JSON).json()
    assert (graph["driver"], graph["group"]) == (ADDRESS, "g")
    found = [
        (each["source"], each["operator"], each["grouping"], each["tuples"], each["per_s"])
        for each in graph["edges"]
    ]
    assert found == [("lines", "split", "shuffle", 0, None), ("split", "count", "fields", 0, None)]
    page = client.get("/topology").text
    assert f'<span class="unknown">unknown</span>: {NO_RATE}.' in page
    assert "0.0/s" not in page


def test_after_a_clock_was_set_back_a_rate_needs_two_readings_as_at_the_begin(
    world: World, driver: Driver, client: TestClient
) -> None:
    driver.counts = counts_of(100)
    client.get("/topology")
    for step_ms in (-3_600_000, 10_000):
        world.cluster.now_ms += step_ms
        (graph,) = client.get("/topology", headers=JSON).json()
    assert {each["per_s"] for each in graph["edges"]} == {0.0}


def test_rates_are_between_two_readings_and_failures_at_their_bolt(
    world: World, driver: Driver, client: TestClient
) -> None:
    driver.counts = counts_of(100)
    client.get("/topology")
    world.cluster.now_ms += 10_000
    driver.counts = counts_of(400, failed=7)
    (graph,) = client.get("/topology", headers=JSON).json()
    rates = {(each["source"], each["operator"]): each["per_s"] for each in graph["edges"]}
    assert rates == {("lines", "split"): 30.0, ("split", "count"): 90.0, ("count", OUT): 30.0}
    nodes = {each["name"]: each for each in graph["nodes"]}
    assert {name: each["failed"] for name, each in nodes.items()} == {"count": 0, "split": 7, "lines": None}
    assert (nodes["split"]["executed"], nodes["split"]["mean_ms"]) == (400, 2.0)
    assert (nodes["lines"]["executed"], nodes["lines"]["mean_ms"]) == (None, None)
    assert nodes["split"]["p99_ms"] == pytest.approx(1.99), "99 % of the way from 1 to 2 ms"
    assert nodes["count"]["p99_ms"] == pytest.approx(0.005 + 0.005 * 1_188 / 1_197)
    assert nodes["lines"]["p99_ms"] is None
    page = client.get("/topology").text
    drawn, tables = re.findall(r"<svg class=\"graph\".*?</svg>", page, re.S)[0], page.split("<h3>Streams")[1]
    assert "30.0/s" in drawn
    assert "90.0/s" in drawn
    assert "7 failed, 1.8 %" in drawn
    assert "<td>90.0</td>" in tables
    assert "p99 1.990 ms" in drawn
    assert "<td>1.990</td>" in tables


def test_where_most_tuples_took_longer_than_every_bound_the_last_bound_is_shown(driver: Driver) -> None:
    driver.counts = {Counted(What.EXECUTED, "split", LINES): Measure(9, 10**12, ((3, 1), (24, 8)))}
    (graph,), _ = Drivers([ADDRESS], driver.fetch).read(0)
    assert [node.p99_ms.value for node in graph.nodes if node.name == "split"] == [50_000]


def test_the_times_of_a_bolt_are_unknown_while_it_has_executed_nothing_or_its_driver_has_none(
    driver: Driver,
) -> None:
    driver.counts = {}
    drivers = Drivers([ADDRESS], driver.fetch)
    (graph,), _ = drivers.read(0)
    assert {node.p99_ms.unknown for node in graph.nodes} == {"", NOTHING_EXECUTED}
    driver.counts = counts_of(5)
    older = [each for each in driver.fetch(ADDRESS) if "per_tuple" not in each.name]
    (graph,), _ = Drivers([ADDRESS], lambda _: older).read(0)
    assert [node.p99_ms.unknown for node in graph.nodes if node.name == "split"] == [NO_QUANTILE]


def test_the_page_of_latency_has_the_times_of_an_inputs_bolts(driver: Driver, client: TestClient) -> None:
    driver.counts = counts_of(400, failed=7)
    (row,) = client.get("/latency", headers=JSON).json()
    assert [(each["name"], each["executed"], each["failed"]) for each in row["by_bolt"]] == [
        ("split", 400, 7), ("count", 1_200, 0)
    ]  # fmt: skip
    assert row["by_bolt"][0]["p99_ms"] == pytest.approx(1.99)
    assert row["unknown"] == {}
    assert "<td>1.990</td>" in client.get("/latency").text
    driver.is_away = True
    (row,) = client.get("/latency", headers=JSON).json()
    assert row["by_bolt"] is None
    assert row["unknown"]["by_bolt"] == f"{NO_SUCH_GROUP.format('g')}; {ADDRESS} serves no metrics: gone"
    assert row["unknown"]["by_bolt"] in client.get("/latency").text


def test_a_driver_that_was_restarted_has_no_negative_rate(
    world: World, driver: Driver, client: TestClient
) -> None:
    driver.counts = counts_of(100)
    client.get("/topology")
    world.cluster.now_ms += 10_000
    driver.counts = counts_of(40)
    (graph,) = client.get("/topology", headers=JSON).json()
    assert {each["per_s"] for each in graph["edges"]} == {None}
    assert RESTARTED in client.get("/topology").text
    world.cluster.now_ms += WINDOW_MS + 1
    client.get("/topology")
    world.cluster.now_ms += 10_000
    driver.counts = counts_of(50)
    (graph,) = client.get("/topology", headers=JSON).json()
    assert graph["edges"][-1]["per_s"] is not None


def test_a_driver_that_is_away_is_unknown_and_the_others_go_on(world: World, driver: Driver) -> None:
    away = Driver()
    away.is_away = True
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    every = {"a:1": away, "b:2": driver}
    drivers = Drivers(list(every), lambda address: every[address].fetch(address))
    pages, _ = pages_of(world, watch, drivers=drivers)
    page = TestClient(pages.application(LOOPBACK), base_url="http://localhost").get("/topology")
    assert page.status_code == 200
    assert '<span class="unknown">unknown</span>: a:1 serves no metrics: gone' in page.text
    assert "Group g, driver b:2" in page.text


def test_without_an_address_the_graph_is_unknown_and_the_page_says_what_to_do(world: World) -> None:
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, _ = pages_of(world, watch)
    page = TestClient(pages.application(LOOPBACK), base_url="http://localhost").get("/topology").text
    assert "<code>windhover ui --driver HOST:PORT</code>" in page
    assert "<svg" not in page


def test_a_straight_stream_is_a_graph_and_is_read_over_http() -> None:
    source = StreamId("spout", "default")
    counts: Counts = {
        Counted(What.EXECUTED, "split", source): Measure(5, 0),
        Counted(What.EMITTED, "split", WORDS): Measure(15, 0),
    }
    port = free_port()
    serve(Scraped(lambda: stream_metrics([StreamStatus("words", None, counts)], 0)), f"127.0.0.1:{port}")
    address = metrics_address(str(port))
    (graph,), problems = Drivers([address], read_metrics).read(0)
    assert problems == {}
    assert [each[:5] for each in graph.edges] == [
        ("split", "default", OUT, "", 15), ("spout", "default", "split", "", 5)
    ]  # fmt: skip


def test_what_serves_no_metrics_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 serves no metrics: .*started with metrics_port"):
        read_metrics("127.0.0.1:1")


@pytest.mark.parametrize("text", ["no metrics at all", 'a_total{x="y",\t="z"} 1.0', "\xff"])
def test_what_answers_with_something_else_is_unreachable(text: str) -> None:
    def answer(_environ: object, start_response: Callable[..., object]) -> list[bytes]:
        start_response("200 OK", [])
        return [text.encode("latin-1")]

    port = free_port()
    with make_server("127.0.0.1", port, answer) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(Unreachable, match=f"127.0.0.1:{port} serves no metrics: "):
            read_metrics(f"127.0.0.1:{port}")
        thread.join()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9103", "127.0.0.1:9103"), (":9103", "127.0.0.1:9103"), (" driver-1:9103 ", "driver-1:9103"),
        ("[::1]:9103", "[::1]:9103"), ("[fe80::1%eth0]:9103", "[fe80::1%eth0]:9103"),
    ],
)  # fmt: skip
def test_an_address_of_metrics_has_a_host_and_a_port(text: str, address: str) -> None:
    assert metrics_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "", "host", "host:", "host:0", "host:65536", "http://host:9103", "h/x:1", "::1", "fe80::9103", ":",
        "::9103", "[::1:9103", "::1]:9103", "[]:9103", "[host]:9103", "a@b:9103", "h?x:9103", "9" * 5_000,
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give HOST:PORT"):
        metrics_address(text)


def test_the_mean_of_a_bolt_that_has_executed_something_is_not_unknown_for_want_of_tuples() -> None:
    labels = {"group": "g", "operator": "split", "source": "lines", "stream": "default"}
    sample = MetricSample("windhover_topology_executed_total", labels, 7)
    ((graph,), _) = Drivers(("driver:1",), lambda _: [sample]).read(1_000)
    (split,) = [each for each in graph.nodes if each.name == "split"]
    assert split.mean_ms.unknown == NO_SUM


def test_what_is_small_is_never_shown_as_0() -> None:
    assert [milliseconds(each) for each in (0, 0.00001, 0.0004, 0.019, 0.1, 1_234.5)] == [
        "0.000",
        "< 0.0001",
        "0.0004",
        "0.0190",
        "0.100",
        "1,234.500",
    ]
    assert [share_text(each) for each in (0, 0.0005, 0.001, 1)] == ["0.0 %", "< 0.1 %", "0.1 %", "100.0 %"]


def test_a_long_name_is_cut_in_its_node_and_whole_beside_it() -> None:
    name = "normalise_addresses_of_customers"

    def fetch(_: str) -> Iterator[MetricSample]:
        labels = {
            "group": "g",
            "operator": name,
            "source": "lines",
            "stream": "default",
            "grouping": "shuffle",
        }
        yield MetricSample("windhover_topology_edge", labels, 1)

    world = World()
    drivers = Drivers(("driver:1",), fetch)
    watch = Watch(lambda _: pytest.fail("not read"), world.topics, lambda: world.now_ms)
    pages, _ = pages_of(world, watch, drivers=drivers)
    page = TestClient(pages.application(LOOPBACK), base_url="http://localhost").get("/topology").text
    assert '<text class="name" x="10" y="22">normalise_address…</text>' in page
    assert f"<title>{name}</title>" in page


def test_each_node_is_drawn_behind_all_that_it_reads_from() -> None:
    edges = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("a", "d"), ("a", "b")]
    drawing = draw_graph(edges)
    assert all(drawing.nodes[end][0] > drawing.nodes[start][0] + NODE_WIDTH for start, end in edges)
    assert len(set(drawing.nodes.values())) == 4
    path, _, passes_y = drawing.edges[4]
    assert path.count("C") == 2, "from a to d there is a place beside b and c"
    assert all(
        not y <= passes_y + 6 <= y + NODE_HEIGHT for y in (drawing.nodes["b"][1], drawing.nodes["c"][1])
    )
    assert len({each for each, _, _ in drawing.edges}) == len(edges), "two streams are two lines"
    assert all(x + NODE_WIDTH <= drawing.width for x, _ in drawing.nodes.values())
    assert draw_graph([]).nodes == {}
    assert set(draw_graph([("a", "b"), ("b", "a")]).nodes) == {"a", "b"}, "a circle ends"

"""The schedule of a torture: drawn from a seed, spaced, and enough of everything."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.torture.schedule import (
    BROKER_DECK,
    CHANCES,
    CUTS,
    KILLS,
    ON_STORES,
    REST_MS,
    ROLLING,
    SPARK_DECK,
    SPARK_WORKERS,
    Blow,
    Deed,
    Victim,
    deal,
    draw,
)

HALF_HOUR_MS = 30 * 60_000
SEEDS = range(20)


def test_the_same_seed_draws_the_same_blows_and_another_seed_others() -> None:
    assert draw(7, HALF_HOUR_MS) == draw(7, HALF_HOUR_MS)
    assert draw(7, HALF_HOUR_MS) != draw(8, HALF_HOUR_MS)


def test_a_shorter_run_begins_as_the_longer_one_of_its_seed() -> None:
    short = draw(3, 5 * 60_000)
    assert short == draw(3, HALF_HOUR_MS)[: len(short)]


@pytest.mark.parametrize("seed", SEEDS)
def test_half_an_hour_holds_two_hundred_kills(seed: int) -> None:
    blows = draw(seed, HALF_HOUR_MS)
    assert sum(blow.deed in KILLS for blow in blows) >= 200


@pytest.mark.parametrize("seed", SEEDS)
def test_no_victim_is_hurt_before_it_is_rested(seed: int) -> None:
    blows = draw(seed, HALF_HOUR_MS)
    for victim in REST_MS:
        own = [blow for blow in blows if blow.victim is victim]
        assert all(b.at_ms >= a.end_ms + REST_MS[victim] for a, b in pairwise(own))


@pytest.mark.parametrize("seed", SEEDS)
def test_blows_ascend_and_are_over_when_the_time_is(seed: int) -> None:
    blows = draw(seed, HALF_HOUR_MS)
    assert [blow.at_ms for blow in blows] == sorted(blow.at_ms for blow in blows)
    assert all(blow.end_ms < HALF_HOUR_MS for blow in blows)


def test_every_chance_is_taken_sooner_or_later() -> None:
    drawn = {(blow.victim, blow.deed) for seed in SEEDS for blow in draw(seed, HALF_HOUR_MS)}
    assert drawn == {(victim, chance.deed) for chance in CHANCES for victim in chance.victims}


def test_a_deed_that_cannot_be_done_is_not_drawn() -> None:
    blows = [blow for seed in SEEDS for blow in draw(seed, HALF_HOUR_MS, set(Deed) - {Deed.FULL_DISK})]
    assert not any(blow.deed is Deed.FULL_DISK for blow in blows)


def test_only_a_clock_is_stepped_by_an_amount() -> None:
    def stepped(blow: Blow) -> bool:
        return blow.amount_ms != 0

    blows = [blow for seed in SEEDS for blow in draw(seed, HALF_HOUR_MS)]
    assert all(stepped(blow) == (blow.deed is Deed.CLOCK) for blow in blows)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quarter_of_an_hour_on_a_cluster_holds_every_blow_of_the_deck(seed: int) -> None:
    blows = deal(seed, HALF_HOUR_MS // 2, spark=True)
    dealt = {(blow.victim, blow.deed) for blow in blows}
    for card in (*BROKER_DECK, *SPARK_DECK):
        assert any((victim, card.deed) in dealt for victim in card.victims)


@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_cluster_one_blow_is_over_before_the_next_begins(seed: int) -> None:
    blows = deal(seed, HALF_HOUR_MS, spark=True)
    assert all(second.at_ms >= first.end_ms for first, second in pairwise(blows))
    assert blows[-1].end_ms < HALF_HOUR_MS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_stops_everything_once_one_after_the_other(seed: int) -> None:
    stops = [blow.victim for blow in deal(seed, HALF_HOUR_MS, spark=False) if blow.deed is Deed.STOP]
    rolling = [victim for victim, _wait_ms in ROLLING]
    assert any(stops[at : at + len(rolling)] == rolling for at in range(len(stops)))


def test_the_same_seed_deals_the_same_blows_and_without_spark_none_on_its_executors() -> None:
    assert deal(7, HALF_HOUR_MS, spark=True) == deal(7, HALF_HOUR_MS, spark=True)
    assert deal(7, HALF_HOUR_MS, spark=True) != deal(8, HALF_HOUR_MS, spark=True)
    victims = {blow.victim for blow in deal(7, HALF_HOUR_MS, spark=False)}
    assert not victims & {Victim.EXECUTOR, *SPARK_WORKERS}


def test_what_ci_runs_has_nearly_every_deed_and_strikes_every_kind_of_victim() -> None:
    blows = [blow for cut in CUTS for blow in cut.blows()]
    assert {blow.deed for blow in blows} == set(Deed) - ON_STORES - {Deed.ZOMBIE, Deed.STOP, Deed.ELECT}
    killed = {blow.victim.kind for blow in blows if blow.deed is Deed.KILL}
    assert killed == {"acker", "replay worker", "driver", "broker", "executor"}
    spared = {victim.kind for victim in Victim} - {blow.victim.kind for blow in blows}
    assert spared == {"Spark worker", "store"}, "its executor dies in its place, and there is no store"

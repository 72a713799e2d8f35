"""The schedule of a torture: drawn from a seed, spaced, and enough of everything."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spout.torture.schedule import CHANCES, KILLS, REST_MS, Blow, Deed, Victim, draw

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
    for victim in Victim:
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

"""Ports that several servers of one test need at once."""

from __future__ import annotations

from spout.local.embedded import free_ports


def test_several_free_ports_are_different() -> None:
    """Of 500 ports drawn one by one from 12,000, two are the same in all but one run of 30,000."""
    ports = free_ports(500)
    assert len(set(ports)) == 500


def test_ports_that_are_spoken_for_are_not_given_again() -> None:
    spoken_for = free_ports(400)
    assert set(free_ports(400, besides=spoken_for)).isdisjoint(spoken_for)

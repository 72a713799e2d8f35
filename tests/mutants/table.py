"""All planted bugs."""

from tests.mutants import of_acker, of_exactly_once, of_picture, of_replay, of_spout

MUTANTS = (
    *of_acker.MUTANTS,
    *of_replay.MUTANTS,
    *of_spout.MUTANTS,
    *of_picture.MUTANTS,
    *of_exactly_once.MUTANTS,
)

"""What the records of a batch mean for its roots, as an acker reads them."""

from __future__ import annotations

from acker.identity import root_edge
from acker.wire.events import positions, values
from spout.publishing.publish import Publication


def contributions(publication: Publication, source: int, first: int) -> dict[int, int]:
    """Return what the acker would fold for each root of a range of one source, by index."""
    folded: dict[int, int] = {}
    for record in publication.acks:
        for start, end in record.runs:
            folded.update({at - first: root_edge(source, at) for at in range(start, end)})
        at = (positions(record.positions) - first).tolist()
        folded.update(zip(at, values(record.values).tolist(), strict=True))
    return folded


def failed_roots(publication: Publication, first: int) -> set[int]:
    """Return the roots that the records fail, by index."""
    return {
        at - first
        for r in publication.fails
        for cause in r.causes
        for at in positions(cause.positions).tolist()
    }

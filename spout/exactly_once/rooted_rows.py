"""Rows of a batch, each with its root.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acker.errors import TrackingError
from acker.identity import I64
from acker.root_sets.numbering import RootNumbers
from acker.root_sets.root_set import RootSet


@dataclass(frozen=True, slots=True)
class RootedRows:
    """Rows with their roots; the arrays have one entry for each row of the table.

    Attributes:
        table: what the store gets.
        sources: of the root of each row.
        positions: of the root of each row.
    """

    table: pa.Table
    sources: I64
    positions: I64

    def of_roots(self, roots: RootSet) -> RootedRows:
        """Return the rows whose roots are in a set."""
        is_chosen = self._is_of(roots)
        return RootedRows(
            self.table.filter(pa.array(is_chosen)),
            self.sources[is_chosen],
            self.positions[is_chosen],
        )

    def refuse_strangers(self, planned: RootSet) -> None:
        """Refuse rows whose root is not one that the batch has planned.

        Raises `TrackingError`: there is one.
        """
        is_stranger = ~self._is_of(planned)
        if is_stranger.any():
            first_stranger = int(np.argmax(is_stranger))
            source, position = self.sources[first_stranger], self.positions[first_stranger]
            raise TrackingError(
                f"{int(is_stranger.sum())} rows of the batch belong to no record of it, the first"
                f" to source {source}, position {position}; keep the hidden column of each row as"
                " it is"
            )

    def _is_of(self, roots: RootSet) -> npt.NDArray[np.bool_]:
        """Return for each row whether its root is in a set."""
        return RootNumbers(roots).find_roots(self.sources, self.positions) >= 0

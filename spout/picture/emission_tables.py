"""Fills `emissions`, `sessions` and `ackers`: what was announced, and the States that know it."""

from __future__ import annotations

from typing import Final

from acker.config.topics import Topics
from acker.kafka.port import Log
from spout.picture.acker_tables import AckerTables, AckerTablesReader, members_by_partition
from spout.picture.database import Picture
from spout.picture.holes import Holes
from spout.picture.init_tables import TABLES_OF_INITS, InitTables
from spout.picture.places import RUN_COLUMNS, SourceNames
from spout.picture.reading import LogReading, TopicUse

# ackers delete what they have read, and their State has what is open of it
INITS: Final = TopicUse("emissions", TABLES_OF_INITS, may_begin_late=True, reads_all=True)


class EmissionTables:
    """Fills the three tables; each reading goes on behind the one before."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        picture: Picture,
        names: SourceNames,
        holes: Holes,
    ) -> None:
        """Begin with nothing read."""
        self._log = log
        self._picture = picture
        self._holes = holes
        self._topic = topics.ack_topics.init
        self._acker_group = topics.acker.group
        self._inits = InitTables(names, holes, topics.acker)
        self._ackers = AckerTablesReader(log, topics, names, holes)

    def read(self, reading: LogReading) -> None:
        """Read what was announced, and then the States that may know it already."""
        for record in reading.records(self._topic, INITS):
            self._inits.put(record)
        ackers = self._ackers.read(reading, self._process_by_acker())
        self._write(ackers)
        emissions = self._inits.emission_rows(ackers.progress)
        self._picture.insert_groups("emissions", RUN_COLUMNS, emissions)
        sessions = self._inits.session_rows(ackers.owners, has_owners=bool(ackers.progress))
        self._picture.replace("sessions", sessions)

    def read_open_roots(self, reading: LogReading) -> None:
        """Read the States alone: which roots are open, and how new that is."""
        self._write(self._ackers.read(reading, process_by_acker={}))

    def _process_by_acker(self) -> dict[int, str]:
        """Ask which acker has each partition; what nobody says is a hole."""
        return members_by_partition(self._log, self._acker_group, "ackers.process", self._holes)

    def _write(self, ackers: AckerTables) -> None:
        """Replace the rows of `ackers`, and those of `emissions` by the open roots alone."""
        self._picture.replace("ackers", ackers.acker_rows)
        self._picture.replace("emissions", ())
        self._picture.insert_groups("emissions", RUN_COLUMNS, ackers.open_emissions)

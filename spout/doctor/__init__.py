"""Faults of an installation: facts are gathered and judged; a result has a code and a cure."""

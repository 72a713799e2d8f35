"""The largest ids on the wire; apart from `acker.identity`, so that topics.yaml is read without numpy."""

INPUT_ID_MAX = 16_383
PARTITION_MAX = (1 << 16) - 1

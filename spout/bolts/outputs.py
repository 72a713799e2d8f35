"""The output that a bolt declares, as a Spark schema and as an Arrow schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from acker.errors import UsageError
from spout.bolts.bolts import AnyBolt, OutputDeclarer
from spout.bolts.ddl import field_names, refuse_repeated_names
from spout.spark.arrow_types import arrow_schema_of
from spout.tuples.exact import zone_of
from spout.tuples.tuple import DEFAULT_STREAM

_CARRIED_TYPES: Final = (
    NumericType,
    StringType,
    BinaryType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    VariantType,
    NullType,
)
"""Types of single values that Arrow carries between Spark and Python as they are declared."""

_ZONE_SETTING: Final = "spark.sql.session.timeZone"
_CASE_SETTING: Final = "spark.sql.caseSensitive"

_UTC_NAMES: Final = frozenset({"Z", "UTC", "UCT", "GMT", "UT", "Zulu", "Universal", "Greenwich"})
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2}):?(\d{2})?")


def zone_of_session(session: SparkSession) -> str:
    """Return the time zone of a Spark session, by a name that Arrow and Python read.

    Java has names that they do not know: those of offsets (``GMT+5`` is returned as ``+05:00``),
    of UTC (``Z``), and others (``PST``), which are returned as they are.
    """
    java_name = session.conf.get(_ZONE_SETTING) or "UTC"
    if java_name.removeprefix("Etc/") in _UTC_NAMES:
        return "UTC"
    offset = _OFFSET.fullmatch(java_name)
    if offset is None:
        return java_name
    sign, hours, minutes = offset.groups()
    return f"{sign}{int(hours):02}:{minutes or '00'}"


def zone_or_utc(session: SparkSession) -> str:
    """Return the time zone of a Spark session, or UTC where Python does not know it.

    The instants of times are the same in both.
    """
    zone = zone_of_session(session)
    try:
        zone_of(zone)
    except pa.ArrowInvalid:
        return "UTC"
    return zone


def parse_output(
    bolt: str,
    output: str,
    read: Callable[[str], DataType] = StructType.fromDDL,
) -> StructType:
    """Read the fields of a stream, by Spark's own parser unless there is no session.

    `read` is the parser.

    Raises `UsageError`: no valid DDL, no fields, a name that none may have, or a type that no
    bolt can emit.
    """
    # our own reading comes first, since its errors name the bolt and the cure
    field_names(bolt, output)
    try:
        parsed = read(output)
    except PySparkException as error:
        raise UsageError(f"bolt {bolt!r}: output = {output!r} is no schema: {error}") from error
    if not isinstance(parsed, StructType):
        cure = 'name fields and types, as "word string"'
        raise UsageError(f"bolt {bolt!r}: output = {output!r}; {cure}")
    case_sensitive = _is_case_sensitive()
    for struct in _structs_within(parsed):
        refuse_repeated_names(bolt, output, struct.names, case_sensitive=case_sensitive)
    for field in parsed.fields:
        refused_type = next(_types_not_carried(field.dataType), None)  # the first of them
        if refused_type is not None:
            raise UsageError(
                f"bolt {bolt!r}: output = {output!r}: field {field.name!r} is {refused_type},"
                " and Arrow cannot carry it as it is declared, so no bolt can emit it"
            )
    return parsed


def _is_case_sensitive() -> bool:
    """Return whether ``a`` and ``A`` are two names for Spark; without a session they are one."""
    session = SparkSession.getActiveSession()
    return session is not None and session.conf.get(_CASE_SETTING) == "true"


def _structs_within(data_type: DataType) -> Iterator[StructType]:
    """Yield a struct and those within it."""
    if isinstance(data_type, StructType):
        yield data_type
    for part in _types_within(data_type):
        yield from _structs_within(part)


def _types_within(data_type: DataType) -> list[DataType]:
    """Return the types directly within a type; none: its values are single ones, as numbers."""
    if isinstance(data_type, StructType):
        return [field.dataType for field in data_type.fields]
    if isinstance(data_type, MapType):
        return [data_type.keyType, data_type.valueType]
    return [data_type.elementType] if isinstance(data_type, ArrayType) else []


def _types_not_carried(data_type: DataType) -> Iterator[str]:
    """Yield the texts of the types in a type, or of itself, that Arrow does not carry.

    Their values would reach Spark as another type, or not at all.
    """
    for type_within in _types_within(data_type):
        yield from _types_not_carried(type_within)
    text = data_type.simpleString()
    is_nested = isinstance(data_type, StructType | ArrayType | MapType)
    is_carried = isinstance(data_type, _CARRIED_TYPES) and " collate " not in text
    # Arrow does not say how many digits a time of day has, so Spark takes six
    is_carried_time = text == "time(6)"
    if not is_nested and not is_carried and not is_carried_time:
        yield text


def output_schema(bolt: str, instance: AnyBolt, zone: str = "UTC") -> pa.Schema:
    """Return the Arrow schema of the output of a bolt that is used without a `TopologyBuilder`.

    Raises `UsageError`: the bolt declares no stream, another one than the default stream, or that
    one as direct; or its output is refused (`arrow_output`).

    Args:
        bolt: its name.
        instance: the bolt itself.
        zone: of the times that it emits.
    """
    declarer = OutputDeclarer()
    instance.declare(declarer)
    # ("", False): it has no default stream, which is refused below
    output, is_direct = declarer.streams.get(DEFAULT_STREAM, ("", False))
    if is_direct or declarer.streams.keys() != {DEFAULT_STREAM}:
        streams = ", ".join(declarer.streams) or "no stream"
        raise UsageError(
            f"bolt {bolt!r} declares {streams}, and on a DataFrame a bolt has only the stream"
            f" {DEFAULT_STREAM!r}, which is not direct: put the bolt into a spout.TopologyBuilder"
        )
    return arrow_output(bolt, output, zone)


def arrow_output(
    bolt: str, output: str, zone: str, read: Callable[[str], DataType] = StructType.fromDDL
) -> pa.Schema:
    """Return the Arrow schema of a stream.

    Args:
        bolt: the bolt's name, for errors.
        zone: of the Spark session; the stream's timestamps have it.
        read: Spark's parser, or another one where there is no session.

    Raises `UsageError`: see `parse_output`; or a field is a timestamp, and Python does not know
    the zone.
    """
    parsed = parse_output(bolt, output, read)
    single_types = _single_types_within(parsed)
    has_times = any(isinstance(single_type, TimestampType) for single_type in single_types)
    if has_times:
        try:
            zone_of(zone)
        except pa.ArrowInvalid as error:
            raise UsageError(
                f"bolt {bolt!r}: output = {output!r} has a timestamp, and {error}; name a"
                f" region in {_ZONE_SETTING}, as America/Los_Angeles, or an offset, as -08:00"
            ) from error
    return arrow_schema_of(parsed, zone if has_times else "UTC")


def _single_types_within(data_type: DataType) -> Iterator[DataType]:
    """Yield the types of single values in a type: it itself, or those within it."""
    types_within = _types_within(data_type)
    for type_within in types_within:
        yield from _single_types_within(type_within)
    if not types_within:
        yield data_type

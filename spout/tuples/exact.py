"""Emitted values as values that PyArrow converts without a loss; what would
lose something is refused.

PyArrow converts more than it should: 1.5 becomes 1 in a field of whole
numbers, a time becomes a date, 1,500 nanoseconds become one microsecond, a
time without a zone counts as one in UTC. Here each value of a column either
stays what it is, or becomes an equal one of a class that PyArrow converts
exactly, or `ArrowInvalid` is raised. A value of another class (a text in a
field of numbers) is left to PyArrow, which refuses it.

==============  ======================================  ========================================
field           converted, since nothing is lost        refused
==============  ======================================  ========================================
whole number    1.0, Decimal("1"), NumPy's integers     1.5, NaN, a bool, what is beyond the
                                                        field's range
float           0.1 (the nearest float is its meaning)  a bool; what would become infinite or 0
decimal         whole numbers of Python and NumPy       digits beyond precision or scale;
                                                        a float
date            a time at midnight without a zone       any other time; a number
timestamp       a time without a zone, as local time;   nanoseconds; a number; a date
                pandas' and NumPy's times
timestamp_ntz   pandas' and NumPy's times               a time with a zone; nanoseconds;
                                                        a number
interval        pandas' and NumPy's durations           nanoseconds; months; a number
array           any sequence, also of NumPy             a text; an element that is refused
struct          a mapping, or a row, by names;          a name that the struct does not have,
                a tuple by position                     or has twice
map             a mapping, or pairs                     a key that is there twice
==============  ======================================  ========================================

NaT and NA of pandas are nulls. Local time is that of the zone in the field's
type: of the Spark session. Where a clock is set back, the earlier of the two
times is meant, unless the time has ``fold=1``; a time that a clock skips
counts from before the step. Python's own conversion and Spark's SQL do the
same.

The values of a column are looked at together, by their classes: for a column
of `int` this costs 25 ns a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cache, partial
from itertools import chain, islice
from math import isfinite
from operator import itemgetter
from types import NoneType
from typing import Any, Final, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spout.tuples.tuple import by_names, short_repr

CONVERSION_ERRORS: Final = (ValueError, OverflowError, LookupError)
"""What PyArrow raises for a value that Python cannot represent (a time of the
year 10000, a text that is no UTF-8), and for a zone that Python does not know.
"""

MIDNIGHT: Final = time()

_VARIANT: Final = b"variant"
"""Spark marks the second field of the struct that is a variant by this metadata."""

_LISTS: Final = frozenset({list, tuple, NoneType})
_DICTS: Final = frozenset({dict, NoneType})
_DATETIMES: Final = frozenset({datetime, NoneType})
_NUMBERS: Final = frozenset({float, int, NoneType})
_DECIMALS: Final = frozenset({Decimal, int, NoneType})
_NO_ZONE: Final = frozenset({NoneType})

_ZONES: Final = frozenset({timezone, ZoneInfo})
"""Classes of zones that have an offset at each time."""

_DAY_OR_LESS: Final = frozenset({"W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})
"""NumPy's units whose length is the same always, unlike a month's."""


def exact_values(values: Sequence[Any], arrow_type: pa.DataType) -> Sequence[Any]:
    """Return equal values that PyArrow converts exactly to an Arrow type.

    Where no value had to be changed, that is the very object `values`: a
    caller sees by ``is`` whether there was a change.

    Raises `ArrowException`: one of them would lose something.
    """
    converter = _converter_of(arrow_type)
    return values if converter is None else converter.exact(values)


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column; those that Python cannot represent stay Arrow's scalars."""
    try:
        values: list[Any] = column.to_pylist()
    except CONVERSION_ERRORS:
        values = [_python_value(value) for value in column]
    return values


def _python_value(scalar: pa.Scalar) -> Any:
    """Return a scalar as a value of Python, or as it is where Python cannot represent it."""
    try:
        return scalar.as_py()
    except CONVERSION_ERRORS:
        return scalar


class _Converter(Protocol):
    """Makes the values of a field of one type exact, or refuses them."""

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values as `exact_values` does."""


@cache
def _converters_of_equal_types(
    _arrow_type: pa.DataType,
) -> list[tuple[pa.DataType, _Converter | None]]:
    """Return the list of converters that were made for types equal to this one, each with its type.

    `_converter_of` adds to it. It has more than one where types differ by the
    metadata of their fields alone, as a variant differs from a struct.
    """
    return []


def _converter_of(arrow_type: pa.DataType) -> _Converter | None:
    """Return the converter for a type; None: it needs none, since PyArrow
    converts all values exactly or refuses them.
    """
    converters = _converters_of_equal_types(arrow_type)
    for converter_type, converter in converters:
        if converter_type.equals(arrow_type, check_metadata=True):
            return converter
    new_converter = _new_converter(arrow_type)
    converters.append((arrow_type, new_converter))
    return new_converter


def _new_converter(arrow_type: pa.DataType) -> _Converter | None:
    """Make the converter for a type; None: as `_converter_of`."""
    converter: _Converter | None = None
    if pa.types.is_integer(arrow_type):
        converter = _SingleValues(arrow_type, frozenset({int, NoneType}), _exact_whole_number)
    elif pa.types.is_decimal(arrow_type):
        converter = _Decimals(arrow_type)
    elif pa.types.is_float32(arrow_type):
        converter = _Floats32()
    elif pa.types.is_float64(arrow_type):
        float_classes: frozenset[type] = frozenset({float, int, np.float64, np.float32, NoneType})
        converter = _SingleValues(arrow_type, float_classes, _exact_double)
    elif pa.types.is_date(arrow_type):
        converter = _SingleValues(arrow_type, frozenset({date, NoneType}), _exact_date)
    elif pa.types.is_timestamp(arrow_type):
        converter = _Times(arrow_type, None if arrow_type.tz is None else zone_of(arrow_type.tz))
    elif pa.types.is_time(arrow_type):
        converter = _SingleValues(arrow_type, frozenset({NoneType}), _exact_time_of_day)
    elif pa.types.is_duration(arrow_type):
        converter = _SingleValues(arrow_type, frozenset({timedelta, NoneType}), _exact_duration)
    elif pa.types.is_map(arrow_type):
        converter = _Maps(arrow_type.key_type, arrow_type.item_type)
    elif pa.types.is_struct(arrow_type):
        converter = _Structs(arrow_type)
    elif pa.types.is_list(arrow_type):
        converter = _Lists(arrow_type.value_type)
    return converter


@cache
def zone_of(name: str) -> tzinfo:
    """Return a time zone by the name that it has in an Arrow type: a region,
    or an offset as ``+05:00``.

    Raises `ArrowInvalid`: this machine does not know it.
    """
    try:
        zone: tzinfo = pa.lib.string_to_tzinfo(name)
        if not hasattr(zone, "localize"):
            return zone
        # PyArrow before 25 prefers pytz. `replace(tzinfo=...)` of a pytz zone
        # takes its first entry, the local mean time of a century ago: noon in
        # New York would be 11:56.
        offset = zone.utcoffset(None)
        return ZoneInfo(name) if offset is None else timezone(offset)
    except (ValueError, LookupError, OSError) as error:
        raise pa.ArrowInvalid(f"the time zone {name!r} is not known here: {error}") from error


@dataclass(frozen=True, slots=True)
class _SingleValues:
    """Converts single values, such as numbers.

    Attributes:
        arrow_type: of the field.
        plain_classes: their values stay as they are.
        convert: returns a value of another class made exact; raises
            `ArrowException`.
    """

    arrow_type: pa.DataType
    plain_classes: frozenset[type]
    convert: Callable[[Any], Any]

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values; those that are not of a plain class are made exact, one by one."""
        plain = self.plain_classes
        if set(map(type, values)) <= plain:
            return values
        return [value if type(value) in plain else self._exact_one(value) for value in values]

    def _exact_one(self, value: Any) -> Any:
        """Return a value that is not of a plain class made exact; None: it is a null."""
        if _is_missing(value):
            return None
        if isinstance(value, pa.Scalar):
            # PyArrow takes a scalar of the field's own type as it is. Python may not be able to
            # represent it.
            return value if value.type == self.arrow_type else self.exact([value.as_py()])[0]
        return self.convert(value)


class _Decimals:
    """Converts numbers to decimals; of each Decimal the size is looked at."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._last_digit = -arrow_type.scale
        # without Decimal among its plain classes it converts one by one
        self._one_by_one = _SingleValues(
            arrow_type, frozenset({int, NoneType}), partial(_exact_decimal, arrow_type)
        )

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        if set(map(type, values)) <= _DECIMALS:
            first_digits = [value.adjusted() for value in values if type(value) is Decimal]
            if not first_digits or min(first_digits) >= self._last_digit:
                return values
        return self._one_by_one.exact(values)


class _Floats32:
    """Converts numbers to floats of 32 bits: each becomes the nearest one."""

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values, and nulls for those that are missing; PyArrow rounds them later.

        Raises `ArrowInvalid`: a number would become infinite, as 1e300, or zero, as 1e-300.
        """
        numbers = values
        if not set(map(type, values)) <= _NUMBERS:
            numbers = [None if _is_missing(value) else _exact_double(value) for value in values]
        rounded = pa.array(numbers, pa.float32())  # only to see which become infinite or zero
        for row in pc.indices_nonzero(pc.is_inf(rounded)).to_pylist():
            if isfinite(numbers[row]):
                raise pa.ArrowInvalid(f"{short_repr(numbers[row])} is beyond the range of float")
        for row in pc.indices_nonzero(pc.equal(rounded, 0)).to_pylist():
            if numbers[row] != 0:
                raise pa.ArrowInvalid(f"{short_repr(numbers[row])} would become 0.0 in a float")
        return numbers


@dataclass(frozen=True, slots=True)
class _Times:
    """Converts times.

    Attributes:
        arrow_type: of the field.
        zone: of the field; a time without a zone is local time there. None:
            the field has no zone, and takes no time that has one.
    """

    arrow_type: pa.DataType
    zone: tzinfo | None

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        if set(map(type, values)) <= _DATETIMES:
            zone_classes = {type(value.tzinfo) for value in values if value is not None}
            exact_zone_classes = _NO_ZONE if self.zone is None else _ZONES
            if zone_classes <= exact_zone_classes:
                return values
        return [self._exact_one(value) for value in values]

    def _exact_one(self, value: Any) -> Any:
        """Return a time with a zone if the field has one, else without; None: it is a null."""
        if value is None or _is_missing(value):
            return None
        if isinstance(value, pa.Scalar):
            return value if value.type == self.arrow_type else self._exact_one(value.as_py())
        if isinstance(value, np.datetime64):
            value = _datetime_of(value)
        if not isinstance(value, datetime):
            _refuse_number(value, "a time")
            return value  # PyArrow refuses it
        value = _without_pandas(value)
        # a zone of the user's own class may have no offset, and then the time
        # counts as one without a zone
        has_zone = value.utcoffset() is not None
        if self.zone is None:
            if has_zone:
                raise pa.ArrowInvalid(
                    f"{short_repr(value)} has a zone, and timestamp_ntz has none: emit it without"
                    " (value.replace(tzinfo=None)), or make the field a timestamp"
                )
            return value.replace(tzinfo=None)
        return value if has_zone else value.replace(tzinfo=self.zone)


class _Lists:
    """Converts lists; the elements of all of them are looked at together."""

    def __init__(self, element_type: pa.DataType) -> None:
        self._element_type = element_type

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return lists as lists of Python, whose elements are exact."""
        lists: Sequence[Any] = values
        if not set(map(type, values)) <= _LISTS:
            lists = [_as_list(value) for value in values]
        converter = _converter_of(self._element_type)
        if converter is None:
            return lists
        not_null = [elements for elements in lists if elements is not None]
        if isinstance(converter, _SingleValues):
            # the most frequent case, for which the elements need no list of their own
            element_classes = set(map(type, chain.from_iterable(not_null)))
            if element_classes <= converter.plain_classes:
                return lists
        elements = list(chain.from_iterable(not_null))
        exact_elements = exact_values(elements, self._element_type)
        if exact_elements is elements:  # all were exact
            return lists
        return _cut_like_lists(exact_elements, lists)


def _cut_like_lists(elements: Iterable[Any], lists: Sequence[Sequence[Any] | None]) -> list[Any]:
    """Cut elements into lists that are as long as the ones they come from; None stays None.

    Of [[1], None, [2.0, 3]] the elements 1, 2 and 3 become [1], None and [2, 3].
    """
    elements_left = iter(elements)
    cut_lists: list[Any] = []
    for list_before in lists:
        if list_before is None:
            cut_lists.append(None)
        else:
            cut_lists.append(list(islice(elements_left, len(list_before))))
    return cut_lists


class _Structs:
    """Converts structs to dictionaries; the values of a field in all of them
    are one column.
    """

    def __init__(self, arrow_type: pa.StructType) -> None:
        self._fields = list(arrow_type)
        self._names = [field.name for field in arrow_type]
        # returns the values of a struct in the order of the fields. None: there are fewer than
        # two fields, and for one name an `itemgetter` returns no tuple.
        self._values_of = itemgetter(*self._names) if len(self._fields) > 1 else None
        self._is_variant = any(_VARIANT in (field.metadata or {}) for field in arrow_type)

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return structs as dictionaries, whose values are exact."""
        structs: Sequence[Any] = values
        if not set(map(type, values)) <= _DICTS:
            structs = [self._as_dictionary(value) for value in values]
        columns = self._columns(structs)
        # by field name: only the columns of which a value was changed
        changed_columns: dict[str, Sequence[Any]] = {}
        for field, column in zip(self._fields, columns, strict=True):
            exact_column = exact_values(column, field.type)
            if exact_column is not column:
                changed_columns[field.name] = exact_column
        if not changed_columns:
            return structs
        exact_structs: list[Any] = []
        for row, struct in enumerate(structs):
            if struct is None:
                exact_structs.append(None)
            else:
                exact_fields = {name: column[row] for name, column in changed_columns.items()}
                exact_structs.append({**struct, **exact_fields})
        return exact_structs

    def _columns(self, structs: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Return the columns of the fields, in their order.

        Raises `ArrowInvalid`: a struct has a field that its type lacks.
        """
        if self._values_of is not None and None not in structs:
            # The most frequent case: each struct has as many names as the type, and all of the
            # type's names, so it has no other ones.
            sizes = set(map(len, structs))
            if sizes == {len(self._fields)}:
                with suppress(KeyError):  # one of the names is another one: refused below
                    return list(zip(*map(self._values_of, structs), strict=True))
        names = frozenset(self._names)
        for struct in structs:
            if struct is not None and not struct.keys() <= names:
                unknown = ", ".join(short_repr(name) for name in struct if name not in names)
                fields = ", ".join(self._names)
                raise pa.ArrowInvalid(f"the struct has no field {unknown}; it has {fields}")
        return [self._column(name, structs) for name in self._names]

    @staticmethod
    def _column(name: str, structs: Sequence[Any]) -> list[Any]:
        """Return the values of one field; a null where a struct is null or lacks it."""
        return [None if struct is None else struct.get(name) for struct in structs]

    def _as_dictionary(self, value: Any) -> Any:
        """Return one struct as a dictionary; None: a null."""
        if value is None or _is_missing(value):
            return None
        if isinstance(value, pa.StructScalar):
            return {field.name: _python_value(value[field.name]) for field in value.type}
        if isinstance(value, pa.Scalar):
            return self._as_dictionary(value.as_py())
        if self._is_variant and hasattr(value, "metadata") and hasattr(value, "value"):
            # PySpark's `VariantVal`
            return {"value": value.value, "metadata": value.metadata}
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, tuple):
            if len(value) != len(self._names):
                raise pa.ArrowInvalid(
                    f"{len(value)} values for the {len(self._names)} fields of the struct:"
                    f" {', '.join(self._names)}"
                )
            return dict(zip(self._names, by_names(value, self._names), strict=True))
        if isinstance(value, list) and all(map(_is_pair, value)):
            value_by_name = dict(value)
            if len(value_by_name) == len(value):  # no name is there twice
                return value_by_name
        class_of_value = type(value).__name__
        raise pa.ArrowTypeError(f"a {class_of_value} is no struct: emit a dictionary, or a tuple")


class _Maps:
    """Converts maps to lists of pairs.

    A pair is never null: at one PyArrow would end the process.
    """

    def __init__(self, key_type: pa.DataType, item_type: pa.DataType) -> None:
        self._key_type = key_type
        self._item_type = item_type

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return maps as lists of pairs, whose keys and items are exact.

        If nothing is to be changed in any of them, return the very object
        `values`.
        """
        if set(map(type, values)) <= _DICTS:
            not_empty = [value for value in values if value]
            if self._are_exact(not_empty):
                return values
        maps = [_pairs_or_null(value) for value in values]
        # the keys of all maps are made exact together, and so are their items
        pairs_of_all = list(chain.from_iterable(pairs for pairs in maps if pairs is not None))
        exact_keys = exact_values([key for key, _ in pairs_of_all], self._key_type)
        exact_items = exact_values([item for _, item in pairs_of_all], self._item_type)
        exact_pairs = zip(exact_keys, exact_items, strict=True)
        exact_maps = _cut_like_lists(exact_pairs, maps)
        for value, pairs in zip(values, exact_maps, strict=True):
            if pairs is None or len(pairs) < 2:
                continue  # there is no second key
            are_sure_to_differ = type(value) is dict and _are_sure_to_differ(value)
            if not are_sure_to_differ:
                self._refuse_repeated_key([key for key, _ in pairs])
        return exact_maps

    def _are_exact(self, maps: Sequence[dict[Any, Any]]) -> bool:
        """Return whether dictionaries can be emitted as they are: keys and
        items are exact, and the keys are sure to differ.
        """
        keys = list(chain.from_iterable(maps))
        items = list(chain.from_iterable(map(dict.values, maps)))
        key_classes = set(map(type, keys))
        return (
            len(key_classes) <= 1
            and key_classes <= _DIFFERENT_KEY_CLASSES
            and exact_values(keys, self._key_type) is keys
            and exact_values(items, self._item_type) is items
        )

    def _refuse_repeated_key(self, keys: Sequence[Any]) -> None:
        """Raise `ArrowInvalid` if two keys of a dictionary or list are one in
        the map: 1 and 1.0, "a" and b"a", 0.1 in two widths.
        """
        comparable_keys = map_keys(pa.array(keys, self._key_type))
        keys_seen: set[Any] = set()
        for key, comparable_key in zip(keys, comparable_keys, strict=True):
            if comparable_key in keys_seen:
                raise pa.ArrowInvalid(f"the map has the key {short_repr(key)} twice")
            keys_seen.add(comparable_key)


_COUNTS_OF_TIME: Final = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time)
"""Types whose values are whole numbers of a unit of time."""


def map_keys(keys: pa.Array) -> list[Any]:
    """Return keys of maps as values that are equal where Spark takes two of them for one key.

    NaN is one key, whatever its bits, and so are 0.0 and -0.0. A time becomes
    its number and a text its bytes, since Python cannot represent a time of
    the year 10000, or a text that is no UTF-8.
    """
    arrow_type = keys.type
    if pa.types.is_struct(arrow_type):
        children = [map_keys(child) for child in keys.flatten()]
        structs = list(zip(*children, strict=True)) if children else [()] * len(keys)
        return _where_valid(keys, structs)
    if pa.types.is_map(arrow_type):  # a map as the key of a map
        pair_type = pa.struct([("key", arrow_type.key_type), ("value", arrow_type.item_type)])
        return map_keys(keys.cast(pa.list_(pair_type)))
    if pa.types.is_list(arrow_type):
        # `flatten` leaves out what lies behind a null, so a null has the length 0 here
        elements_left = iter(map_keys(keys.flatten()))
        lengths = pc.fill_null(pc.list_value_length(keys), 0).to_pylist()
        return _where_valid(keys, [tuple(islice(elements_left, length)) for length in lengths])
    if pa.types.is_floating(arrow_type):
        # Python has 0.0 equal to -0.0, and NaN to nothing
        return ["NaN" if number != number else number for number in keys.to_pylist()]
    if pa.types.is_date(arrow_type):
        return list(keys.cast(pa.int32()).to_pylist())
    if any(is_type(arrow_type) for is_type in _COUNTS_OF_TIME):
        return list(keys.cast(pa.int64()).to_pylist())
    if pa.types.is_string(arrow_type):
        keys = keys.cast(pa.binary())
    return list(keys.to_pylist())


def _where_valid(column: pa.Array, values: Sequence[Any]) -> list[Any]:
    """Return the values of a column, and None where it is null."""
    are_valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, are_valid, strict=True)]


_DIFFERENT_KEY_CLASSES: Final = frozenset({str, bytes, int, bool, date, Decimal})
"""Two different keys of a dictionary that are both of one of these classes
stay different in a map.
"""


def _are_sure_to_differ(dictionary: dict[Any, Any]) -> bool:
    """Return whether the keys of a dictionary stay different in a map, as
    their classes alone show.
    """
    key_classes = set(map(type, dictionary))
    return len(key_classes) == 1 and key_classes.pop() in _DIFFERENT_KEY_CLASSES


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _pairs_or_null(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the pairs of a map; None: it is a null."""
    if value is None or _is_missing(value):
        return None
    return list(_pairs_of_map(value))


def _pairs_of_map(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of a map, which may be a mapping or a list of pairs.

    Raises `ArrowException`: it is none, or one of its elements is no pair.
    """
    if isinstance(value, pa.MapScalar):  # it is a `Mapping`, too, but its `items` raises
        keys, items = value.values.flatten()
        yield from zip(python_values(keys), python_values(items), strict=True)
        return
    if isinstance(value, Mapping):
        yield from value.items()
        return
    if isinstance(value, pa.Scalar):
        yield from value.as_py()
        return
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise pa.ArrowTypeError(f"a {type(value).__name__} is no map: emit a dictionary")
    for pair in value:
        if _is_pair(pair):
            yield pair
        elif isinstance(pair, Mapping) and pair.keys() == {"key", "value"}:
            yield pair["key"], pair["value"]
        else:
            raise pa.ArrowInvalid(f"a map has {short_repr(pair)} for a pair of key and value")


def _as_list(value: Any) -> Any:
    """Return a list of any class as one of Python; None: it is a null.

    Elements of NumPy become numbers of Python.

    Raises `ArrowTypeError`: it is no list.
    """
    if value is None or _is_missing(value):
        return None
    if isinstance(value, np.ndarray):
        # not `tolist` for times and durations ("M", "m"): of nanoseconds it makes numbers
        return list(value) if value.dtype.kind in "mM" else value.tolist()
    if isinstance(value, pa.ListScalar):
        return python_values(value.values)
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    if isinstance(value, pa.Array):
        return python_values(value)
    is_sized_iterable = isinstance(value, Iterable) and hasattr(value, "__len__")
    if isinstance(value, str | bytes | Mapping) or not is_sized_iterable:
        raise pa.ArrowTypeError(f"a {type(value).__name__} is no list: emit a list")
    return list(value)


def _exact_double(value: Any) -> Any:
    """Return a number for a field of floats.

    Raises `ArrowException`: it is a bool, of which PyArrow would make 1.0; or
    a `longdouble` that would become infinite, as 1e4000, or zero.
    """
    if isinstance(value, bool | np.bool_):
        raise pa.ArrowTypeError(f"{short_repr(value)} is a bool, no number: emit float(value)")
    if isinstance(value, np.longdouble):
        becomes_infinite = np.isfinite(value) and not isfinite(value)  # `isfinite` takes its float
        becomes_zero = value != 0 and float(value) == 0
        if becomes_infinite or becomes_zero:
            raise pa.ArrowInvalid(f"{short_repr(value)} is beyond the range of double")
    return value


def _exact_whole_number(value: Any) -> Any:
    """Return a number as an `int`; `ArrowException`: it is none, or not whole."""
    if isinstance(value, bool | np.bool_):
        raise pa.ArrowTypeError(f"{short_repr(value)} is a bool, no number: emit int(value)")
    if isinstance(value, np.datetime64 | np.timedelta64):
        # `int(value)` would be the count of its unit, whatever that is
        cure = "emit value.astype('int64') of one unit"
        raise pa.ArrowTypeError(f"{short_repr(value)} is no number: {cure}")
    if isinstance(value, np.ndarray) and value.ndim > 0:
        # older NumPy takes an array of one element for a number
        raise pa.ArrowTypeError(f"{short_repr(value)} is an array, no number: emit value.item()")
    if not hasattr(value, "__int__"):
        return value  # PyArrow refuses it
    try:
        number = int(value)
        is_whole = bool(number == value)
    except (TypeError, ValueError, OverflowError):  # a complex number, an array, NaN, infinity
        is_whole = False
    if not is_whole:
        cure = "emit round(value), or int(value)"
        raise pa.ArrowInvalid(f"{short_repr(value)} is no whole number: {cure}")
    return number


def _exact_decimal(arrow_type: pa.DataType, value: Any) -> Any:
    """Return a number for a field of decimals; PyArrow refuses what is none or too long.

    Raises `ArrowInvalid`: it is smaller than the last digit of the field.
    """
    if isinstance(value, Decimal):
        return near_decimal(value, arrow_type)
    return int(value) if isinstance(value, np.integer) else value


def near_decimal(number: Decimal, arrow_type: pa.DataType) -> Decimal:
    """Return a number whose first digit is not behind the last one of a type of decimals.

    Arrow divides a number by a power of ten from a table of 38, or of 76. Of a number that is much
    smaller than the type's last digit it reads beyond the table: 1E-77 became 0.00, and 1E-99999999
    ended the process. So a zero with such an exponent is returned as a plain one.

    Raises `ArrowInvalid`: the number is no zero, so that it has no room.
    """
    if number.adjusted() >= -arrow_type.scale:  # of 0.05 it is -2; of NaN and infinity 0
        return number
    if number:
        flaw = f"is smaller than the last digit of {arrow_type}"
        raise pa.ArrowInvalid(f"{short_repr(number)} {flaw}")
    return Decimal(0)


def _exact_date(value: Any) -> Any:
    """Return a time at midnight as a date; `ArrowException`: another time, or a number."""
    if isinstance(value, np.datetime64):
        value = _datetime_of(value)
    if not isinstance(value, datetime):
        _refuse_number(value, "a date")
        return value
    value = _without_pandas(value)
    if value.tzinfo is not None or value.time() != MIDNIGHT:
        cure = "emit value.date()"
        raise pa.ArrowInvalid(f"{short_repr(value)} is a time, and a date has none: {cure}")
    return value.date()


def _exact_time_of_day(value: Any) -> Any:
    """Return a time of day as it is; `ArrowException`: it has a zone, or is a number."""
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise pa.ArrowInvalid(f"{short_repr(value)} has a zone, which a time of day has not")
        return value
    _refuse_number(value, "a time of day")
    return value


def _exact_duration(value: Any) -> Any:
    """Return a duration as a `timedelta`; `ArrowException`: it has
    nanoseconds, or is a number.
    """
    if isinstance(value, np.timedelta64):
        return _timedelta_of(value)
    if isinstance(value, timedelta):
        if getattr(value, "nanoseconds", 0):
            limit = "an interval has microseconds"
            raise pa.ArrowInvalid(f"{short_repr(value)} has nanoseconds, and {limit}")
        return value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value
    _refuse_number(value, "a duration")
    return value


def _refuse_number(value: Any, what: str) -> None:
    """Raise `ArrowTypeError` for a number in a field of times: PyArrow would
    take it as microseconds.

    `what` the field wants, for the message: ``a date``.
    """
    if hasattr(value, "__int__") or isinstance(value, np.generic):
        raise pa.ArrowTypeError(f"{short_repr(value)}, a {type(value).__name__}, is not {what}")


def _without_pandas(value: datetime) -> datetime:
    """Return a time as Python's own class; `ArrowInvalid`: it has nanoseconds."""
    if getattr(value, "nanosecond", 0):
        limit = "Spark's times have microseconds"
        raise pa.ArrowInvalid(f"{short_repr(value)} has nanoseconds, and {limit}")
    to_datetime: Callable[[], datetime] | None = getattr(value, "to_pydatetime", None)
    return value if to_datetime is None else to_datetime()


def _datetime_of(value: np.datetime64) -> datetime | None:
    """Return NumPy's time as Python's; None: it is NaT.

    Raises `ArrowInvalid`: it has nanoseconds, or is before the year 1 or beyond the year 9999.
    """
    if np.isnat(value):
        return None
    micros = value.astype("datetime64[us]")
    moment = micros.item()  # before the year 1 and beyond the year 9999 NumPy gives a number
    # Compared in the value's own unit again: nanoseconds were cut, and a time that is too far for
    # microseconds wraps around.
    if micros.astype(value.dtype) != value or not isinstance(moment, datetime):
        what_fits = "time of whole microseconds in the years 1 to 9999"
        raise pa.ArrowInvalid(f"{short_repr(value)} is no {what_fits}")
    return moment


def _timedelta_of(value: np.timedelta64) -> timedelta | None:
    """Return NumPy's duration as Python's; None: it is NaT.

    Raises `ArrowInvalid`: it has nanoseconds or months, or is too long.
    """
    if np.isnat(value):
        return None
    unit, _ = np.datetime_data(value.dtype)
    micros = value.astype("timedelta64[us]") if unit in _DAY_OR_LESS else None
    duration = None if micros is None else micros.item()
    if micros is None or not isinstance(duration, timedelta) or micros.astype(value.dtype) != value:
        raise pa.ArrowInvalid(f"{short_repr(value)} is no duration of whole microseconds")
    return duration


def _is_missing(value: Any) -> bool:
    """Return whether a value is NaT or NA of pandas, or a null of Arrow.

    pandas is not imported for it, since it may not be installed.
    """
    if isinstance(value, pa.Scalar):
        return not value.is_valid
    value_class = type(value)
    # the name first: nearly no value is of such a class, and not every class has a module
    has_name_of_null = value_class.__name__ in ("NaTType", "NAType")
    return has_name_of_null and value_class.__module__.startswith("pandas.")

"""Emitted values as values that PyArrow converts without a loss; what would
lose something is refused.

PyArrow converts more than it should: 1.5 becomes 1 in a field of whole
numbers, a time becomes a date, 1,500 nanoseconds become one microsecond, a
time without a zone counts as one in UTC. Here each value of a column either
stays what it is, or becomes an equal one of a class that PyArrow converts
exactly, or `ArrowInvalid` is raised. A value of another kind (a text in a
field of numbers) is left to PyArrow, which refuses it.

==============  ==========================================  ==================================================
field           converted, since nothing is lost            refused
==============  ==========================================  ==================================================
whole number    1.0, Decimal("1"), NumPy's whole numbers    1.5, NaN, a bool, what is beyond the field's range
float           0.1 (the nearest float is its meaning)      a bool; what would become infinite, or 0.0
decimal         whole numbers of Python and NumPy           digits beyond precision or scale; a float
date            a time at midnight without a zone           any other time; a number
timestamp       a time without a zone, as local time;       nanoseconds; a number; a date
                pandas' and NumPy's times
timestamp_ntz   pandas' and NumPy's times                   a time with a zone; nanoseconds; a number
interval        pandas' and NumPy's durations               nanoseconds; months; a number
array           any sequence, also of NumPy                 a text; an element that is refused
struct          a mapping, or a row, by names;              a name that the struct does not have, or twice
                a tuple by position
map             a mapping, or pairs                         a key that is there twice
==============  ==========================================  ==================================================

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
from functools import cache
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
"""What PyArrow raises for a value that Python has no form of, and for a zone
that Python does not know.
"""

MIDNIGHT: Final = time()

_VARIANT: Final = b"variant"
"""Spark marks the second field of the struct that is a variant by this metadata."""

_LISTS: Final = frozenset({list, tuple, NoneType})
_DICTS: Final = frozenset({dict, NoneType})
_DATETIMES: Final = frozenset({datetime, NoneType})
_NUMBERS: Final = frozenset({float, int, NoneType})
_NO_ZONE: Final = frozenset({NoneType})

_ZONES: Final = frozenset({timezone, ZoneInfo})
"""Classes of zones that have an offset at each time."""

_DAY_OR_LESS: Final = frozenset({"W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"})
"""NumPy's units whose length is the same always, unlike a month's."""


def exact_values(values: Sequence[Any], kind: pa.DataType) -> Sequence[Any]:
    """Return equal values that PyArrow converts exactly to an Arrow type.

    Where no value had to be changed, that is the very object `values`, so
    that a caller sees it by ``is``.

    Raises `ArrowException`: one of them would lose something.
    """
    form = _form_of(kind)
    return values if form is None else form.exact(values)


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column; of those that Python has no form of Arrow's scalars."""
    try:
        values: list[Any] = column.to_pylist()
    except CONVERSION_ERRORS:
        values = [_python_value(value) for value in column]
    return values


def _python_value(scalar: pa.Scalar) -> Any:
    """Return a scalar as a value of Python; as it is where Python has no form of it."""
    try:
        return scalar.as_py()
    except CONVERSION_ERRORS:
        return scalar


class _Form(Protocol):
    """What the values of a field of one type may be, and what each of them becomes."""

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values as `exact_values` does."""


@cache
def _forms_alike(_kind: pa.DataType) -> list[tuple[pa.DataType, _Form | None]]:
    """Return a list that keeps the forms of equal types, each with its type."""
    return []


def _form_of(kind: pa.DataType) -> _Form | None:
    """Return the form of a type; None: PyArrow converts all values of it
    exactly, or refuses them.
    """
    forms = _forms_alike(kind)
    for type_before, form in forms:
        # types are equal whatever the metadata of their fields are, by which
        # a variant is marked
        if type_before.equals(kind, check_metadata=True):
            return form
    forms.append((kind, _new_form(kind)))
    return forms[-1][1]


def _new_form(kind: pa.DataType) -> _Form | None:
    """Make the form of a type; None as `_form_of`."""
    form: _Form | None = None
    if pa.types.is_integer(kind):
        form = _Leaf(kind, frozenset({int, NoneType}), _whole_number)
    elif pa.types.is_decimal(kind):
        form = _Leaf(kind, frozenset({int, Decimal, NoneType}), _decimal)
    elif pa.types.is_float32(kind):
        form = _Narrow()
    elif pa.types.is_float64(kind):
        form = _Leaf(kind, frozenset({float, int, np.float64, np.float32, NoneType}), _double)
    elif pa.types.is_date(kind):
        form = _Leaf(kind, frozenset({date, NoneType}), _date)
    elif pa.types.is_timestamp(kind):
        form = _Times(kind, None if kind.tz is None else zone_of(kind.tz))
    elif pa.types.is_time(kind):
        form = _Leaf(kind, frozenset({NoneType}), _time_of_day)
    elif pa.types.is_duration(kind):
        form = _Leaf(kind, frozenset({timedelta, NoneType}), _duration)
    elif pa.types.is_map(kind):
        form = _Maps(kind.key_type, kind.item_type)
    elif pa.types.is_struct(kind):
        form = _Structs(kind)
    elif pa.types.is_list(kind):
        form = _Lists(kind.value_type)
    return form


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
class _Leaf:
    """Single values of a type `kind`.

    Attributes:
        plain: classes whose values stay as they are.
        exact_one: returns any other value made exact; raises `ArrowException`.
    """

    kind: pa.DataType
    plain: frozenset[type]
    exact_one: Callable[[Any], Any]

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values; those that are not of a plain class are made exact, one by one."""
        plain = self.plain
        if set(map(type, values)) <= plain:
            return values
        return [value if type(value) in plain else self._exact(value) for value in values]

    def _exact(self, value: Any) -> Any:
        """Return one value made exact; None: a null. One of Arrow is taken as Python's, if it has
        a form.
        """
        if _is_missing(value):
            return None
        if isinstance(value, pa.Scalar):
            # of the same type it needs no class of Python, which may have
            # none for it
            return value if value.type == self.kind else self.exact([value.as_py()])[0]
        return self.exact_one(value)


class _Narrow:
    """Floats of 32 bits: each value becomes the nearest one, which must not be infinite."""

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values, and nulls for those that are missing; PyArrow rounds them later.

        Raises `ArrowInvalid`: a number would become infinite, as 1e300, or zero, as 1e-300.
        """
        numbers = values
        if not set(map(type, values)) <= _NUMBERS:
            numbers = [None if _is_missing(value) else _double(value) for value in values]
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
    """Times of a type `kind`.

    `zone`: of the field, in which a time without a zone is meant; None: the
    field takes no zone.
    """

    kind: pa.DataType
    zone: tzinfo | None

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        if set(map(type, values)) <= _DATETIMES:
            zone_classes = {type(value.tzinfo) for value in values if value is not None}
            if zone_classes <= (_NO_ZONE if self.zone is None else _ZONES):
                return values
        return [self._exact(value) for value in values]

    def _exact(self, value: Any) -> Any:
        """Return one time with a zone if the field has one, else without; None: a null."""
        if value is None or _is_missing(value):
            return None
        if isinstance(value, pa.Scalar):
            return value if value.type == self.kind else self._exact(value.as_py())
        if isinstance(value, np.datetime64):
            value = _datetime_of(value)
        if not isinstance(value, datetime):
            _refuse_number(value, "a time")
            return value
        value = _without_pandas(value)
        # a zone of somebody's own may have no offset, and then the time
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
    """Lists, whose elements are looked at together."""

    def __init__(self, element: pa.DataType) -> None:
        self._element = element

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return lists as lists of Python, whose elements are exact."""
        lists: Sequence[Any] = values
        if not set(map(type, values)) <= _LISTS:
            lists = [_listed(value) for value in values]
        not_null = [elements for elements in lists if elements is not None]
        form = _form_of(self._element)
        if form is None:
            return lists
        # the most frequent case, for which the elements need no list of their
        # own
        if isinstance(form, _Leaf) and set(map(type, chain.from_iterable(not_null))) <= form.plain:
            return lists
        elements = list(chain.from_iterable(not_null))
        exact_elements = exact_values(elements, self._element)
        if exact_elements is elements:  # all were exact
            return lists
        # cut as before: of [[1], None, [2.0, 3]] the elements 1, 2 and 3
        # become [1], None and [2, 3]
        elements_left = iter(exact_elements)
        return [None if value is None else list(islice(elements_left, len(value))) for value in lists]


class _Structs:
    """Structs as dictionaries, each field of all of them as a column."""

    def __init__(self, kind: pa.StructType) -> None:
        self._fields = list(kind)
        self._names = [field.name for field in kind]
        self._pick = itemgetter(*self._names) if len(self._fields) > 1 else None
        self._is_variant = any(_VARIANT in (field.metadata or {}) for field in kind)

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return structs as dictionaries, whose values are exact."""
        structs: Sequence[Any] = values
        if not set(map(type, values)) <= _DICTS:
            structs = [self._as_dictionary(value) for value in values]
        columns = self._columns(structs)
        # by field, the columns of which a value was not exact
        changed: dict[str, Sequence[Any]] = {}
        for field, column in zip(self._fields, columns, strict=True):
            exact_column = exact_values(column, field.type)
            if exact_column is not column:
                changed[field.name] = exact_column
        if not changed:
            return structs
        exact_structs: list[Any] = []
        for row, struct in enumerate(structs):
            if struct is None:
                exact_structs.append(None)
            else:
                exact_fields = {name: column[row] for name, column in changed.items()}
                exact_structs.append({**struct, **exact_fields})
        return exact_structs

    def _columns(self, structs: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Return the values of each field; `ArrowInvalid`: a struct has a
        field that its type lacks.
        """
        width = len(self._fields)
        if self._pick is not None and None not in structs and set(map(len, structs)) == {width}:
            with suppress(KeyError):  # with as many names as there are fields, all of them are these fields
                return list(zip(*map(self._pick, structs), strict=True))
        names = frozenset(self._names)
        for struct in structs:
            if struct is not None and not struct.keys() <= names:
                unknown = ", ".join(short_repr(name) for name in struct if name not in names)
                raise pa.ArrowInvalid(f"the struct has no field {unknown}; it has {', '.join(self._names)}")
        return [[None if struct is None else struct.get(name) for struct in structs] for name in self._names]

    def _as_dictionary(self, value: Any) -> Any:
        """Return one struct as a dictionary; None: a null."""
        if value is None or _is_missing(value):
            return None
        if isinstance(value, pa.StructScalar):
            return {field.name: _python_value(value[field.name]) for field in value.type}
        if isinstance(value, pa.Scalar):
            return self._as_dictionary(value.as_py())
        if self._is_variant and hasattr(value, "metadata") and hasattr(value, "value"):
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
        if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            fields = dict(value)
            if len(fields) == len(value):  # no name is there twice
                return fields
        raise pa.ArrowTypeError(f"a {type(value).__name__} is no struct: emit a dictionary, or a tuple")


class _Maps:
    """Maps as lists of pairs; PyArrow would end the process at a null for a pair."""

    def __init__(self, key: pa.DataType, item: pa.DataType) -> None:
        self._key = key
        self._item = item

    def exact(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return maps as lists of pairs, whose keys and items are exact; as
        they are where all were so.
        """
        if set(map(type, values)) <= _DICTS and self._are_exact([value for value in values if value]):
            return values
        maps = [None if _is_missing(value) or value is None else list(_pairs(value)) for value in values]
        # the keys of all maps are made exact together, and so are their
        # items; then they are cut as before
        all_pairs = list(chain.from_iterable(pairs for pairs in maps if pairs is not None))
        keys = [key for key, _ in all_pairs]
        items = [item for _, item in all_pairs]
        exact_keys, exact_items = exact_values(keys, self._key), exact_values(items, self._item)
        pairs_left = zip(exact_keys, exact_items, strict=True)
        exact_maps = [None if pairs is None else list(islice(pairs_left, len(pairs))) for pairs in maps]
        for value, pairs in zip(values, exact_maps, strict=True):
            if pairs is None or len(pairs) < 2:
                continue
            are_unlike = type(value) is dict and _are_unlike(value)
            if not are_unlike:
                self._refuse_twice([key for key, _ in pairs])
        return exact_maps

    def _are_exact(self, maps: Sequence[dict[Any, Any]]) -> bool:
        """Return whether dictionaries are maps as they are: keys of one
        class, which are sure to differ.
        """
        keys = list(chain.from_iterable(maps))
        items = list(chain.from_iterable(map(dict.values, maps)))
        classes = set(map(type, keys))
        return (
            len(classes) <= 1
            and classes <= _ALWAYS_UNLIKE
            and exact_values(keys, self._key) is keys
            and exact_values(items, self._item) is items
        )

    def _refuse_twice(self, keys: Sequence[Any]) -> None:
        """Raise `ArrowInvalid` if two keys are one in the map: 1 and 1.0, "a"
        and b"a", 0.1 in two widths.
        """
        seen: set[Any] = set()
        for key, as_one in zip(keys, map_keys(pa.array(keys, self._key)), strict=True):
            if as_one in seen:
                raise pa.ArrowInvalid(f"the map has the key {short_repr(key)} twice")
            seen.add(as_one)


_COUNTS_OF_TIME: Final = (pa.types.is_timestamp, pa.types.is_duration, pa.types.is_time)
"""Types whose values are whole numbers of a unit of time."""


def map_keys(keys: pa.Array) -> list[Any]:
    """Return keys of maps as values that are equal where Spark takes two of them for one key.

    NaN is one key, whatever its bits, and so are 0.0 and -0.0. A time is its
    number and a text its bytes, since Python has no form of a time of the
    year 10000, or of a text that is no UTF-8.
    """
    kind = keys.type
    if pa.types.is_struct(kind):
        children = [map_keys(child) for child in keys.flatten()]
        structs = list(zip(*children, strict=True)) if children else [()] * len(keys)
        return _where_valid(keys, structs)
    if pa.types.is_map(kind):
        pair_type = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return map_keys(keys.cast(pa.list_(pair_type)))
    if pa.types.is_list(kind):
        # of a null it takes nothing, whatever lies behind it
        elements = iter(map_keys(keys.flatten()))
        lengths = pc.fill_null(pc.list_value_length(keys), 0).to_pylist()
        return _where_valid(keys, [tuple(islice(elements, length)) for length in lengths])
    if pa.types.is_floating(kind):
        # 0.0 is equal to -0.0, and NaN to nothing
        return ["NaN" if number != number else number for number in keys.to_pylist()]
    if pa.types.is_date(kind):
        return list(keys.cast(pa.int32()).to_pylist())
    if any(is_kind(kind) for is_kind in _COUNTS_OF_TIME):
        return list(keys.cast(pa.int64()).to_pylist())
    if pa.types.is_string(kind):
        keys = keys.cast(pa.binary())
    return list(keys.to_pylist())


def _where_valid(column: pa.Array, values: Sequence[Any]) -> list[Any]:
    """Return the values of a column, and None where it is null."""
    are_valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, are_valid, strict=True)]


_ALWAYS_UNLIKE: Final = frozenset({str, bytes, int, bool, date, Decimal})
"""Classes of whose values two different ones stay different in a map."""


def _are_unlike(items: dict[Any, Any]) -> bool:
    """Return whether keys of a dictionary are sure to differ as keys of a
    map: all are of one such class.
    """
    classes = set(map(type, items))
    return len(classes) == 1 and classes.pop() in _ALWAYS_UNLIKE


def _pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of a map, which may be a list of them."""
    if isinstance(value, pa.MapScalar):  # a `Mapping`, too, whose items cannot be had
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
        if isinstance(pair, tuple) and len(pair) == 2:
            yield pair
        elif isinstance(pair, Mapping) and pair.keys() == {"key", "value"}:
            yield pair["key"], pair["value"]
        else:
            raise pa.ArrowInvalid(f"a map has {short_repr(pair)} for a pair of key and value")


def _listed(value: Any) -> Any:
    """Return a list of any class as one of Python; None: a null.

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
    if (
        isinstance(value, str | bytes | Mapping)
        or not isinstance(value, Iterable)
        or not hasattr(value, "__len__")
    ):
        raise pa.ArrowTypeError(f"a {type(value).__name__} is no list: emit a list")
    return list(value)


def _double(value: Any) -> Any:
    """Return a number for a field of floats; `ArrowException`: a bool, or beyond it.

    Of a bool PyArrow makes 1.0, and of NumPy's 1e4000 infinity.
    """
    if isinstance(value, bool | np.bool_):
        raise pa.ArrowTypeError(f"{short_repr(value)} is a bool, no number: emit float(value)")
    if isinstance(value, np.longdouble):
        is_infinite = np.isfinite(value) and not isfinite(value)
        if is_infinite or (value != 0 and float(value) == 0):
            raise pa.ArrowInvalid(f"{short_repr(value)} is beyond the range of double")
    return value


def _whole_number(value: Any) -> Any:
    """Return a number as an `int`; `ArrowException`: it is none, or not whole."""
    if isinstance(value, bool | np.bool_):
        raise pa.ArrowTypeError(f"{short_repr(value)} is a bool, no number: emit int(value)")
    if isinstance(value, np.datetime64 | np.timedelta64):  # a count of some unit, by NumPy's own conversion
        raise pa.ArrowTypeError(f"{short_repr(value)} is no number: emit value.astype('int64') of one unit")
    if isinstance(value, np.ndarray) and value.ndim > 0:  # older NumPy takes one of one element for a number
        raise pa.ArrowTypeError(f"{short_repr(value)} is an array, no number: emit value.item()")
    if not hasattr(value, "__int__"):
        return value
    try:
        number = int(value)
        is_whole = bool(number == value)
    except (TypeError, ValueError, OverflowError):  # a complex number, an array, NaN, infinity
        is_whole = False
    if not is_whole:
        raise pa.ArrowInvalid(f"{short_repr(value)} is no whole number: emit round(value), or int(value)")
    return number


def _decimal(value: Any) -> Any:
    """Return a whole number of NumPy as Python's; all others PyArrow converts, or refuses."""
    return int(value) if isinstance(value, np.integer) else value


def _date(value: Any) -> Any:
    """Return a time at midnight as a date; `ArrowException`: another time, or a number."""
    if isinstance(value, np.datetime64):
        value = _datetime_of(value)
    if not isinstance(value, datetime):
        _refuse_number(value, "a date")
        return value
    value = _without_pandas(value)
    if value.tzinfo is not None or value.time() != MIDNIGHT:
        raise pa.ArrowInvalid(f"{short_repr(value)} is a time, and a date has none: emit value.date()")
    return value.date()


def _time_of_day(value: Any) -> Any:
    """Return a time of day as it is; `ArrowException`: it has a zone, or is a number."""
    if isinstance(value, time):
        if value.tzinfo is not None:
            raise pa.ArrowInvalid(f"{short_repr(value)} has a zone, which a time of day has not")
        return value
    _refuse_number(value, "a time of day")
    return value


def _duration(value: Any) -> Any:
    """Return a duration as a `timedelta`; `ArrowException`: it has
    nanoseconds, or is a number.
    """
    if isinstance(value, np.timedelta64):
        return _timedelta_of(value)
    if isinstance(value, timedelta):
        if getattr(value, "nanoseconds", 0):
            raise pa.ArrowInvalid(f"{short_repr(value)} has nanoseconds, and an interval has microseconds")
        return value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value
    _refuse_number(value, "a duration")
    return value


def _refuse_number(value: Any, what: str) -> None:
    """Raise `ArrowTypeError` for a number in a field of times, which PyArrow
    takes as microseconds.
    """
    if hasattr(value, "__int__") or isinstance(value, np.generic):
        raise pa.ArrowTypeError(f"{short_repr(value)}, a {type(value).__name__}, is not {what}")


def _without_pandas(value: datetime) -> datetime:
    """Return a time as Python's own class; `ArrowInvalid`: it has nanoseconds."""
    if getattr(value, "nanosecond", 0):
        raise pa.ArrowInvalid(f"{short_repr(value)} has nanoseconds, and Spark's times have microseconds")
    to_datetime: Callable[[], datetime] | None = getattr(value, "to_pydatetime", None)
    return value if to_datetime is None else to_datetime()


def _datetime_of(value: np.datetime64) -> datetime | None:
    """Return NumPy's time as Python's; `ArrowInvalid`: it has nanoseconds, or
    is beyond the year 9999.
    """
    if np.isnat(value):
        return None
    micros = value.astype("datetime64[us]")
    moment = micros.item()  # beyond the year 9999 NumPy gives a number
    # in the value's own unit again: a number that is too large for
    # microseconds wraps around
    if micros.astype(value.dtype) != value or not isinstance(moment, datetime):
        raise pa.ArrowInvalid(f"{short_repr(value)} is no time of whole microseconds up to the year 9999")
    return moment


def _timedelta_of(value: np.timedelta64) -> timedelta | None:
    """Return NumPy's duration as Python's; `ArrowInvalid`: it has nanoseconds
    or months, or is too long.
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
    """Return whether a value is NaT or NA of pandas, which is not imported
    for it, or a null of Arrow.
    """
    if isinstance(value, pa.Scalar):
        return not value.is_valid
    kind = type(value)
    return kind.__name__ in ("NaTType", "NAType") and kind.__module__.startswith("pandas.")

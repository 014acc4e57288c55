"""JSON to and from declared Python types.

`decoder` turns a type into a function from JSON to that type. Supported: JSON types, dataclasses,
TypedDicts, pydantic models, msgspec structs, enums, `datetime`, `date`, `UUID`, `Decimal`, `bytes`
(base64), and `list`, `tuple`, `set`, `dict`, `Optional`, `Union` and `Literal` of these. Unknown
fields are ignored, so that a producer may add a field before its workers know it.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import importlib
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from .durations import to_wire
from .errors import ConfigurationError, DecodeError

Decoder = Callable[[Any, str], Any]


def encode(value: Any) -> str:
    """Returns compact JSON. Raises TypeError or ValueError for a value without a JSON form."""
    return json.dumps(value, separators=(",", ":"), default=_encode_object, allow_nan=False, ensure_ascii=False)


def to_json(value: Any) -> Any:
    """Returns a value as plain JSON types."""
    return json.loads(encode(value))


def is_model(declared: type) -> bool:
    """Returns whether values of this class become JSON objects: a dataclass or a model of a library."""
    return dataclasses.is_dataclass(declared) or any(
        hasattr(declared, name) for name in ("model_validate", "__struct_fields__")
    )


def parse(text: str | bytes) -> Any:
    """Parses JSON. An integer with more digits than Python converts becomes a `Decimal`.

    Raises ValueError if the text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=_parse_integer)
    except RecursionError:
        raise ValueError("the JSON is too deep") from None


def _parse_integer(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def _encode_object(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return to_wire(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(type(value), "__struct_fields__"):
        return importlib.import_module("msgspec").to_builtins(value)
    raise TypeError(f"{type(value).__qualname__} has no JSON form")


def decoder(declared: Any) -> Decoder:
    """Returns the function that decodes JSON as the declared type."""
    try:
        hash(declared)
    except TypeError:
        # An annotation with metadata that has no hash.
        return _make_decoder(declared)
    return _cached_decoder(declared)


@lru_cache(maxsize=4096)
def _cached_decoder(declared: Any) -> Decoder:
    return _make_decoder(declared)


def _make_decoder(declared: Any) -> Decoder:
    origin = get_origin(declared)
    if origin is not None:
        return _generic_decoder(declared, origin, get_args(declared))
    if declared in (Any, object) or isinstance(declared, typing.TypeVar):
        return lambda value, path: value
    if declared is None or declared is type(None):
        return _exact((type(None),), "null")
    if declared in _SCALARS:
        return _SCALARS[declared]
    if isinstance(declared, type):
        return _class_decoder(declared)
    if hasattr(declared, "__supertype__"):
        return decoder(declared.__supertype__)
    raise ConfigurationError(f"{declared!r} cannot be decoded from JSON (use a dataclass, a TypedDict or a model)")


def decode(declared: Any, value: Any, path: str = "payload") -> Any:
    """Decodes JSON as the declared type. Raises `DecodeError`."""
    return decoder(declared)(value, path)


def _exact(accepted: tuple[type, ...], name: str) -> Decoder:
    def check(value: Any, path: str) -> Any:
        if type(value) in accepted:
            return value
        raise DecodeError(path, f"expected {name}")

    return check


def _converted(convert: Callable[[Any], Any], accepted: tuple[type, ...], name: str) -> Decoder:
    def check(value: Any, path: str) -> Any:
        if type(value) in accepted:
            try:
                return convert(value)
            except (ValueError, ArithmeticError, binascii.Error):
                pass
        raise DecodeError(path, f"expected {name}")

    return check


def _parse_datetime(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def _to_float(value: Any) -> float:
    """Converts a number. A number that is too large for a float is refused, not rounded to infinity."""
    number = float(value)
    if math.isinf(number) and not isinstance(value, float):
        raise OverflowError
    return number


_SCALARS: dict[Any, Decoder] = {
    int: _exact((int,), "an integer"),
    bool: _exact((bool,), "true or false"),
    str: _exact((str,), "a string"),
    float: _converted(_to_float, (int, float, Decimal), "a number"),
    bytes: _converted(lambda text: base64.b64decode(text, validate=True), (str,), "base64"),
    datetime: _converted(_parse_datetime, (str,), "a time (RFC 3339)"),
    date: _converted(date.fromisoformat, (str,), "a date"),
    UUID: _converted(UUID, (str,), "a UUID"),
    Decimal: _converted(lambda value: Decimal(str(value)), (str, int, float, Decimal), "a decimal number"),
    dict: _exact((dict,), "an object"),
    list: _exact((list,), "an array"),
}


def _generic_decoder(declared: Any, origin: Any, arguments: tuple[Any, ...]) -> Decoder:
    if origin is Union or origin is types.UnionType:
        return _union_decoder(arguments)
    if origin is Literal:
        return _literal_decoder(arguments)
    if origin is typing.Annotated or _qualifier(declared):
        return decoder(arguments[0])
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _mapping_decoder(arguments)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _tuple_decoder(arguments)
    if origin in (tuple, set, frozenset):
        return _items_decoder(arguments[0], origin)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return _items_decoder(arguments[0], list)
    if isinstance(origin, type):
        return _class_decoder(origin, declared)
    raise ConfigurationError(f"{declared!r} cannot be decoded from JSON")


def _qualifier(declared: Any) -> str | None:
    """Returns `Required`, `NotRequired` or `ReadOnly` of a field, of typing or typing_extensions."""
    name = str(get_origin(declared)).rsplit(".", 1)[-1]
    return name if name in ("Required", "NotRequired", "ReadOnly") else None


def _union_decoder(members: tuple[Any, ...]) -> Decoder:
    decoders = [decoder(member) for member in members]

    def decode_union(value: Any, path: str) -> Any:
        failure: DecodeError | None = None
        for each in decoders:
            try:
                return each(value, path)
            except DecodeError as error:
                # The member that went deepest is the one that was meant.
                if failure is None or len(error.path) > len(failure.path):
                    failure = error
        raise failure or DecodeError(path, "no type matches")

    return decode_union


def _literal_decoder(values: tuple[Any, ...]) -> Decoder:
    def decode_literal(value: Any, path: str) -> Any:
        for each in values:
            if type(each) is type(value) and each == value:
                return each
        raise DecodeError(path, f"expected one of {', '.join(map(repr, values))}")

    return decode_literal


def _mapping_decoder(arguments: tuple[Any, ...]) -> Decoder:
    decode_key, decode_value = decoder(arguments[0]), decoder(arguments[1])

    def decode_mapping(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise DecodeError(path, "expected an object")
        return {decode_key(key, f"{path} (a key)"): decode_value(each, f"{path}[…]") for key, each in value.items()}

    return decode_mapping


def _items_decoder(member: Any, make: Callable[[Any], Any]) -> Decoder:
    decode_item = decoder(member)

    def decode_items(value: Any, path: str) -> Any:
        if type(value) is not list:
            raise DecodeError(path, "expected an array")
        return make(decode_item(each, f"{path}[{index}]") for index, each in enumerate(value))

    return decode_items


def _tuple_decoder(members: tuple[Any, ...]) -> Decoder:
    decoders = [decoder(member) for member in members]

    def decode_tuple(value: Any, path: str) -> Any:
        if type(value) is not list or len(value) != len(decoders):
            raise DecodeError(path, f"expected an array of {len(decoders)}")
        return tuple(each(item, f"{path}[{index}]") for index, (each, item) in enumerate(zip(decoders, value)))

    return decode_tuple


def _class_decoder(declared: type, alias: Any = None) -> Decoder:
    if hasattr(declared, "model_validate"):
        return _pydantic_decoder(alias or declared)
    if hasattr(declared, "__struct_fields__"):
        return _msgspec_decoder(alias or declared)
    if issubclass(declared, Enum):
        return _enum_decoder(declared)
    if issubclass(declared, dict) and hasattr(declared, "__required_keys__"):
        return _typed_dict_decoder(declared)
    if dataclasses.is_dataclass(declared):
        return _dataclass_decoder(declared)
    raise ConfigurationError(
        f"{declared.__qualname__} cannot be decoded from JSON (use a dataclass, a TypedDict or a pydantic model)"
    )


def _enum_decoder(declared: type[Enum]) -> Decoder:
    values = ", ".join(repr(member.value) for member in declared)

    def decode_enum(value: Any, path: str) -> Any:
        try:
            return declared(value)
        except ValueError:
            raise DecodeError(path, f"expected one of {values}") from None

    return decode_enum


def _pydantic_decoder(declared: Any) -> Decoder:
    validation_error: type[Exception] = importlib.import_module("pydantic").ValidationError

    def decode_model(value: Any, path: str) -> Any:
        try:
            return declared.model_validate(value)
        except validation_error as error:
            first: dict[str, Any] = error.errors(include_input=False, include_url=False)[0]  # type: ignore[attr-defined]
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
            # The message of a validator of the model may quote the value: its type is enough.
            raise DecodeError(path + place, str(first["type"])) from None
        except Exception as error:
            raise _rejected(path, declared, error) from None

    return decode_model


def _msgspec_decoder(declared: Any) -> Decoder:
    msgspec = importlib.import_module("msgspec")

    def decode_struct(value: Any, path: str) -> Any:
        try:
            return msgspec.convert(value, declared)
        except msgspec.ValidationError as error:
            raise DecodeError(path, str(error)) from None
        except Exception as error:
            raise _rejected(path, declared, error) from None

    return decode_struct


def _rejected(path: str, declared: Any, error: Exception) -> DecodeError:
    """Returns the error of a check of the application. Its own text may quote the value."""
    name = getattr(declared, "__qualname__", str(declared))
    return DecodeError(path, f"{name} rejects it ({type(error).__name__})")


class _Fields:
    """Decoders of the fields of a class. They are resolved at the first use: types may be recursive."""

    def __init__(self, declared: type) -> None:
        self.declared = declared
        self.decoders: dict[str, Decoder] | None = None
        self.required: set[str] = set(getattr(declared, "__required_keys__", ()))

    def resolve(self) -> dict[str, Decoder]:
        if self.decoders is None:
            hints = typing.get_type_hints(self.declared, include_extras=True)
            self.decoders = {name: decoder(hint) for name, hint in hints.items()}
            # Under `from __future__ import annotations` the class does not know its own qualifiers.
            self.required -= {name for name, hint in hints.items() if _qualifier(hint) == "NotRequired"}
            self.required |= {name for name, hint in hints.items() if _qualifier(hint) == "Required"}
        return self.decoders


def _typed_dict_decoder(declared: Any) -> Decoder:
    fields = _Fields(declared)

    def decode_typed_dict(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise DecodeError(path, "expected an object")
        decoders = fields.resolve()
        for name in fields.required:
            if name not in value:
                raise DecodeError(f"{path}.{name}", "missing")
        return {
            name: decoders[name](each, f"{path}.{name}") if name in decoders else each for name, each in value.items()
        }

    return decode_typed_dict


def _dataclass_decoder(declared: Any) -> Decoder:
    fields = _Fields(declared)
    members = [field for field in dataclasses.fields(declared) if field.init]
    names = [field.name for field in members]
    required = {
        field.name
        for field in members
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def decode_dataclass(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise DecodeError(path, "expected an object")
        decoders = fields.resolve()
        arguments: dict[str, Any] = {}
        for name in names:
            if name in value:
                arguments[name] = decoders[name](value[name], f"{path}.{name}")
            elif name in required:
                raise DecodeError(f"{path}.{name}", "missing")
        try:
            return declared(**arguments)
        except Exception as error:
            # A check of the application in __post_init__.
            raise _rejected(path, declared, error) from None

    return decode_dataclass

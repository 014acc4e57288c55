"""Payloads: JSON to and from declared types."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional, Union
from uuid import UUID

import msgspec
import pydantic
import pytest
from typing_extensions import NotRequired, TypedDict

from longshore import ConfigurationError, DecodeError
from longshore.codec import decode, encode


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    number: int = 1


@dataclass
class Person:
    name: str
    home: Address
    tags: list[str] = field(default_factory=list)
    friends: Optional[list[Person]] = None


class Mail(TypedDict):
    to: str
    copies: NotRequired[list[str]]


class Model(pydantic.BaseModel):
    to: str
    at: Optional[datetime] = None


class Struct(msgspec.Struct):
    to: str


UserId = NewType("UserId", int)
UUID_TEXT = "5f0c7fe2-7c40-4bd3-8ba4-2c1c7b6f0a0d"


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (int, 7),
        (float, 7.5),
        (bool, True),
        (str, "text"),
        (None, None),
        (Any, {"a": [1]}),
        (dict[str, int], {"a": 1}),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (Union[int, str], "a"),
        (Literal["a", 1], "a"),
        (Colour, Colour.RED),
        (UUID, UUID(UUID_TEXT)),
        (Decimal, Decimal("1.10")),
        (bytes, b"\x00\xff"),
        (date, date(2026, 11, 18)),
        (datetime, datetime(2026, 11, 18, 1, 2, 3, tzinfo=timezone.utc)),
        (UserId, 7),
        (Annotated[int, {"unit": "s"}], 7),
        (list[Annotated[int, {"unit": "s"}]], [7]),
        (Person, Person("Ada", Address("Row", 2), ["x"], [Person("Bob", Address("Lane"))])),
        (Mail, {"to": "ada", "copies": ["bob"]}),
        (Model, Model(to="ada", at=datetime(2026, 1, 1, tzinfo=timezone.utc))),
        (Struct, Struct("ada")),
    ],
)
def test_value_survives_json(declared: Any, value: Any) -> None:
    assert decode(declared, json.loads(encode(value))) == value


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (int, "secret", "payload: expected an integer"),
        (int, True, "payload: expected an integer"),
        (Person, {"name": "Ada", "home": {"street": 5}}, "payload.home.street: expected a string"),
        (Person, {"name": "Ada"}, "payload.home: missing"),
        (Mail, {}, "payload.to: missing"),
        (Mail, {"to": "a", "copies": ["b", 5]}, "payload.copies[1]: expected a string"),
        (Model, {"to": 5}, "payload.to: string_type"),
        (Struct, {}, "payload: Object missing required field `to`"),
        (Colour, "secret", "payload: expected one of 'red'"),
        (UUID, "secret", "payload: expected a UUID"),
        (list[int], {"secret": 1}, "payload: expected an array"),
        (Optional[Person], {"name": "Ada", "home": {}}, "payload.home.street: missing"),
    ],
)
def test_wrong_value_is_named_by_its_place(declared: Any, value: Any, message: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode(declared, value)
    assert str(error.value) == message
    assert "secret" not in str(error.value)


def test_unknown_fields_are_ignored() -> None:
    assert decode(Address, {"street": "Row", "later": 1}) == Address("Row")


def test_type_without_a_json_form_is_refused_at_declaration() -> None:
    with pytest.raises(ConfigurationError, match="cannot be decoded"):
        decode(object.__class__, 1)


def test_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        encode({"a": object()})
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(float("nan"))
    assert encode(timedelta(seconds=1.5)) == '"1500ms"'

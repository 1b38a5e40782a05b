"""Descriptions of the fields of responses, which the OpenAPI document shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, ClassVar, cast

_GROWS = "x-extensible-enum"


class Doc:
    """Description of a field in the OpenAPI document, as metadata of its type: `Annotated[int, Doc("...")]`.

    `of`: all allowed values of a string. `grows`: the values of this release, to which later releases may add. `keys`:
    the keys of a mapping in this release, to which later releases may add.
    """

    def __init__(
        self, text: str, *, of: Iterable[str] = (), grows: Iterable[str] = (), keys: Iterable[str] = ()
    ) -> None:
        sets: dict[str, Any] = {"enum": [*map(str, of)], _GROWS: [*map(str, grows)]}
        sets["propertyNames"] = {_GROWS: named} if (named := [*map(str, keys)]) else {}
        self._more = {"description": text} | {name: values for name, values in sets.items() if values}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the field's schema with the description; called by pydantic.

        A field of an enumeration is described as a string if `grows` is set, because later releases may add values.
        """
        inner = schema["schema"] if schema["type"] == "nullable" else schema
        if inner["type"] not in ("enum", "definition-ref") or _GROWS not in self._more:
            return {**handler(schema), **self._more}
        string = {"type": "string"}
        return {**(string if inner is schema else {"anyOf": [string, {"type": "null"}]}), **self._more}


class Answer:
    """Base class of dataclasses that are API responses or parts of them: the OpenAPI document requires every field."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": True}

    @classmethod
    def part_of(cls, value: object) -> dict[str, Any]:
        """Return the fields of this dataclass with their values in `value`, such as an object of a subclass."""
        return {item.name: getattr(value, item.name) for item in fields(cast(Any, cls))}

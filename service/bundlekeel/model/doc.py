"""Descriptions of the fields of responses, which the OpenAPI document shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

_GROWS = "x-extensible-enum"


class Doc:
    """Description of a field in the OpenAPI document, as metadata of its type: `Annotated[int, Doc("...")]`.

    `of`: the only values of a string. `grows`: the values in this release; later releases may add values. `keys`: as
    `grows`, for the keys of a mapping.
    """

    def __init__(
        self, text: str, *, of: Iterable[str] = (), grows: Iterable[str] = (), keys: Iterable[str] = ()
    ) -> None:
        sets: dict[str, Any] = {"enum": [*map(str, of)], _GROWS: [*map(str, grows)]}
        sets["propertyNames"] = {_GROWS: named} if (named := [*map(str, keys)]) else {}
        self._more = {"description": text} | {name: values for name, values in sets.items() if values}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Return the field's schema with the description; called by pydantic.

        An enumeration to which a later release may add is a string.
        """
        inner = schema["schema"] if schema["type"] == "nullable" else schema
        if inner["type"] not in ("enum", "definition-ref") or _GROWS not in self._more:
            return {**handler(schema), **self._more}
        string = {"type": "string"}
        return {**(string if inner is schema else {"anyOf": [string, {"type": "null"}]}), **self._more}


class Answer:
    """Base of dataclasses that are responses or parts of one: the OpenAPI document requires every field."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": True}

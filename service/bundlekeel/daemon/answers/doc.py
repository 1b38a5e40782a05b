"""Descriptions of fields, and those that many answers share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Final

from bundlekeel.core.model.codes import Code

Json = dict[str, Any]
# Words of a code that is empty where there is none.
CODE_OR_EMPTY: Final = ("", *Code)
_GROWS = "x-extensible-enum"


class Doc:
    """What a field holds, as metadata of its type: `Annotated[int, Doc("...")]`. The OpenAPI document says it.

    `of`: the only values of a text. `grows`: those of this release, where a later one may have more. `keys`: as
    `grows`, of the names of a mapping.
    """

    def __init__(
        self, text: str, *, of: Iterable[str] = (), grows: Iterable[str] = (), keys: Iterable[str] = ()
    ) -> None:
        sets: Json = {"enum": [*map(str, of)], _GROWS: [*map(str, grows)]}
        sets["propertyNames"] = {_GROWS: named} if (named := [*map(str, keys)]) else {}
        self._more = {"description": text} | {name: values for name, values in sets.items() if values}

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Called by pydantic: the field's schema with the description."""
        return {**handler(schema), **self._more}


class Like:
    """Metadata of a plain mapping that has the fields of a type: the OpenAPI document shows that type."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Called by pydantic."""
        return handler.generate_schema(self._kind)


class Answer:
    """Base of the answers: the OpenAPI document lists every field as present, since each is."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": True}


Broker = Annotated[str, Doc("a broker id")]
Bundle = Annotated[str, Doc("a bundle: tenant/namespace/range")]
By = Annotated[str, Doc("who asked")]
CodeName = Annotated[str, Doc("a code of docs/reference/codes.md", grows=Code)]
Detail = Annotated[str, Doc("details; empty: none")]
Explanation = Annotated[str, Doc("what the code means")]
Reason = Annotated[str, Doc("why, in the words of who asked")]
Sentence = Annotated[str, Doc("the same as a sentence")]
SinceMs = Annotated[int, Doc("since when it holds")]
PictureMs = Annotated[int, Doc("time of the picture of the cluster on which it was decided")]
WallMs = Annotated[int, Doc("when it happened")]

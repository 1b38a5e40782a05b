"""Descriptions of fields, and those that many answers share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

Json = dict[str, Any]


class Doc:
    """What a field holds, as metadata of its type: `Annotated[int, Doc("...")]`. The OpenAPI document says it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Called by pydantic: the field's schema with the description."""
        return {**handler(schema), "description": self.text}


class Answer:
    """Base of the answers: the OpenAPI document lists every field as present, since each is."""

    __slots__ = ()
    __pydantic_config__: ClassVar = {"json_schema_serialization_defaults_required": True}


Broker = Annotated[str, Doc("a broker id")]
Bundle = Annotated[str, Doc("a bundle: tenant/namespace/range")]
By = Annotated[str, Doc("who asked")]
Detail = Annotated[str, Doc("details; empty: none")]
Explanation = Annotated[str, Doc("what the code means")]
Reason = Annotated[str, Doc("why, in the words of who asked")]
Sentence = Annotated[str, Doc("the same as a sentence")]
SinceMs = Annotated[int, Doc("since when")]
WallMs = Annotated[int, Doc("when")]

"""Types of fields that many responses share, with their descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.doc import Doc

Json = dict[str, Any]
# Words of a code that is empty where there is none.
CODE_OR_EMPTY: Final = ("", *Code)


class Like:
    """Metadata of a plain mapping that has the fields of a type: the OpenAPI document shows that type."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Called by pydantic."""
        return handler.generate_schema(self._kind)


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

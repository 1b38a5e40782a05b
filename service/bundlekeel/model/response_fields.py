"""Types and descriptions of fields that many responses share."""

from __future__ import annotations

from typing import Annotated, Any, Final

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Doc

Json = dict[str, Any]
# Values of a code field in which "" means no code.
CODE_OR_EMPTY: Final = ("", *Code)


class Like:
    """Metadata of a plain mapping that has the fields of a type: the OpenAPI document shows that type."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of the wrapped value. Pydantic calls this method."""
        return handler.generate_schema(self._kind)


Broker = Annotated[str, Doc("a broker id")]
Bundle = Annotated[str, Doc("name of a bundle: tenant/namespace/range")]
By = Annotated[str, Doc("operator or component that made the request")]
CodeName = Annotated[str, Doc("code, listed in docs/reference/codes.md", grows=Code)]
Detail = Annotated[str, Doc("details; empty: none")]
Explanation = Annotated[str, Doc("meaning of the code")]
Reason = Annotated[str, Doc("reason that the requester entered")]
Sentence = Annotated[str, Doc("summary as a sentence")]
SinceMs = Annotated[int, Doc("time of the request or change")]
PictureMs = Annotated[int, Doc("time of the snapshot on which the decision is based")]
WallMs = Annotated[int, Doc("time of the event")]

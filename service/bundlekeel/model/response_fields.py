"""Types and descriptions of fields that many responses share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc

Json = dict[str, Any]
# Values of a code field in which "" means no code.
CODE_OR_EMPTY: Final = ("", *Code)


class Like:
    """Metadata of a field: the OpenAPI document shows the type `kind` instead of the field's own type."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of `kind`. Pydantic calls this method."""
        return handler.generate_schema(self._kind)


Broker = Annotated[str, Doc("a broker id")]
Bundle = Annotated[str, Doc("name of a bundle: tenant/namespace/range")]
By = Annotated[str, Doc("operator or component that made the request")]
CodeName = Annotated[str, Doc("code, listed in docs/reference/codes.md", grows=Code)]
Detail = Annotated[str, Doc("details; empty: none")]
Explanation = Annotated[str, Doc("meaning of the code")]
Hash = Annotated[str, Doc("digest of the plan; it is executed only if planning again gives the same digest")]
Reason = Annotated[str, Doc("reason that the requester entered")]
Sentence = Annotated[str, Doc("summary as a sentence")]
PictureMs = Annotated[int, Doc("time of the snapshot on which the decision is based")]
WallMs = Annotated[int, Doc("time of the event")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficView(Answer):
    """Traffic of a bundle."""

    msg_rate_in: Annotated[float, Doc("msg/s published")]
    msg_rate_out: Annotated[float, Doc("msg/s delivered")]
    throughput_in: Annotated[float, Doc("bytes/s published")]
    throughput_out: Annotated[float, Doc("bytes/s delivered")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested(Answer):
    """Fields of responses about a stored request."""

    by: By
    reason: Reason
    since_ms: Annotated[int, Doc("time of the request or change")]

"""The newest `thresholds.json` in the form of the API. `recalibration.rules.thresholds` defines the file format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.model.doc import Answer, Doc
from bundlekeel.recalibration.rules.thresholds import Data, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView(Answer):
    """A proposal: its `thresholds.json`, with `values` and `previous` instead of `parameters`."""

    digest: Annotated[str, Doc("digest of the proposal, which `thresholds/adopt` expects")]
    path: Annotated[str, Doc("path of the file below `calibration.uri`")]
    format: Annotated[int, Doc("version of the document")]
    created_ms: Annotated[int, Doc("time at which the job wrote it")]
    software: Annotated[str, Doc("releases of the job and of the libraries that it used")]
    cluster: Annotated[str, Doc("cluster of the history; empty: the history does not contain its name")]
    strategy: Annotated[str, Doc("strategy of the parameters")]
    values: Annotated[dict[str, float], Doc("proposed value of each searched parameter")]
    previous: Annotated[dict[str, float], Doc("value that each was compared with, by parameter")]
    evidence: Annotated[Evidence, Doc("measurements with proposed and previous values")]
    data: Annotated[Data, Doc("history that the proposal is based on")]
    advice: Annotated[
        list[str], Doc("advice for operators beyond parameters, such as another strategy or cycle length")
    ]

"""The newest `thresholds.json`, as the API shows it. `core.calibration.thresholds` says what may stand in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.core.calibration.thresholds import Data, Evidence
from bundlekeel.core.model.doc import Answer, Doc


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView(Answer):
    """A proposal: its `thresholds.json` without `parameters`, of which `values` and `previous` are shown."""

    digest: Annotated[str, Doc("what it is known by: `digest` of `thresholds/adopt`")]
    path: Annotated[str, Doc("its file, below `calibration.uri`")]
    format: Annotated[int, Doc("version of the document")]
    created_ms: Annotated[int, Doc("when the job made it")]
    software: Annotated[str, Doc("releases of the job that made it and of what it used")]
    cluster: Annotated[str, Doc("the cluster whose history it rests on; empty: the history does not say")]
    strategy: Annotated[str, Doc("whose parameters they are")]
    values: Annotated[dict[str, float], Doc("the proposed value of every parameter that was searched")]
    previous: Annotated[dict[str, float], Doc("the values they were compared with, by parameter")]
    evidence: Annotated[Evidence, Doc("what was measured with both")]
    data: Annotated[Data, Doc("the history it rests on")]
    advice: Annotated[list[str], Doc("for people: what is no parameter, such as another strategy or cycle")]

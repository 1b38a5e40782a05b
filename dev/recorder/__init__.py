"""A reverse proxy that records what passes and can break it on purpose."""

from dev.recorder.model import AnswerSeen, RecordedRequest, Route
from dev.recorder.recorder import Recorder

__all__ = ["AnswerSeen", "RecordedRequest", "Recorder", "Route"]

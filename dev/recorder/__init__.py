"""A reverse proxy that records HTTP requests and can inject faults."""

from dev.recorder.model import AnswerSeen, RecordedRequest, Route
from dev.recorder.recorder import Recorder

__all__ = ["AnswerSeen", "RecordedRequest", "Recorder", "Route"]

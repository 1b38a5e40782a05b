"""A reverse proxy that records HTTP requests and can inject faults."""

from tests.support.recorder.model import AnswerSeen, RecordedRequest, Route
from tests.support.recorder.recorder import Recorder

__all__ = ["AnswerSeen", "RecordedRequest", "Recorder", "Route"]

"""A reverse proxy that records what passes and can break it on purpose."""

from dev.recorder.model import RecordedRequest, Route
from dev.recorder.recorder import Recorder

__all__ = ["RecordedRequest", "Recorder", "Route"]

"""HTTP interface: `/api/v1`, probes and metrics. Its only backend is `api.service.Service`."""

from bundlekeel.api.app import create_app
from bundlekeel.api.server import ApiServer

__all__ = ["ApiServer", "create_app"]

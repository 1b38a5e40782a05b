"""HTTP interface: `/api/v1`, health probes and metrics. All responses come from `api.service.Service`."""

from bundlekeel.api.app import create_app
from bundlekeel.api.server import ApiServer

__all__ = ["ApiServer", "create_app"]

"""Records of what happened: journal, notifications, traces and metrics."""

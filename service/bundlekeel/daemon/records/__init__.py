"""Records of cycles: history, notifications, traces."""

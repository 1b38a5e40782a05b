"""What is kept and reported of cycles: history, notifications, traces."""

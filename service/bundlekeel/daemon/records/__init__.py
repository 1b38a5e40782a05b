"""What is kept and told of cycles: history, notifications, traces."""

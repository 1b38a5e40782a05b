"""What is allowed: one question, one answer."""

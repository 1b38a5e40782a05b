"""What is recorded of a cycle, and how it is planned again."""

"""The recorded form of a cycle, and its replay."""

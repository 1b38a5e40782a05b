"""Execution of moves and splits: intents, calls, outcomes."""

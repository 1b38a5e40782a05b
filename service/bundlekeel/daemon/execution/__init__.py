"""What is done: moves and splits, intents, outcomes."""

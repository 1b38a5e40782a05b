"""On a real cluster of the extensible load manager."""

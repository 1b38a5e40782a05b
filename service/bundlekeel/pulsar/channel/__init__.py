"""The ownership channel of the extensible load manager (PIP-192)."""

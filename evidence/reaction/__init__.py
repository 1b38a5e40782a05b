"""Reaction side by side: who makes an uneven cluster even, how fast, at what price for clients."""

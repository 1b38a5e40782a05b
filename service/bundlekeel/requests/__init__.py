"""Operators' requests: drains, moves, takeovers, reviews, plans and checks."""

"""Observe, plan, ask the gate, execute, record."""

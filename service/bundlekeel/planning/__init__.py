"""Planning: engine, draft, ledger, pressure, invariants, effects."""

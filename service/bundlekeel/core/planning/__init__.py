"""How a plan is made: engine, draft, ledger, pressure, invariants, effects."""

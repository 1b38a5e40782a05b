"""How a plan is made: draft, ledger, scores, invariants."""

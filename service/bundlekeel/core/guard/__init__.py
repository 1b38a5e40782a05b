"""What may move: eligibility, budgets, holds, scope, windows, outages."""

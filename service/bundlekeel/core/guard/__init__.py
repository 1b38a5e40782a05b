"""What may move: eligibility, budgets, rate, holds, scope, outages, external moves."""

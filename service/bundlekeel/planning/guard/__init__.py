"""Limits on moves: eligibility, budgets, rate, holds, scope, outages, external moves."""

"""Calibrated thresholds: proposals, adoption and revert."""

"""Calibrated thresholds: what is proposed, adopted and taken back."""

"""Calibrated thresholds in a running sidecar."""

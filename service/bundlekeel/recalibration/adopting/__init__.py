"""Calibrated thresholds in a running sidecar: read, adopt and revert proposals, and compare other strategies."""

"""Quota groups in a running sidecar."""

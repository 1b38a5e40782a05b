"""The settings of a sidecar: the model, its sources, and descriptions."""

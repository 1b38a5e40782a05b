"""Commands without a sidecar: settings, tokens, recorded history, `decide` and the simulator."""

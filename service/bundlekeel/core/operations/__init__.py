"""Operators' requests as bundles and brokers: drain, warm, move, unload, repair. Pure."""

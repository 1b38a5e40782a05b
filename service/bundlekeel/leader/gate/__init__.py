"""Permissions: the gate decides whether an action is allowed now."""

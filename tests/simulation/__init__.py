"""Whole scenarios on the virtual cluster."""

"""Nightly PySpark jobs on recorded history: quality, features, capacity, back-test, recalibration.

Only modules whose first line says so import pyspark; tasks are plain Python and numpy.
"""

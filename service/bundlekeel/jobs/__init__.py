"""Nightly jobs on recorded history, by PySpark: quality, features, capacity, back-test, recalibration.

Only the modules named so in their first line load pyspark; what a task does is plain Python and numpy.
"""

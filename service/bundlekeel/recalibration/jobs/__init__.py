"""Nightly PySpark jobs on recorded history: quality, features, capacity, back-test, recalibration.

Only modules whose first line contains "Loads pyspark" import pyspark. Spark tasks run plain Python and numpy.
"""

"""The nightly recalibration: recorded history, back-tests, the Spark job, proposals and their adoption."""

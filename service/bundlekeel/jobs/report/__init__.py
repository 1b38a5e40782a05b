"""The page, figures and files that recalibration leaves for people."""

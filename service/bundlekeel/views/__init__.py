"""Responses to reads: brokers, bundles, reasons, summaries."""

"""Responses to requests that only read: brokers, bundles, reasons, summaries, the journal."""

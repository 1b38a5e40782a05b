"""The brokers' counters, which are newer than their load reports."""

"""The pure part: standard library, numpy and re2 only; no clock, no I/O, no logging, randomness by argument."""

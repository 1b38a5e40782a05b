"""The pure part: standard library and numpy only; no clock, no I/O, no logging, randomness by argument."""

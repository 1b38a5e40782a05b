"""Back-tests: recorded traffic under other strategies and thresholds. Pure: standard library, numpy, `bundlekeel.core`.

It lives beside the simulator, not in `core`: it is a simulation whose traffic was recorded instead of made up, it is
judged by the simulator's measures, and the daemon has no use for it. Spark (`bundlekeel.jobs`) only hands it chunks.
"""

from bundlekeel.sim.backtest.frames import traffic_of
from bundlekeel.sim.backtest.measures import Measures
from bundlekeel.sim.backtest.run import Candidate, DayMeasures, Step, backtest, unbroken
from bundlekeel.sim.backtest.traffic import Chunk, Traffic, chunks

__all__ = [
    "Candidate",
    "Chunk",
    "DayMeasures",
    "Measures",
    "Step",
    "Traffic",
    "backtest",
    "chunks",
    "traffic_of",
    "unbroken",
]

"""Back-tests: recorded traffic under other strategies and thresholds. Pure: standard library, numpy, `bundlekeel.core`.

It lives beside the simulator, not in `core`: it is a simulation whose traffic was recorded instead of made up, it is
judged by the simulator's measures, and the daemon has no use for it. Spark (`bundlekeel.jobs`) only hands it chunks.
"""

from bundlekeel.sim.backtest.frames import traffic_of
from bundlekeel.sim.backtest.measures import CandidateMeasures
from bundlekeel.sim.backtest.run import Candidate, CandidateStep, DayMeasures, backtest, unbroken
from bundlekeel.sim.backtest.traffic import Chunk, RecordedTraffic, chunks

__all__ = [
    "Candidate",
    "CandidateMeasures",
    "CandidateStep",
    "Chunk",
    "DayMeasures",
    "RecordedTraffic",
    "backtest",
    "chunks",
    "traffic_of",
    "unbroken",
]

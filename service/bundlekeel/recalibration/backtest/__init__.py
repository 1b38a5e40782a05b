"""Back-tests: plan on recorded traffic with other strategies and thresholds. Pure: standard library and numpy.

A back-test is a simulation with recorded traffic, and uses the simulator's measures. The Spark job
(`bundlekeel.recalibration.jobs`) runs back-tests of parts of the history in parallel.
"""

from bundlekeel.recalibration.backtest.frames import traffic_of
from bundlekeel.recalibration.backtest.measures import CandidateMeasures
from bundlekeel.recalibration.backtest.run import Candidate, CandidateStep, DayMeasures, backtest, unbroken
from bundlekeel.recalibration.backtest.traffic import Chunk, RecordedTraffic, chunks

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

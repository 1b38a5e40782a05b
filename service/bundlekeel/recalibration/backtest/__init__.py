"""Back-tests: plan on recorded traffic with other strategies and thresholds. Pure: standard library, numpy and scipy.

A back-test is a simulation with recorded traffic. The Spark job (`bundlekeel.recalibration.jobs`) runs candidates in
parallel.
"""

from bundlekeel.recalibration.backtest.measures import Candidate, CandidateMeasures
from bundlekeel.recalibration.backtest.run import CandidateRun, CandidateStep, DayMeasures, backtest

__all__ = ["Candidate", "CandidateMeasures", "CandidateRun", "CandidateStep", "DayMeasures", "backtest"]

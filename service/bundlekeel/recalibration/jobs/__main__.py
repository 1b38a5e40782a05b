"""`bundlekeel-recalibrate` and `python -m bundlekeel.recalibration.jobs`: the command line of the nightly run.

No other module of the jobs reads settings.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, NoReturn

from bundlekeel import __version__
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import ConfigError, HistoryError, StoreError
from bundlekeel.model.parameters import defaults
from bundlekeel.model.text_format import suggest
from bundlekeel.model.uris import CREDENTIALS, folder_named, place_fault
from bundlekeel.recalibration.rules.thresholds import RANGES
from bundlekeel.recalibration.rules.thresholds import AdoptionRules as Adoption

if TYPE_CHECKING:
    from bundlekeel.recalibration.jobs.options import Options
    from bundlekeel.settings.load import LoadedSettings

WRITTEN, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 3
# Seconds between two updates of the progress line on a terminal, and between two progress lines in other output.
SHOWN_SECONDS, PLAIN_SECONDS = 1.0, 30.0

# The help prints these lines as they are: 80 columns.
# Parameters that a back-test cannot model, by the first or last part of their names, and why.
_UNMODELLED: Final = {
    "split_": "history does not contain the topics of a bundle, so the traffic of its halves after a split is unknown",
    "_weight": "it defines the score by which the back-test compares balance",
}
_ABOUT: Final = """\
Proposes thresholds from recorded history, with evidence.

Reads what sidecars recorded (settings section `history`), checks every day of
it, and plans its cycles again with other thresholds, as a sidecar would. Judges
the result on days that the search did not use. Writes OUT/TIME/report.html and
report.json for operators and OUT/TIME/thresholds.json for sidecars.
The history is not changed.
"""
_MORE: Final = """\
exit codes: 0 written (with --await-history also TooLittleHistory); 1 refused,
with the reason (TooLittleHistory, BadDays, OtherCluster) on stderr; 2 usage
or settings error; 3 the store of history or results is unreachable

examples:
  bundlekeel-recalibrate --settings /etc/bundlekeel/bundlekeel.yaml --explain
  bundlekeel-recalibrate --history /var/lib/bundlekeel/history \\
      --out /var/lib/bundlekeel/calibration
  bundlekeel-recalibrate --history s3://balancer/keel \\
      --out s3://balancer/calibration --master spark://10.0.0.5:7077
  with spark-submit: docs/operations/recalibrate.md
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = argparse.ArgumentParser(
        prog="bundlekeel-recalibrate",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--version", action="version", version=f"bundlekeel {__version__}")
    where = arguments.add_argument_group("where")
    where.add_argument(
        "--history", type=_place, metavar="URI", help="recorded history; default: history.uri of the settings"
    )
    where.add_argument("--out", type=_place, metavar="URI", help="directory for the results; default: calibration.uri")
    where.add_argument("--settings", metavar="FILE", type=Path, help="settings file of the sidecar")
    what = arguments.add_argument_group("what")
    what.add_argument(
        "--days", type=_whole, default=28, metavar="N", help="whole days to read, in addition to today (28)"
    )
    what.add_argument("--min-days", type=_several, metavar="N", help="good days required; calibration.min_days (7)")
    what.add_argument(
        "--leave-out", type=_day, action="append", default=[], metavar="DAY", help="day to omit; repeatable"
    )
    what.add_argument(
        "--parameter",
        action="append",
        default=[],
        type=_parameter,
        metavar="NAME",
        help="parameter to search; repeatable; default: all that the active strategy reads "
        "(docs/reference/parameters.md)",
    )
    _how(arguments)
    return arguments


def _how(arguments: argparse.ArgumentParser) -> None:
    how = arguments.add_argument_group("how")
    how.add_argument(
        "--points", type=_whole, default=3, metavar="N", help="values per parameter in the first round (3)"
    )
    how.add_argument("--rounds", type=_natural, default=2, metavar="N", help="further rounds, of refinement (2)")
    how.add_argument(
        "--placements", type=_whole, default=3, metavar="N", help="initial placements that judge the best candidate (3)"
    )
    how.add_argument("--seed", type=_natural, default=0, metavar="N", help="seed of the bootstrap (0)")
    how.add_argument(
        "--await-history", action="store_true", help="exit code 0 while there is too little history (TooLittleHistory)"
    )
    how.add_argument("--explain", action="store_true", help="print what would be read and computed, without doing it")
    spark = arguments.add_argument_group("spark")
    spark.add_argument(
        "--master",
        type=_master,
        metavar="URL",
        help="local[*], spark://host:port, ...; default: the environment variable MASTER, else local[*]",
    )
    spark.add_argument(
        "--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="Spark setting; repeatable"
    )


def _natural(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least {least}")
    return int(text)


_whole = partial(_natural, least=1)
# One day to search, one to judge.
_several = partial(_natural, least=2)


def _place(text: str) -> str:
    if fault := place_fault(text):
        raise argparse.ArgumentTypeError(fault if fault == CREDENTIALS else f"{text!r} is {fault}")
    return text


def _master(text: str) -> str:
    if not re.fullmatch(r"local(\[([1-9]\d*|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|[a-z][a-z0-9+-]*://.+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected local[*], spark://host:port, yarn or k8s://...")
    return text


def _parameter(text: str) -> str:
    for affix, why in _UNMODELLED.items():
        if text in defaults() and (text.startswith(affix) or text.endswith(affix)):
            raise argparse.ArgumentTypeError(f"{text!r} is not calibrated: {why}")
    if text not in RANGES:
        near = suggest(text, RANGES) or f": expected one of {', '.join(sorted(RANGES))}"
        raise argparse.ArgumentTypeError(f"{text!r} is not calibrated{near}")
    return text


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a day such as 2026-11-21") from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"spark\.[\w.]+", key):
        raise argparse.ArgumentTypeError(f"{text!r}: expected spark.key=value")
    return key, value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `bundlekeel-recalibrate` and return the exit code."""
    parsed = parser().parse_args(arguments)
    try:
        return _run(parsed)
    except ConfigError as error:
        return _failed(str(error), USAGE)
    except StoreError as error:
        return _failed(str(error), UNREACHABLE)
    except HistoryError as error:
        code = getattr(error, "code", "HistoryError")
        figures = getattr(error, "figures", {})
        tell(json.dumps({"refused": code, "reason": str(error), **figures}, ensure_ascii=False))
        if parsed.await_history and code == Code.TOO_LITTLE_HISTORY:
            return WRITTEN
        return _failed(f"{code}: {error}", REFUSED)


def _run(parsed: argparse.Namespace) -> int:
    loaded = _settings(parsed)
    parsed.history = _history(parsed, loaded)
    if (folder := folder_named(parsed.history)) and not os.access(folder, os.F_OK):
        # Without this check, a wrong path would look like an empty history every night.
        raise StoreError(f"there is no directory {folder}; choose another one with --history")
    parsed.out = _out(parsed, loaded)
    # pyspark and pyarrow are extras: without them --help works, and the error names the missing package.
    with _extras():
        from bundlekeel.recalibration.jobs.options import check_start, explain, newest  # noqa: PLC0415
        from bundlekeel.recalibration.jobs.rules import days_between  # noqa: PLC0415
    options = options_of(parsed, loaded)
    # Listed once, because listing months of files in a bucket takes long.
    history = newest(options)
    for day in sorted(options.rules.leave_out.difference(days_between(history[0].date, history[-1].date))):
        tell(f"--leave-out {day} has no effect: it is not between the first and the last recorded day")
    if parsed.explain:
        sys.stdout.write(json.dumps(explain(options, history), indent=1) + "\n")
        return WRITTEN
    with _extras():
        from bundlekeel.recalibration.jobs.recalibrate import Progress, run_recalibration  # noqa: PLC0415
        from bundlekeel.recalibration.jobs.session import report_crash, session, show_progress, stop_after  # noqa: PLC0415
    # Checked before Spark starts, which takes seconds: a wrong address, too few days, a missing Java.
    check_start(options, history)
    _require_java()
    with (
        _terminated(),
        TemporaryFile() as messages,
        report_crash(messages, screen.write),
        stop_after(session(parsed.master, dict(parsed.conf), messages)) as spark,
        show_progress(spark.sparkContext, screen.show, SHOWN_SECONDS) as begin,
    ):
        result = run_recalibration(spark, options, history, Progress(tell=tell, begin=begin))
    for text in result.messages:
        tell(text)
    sys.stdout.write(f"{result.path}\n{result.report}\n")
    return WRITTEN


@contextmanager
def _terminated() -> Iterator[None]:
    """Within the context, turn SIGTERM into SystemExit, so that the run closes its resources before the process
    exits."""

    def end(number: int, _: object) -> NoReturn:
        # Write without `sys.stderr`: the signal can interrupt a write, and a stream does not allow a nested write.
        os.write(sys.stderr.fileno(), line("SIGTERM: the run ends").encode())
        # Hide further errors: Java may have received the signal, too, and prints errors of interrupted libraries.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_java() -> None:
    """Raise ConfigError if Java is not installed. Spark's own error would only be that its gateway exited."""
    home = os.environ.get("JAVA_HOME")
    if "PYSPARK_GATEWAY_PORT" in os.environ or shutil.which("java", path=f"{home}/bin" if home else None):
        return
    place = f"in JAVA_HOME ({home})" if home else "on the PATH"
    raise ConfigError(f"Spark needs Java 17 or newer, and there is no java {place}: install a JDK", field="JAVA_HOME")


@contextmanager
def _extras() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("jinja2", "matplotlib", "pandas", "pyarrow", "pyspark", "scipy"):
            raise
        raise ConfigError(f"{error.name} is missing: pip install '.[spark]' in the sources", field="spark") from None


def options_of(parsed: argparse.Namespace, loaded: LoadedSettings | None) -> Options:
    """Return the options of the nightly run, from the command line and the settings (None: without settings)."""
    from bundlekeel.recalibration.backtest.search import SearchDepth  # noqa: PLC0415
    from bundlekeel.recalibration.jobs.options import Options  # noqa: PLC0415
    from bundlekeel.recalibration.jobs.rules import HistoryRules  # noqa: PLC0415

    adoption, prefer = Adoption(), SearchDepth().prefer
    if loaded is not None:
        # spark-submit needs no pydantic
        from bundlekeel.recalibration.settings import CalibrationSettings, adoption_rules  # noqa: PLC0415

        adoption = adoption_rules(loaded.settings)
        prefer = loaded.settings.section(CalibrationSettings).prefer
    # At least two days, even if the settings allow one: one day to search by, and one held-out day to confirm.
    min_days = parsed.min_days or max(2, adoption.min_days)
    if min_days > parsed.days:
        text = f"--days {parsed.days} is less than the {min_days} good days needed (--min-days, calibration.min_days)"
        raise ConfigError(text, field="--days", value=parsed.days)
    return Options(
        # Absolute, because executors have their own working directories.
        history=_absolute(parsed.history),
        out=_absolute(parsed.out),
        now=datetime.now(UTC),
        days=parsed.days,
        adoption=adoption,
        rules=HistoryRules(min_days=min_days, leave_out=frozenset(parsed.leave_out)),
        search=SearchDepth(
            points=parsed.points,
            rounds=parsed.rounds,
            placements=parsed.placements,
            seed=parsed.seed,
            names=tuple(parsed.parameter),
            prefer=prefer,
        ),
    )


def _settings(parsed: argparse.Namespace) -> LoadedSettings | None:
    """Return the settings of --settings; None without it. Secrets can be missing: the run only needs paths and
    rules."""
    if parsed.settings is None:
        return None
    from bundlekeel.settings.load import load_settings  # noqa: PLC0415  (spark-submit needs no pydantic)

    return load_settings(parsed.settings, elsewhere=True)


def _history(parsed: argparse.Namespace, loaded: LoadedSettings | None) -> str:
    """Return the history store of --history, else of the settings, whose paths are relative to their file."""
    if parsed.history:
        return str(parsed.history)
    if loaded is None:
        raise ConfigError("no history: pass --history URI, or --settings FILE with history.uri", field="--history")
    if (uri := _located(loaded, "history.uri")) is None:
        raise ConfigError(f"history.uri is not set in {parsed.settings}: nothing is recorded", field="history.uri")
    return uri


def _out(parsed: argparse.Namespace, loaded: LoadedSettings | None) -> str:
    """Return the directory for results: --out, else the directory from which the sidecars read proposals."""
    if parsed.out:
        return str(parsed.out)
    if loaded is None or (uri := _located(loaded, "calibration.uri")) is None:
        text = "no directory for the results: pass --out URI, or --settings FILE with calibration.uri"
        raise ConfigError(text, field="--out")
    return uri


def _located(loaded: LoadedSettings, key: str) -> str | None:
    uri = loaded.value(key)
    return uri if uri is None or "://" in uri else str(loaded.located(Path(uri)))


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).absolute())


def line(text: str) -> str:
    """Return a line for standard error: the text after the present time in UTC."""
    return f"{datetime.now(UTC):%H:%M:%S} {text}\n"


class Screen:
    """Writes permanent lines to standard error, and on a terminal a last line with progress that is rewritten."""

    def __init__(self) -> None:
        self._last_write = time.monotonic()

    def tell(self, text: str) -> None:
        """Print a permanent line."""
        self.write(line(text))

    def show(self, text: str) -> None:
        """Show the progress: on a terminal replace the last line, else print a permanent line every 30 s."""
        if sys.stderr.isatty():
            self.write(text)
        elif time.monotonic() >= self._last_write + PLAIN_SECONDS:
            self.tell(text)

    def write(self, text: str) -> None:
        """Write a text, which replaces the line with progress."""
        sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else text)
        sys.stderr.flush()
        self._last_write = time.monotonic()


screen = Screen()
tell = screen.tell


def _failed(text: str, code: int) -> int:
    screen.write(f"error: {text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

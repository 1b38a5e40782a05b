"""`bundlekeel-recalibrate` and `python -m bundlekeel.jobs`: the command line of the nightly run. No other module of the
jobs reads settings."""

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
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, NoReturn

from bundlekeel import __version__
from bundlekeel.core.calibration.thresholds import RANGES
from bundlekeel.core.calibration.thresholds import AdoptionRules as Adoption
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import ConfigError, HistoryError, StoreError
from bundlekeel.core.model.parameter_table import STRATEGIES
from bundlekeel.core.model.text_format import suggest
from bundlekeel.core.model.uris import CREDENTIALS, folder_named, place_fault

if TYPE_CHECKING:
    from bundlekeel.jobs.options import Options
    from bundlekeel.settings.load import LoadedSettings

WRITTEN, REFUSED, USAGE, UNREACHABLE = 0, 1, 2, 3
# How often the progress line of a terminal is rewritten, and how often a line is added elsewhere.
SHOWN_SECONDS, PLAIN_SECONDS = 1.0, 30.0

# The help prints these lines as they are: 80 columns.
_ABOUT: Final = """\
Proposes thresholds from recorded history, with evidence.

Reads what sidecars recorded (settings section `history`), checks every day of
it, and plans its traffic again with other thresholds and other strategies, as
a sidecar would. Judges on days that the search has not seen. Writes
OUT/DATE/report.html for people and OUT/DATE/thresholds.json for the sidecars.
The history is not changed.
"""
_MORE: Final = """\
exit codes: 0 written (with --await-history also TooLittleHistory); 1 refused,
with the reason (TooLittleHistory, BadDays, OtherCluster) on stderr; 2 wrong
usage or settings; 3 the store of history or results cannot be reached

examples:
  bundlekeel-recalibrate --settings /etc/bundlekeel/bundlekeel.yaml --explain
  bundlekeel-recalibrate --history /var/lib/bundlekeel/history \\
      --out /var/lib/bundlekeel/calibration
  bundlekeel-recalibrate --history s3://balancer/keel \\
      --out s3://balancer/calibration --master spark://10.0.0.5:7077
  with spark-submit: docs/operations/recalibrate.md
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog="bundlekeel-recalibrate",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"bundlekeel {__version__}")
    where = made.add_argument_group("where")
    where.add_argument(
        "--history", type=_place, metavar="URI", help="recorded history; default: history.uri of the settings"
    )
    where.add_argument(
        "--out", type=_place, metavar="URI", help="folder for the results; default: calibration.uri of the settings"
    )
    where.add_argument("--settings", metavar="FILE", type=Path, help="the sidecar's settings file")
    what = made.add_argument_group("what")
    what.add_argument("--days", type=_whole, default=28, metavar="N", help="whole days, the newest; today too (28)")
    what.add_argument(
        "--min-days", type=_several, metavar="N", help="good days needed; default: calibration.min_days (7)"
    )
    what.add_argument(
        "--leave-out", type=_day, action="append", default=[], metavar="DATE", help="leave a day out; repeatable"
    )
    what.add_argument(
        "--strategy",
        action="append",
        choices=STRATEGIES,
        metavar="NAME",
        help=f"compare with these ({', '.join(STRATEGIES)}); default: all; the strategy in force is always searched",
    )
    what.add_argument(
        "--parameter",
        action="append",
        default=[],
        type=_parameter,
        metavar="NAME",
        help="search only this, beside other cycles (advice); repeatable; default: all (docs/reference/parameters.md)",
    )
    _how(made)
    return made


def _how(made: argparse.ArgumentParser) -> None:
    how = made.add_argument_group("how")
    how.add_argument("--points", type=_whole, default=3, metavar="N", help="values a parameter in the first round (3)")
    how.add_argument("--rounds", type=_natural, default=3, metavar="N", help="rounds after that, of refinement (3)")
    how.add_argument("--seed", type=_natural, default=0, metavar="N", help="seed of the bootstrap (0)")
    how.add_argument("--block-hours", type=_hours, default=6, metavar="N", help="hours that one task plans again (6)")
    text = "time between two plans; 0: as recorded, at least 60 (0)"
    how.add_argument("--period", type=_seconds, default=0.0, metavar="SECONDS", help=text)
    how.add_argument(
        "--await-history", action="store_true", help="exit code 0 while there is too little history (TooLittleHistory)"
    )
    how.add_argument("--explain", action="store_true", help="print what would be read and computed, without doing it")
    spark = made.add_argument_group("spark")
    spark.add_argument(
        "--master",
        type=_master,
        metavar="URL",
        help="local[*], spark://host:port, ...; default: the variable MASTER, else local[*]",
    )
    spark.add_argument(
        "--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="a Spark setting; repeatable"
    )


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _whole(text: str) -> int:
    if (found := _natural(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 or more")
    return found


def _several(text: str) -> int:
    if (found := _natural(text)) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 2 or more: one day to search, one to judge")
    return found


def _hours(text: str) -> int:
    if not 1 <= (found := _natural(text)) <= 24:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to 24")
    return found


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if found != 0 and not 1 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 0, or 1 to 3600 seconds")
    return found


def _place(text: str) -> str:
    if fault := place_fault(text):
        raise argparse.ArgumentTypeError(fault if fault == CREDENTIALS else f"{text!r} is {fault}")
    return text


def _master(text: str) -> str:
    if not re.fullmatch(r"local(\[([1-9]\d*|\*)(\s*,\s*\d+)?\])?|local-cluster\[.+\]|yarn|[a-z][a-z0-9+-]*://.+", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected local[*], spark://host:port, yarn or k8s://...")
    return text


def _parameter(text: str) -> str:
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
    """Run the command; the exit code."""
    given = parser().parse_args(arguments)
    try:
        return _run(given)
    except ConfigError as error:
        return _failed(str(error), USAGE)
    except StoreError as error:
        return _failed(str(error), UNREACHABLE)
    except HistoryError as error:
        code = getattr(error, "code", "HistoryError")
        figures = getattr(error, "figures", {})
        tell(json.dumps({"refused": code, "reason": str(error), **figures}, ensure_ascii=False))
        if given.await_history and code == Code.TOO_LITTLE_HISTORY:
            return WRITTEN
        return _failed(f"{code}: {error}", REFUSED)


def _run(given: argparse.Namespace) -> int:
    loaded = _settings(given)
    given.history = _history(given, loaded)
    if (folder := folder_named(given.history)) and not os.access(folder, os.F_OK):
        # It would look like one in which nothing is recorded yet, each night.
        raise StoreError(f"there is no folder {folder}; another place: --history")
    given.out = _out(given, loaded)
    # pyspark and pyarrow are extras: without them there is still --help, and a sentence that says what is missing.
    with _extras():
        from bundlekeel.jobs.options import explained, newest, reachable, unused  # noqa: PLC0415
    options = options_of(given, loaded)
    # Listing months of files in a bucket takes a while: once for all that asks for it.
    history = newest(options)
    for day in unused(options, history):
        tell(f"--leave-out {day} has no effect: it is not between the first and the last of these days")
    if given.explain:
        sys.stdout.write(json.dumps(explained(options, history), indent=1) + "\n")
        return WRITTEN
    with _extras():
        from bundlekeel.jobs.recalibrate import Progress, recalibrated  # noqa: PLC0415
        from bundlekeel.jobs.session import crash_told, session, stopped, watched  # noqa: PLC0415
    # Before Spark starts, which takes seconds: a wrong address, too few days and a missing Java are told at once.
    reachable(options, history)
    _require_java()
    with (
        _terminated(),
        _cleaned(options),
        TemporaryFile() as messages,
        crash_told(messages, screen.write),
        stopped(session(given.master, dict(given.conf), messages)) as spark,
        watched(spark.sparkContext, screen.show, SHOWN_SECONDS) as begin,
    ):
        found = recalibrated(spark, options, history, Progress(tell=tell, begin=begin))
    for text in found.said:
        tell(text)
    sys.stdout.write(f"{found.path}\n{found.report}\n")
    return WRITTEN


@contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM ends the run as an interrupt does: what is open is closed."""

    def end(number: int, _: object) -> NoReturn:
        # Past the stream: the signal may have come in the middle of a line, and a stream refuses to be entered twice.
        os.write(sys.stderr.fileno(), line("SIGTERM: the run ends; its temporary files are removed").encode())
        # Java may have had the signal as well, and the call into it is cut: what its libraries say of that is no news.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _cleaned(options: Options) -> Iterator[None]:
    """Remove the run's arrays once Spark has stopped: until then a task may write more of them."""
    from bundlekeel.jobs.places import OutputFolder  # noqa: PLC0415

    try:
        yield
    finally:
        OutputFolder(options.out).remove(options.work)


def _require_java() -> None:
    """ConfigError without Java: Spark would only say that its gateway exited."""
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


def options_of(given: argparse.Namespace, loaded: LoadedSettings | None) -> Options:
    """What is asked for, by the rules of the settings where they are given."""
    from bundlekeel.jobs.options import Options  # noqa: PLC0415
    from bundlekeel.jobs.rules import HistoryRules  # noqa: PLC0415
    from bundlekeel.jobs.selection import SearchDepth  # noqa: PLC0415

    adoption = Adoption() if loaded is None else loaded.settings.adoption_rules
    # Even where the sidecars are content with one day, one is searched on and another judged by.
    min_days = given.min_days or max(2, adoption.min_days)
    if min_days > given.days:
        text = f"--days {given.days} is less than the {min_days} good days needed (--min-days, calibration.min_days)"
        raise ConfigError(text, field="--days", value=given.days)
    return Options(
        # Executors work in folders of their own.
        history=_absolute(given.history),
        out=_absolute(given.out),
        now=datetime.now(UTC),
        days=given.days,
        adoption=adoption,
        rules=HistoryRules(min_days=min_days, leave_out=frozenset(given.leave_out)),
        search=SearchDepth(points=given.points, rounds=given.rounds, seed=given.seed, names=tuple(given.parameter)),
        strategies=tuple(given.strategy or STRATEGIES),
        block_hours=given.block_hours,
        period_seconds=given.period,
    )


def _settings(given: argparse.Namespace) -> LoadedSettings | None:
    """The sidecar's settings, where they are given. Their secrets are not needed: only the history's store is asked."""
    if given.settings is None:
        return None
    from bundlekeel.settings.load import load_settings  # noqa: PLC0415  (spark-submit needs no pydantic)

    return load_settings(given.settings, elsewhere=True)


def _history(given: argparse.Namespace, loaded: LoadedSettings | None) -> str:
    """The store of history: the option, else what the settings say, relative to their file."""
    if given.history:
        return str(given.history)
    if loaded is None:
        raise ConfigError("name the history: --history URI, or --settings FILE with history.uri", field="--history")
    uri = loaded.settings.history.uri
    if uri is None:
        raise ConfigError(f"history.uri is not set in {given.settings}: nothing is recorded", field="history.uri")
    return uri if "://" in uri else str(loaded.located(Path(uri)))


def _out(given: argparse.Namespace, loaded: LoadedSettings | None) -> str:
    """Where the results go: the option, else where sidecars look for them."""
    if given.out:
        return str(given.out)
    uri = loaded.settings.calibration.uri if loaded is not None else None
    if loaded is None or uri is None:
        text = "name the folder for the results: --out URI, or --settings FILE with calibration.uri"
        raise ConfigError(text, field="--out")
    return uri if "://" in uri else str(loaded.located(Path(uri)))


def _absolute(place: str) -> str:
    return place if "://" in place else str(Path(place).absolute())


def line(text: str) -> str:
    """As it stands on standard error."""
    return f"{datetime.now(UTC):%H:%M:%S} {text}\n"


class Screen:
    """Standard error: lines that stay, and on a terminal below them one that is rewritten."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def tell(self, text: str) -> None:
        """A line that stays."""
        self.write(line(text))

    def show(self, text: str) -> None:
        """How far it is: on a terminal in place of the line before, else as a line that stays, each half minute."""
        if sys.stderr.isatty():
            self.write(text)
        elif time.monotonic() >= self._shown + PLAIN_SECONDS:
            self.tell(text)

    def write(self, text: str) -> None:
        """In place of a line that does not stay."""
        sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else text)
        sys.stderr.flush()
        self._shown = time.monotonic()


screen = Screen()
tell = screen.tell


def _failed(text: str, code: int) -> int:
    screen.write(f"error: {text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

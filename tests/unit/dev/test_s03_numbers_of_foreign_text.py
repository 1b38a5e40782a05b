"""Numbers in text from outside pass `model.numbers`: no `int`, `float` or `fromtimestamp` is used on them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

SERVICE = Path(__file__).resolve().parents[3] / "service" / "bundlekeel"
CALLS: Final = frozenset({"int", "float", "fromtimestamp", "utcfromtimestamp"})
DECODERS: Final = frozenset({"model/numbers.py", "pulsar/formats/external_input.py"})
# Calls whose results are numbers: most reduce arrays.
NUMERIC: Final = frozenset(
    {"argmax", "argmin", "boot", "count", "len", "max", "mean", "median", "min", "nanmax", "nanmin", "nanstd"}
    | {
        "_gain",
        "choice",
        "getattr",
        "integers",
        "number",
        "searchsorted",
        "std",
        "sum",
        "timestamp",
        "trunc",
        "wall_ms",
    }
)
# Names of variables that hold text, here as everywhere in the service.
TEXTS: Final = frozenset({"bucket", "digits", "found", "lower", "match", "part", "raw", "said", "text", "word"})
# Modules in which variables and items are numbers already. Calls in the form of text are not allowed here either.
_ARRAYS = "items of arrays that `pulsar.formats` filled, and parameters that `coerce` checked"
_RECORDS = "our own records: ranges are checked where a document or a journal line is read"
NUMBERS_ONLY: Final = {
    "simulator/": "generated clusters and arrays of recorded ones; the schema checks scenario files",
    **dict.fromkeys(["recalibration/backtest/", "recalibration/jobs/"], "columns of recorded history"),
    **dict.fromkeys(["planning/", "quotas/rules/"], _ARRAYS),
    **dict.fromkeys(
        [
            f"compat/{name}.py"
            for name in ("avg", "in_plan", "picture", "placement", "threshold", "transfer", "uniform")
        ],
        _ARRAYS,
    ),
    **dict.fromkeys(["model/counters.py", "model/snapshot.py"], _ARRAYS),
    **dict.fromkeys(["views/listings.py", "views/overview.py", "views/why.py", "quotas/report.py"], _ARRAYS),
    **dict.fromkeys(["requests/doctor.py", "quotas/topic_usage.py"], _ARRAYS),
    **dict.fromkeys(["views/summary_fields.py", "leader/gate/guard_state.py", "records/"], _RECORDS),
    "recalibration/recorder/": _RECORDS,
    **dict.fromkeys(["recalibration/adopting/", "leader/cycle/", "api/service.py", "views/summary.py"], _RECORDS),
    "recalibration/rules/": "values that the reader of thresholds decoded, within their ranges",
}
_HEX = "eight hexadecimal digits, matched before"
_OPERATOR = "an argument or answer of the operator at a terminal; ValueError is reported"
# File and call -> why it is allowed.
ALLOWED: Final = {
    ("pulsar/zookeeper/client.py", "int(identity[0])"): "an integer of kazoo",
    ("pulsar/zookeeper/client.py", "int(answer[0].time_out)"): "an integer of kazoo",
    ("api/auth.py", "int(parsed)"): "an address of `ipaddress`",
    ("api/server.py", "int(STOP_SECONDS)"): "a constant",
    ("cli/manual_moves.py", "int(position, 0)"): _OPERATOR,
    ("cli/journal.py", "int(path.suffix[1:])"): "the end of a file name: at most 255 decimal digits",
    ("cli/config.py", "float(text)"): _OPERATOR,
    ("cli/config.py", "int(part)"): "an integer as a float",
    ("compat/decide_lines.py", "float(value)"): _OPERATOR,
    ("recalibration/commands.py", "int(match[1])"): "at most 18 digits, matched before",
    ("recalibration/commands.py", "int(match[2])"): "at most 18 digits, matched before",
    ("simulator/sim_files.py", "int(match[1])"): "at most five digits, matched before",
    ("simulator/sim_files.py", "int(match[2])"): "at most five digits, matched before",
    ("quotas/commands.py", "float(value)"): _OPERATOR,
    ("cli/units.py", "int(seconds)"): "a number of a decoded response",
    ("cli/units.py", "int(value)"): "a number of a decoded response",
    (
        "pulsar/formats/broker_metrics.py",
        "float(text)",
    ): "bytes of 100,000 samples a page: caught, and limited in the next line",
    ("pulsar/formats/broker_metrics.py", "float(raw)"): "a number, limited in the same line",
    ("pulsar/formats/broker_metrics.py", "int(failed)"): "a sum of limited numbers",
    ("pulsar/formats/broker_metrics.py", "int(opened)"): "a sum of limited numbers",
    ("compat/transfer_reports.py", "float(name)"): "a constant",
    ("compat/transfer_reports.py", "float(text)"): "matched before; Java's own double, which may be infinite",
    ("compat/reports.py", "float(text.rstrip('dDfF'))"): "matched before; Java's own double, which may be infinite",
    ("compat/transfer_reports.py", "float(value)"): "a number; OverflowError is caught",
    ("compat/transfer_reports.py", "int(number)"): "limited to Java's long before",
    ("compat/reports.py", "int(value)"): "limited to Java's int before",
    ("pulsar/formats/jvm_beans.py", "float(load)"): "a number, limited in the same line",
    ("pulsar/formats/report.py", "int(match[1], 16)"): _HEX,
    ("pulsar/formats/report.py", "int(match[2], 16)"): _HEX,
    ("pulsar/channel/ranges.py", "int(bundle[-19:-11], 16)"): _HEX,
    ("pulsar/channel/ranges.py", "int(bundle[-8:], 16)"): _HEX,
    ("recalibration/history/record.py", "int(now.document['wall_ms'])"): "our own document before it is stored",
    ("recalibration/history/replay.py", "int(at)"): "ValueError becomes HistoryError",
    ("recalibration/history/replay.py", "int(size)"): "ValueError becomes HistoryError",
    ("model/names.py", "int(match[1], 16)"): _HEX,
    ("model/names.py", "int(match[2], 16)"): _HEX,
    ("model/parameters.py", "int(result)"): "a decoded number",
    ("model/text_format.py", "float(value)"): "a number",
    ("model/store_urls.py", "int(match['port'] or DEFAULT_PORT)"): "at most five digits, matched before",
    ("leader/execution/splits.py", "float(topic.sessions)"): "a decoded number",
    ("pulsar/existing_names.py", "int(lower[1], 16)"): _HEX,
    ("quotas/enforcing/rate_keeper.py", "float(rate[0])"): "a decoded number",
    ("quotas/enforcing/rate_keeper.py", "float(rate[1])"): "a decoded number",
    ("pulsar/channel/channel_watch.py", "float(count)"): "a length",
    ("pulsar/sources/rate_signals.py", "int(LOWEST)"): "a constant",
    ("leader/state/leadership.py", "float(epoch)"): "a length",
    ("planning/costs.py", "float(text)"): "digits that we wrote",
    ("planning/strategies/shed_then_place.py", "int(part[place])"): _ARRAYS,
    ("planning/strategies/swap.py", "map(int, smallest)"): _ARRAYS,
    (
        "planning/strategies/transfer.py",
        "map(int, rows[np.argsort(view.score[rows], kind='stable')[:TARGETS_TRIED]])",
    ): (_ARRAYS),
    (
        "recalibration/jobs/report.py",
        "datetime.fromtimestamp(document.created_ms / 1000, UTC)",
    ): "limited where history is read",
    ("recalibration/commands.py", "float(value)"): "a number of DuckDB",
    ("recalibration/jobs/__main__.py", "int(text)"): _OPERATOR,
    (
        "recalibration/history/ports.py",
        "datetime.fromtimestamp(number(wall_ms, field='wall_ms', highest=MAX_TIME_MS) / 1000, UTC)",
    ): ("a decoded number"),
    ("settings/credentials.py", "int(n)"): "a line of the operator's file; ValueError is reported",
    ("settings/credentials.py", "int(p)"): "a line of the operator's file; ValueError is reported",
    ("settings/credentials.py", "int(r)"): "a line of the operator's file; ValueError is reported",
    ("recalibration/backtest/search.py", "float(candidate.changes.get(name, getattr(space.base, name)))"): (
        "a parameter that `coerce` checked"
    ),
    ("settings/problems.py", "float(line)"): "a line number that we wrote",
}


def is_number(node: ast.expr) -> bool:
    """Return whether an expression is a number by its form alone."""
    if isinstance(node, ast.Constant):
        return True  # also `float("inf")`
    if isinstance(node, ast.BinOp):
        products = isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Sub | ast.Pow)
        return products or is_number(node.left) or is_number(node.right)
    if isinstance(node, ast.Compare | ast.UnaryOp):
        return True
    return isinstance(node, ast.Call) and called(node) in NUMERIC


def is_text(node: ast.expr) -> bool:
    """Return whether an expression may be text by its form alone."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Slice) or ast.unparse(node.value) in TEXTS
    if isinstance(node, ast.Call):
        return not ast.unparse(node.func).startswith("np.") and called(node) not in NUMERIC
    return ast.unparse(node) in TEXTS


def called(node: ast.Call) -> str:
    """Return the name of the function or method that is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def conversions(source: str, *, numbers_only: bool = False) -> list[str]:
    """Return the calls whose argument may be text; with `numbers_only` those whose form says so."""
    calls = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        first = node.args[0]
        doubtful = is_text(first) if numbers_only else not is_number(first)
        based = called(node) == "int" and len(node.args) > 1
        dated = called(node).endswith("fromtimestamp")
        mapped = called(node) == "map" and ast.unparse(first) in CALLS
        if mapped or (called(node) in CALLS and (doubtful or based or dated)):
            calls.append(ast.unparse(node))
    return calls


@pytest.mark.parametrize(
    ("source", "places", "in_arrays"),
    [
        ("int(text)", 1, 1),
        ("int(match[1])", 1, 1),
        ("int(name[3:], 16)", 1, 1),
        ("float(values.get(key))", 1, 1),
        ("float(str(x))", 1, 1),
        ("list(map(int, parts))", 1, 1),
        ("datetime.fromtimestamp(document.created_ms / 1000, UTC)", 1, 1),
        ("int(rows[row])", 1, 0),
        ("float(broker.load)", 1, 0),
        ("int(1000 * seconds)", 0, 0),
        ("float(np.median(x))", 0, 0),
        ("float('inf')", 0, 0),
        ("int(a < b)", 0, 0),
    ],
)
def test_s03_a_conversion_of_text_is_found(source: str, places: int, in_arrays: int) -> None:
    assert len(conversions(source)) == places
    assert len(conversions(source, numbers_only=True)) == in_arrays


def test_s03_foreign_text_becomes_a_number_in_one_place() -> None:
    listed = set()
    for path in SERVICE.rglob("*.py"):
        name = path.relative_to(SERVICE).as_posix()
        if name not in DECODERS:
            numbers_only = name.startswith(tuple(NUMBERS_ONLY))
            listed |= {(name, call) for call in conversions(path.read_text("utf-8"), numbers_only=numbers_only)}
    assert sorted(listed - ALLOWED.keys()) == [], "use model.numbers, or say here why not"
    assert sorted(ALLOWED.keys() - listed) == [], "no longer there"

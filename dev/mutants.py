"""Mutants of one source file: small changes that a good test notices, each as the text of one place and its other text.

Not changed: annotations, decorators, texts, calls of a log, and `strict` of zip.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Off by one at a boundary, and the opposite.
_COMPARE: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATOR: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """At these bytes of the file stands `new` instead of `old`."""

    path: Path
    line: int
    start: int
    end: int
    old: str
    new: str

    def applied(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of this file, in order of place."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = set()
    for node, text in _changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        old = source[start:end].decode()
        found.add(Mutant(path, node.lineno, start, end, old, text))
    return sorted(found, key=lambda item: (item.start, item.end, item.new))


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Nodes with their other texts, here and below."""
    if isinstance(node, ast.expr):
        for other in _other_expressions(node):
            yield node, f"({ast.unparse(other)})"
    elif isinstance(node, ast.stmt):
        if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            yield node.test, f"(not {ast.unparse(node.test)})"
        if (text := _other_statement(node)) != "":
            yield node, text
    for child in _below(node):
        yield from _changes(child)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """The children in which a change is a change of behaviour."""
    if isinstance(node, ast.JoinedStr) or _is_log(node) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _other_expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=right):
            for other in _COMPARE[type(operator)]:
                yield ast.Compare(left, [other()], right)
        case ast.BoolOp(op=joint, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(joint, ast.And) else ast.And(), values)
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(joint, rest)
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATOR:
            yield ast.BinOp(left, _OPERATOR[type(operator)](), right)
        case ast.Constant(value=bool() as flag):
            yield ast.Constant(not flag)
        case ast.Constant(value=int() | float() as number):
            yield ast.Constant(number + 1)
        case ast.Call(func=ast.Name(id=name) as function, args=args, keywords=keywords) if name in _NAMES:
            yield ast.Call(ast.Name(_NAMES[function.id]), args, keywords)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=keywords) if name in _NAMES:
            yield ast.Call(ast.Attribute(value, _NAMES[name]), args, keywords)
        case _:
            return


def _other_statement(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) if not _is_log(node):
            return "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign() | ast.Continue() | ast.Break():
            return "pass"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            return "return None"
        case _:
            return ""


def _is_log(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    function = node.value.func
    return isinstance(function, ast.Attribute) and ast.unparse(function.value) == "_log"

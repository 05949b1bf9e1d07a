"""Small changes to Python code that a test should notice: found in the syntax tree, made in the
text, so that everything else keeps its line.

Left alone: annotations, decorators, docstrings, imports, whatever is raised or logged, assertions
(``strict=True`` is one too), and the inside of f-strings (words, whose places in the text Python
3.11 does not know).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
SKIPPED = (ast.Raise, ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr)


@dataclass(frozen=True)
class Mutant:
    """One change: the text from ``begin`` to ``end`` of a file becomes ``after``."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str
    code: str  # the line it begins on
    nth: int  # of the equal changes of such lines in this file, from the top

    @property
    def id(self) -> str:
        """The same wherever the line moves to."""
        return digest(f"{self.file}|{self.code}|{self.before}|{self.after}|{self.nth}")

    @property
    def what(self) -> str:
        """The change on one line."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{before[:70]}  ->  {after[:70]}"

    def applied(self, text: str) -> str:
        """The file with the change in it."""
        code = text.encode()
        return (code[: self.begin] + self.after.encode() + code[self.end :]).decode()


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Every change of one file, from top to bottom.

    >>> [m.what for m in mutants_of("a.py", "def f(x: int = 1):\\n    return x < 2\\n")]
    ['1  ->  2', 'return x < 2  ->  return None', 'x < 2  ->  x <= 2', '2  ->  3']
    """
    lines = text.encode().splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    found: list[Mutant] = []
    for node, after in _changes(ast.parse(text)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = text.encode()[begin:end].decode()
        code = lines[node.lineno - 1].decode().strip()
        nth = sum((m.code, m.before, m.after) == (code, before, after) for m in found)
        if after != before:
            found.append(Mutant(file, node.lineno, begin, end, before, after, code, nth))
    return found


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """(node, its replacement), for everything below ``node``."""
    for child in _parts(node):
        if not (isinstance(child, SKIPPED) or _is_log(child)):
            yield from _of(child)
            yield from _changes(child)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """The children whose change means something."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, _with(node, ops=[SWAPS[type(node.ops[0])]()])
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS and not _text(node):
        yield node, f"({_with(node, op=SWAPS[type(node.op)]())})"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node, repr(node.value + 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, repr(not node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield node, "return None"
    elif isinstance(node, ast.AugAssign | ast.Continue | ast.Break) or _call(node):
        yield node, "pass"


def _call(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_log(node: ast.AST) -> bool:
    return _call(node) and ast.unparse(node).startswith("logger.")


def _text(node: ast.BinOp | ast.BoolOp) -> bool:
    """Whether strings or lists of fields are put together, where only ``+`` has a meaning."""
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    wordy = (ast.JoinedStr, ast.List, ast.Tuple)
    return any(
        isinstance(p, wordy) or (isinstance(p, ast.Constant) and isinstance(p.value, str))
        for p in parts
    )


def _with(node: ast.expr, **changes: object) -> str:
    """The code of a node with other fields."""
    fields = {name: getattr(node, name) for name in node._fields}
    return ast.unparse(type(node)(**{**fields, **changes}))

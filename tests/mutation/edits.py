"""The edits: every small change that the rules below make to the functions of a file.

| kind | before | after |
|---|---|---|
| comparison | ``a < b``, ``a == b``, ``a in b`` | ``a <= b``, ``a != b``, ``a not in b`` |
| operator | ``a + b``, ``a | b``, ``a ^= b`` | ``a - b``, ``a & b``, ``a |= b`` |
| logic | ``a and b``, ``not a`` | ``a or b``, ``a`` |
| number | ``n`` | ``n + 1`` |
| truth | ``True`` | ``False`` |
| condition | ``if a:``, ``while a:``, ``x if a else y`` | the same with ``not (a)`` |
| effect | a call for its effect, a write to an attribute or an item, ``raise`` | ``pass`` |
| jump | ``break`` | ``continue``, and the other way round |
| function | ``min``, ``any`` | ``max``, ``all``, and the other way round |

Texts, annotations, decorators and what an error says are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
}  # fmt: skip
_OPERATORS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"), ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.BitXor: ("^", "|"),
    ast.BitOr: ("|", "&"), ast.BitAnd: ("&", "|"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip
_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """One change of one file.

    Attributes:
        file: the file, from the project's folder.
        line: the first changed line, counted from 1.
        lines: the first and the last line of the statement around it, of a compound one its head.
        begin, end: which characters of the file are replaced.
        new: what is written there.
        function: the outermost function around it, with its class: ``Ledger.apply``.
        kind: the rule that made it; see the module's table.
        before, after: the changed line without indentation, as it is and as it becomes.
    """

    file: str
    line: int
    lines: tuple[int, int]
    begin: int
    end: int
    new: str
    function: str
    kind: str
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.function} [{self.kind}] {self.before}  ->  {self.after}"

    def applied(self, text: str) -> str:
        """Return the text of the file with the change in it."""
        return text[: self.begin] + self.new + text[self.end :]


def edits_of(file: str, text: str) -> list[Edit]:
    """Return every edit of a file, in the order of its lines."""
    finder = _Finder(file, text)
    finder.visit(ast.parse(text))
    return sorted(finder.edits, key=lambda edit: (edit.begin, edit.end, edit.new))


class _Finder(ast.NodeVisitor):
    """Walks a file and notes the edits of its functions."""

    def __init__(self, file: str, text: str) -> None:
        self.edits: list[Edit] = []
        self._file = file
        self._text = text
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._scopes: list[str] = []
        self._function = ""
        self._statement = (0, 0)

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        outer = self._statement
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        self._statement = (node.lineno, max(node.lineno, last))
        super().visit(node)
        self._statement = outer

    # places -------------------------------------------------------------------------------------------------

    def _position(self, line: int, column: int) -> int:
        """Return the character at which a node begins or ends: the tree counts bytes of UTF-8."""
        text = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(text)

    def _begin(self, node: ast.expr | ast.stmt) -> int:
        return self._position(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._position(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _note(self, begin: int, end: int, new: str, kind: str) -> None:
        if not self._function:
            return
        first = self._text.count("\n", 0, begin) + 1
        line_begin = self._starts[first - 1]
        edited = self._text[line_begin:begin] + new + self._text[end:]
        before = self._lines[first - 1].strip()
        after = edited.split("\n", 1)[0].strip()
        self.edits.append(
            Edit(self._file, first, self._statement, begin, end, new, self._function, kind, before, after)
        )

    def _replace_between(self, left: ast.expr, right: ast.expr, old: str, new: str, kind: str) -> None:
        """Replace an operator, which stands somewhere between two expressions, among brackets and spaces."""
        begin, end = self._end(left), self._begin(right)
        # "is not" may be written over two lines
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        if match := re.search(pattern, self._text[begin:end]):
            self._note(begin + match.start(), begin + match.end(), new, kind)

    # what is passed over ------------------------------------------------------------------------------------

    def _visit_function(self, node: _Function) -> None:
        self._scopes.append(node.name)
        outer = self._function
        # decorators and defaults run when the function is made
        self._function = outer or ".".join(self._scopes)
        for statement in node.body:
            self.visit(statement)
        self._function = outer
        self._scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scopes.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Attribute) and node.value is not None:
            self._note(self._begin(node), self._end(node), "pass", "effect")
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts for people alone: their positions are not exact before Python 3.12, either."""

    def visit_Raise(self, node: ast.Raise) -> None:
        self._note(self._begin(node), self._end(node), "pass", "effect")

    # the rules ----------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            old, new = _COMPARISONS[type(operator)]
            self._replace_between(left, right, old, new, "comparison")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _OPERATORS:
            old, new = _OPERATORS[type(node.op)]
            self._replace_between(node.left, node.right, old, new, "operator")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in _OPERATORS:
            old, new = _OPERATORS[type(node.op)]
            self._replace_between(node.target, node.value, old + "=", new + "=", "operator")
        self._note(self._begin(node), self._end(node), "pass", "effect")
        self.visit(node.value)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between(left, right, old, new, "logic")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            begin = self._begin(node)
            self._note(begin, begin + len("not"), "", "logic")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._note(self._begin(node), self._end(node), str(not node.value), "truth")
            case int() | float():
                self._note(self._begin(node), self._end(node), f"({node.value!r} + 1)", "number")
            case _:
                pass

    def _negate(self, test: ast.expr) -> None:
        """Turn a condition round, unless another rule does the same to it."""
        match test:
            case ast.Compare(ops=[_]) | ast.UnaryOp(op=ast.Not()) | ast.Constant():
                return
            case _:
                begin, end = self._begin(test), self._end(test)
                self._note(begin, end, f"not ({self._text[begin:end]})", "condition")

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Name) and node.value.func.id == "assert_never":
                return
            self._note(self._begin(node), self._end(node), "pass", "effect")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._note(self._begin(node), self._end(node), "pass", "effect")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._note(self._begin(node), self._end(node), "pass", "effect")

    def visit_Break(self, node: ast.Break) -> None:
        self._note(self._begin(node), self._end(node), "continue", "jump")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note(self._begin(node), self._end(node), "break", "jump")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            self._note(self._begin(node.func), self._end(node.func), _FUNCTIONS[node.func.id], "function")
        self.generic_visit(node)


def files_of(room: str, files: Iterator[str]) -> list[str]:
    """Return the files of a room (a folder with what lies below it, or one file)."""
    return sorted(file for file in files if file == room or file.startswith(room.rstrip("/") + "/"))

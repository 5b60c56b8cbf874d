"""What there is to change in a module, and how a change is made in a running program.

mutmut's operators say what to change; `changes` gives each change with the source it leads to.
`Functions.change` makes one without importing the module again: it puts the bytecode of the changed
functions in place of that of the functions as they live in this process, whatever has been made of
them since (operators of torch, wrapped functions, methods).
"""

from __future__ import annotations

import ast
import difflib
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode


class Change(NamedTuple):
    """One change of a module's source."""

    module: str
    where: str  # the function, with its class
    old: str  # the lines that go, without their indentation
    new: str  # the lines that come
    number: int  # among changes that look the same
    first: int  # lines of the changed expression
    last: int
    source: str  # of the whole module, changed

    @property
    def key(self) -> str:
        """Name the change, whatever its line."""
        return "\n".join((self.module, self.where, self.old, self.new, str(self.number)))

    def __str__(self) -> str:
        lines = [f"- {line}" for line in self.old.split("\n")]
        lines += [f"+ {line}" for line in self.new.split("\n")]
        return "\n".join([f"{self.module}:{self.first}  {self.where}", *lines])


class Everywhere(MutationVisitor):
    """mutmut's walk over a module, into decorated functions too; where each change is, besides."""

    def __init__(self) -> None:
        super().__init__(mutation_operators, IgnoredCode(set(), set(), set()))
        self.path: list[str] = []
        self.places: list[tuple[str, CodeRange]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Keep the way to a node."""
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self.path.append(node.name.value)
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNode) -> None:
        """Keep the way to a node."""
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self.path.pop()
        super().on_leave(original_node)

    def _create_mutations(self, node: cst.CSTNode) -> None:
        super()._create_mutations(node)
        while len(self.places) < len(self.mutations):
            place = self.get_metadata(PositionProvider, node)
            assert isinstance(place, CodeRange)
            self.places.append((".".join(self.path), place))

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef) and node.decorators:
            return any(_is_overload(decorator) for decorator in node.decorators)
        if isinstance(node, cst.Assign) and _is_of_types(node):
            return True
        # What an error says is wording; that there is one, and of which kind, is not.
        if isinstance(node, cst.Raise):
            return True
        if isinstance(node, cst.If) and _is_name(node.test, "TYPE_CHECKING"):
            return True
        return bool(super()._skip_node_and_children(node))


def _is_name(node: cst.BaseExpression, *names: str) -> bool:
    return isinstance(node, cst.Name) and node.value in names


def _is_of_types(node: cst.Assign) -> bool:
    """Say whether a name is given to a type, or to a variable of types: no code asks for it."""
    name, value = node.targets[0].target, node.value
    variable = isinstance(value, cst.Call) and _is_name(value.func, "TypeVar", "ParamSpec")
    return variable or (isinstance(name, cst.Name) and bool(re.match("[A-Z][a-z]", name.value)))


def _is_overload(decorator: cst.Decorator) -> bool:
    return _is_name(decorator.decorator, "overload")


def path_of(module: str) -> Path:
    """Return the file of a module: of attnlib, or of attnbook where attnlib has none of its name.

    >>> path_of("masks").as_posix(), path_of("examples").as_posix()
    ('attnlib/masks.py', 'attnbook/examples.py')
    """
    path = Path("attnlib", f"{module}.py")
    return path if path.exists() else Path("attnbook", path.name)


def changes(module: str) -> Iterator[Change]:
    """Return every change of a module."""
    text = path_of(module).read_text(encoding="utf-8")
    visitor = Everywhere()
    tree = MetadataWrapper(cst.parse_module(text)).visit(visitor)
    seen: Counter[tuple[str, ...]] = Counter()
    for mutation, (where, place) in zip(visitor.mutations, visitor.places, strict=True):
        changed = tree.deep_replace(mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, cst.Module)
        old, new = _difference(text, changed.code)
        seen[where, old, new] += 1
        number = seen[where, old, new]
        lines = place.start.line, place.end.line
        yield Change(module, where, old, new, number, *lines, changed.code)


def _difference(old: str, new: str) -> tuple[str, str]:
    lines = list(difflib.unified_diff(old.split("\n"), new.split("\n"), n=0, lineterm=""))[2:]
    parts = ("\n".join(x[1:].strip() for x in lines if x.startswith(sign)) for sign in "-+")
    gone, come = parts
    return gone, come


# -- a change in the bytecode of a running program -------------------------------------------------


def _signature(code: CodeType) -> tuple[Any, ...]:
    """Return what a code object does, without its line numbers."""
    own = (
        _signature(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c))
        for c in code.co_consts
    )
    return (
        code.co_name, code.co_code, tuple(own), code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_flags, code.co_argcount, code.co_kwonlyargcount,
        code.co_exceptiontable,
    )  # fmt: skip


def _inner(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & 0x2)  # CO_NEWLOCALS; the body of a class or module lacks it


def differing(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Pair the functions that differ, with those inside; None where it is not in functions alone.

    What runs once, when a module is imported, cannot be changed afterwards.
    """
    pairs = list(zip(_inner(old), _inner(new), strict=False))
    if _is_function(old):
        found = [(old, new)]
        if [c.co_name for c in _inner(old)] != [c.co_name for c in _inner(new)]:
            return found
    else:
        outer = (tuple(c for c in x.co_consts if not isinstance(c, CodeType)) for x in (old, new))
        left, right = map(repr, outer)
        if left != right or old.co_code != new.co_code or len(_inner(old)) != len(_inner(new)):
            return None
        found = []
    for before, after in pairs:
        if _signature(before) != _signature(after):
            inside = differing(before, after)
            if inside is None:
                return None
            found += inside
    return found


class Functions:
    """The functions of attnlib and attnbook that live in this process, by their code."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        folders = str(Path("attnlib").resolve()), str(Path("attnbook").resolve())
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename.startswith(folders):
                code = thing.__code__
                place = code.co_filename, code.co_qualname, code.co_firstlineno
                self.found[place].append(thing)

    def change(self, change: Change) -> bool:
        """Make the change here and now, if it is one of functions alone."""
        path = path_of(change.module).resolve()
        before = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        pairs = differing(before, compile(change.source, str(path), "exec"))
        if not pairs:
            return self._change_defaults(str(path), change.source)
        reached = 0
        for old, new in pairs:
            for function in self.found[str(path), old.co_qualname, old.co_firstlineno]:
                if old.co_freevars != new.co_freevars:
                    return False
                function.__code__ = new
                reached += 1
        return reached > 0

    def _change_defaults(self, path: str, source: str) -> bool:
        """Change what a function takes where nothing is given, if that is all there is to change.

        It is no part of the function's code: the module evaluates it, once.
        """
        old, new = ast.parse(Path(path).read_text(encoding="utf-8")), ast.parse(source)
        reached = 0
        for before, after in zip(_definitions(old), _definitions(new), strict=True):
            if ast.dump(before) == ast.dump(after):
                continue
            first = min([before.lineno, *(node.lineno for node in before.decorator_list)])
            place = path, before.name, first
            for (file, name, line), functions in self.found.items():
                if (file, name.rpartition(".")[2], line) == place:
                    for function in functions:
                        _set_defaults(function, after.args)
                        reached += 1
            before.args = after.args
        return reached > 0 and ast.dump(old) == ast.dump(new)


def _definitions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _set_defaults(function: FunctionType, given: ast.arguments) -> None:
    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "", "eval"), function.__globals__)

    function.__defaults__ = tuple(map(value, given.defaults)) or None
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    function.__kwdefaults__ = {name.arg: value(node) for name, node in pairs if node is not None}

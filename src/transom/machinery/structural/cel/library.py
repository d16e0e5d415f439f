"""The CEL library behind one door: environments, compiled expressions, and its errors in Kubernetes' words."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from transom.machinery.structural.cel.functions import FUNCTIONS
from transom.machinery.structural.cel.values import CelType

_OLD_VALUE, _OLD_THERE = "transom_old_self", "transom_has_old_self"
_OPTIONAL_OLD = f"({_OLD_THERE} ? optional.of({_OLD_VALUE}) : optional.none())"
_strings = re.compile(r"""[rRbB]*("{3}.*?"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL)
_old_self = re.compile(r"\boldSelf\b")
# What an evaluation may fail with, and how Kubernetes says it.
_FAILURES = (
    (re.compile(r'Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"No matching overloads? found.*"), "no such overload"),
    (re.compile(r"Index error: index=(-?\d+).*"), r"index out of bounds: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"modulus by zero"), "modulus by zero"),
)


class CompileError(Exception):
    pass


class EvalError(Exception):
    pass


def _type(of: CelType) -> Any:
    from cel_expr_python import cel

    if isinstance(of, str):
        return getattr(cel.Type, of)
    kind, inner = of
    return cel.Type.List(_type(inner)) if kind == "List" else cel.Type.Map(cel.Type.STRING, _type(inner))


@cache
def _functions() -> list[Any]:
    from cel_expr_python import cel

    by_name: dict[str, list[Any]] = {}
    for i, f in enumerate(FUNCTIONS):
        parameters = [getattr(cel.Type, p) for p in f.parameters]
        overload = cel.Overload(f"kubernetes_{f.name}_{i}", getattr(cel.Type, f.result), parameters, f.method, f.run)
        by_name.setdefault(f.name, []).append(overload)
    return [cel.FunctionDecl(name, overloads) for name, overloads in by_name.items()]


@cache
def _environment(self_type: CelType, optional_old: bool) -> Any:
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

    kind = _type(self_type)
    variables = {"self": kind}
    variables |= {_OLD_VALUE: kind, _OLD_THERE: cel.Type.BOOL} if optional_old else {"oldSelf": kind}
    extensions = [
        ext_strings.ExtStrings(2), ext_optional.ExtOptional(1), ext_math.ExtMath(), ext_encoders.ExtEncoders(),
        ext_bindings.ExtBindings(), cel.CelExtension("kubernetes", _functions()),
    ]
    return cel.NewEnv(variables=variables, extensions=extensions)


def uses_old_self(text: str) -> bool:
    return bool(_old_self.search(_strings.sub('""', text)))


def _with_optional_old(text: str) -> str:
    """The expression with `oldSelf` as an optional value, which cannot be handed in as such."""
    out, at = [], 0
    for literal in _strings.finditer(text):
        out += [_old_self.sub(_OPTIONAL_OLD, text[at : literal.start()]), literal[0]]
        at = literal.end()
    return "".join([*out, _old_self.sub(_OPTIONAL_OLD, text[at:])])


class Expression:
    """One compiled expression about `self` and perhaps `oldSelf`."""

    __slots__ = ("_optional", "_program", "result", "uses_old")

    def __init__(self, text: str, self_type: CelType, *, optional_old: bool = False) -> None:
        self.uses_old = uses_old_self(text)
        self._optional = optional_old and self.uses_old
        try:
            self._program = _environment(self_type, self._optional).compile(
                _with_optional_old(text) if self._optional else text
            )
        except Exception as problem:  # the library raises RuntimeError with a status in its text
            raise CompileError(_compile_text(str(problem))) from None
        self.result: str = self._program.return_type().name()

    def run(self, value: Any, old: Any) -> Any:
        data: dict[str, Any] = {"self": value}
        if self._optional:
            data |= {_OLD_VALUE: value if old is None else old, _OLD_THERE: old is not None}
        elif self.uses_old:
            data["oldSelf"] = old
        answer = self._program.eval(data=data)
        if answer.type().name() == "ERROR":
            raise EvalError(_failure_text(str(answer.value())))
        return answer.plain_value()


def _compile_text(text: str) -> str:
    return re.sub(r"^[A-Z_]+: ", "", re.sub(r" \[[A-Z_]+\]$", "", text))


def _failure_text(text: str) -> str:
    text = re.sub(r"^[A-Z_]+: ", "", text)
    for pattern, said in _FAILURES:
        found = pattern.search(text)
        if found is not None:
            return found.expand(said)
    return text

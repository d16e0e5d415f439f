"""awk, as far as one-liners go: patterns, print and printf, fields, variables, if, for, arrays and
the usual functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from typing import Any

from transom.userland.limits import MAX_ARGUMENTS, MAX_INPUT, bounded, check_size
from transom.userland.posix.commands.awk_parser import AwkFault, Node, parse_program
from transom.userland.posix.commands.basic import format_printf
from transom.userland.posix.commands.expressions import extended_expression
from transom.userland.posix.commands.text import read_inputs
from transom.userland.posix.escapes import unescape
from transom.userland.preemption import check_slice
from transom.userland.process import Command, Exit, Process
from transom.userland.regex import compile_pattern


class _Next(Exception):
    pass


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def _text(value: Any) -> str:
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        return str(int(value)) if value == int(value) and abs(value) < 1e16 else f"{value:.6g}"
    return "" if value is None else str(value)


def _number(value: Any) -> float:
    if isinstance(value, float):
        return value
    match = re.match(r"\s*[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+)", _text(value))
    return float(match[0]) if match else 0.0


def _looks_numeric(value: Any) -> bool:
    return (
        isinstance(value, float)
        or value is None
        or re.fullmatch(r"\s*[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+)\s*", value) is not None
    )


def _truth(value: Any) -> bool:
    if isinstance(value, float):
        return value != 0
    if isinstance(value, _Field) and _looks_numeric(str(value)):
        return _number(value) != 0
    return bool(value)


class _Field(str):
    """Text from the input, which is a number if it looks like one."""

    __slots__ = ()


class _Machine:
    def __init__(self, process: Process) -> None:
        self.process = process
        self.variables: dict[str, Any] = {
            "FS": " ",
            "OFS": " ",
            "ORS": "\n",
            "NR": 0.0,
            "NF": 0.0,
            "RS": "\n",
            "SUBSEP": "\x1c",
        }
        self.arrays: dict[str, dict[str, Any]] = {
            "ENVIRON": {k: _Field(v) for k, v in process.env.items()}
        }
        self.record = ""
        self.fields: list[str] = []
        self.complain = process.complain

    def set_record(self, text: str) -> None:
        self.record = text
        separator = _text(self.variables["FS"])
        check_slice()
        if separator == " ":
            self.fields = text.split()
        elif not separator:
            self.fields = list(bounded(text, MAX_ARGUMENTS))
        elif len(separator) == 1 and separator not in "|.*+?^$":
            check_size(text.count(separator), MAX_ARGUMENTS)
            self.fields = text.split(separator) if text else []
        else:
            self.fields = (
                compile_pattern(
                    re.escape(separator) if len(separator) == 1 else extended_expression(separator)
                ).split(text)
                if text
                else []
            )
        self.variables["NF"] = float(len(self.fields))

    def field(self, index: int) -> str:
        if index == 0:
            return _Field(self.record)
        return _Field(self.fields[index - 1]) if 0 < index <= len(self.fields) else ""

    def set_field(self, index: int, value: str) -> None:
        if index == 0:
            self.set_record(value)
            return
        check_size(index)
        while len(self.fields) < index:
            self.fields.append("")
        self.fields[index - 1] = value
        self.variables["NF"] = float(len(self.fields))
        self.record = _text(self.variables["OFS"]).join(self.fields)

    # Expressions
    def value(self, node: Node) -> Any:
        return _VALUE[node[0]](self, node)

    def assign(self, target: Node, value: Any) -> Any:
        if target[0] == "name":
            self.variables[target[1]] = value
            if target[1] == "NF":
                check_size(_number(value))
                self.fields = (self.fields + [""] * int(_number(value)))[: int(_number(value))]
                self.record = _text(self.variables["OFS"]).join(self.fields)
        elif target[0] == "field":
            self.set_field(int(_number(self.value(target[1]))), _text(value))
        else:
            array = bounded(self.arrays.setdefault(target[1], {}), MAX_ARGUMENTS)
            array[self.subscript(target[2])] = value
        return value

    def subscript(self, nodes: list[Node]) -> str:
        return _text(self.variables["SUBSEP"]).join(_text(self.value(node)) for node in nodes)

    def compare(self, node: Node) -> float:
        left, right = self.value(node[2]), self.value(node[3])
        numeric = all(isinstance(side, float | _Field) or side is None for side in (left, right))
        if numeric and _looks_numeric(left) and _looks_numeric(right):
            a: Any = _number(left)
            b: Any = _number(right)
        else:
            a, b = _text(left), _text(right)
        return float(_COMPARE[node[1]](a, b))

    def matches(self, node: Node, text: str) -> bool:
        pattern = node[1] if node[0] == "regex" else extended_expression(_text(self.value(node)))
        return compile_pattern(pattern).search(text) is not None

    # Statements
    async def run(self, nodes: list[Node]) -> None:
        for node in nodes:
            control = _CONTROL.get(node[0])
            if control is not None:
                await control(self, node)
            else:
                _RUN[node[0]](self, node)

    def print(self, node: Node) -> None:
        values = [self.value(argument) for argument in node[1]]
        if node[0] == "printf":
            text, _ = format_printf(
                _text(values[0]), [_text(value) for value in values[1:]], self.complain
            )
        else:
            text = (
                _text(self.variables["OFS"]).join(_text(value) for value in values)
                if values
                else self.record
            )
            text += _text(self.variables["ORS"])
        if node[2] is None:
            self.process.write(text)
        else:
            operator, target = node[2]
            path = _text(self.value(target))
            if path in ("/dev/stderr", "/dev/stdout"):
                (self.process.stderr if path.endswith("err") else self.process.stdout).write(
                    text.encode()
                )
            elif operator == ">" and path not in self.arrays.setdefault("\0open", {}):
                self.process.files.write(path, text.encode())
                self.arrays["\0open"][path] = 1.0
            else:
                self.process.files.append(path, text.encode())

    async def loop(self, node: Node) -> None:
        kind = node[0]
        if kind == "forin":
            for key in list(self.arrays.get(node[2], {})):
                self.variables[node[1]] = _Field(key)
                if not await self.once(node[3]):
                    return
            return
        if kind == "for":
            await self.run(node[1])
        first = kind == "do"
        while True:
            if not first and node[2] is not None and not _truth(self.value(node[2])):
                return
            first = False
            if not await self.once(node[4]):
                return
            await self.run(node[3])

    async def once(self, body: list[Node]) -> bool:
        await self.process.breathe()
        try:
            await self.run(body)
        except _Continue:
            return True
        except _Break:
            return False
        return True


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _arithmetic(machine: _Machine, node: Node) -> float:
    left, right = _number(machine.value(node[2])), _number(machine.value(node[3]))
    operator = node[1]
    if operator in "/%" and right == 0:
        raise AwkFault("Division by zero")
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left / right
    if operator == "%":
        return left - right * int(left / right)
    try:
        power = left**right
    except OverflowError:
        return math.inf
    return power if isinstance(power, float) else math.nan


def _change(machine: _Machine, node: Node) -> float:
    old = _number(machine.value(node[2]))
    new = old + (1 if node[1] == "++" else -1)
    machine.assign(node[2], new)
    return old if node[3] else new


def _substitute(machine: _Machine, arguments: list[Node], everywhere: bool) -> float:
    pattern = (
        arguments[0][1]
        if arguments[0][0] == "regex"
        else extended_expression(_text(machine.value(arguments[0])))
    )
    replacement = _text(machine.value(arguments[1]))
    target: Node = arguments[2] if len(arguments) > 2 else ("field", ("number", 0.0))
    template = re.sub(
        r"\\&|&",
        lambda match: "&" if match[0] == "\\&" else r"\g<0>",
        replacement.replace("\\\\", "\\"),
    )
    subject = _text(machine.value(target))
    check_size(len(subject) * (len(replacement) + 1), MAX_INPUT)
    text, count = compile_pattern(pattern).subn(template, subject, count=0 if everywhere else 1)
    if count:
        machine.assign(target, text)
    return float(count)


def _split(machine: _Machine, arguments: list[Node]) -> float:
    text = _text(machine.value(arguments[0]))
    separator = (
        machine.value(arguments[2])
        if len(arguments) > 2 and arguments[2][0] != "regex"
        else machine.variables["FS"]
    )
    if len(arguments) > 2 and arguments[2][0] == "regex":
        pieces = compile_pattern(arguments[2][1]).split(text)
    elif separator == " ":
        pieces = text.split()
    else:
        separator = _text(separator)
        check_size(text.count(separator), MAX_ARGUMENTS)
        pieces = text.split(separator) if separator else list(text)
    if not text:
        pieces = []
    bounded(pieces, MAX_ARGUMENTS)
    machine.arrays[arguments[1][1]] = {
        str(index): _Field(piece) for index, piece in enumerate(pieces, 1)
    }
    return float(len(pieces))


def _call(machine: _Machine, node: Node) -> Any:
    name, arguments = node[1], node[2]
    if name in ("sub", "gsub"):
        return _substitute(machine, arguments, name == "gsub")
    if name == "split":
        return _split(machine, arguments)
    if name == "match":
        pattern = (
            arguments[1][1]
            if arguments[1][0] == "regex"
            else extended_expression(_text(machine.value(arguments[1])))
        )
        found = compile_pattern(pattern).search(_text(machine.value(arguments[0])))
        machine.variables["RSTART"] = float(found.start() + 1) if found else 0.0
        machine.variables["RLENGTH"] = float(len(found[0])) if found else -1.0
        return machine.variables["RSTART"]
    if (
        name == "length"
        and arguments
        and arguments[0][0] == "name"
        and arguments[0][1] in machine.arrays
    ):
        return float(len(machine.arrays[arguments[0][1]]))
    values = [machine.value(argument) for argument in arguments]
    function = _FUNCTIONS.get(name)
    if function is None:
        raise AwkFault(f"function {name} never defined")
    return function(machine, values)


def _substring(machine: _Machine, values: list[Any]) -> str:
    text, start = _text(values[0]), round(_number(values[1]))
    end = start + round(_number(values[2])) if len(values) > 2 else len(text) + 1
    return text[max(0, start - 1) : max(0, end - 1)]


_FUNCTIONS: dict[str, Callable[[_Machine, list[Any]], Any]] = {
    "length": lambda machine, values: float(len(_text(values[0]) if values else machine.record)),
    "substr": _substring,
    "index": lambda machine, values: float(_text(values[0]).find(_text(values[1])) + 1),
    "toupper": lambda machine, values: _text(values[0]).upper(),
    "tolower": lambda machine, values: _text(values[0]).lower(),
    "int": lambda machine, values: float(int(_number(values[0]))),
    "sprintf": lambda machine, values: format_printf(
        _text(values[0]), [_text(v) for v in values[1:]], machine.complain
    )[0],
    "systime": lambda machine, values: float(int(machine.process.context.clock.time())),
    "rand": lambda machine, values: machine.process.context.rng.random(),
    "srand": lambda machine, values: 0.0,
    "sqrt": lambda machine, values: _number(values[0]) ** 0.5,
    "close": lambda machine, values: 0.0,
    "fflush": lambda machine, values: 0.0,
}


def _assignment(machine: _Machine, node: Node) -> Any:
    value = machine.value(node[3])
    if node[1] != "=":
        value = _arithmetic(
            machine,
            ("arithmetic", node[1][0], ("constant", machine.value(node[2])), ("constant", value)),
        )
    return machine.assign(node[2], value)


_VALUE: dict[str, Callable[[_Machine, Node], Any]] = {
    "number": lambda machine, node: node[1],
    "constant": lambda machine, node: node[1],
    "string": lambda machine, node: node[1],
    "regex": lambda machine, node: float(
        compile_pattern(node[1]).search(machine.record) is not None
    ),
    "name": lambda machine, node: machine.variables.get(node[1]),
    "field": lambda machine, node: machine.field(int(_number(machine.value(node[1])))),
    "index": lambda machine, node: machine.arrays.setdefault(node[1], {}).get(
        machine.subscript(node[2])
    ),
    "in": lambda machine, node: float(
        machine.subscript(node[1]) in machine.arrays.get(node[2], {})
    ),
    "not": lambda machine, node: float(not _truth(machine.value(node[1]))),
    "minus": lambda machine, node: -_number(machine.value(node[1])),
    "plus": lambda machine, node: _number(machine.value(node[1])),
    "and": lambda machine, node: float(
        _truth(machine.value(node[1])) and _truth(machine.value(node[2]))
    ),
    "or": lambda machine, node: float(
        _truth(machine.value(node[1])) or _truth(machine.value(node[2]))
    ),
    "choice": lambda machine, node: machine.value(
        node[2] if _truth(machine.value(node[1])) else node[3]
    ),
    "concatenate": lambda machine, node: bounded(
        _text(machine.value(node[1])) + _text(machine.value(node[2]))
    ),
    "compare": _Machine.compare,
    "match": lambda machine, node: float(
        machine.matches(node[3], _text(machine.value(node[2]))) == (node[1] == "~")
    ),
    "arithmetic": _arithmetic,
    "assign": _assignment,
    "change": _change,
    "call": _call,
}


async def _if(machine: _Machine, node: Node) -> None:
    await machine.run(node[2] if _truth(machine.value(node[1])) else node[3])


def _exit(machine: _Machine, node: Node) -> None:
    raise Exit(int(_number(machine.value(node[1]))) if node[1] is not None else 0)


def _raise(what: type[Exception]) -> Callable[[_Machine, Node], None]:
    def run(machine: _Machine, node: Node) -> None:
        raise what

    return run


def _delete(machine: _Machine, node: Node) -> None:
    if node[2] is None:
        machine.arrays.pop(node[1], None)
    else:
        machine.arrays.get(node[1], {}).pop(machine.subscript(node[2]), None)


_RUN: dict[str, Callable[[_Machine, Node], Any]] = {
    "print": _Machine.print,
    "printf": _Machine.print,
    "expression": lambda machine, node: machine.value(node[1]),
    "next": _raise(_Next),
    "break": _raise(_Break),
    "continue": _raise(_Continue),
    "exit": _exit,
    "delete": _delete,
}
_CONTROL: dict[str, Callable[[_Machine, Node], Awaitable[None]]] = {
    "if": _if,
    "while": _Machine.loop,
    "do": _Machine.loop,
    "for": _Machine.loop,
    "forin": _Machine.loop,
    "block": lambda machine, node: machine.run(node[1]),
}


async def awk(process: Process) -> int:
    arguments = process.argv[1:]
    machine = _Machine(process)
    program: str | None = None
    while arguments and arguments[0].startswith("-") and len(arguments[0]) > 1:
        option = arguments.pop(0)
        if option == "--":
            break
        value = option[2:] or (arguments.pop(0) if arguments else "")
        if option.startswith("-F"):
            machine.variables["FS"] = "\t" if value == "t" else unescape(value)
        elif option.startswith("-v"):
            name, _, text = value.partition("=")
            machine.variables[name] = _Field(unescape(text))
        elif option.startswith("-f"):
            program = process.files.text(value)
    if program is None:
        if not arguments:
            process.complain("Usage: awk [OPTIONS] [AWK_PROGRAM] [FILE]...")
            return 1
        program = arguments.pop(0)
    try:
        rules = parse_program(program)
        return await _execute(process, machine, rules, arguments)
    except AwkFault as fault:
        process.complain(f"awk: {fault}")
        return 2 if process.gnu else 1


async def _execute(
    process: Process,
    machine: _Machine,
    rules: list[tuple[Node | None, Node | None, list[Node]]],
    paths: list[str],
) -> int:
    code = 0
    try:
        for first, _, body in rules:
            if first == ("begin",):
                await machine.run(body)
        main = [rule for rule in rules if rule[0] not in (("begin",), ("end",))]
        ends = [rule for rule in rules if rule[0] == ("end",)]
        if main or ends:
            data, code = await read_inputs(process, [path for path in paths if "=" not in path])
            active: set[int] = set()
            for line in data.decode("utf-8", "surrogateescape").splitlines():
                machine.variables["NR"] += 1.0
                machine.variables["FNR"] = machine.variables["NR"]
                machine.set_record(line)
                await _one_record(machine, main, active)
                await process.breathe()
    except Exit as end:
        code = end.code
    for first, _, body in rules:
        if first == ("end",):
            await machine.run(body)
    return code


async def _one_record(
    machine: _Machine, rules: list[tuple[Node | None, Node | None, list[Node]]], active: set[int]
) -> None:
    try:
        for number, (first, last, body) in enumerate(rules):
            if first is not None and last is not None:
                if number not in active:
                    if not _truth(machine.value(first)):
                        continue
                    active.add(number)
                if _truth(machine.value(last)):
                    active.discard(number)
            elif first is not None and not _truth(machine.value(first)):
                continue
            await machine.run(body)
    except _Next:
        return


COMMANDS: dict[str, Command] = {"awk": awk, "gawk": awk, "mawk": awk}

"""Runs the commands of a script: script blocks, functions, cmdlets, programs of the container,
other scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from transom.userland.limits import MAX_INPUT, check_size
from transom.userland.posix.scripts import find_in_path
from transom.userland.powershell.exceptions import error_record
from transom.userland.powershell.execution_policy import check_script
from transom.userland.powershell.function_calls import call_function
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.session import PowerShellSession
from transom.userland.powershell.tree import (
    BoundArgument,
    CommandNode,
    NamedArgument,
    ParameterArgument,
    ParamStatement,
    PsArgument,
    SplattedArgument,
    StreamRedirect,
    ValueLiteral,
)
from transom.userland.powershell.unsupported_cmdlets import is_unsupported_cmdlet
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_items,
    to_text,
)
from transom.userland.process import Exit
from transom.userland.streams import ByteSink, BytesSource, CallSink, CollectingSink

# Windows PowerShell's functions `cd..`, `cd\` and `D:`.
_LOCATION = re.compile(r"cd(\.\.|\\)|[a-z]:", re.IGNORECASE)
_OTHER_STREAMS = ("3", "4", "5", "6")
_ONLY_POWERSHELL_7 = frozenset(("Remove-Service",))


async def run_command(
    evaluator: PowerShellSession, node: CommandNode, given: list[Any] | None
) -> None:
    """Errors in it that have no position yet get the position of the command."""
    outer = evaluator.extent
    evaluator.extent = node.extent or outer
    try:
        await _run_here(evaluator, node, given)
    except PowerShellError as error:
        unknown = error.identity == "CommandNotFoundException"
        error.extent = error.extent or (node.name_extent if unknown else None) or evaluator.extent
        raise
    finally:
        evaluator.extent = outer


async def _run_here(
    evaluator: PowerShellSession, node: CommandNode, given: list[Any] | None
) -> None:
    redirects, operator = node.redirects, node.operator
    arguments = _spread(evaluator, node.arguments)
    target = await evaluator.value(node.name)
    if redirects:
        out: list[Any] = []
        saved, streams = evaluator.emit, evaluator.streams
        quiet = [r for r in redirects if r.stream in ("2", "*")]
        errors = evaluator.process.stderr
        to_file = False
        for redirect in redirects:
            if redirect.stream in ("1", "*") and not await _is_merged(evaluator, redirect):
                to_file = True
        if to_file:
            evaluator.emit = out.append
        merging = evaluator.merging
        everything = any(r.stream == "*" for r in redirects)
        if quiet and (everything or await _is_merged(evaluator, quiet[0])):
            evaluator.merging = True
        elif quiet:
            evaluator.merging = False
            evaluator.process.stderr = await _error_sink(evaluator, quiet[0])
        evaluator.streams = {**streams, **await _other_streams(evaluator, redirects)}
        plain = CommandNode(node.name, arguments, (), operator, node.extent, node.name_extent)
        try:
            await run_command(evaluator, plain, given)
        finally:
            evaluator.streams = streams
            evaluator.emit = saved
            evaluator.merging = merging
            evaluator.process.stderr = errors
        if to_file:
            await evaluator.redirect(redirects, out)
        return
    evaluator.success = True
    if isinstance(target, ScriptBlock):
        await call_function(evaluator, "", target, arguments, given, own_scope=operator == "&")
        return
    name = evaluator.aliases.get(to_text(target).lower(), to_text(target))
    function = evaluator.functions.get(name.lower())
    if function is not None:
        await call_function(evaluator, name, function, arguments, given)
        return
    place = _LOCATION.fullmatch(name)
    if place is not None and not arguments:
        name, arguments = "Set-Location", (ValueLiteral(place[1] or name),)
    cmdlet = evaluator.cmdlets.find(name)
    if cmdlet is not None and (evaluator.core or cmdlet.name not in _ONLY_POWERSHELL_7):
        await cmdlet.call(evaluator, name, arguments, given)
        return
    if is_unsupported_cmdlet(name, node=evaluator.cmdlets.find("Get-VMSwitch") is not None):
        raise PowerShellError(
            f"The cmdlet '{name}' is not supported on simulated machines.",
            f"NotImplemented: ({name}:String) [], PSNotImplementedException",
            "NotImplemented",
            where=name,
        )
    await _native(evaluator, name, arguments, given, operator)


def _spread(
    evaluator: PowerShellSession, arguments: Sequence[PsArgument]
) -> tuple[BoundArgument, ...]:
    """Replaces splatted variables by the arguments in them."""
    out: list[BoundArgument] = []
    for argument in arguments:
        if not isinstance(argument, SplattedArgument):
            out.append(argument)
            continue
        value = evaluator.get(argument.name)
        if isinstance(value, Hashtable):
            out += [NamedArgument(to_text(key), ValueLiteral(one)) for key, one in value.items()]
        else:
            out += [ValueLiteral(one) for one in to_items(value)]
    return tuple(out)


async def _other_streams(
    evaluator: PowerShellSession, redirects: Sequence[StreamRedirect]
) -> dict[str, ByteSink | None]:
    """Where the streams 3 to 6 go: None is the output."""
    out: dict[str, ByteSink | None] = {}
    for redirect in redirects:
        for number in _OTHER_STREAMS if redirect.stream == "*" else (redirect.stream,):
            if number not in _OTHER_STREAMS:
                continue
            # All streams that go to one file arrive there in the order in which they were written.
            merged = redirect.stream == "*" or await _is_merged(evaluator, redirect)
            out[number] = None if merged else await _error_sink(evaluator, redirect)
    return out


async def _is_merged(evaluator: PowerShellSession, redirect: StreamRedirect) -> bool:
    """2>&1: errors go where the output goes."""
    return to_text(await evaluator.value(redirect.target)).startswith("&")


async def _error_sink(evaluator: PowerShellSession, redirect: StreamRedirect) -> Any:
    path = await evaluator.value(redirect.target)
    if path is None:
        return CollectingSink()
    return evaluator.process.files.sink(to_text(path), redirect.operator == ">>")


async def _native(
    evaluator: PowerShellSession,
    name: str,
    arguments: Sequence[BoundArgument],
    given: list[Any] | None,
    operator: str,
) -> None:
    argv: list[str] = []
    for argument in arguments:
        if isinstance(argument, ParameterArgument):
            argv.append("-" + argument.name)
        elif isinstance(argument, NamedArgument):
            argv.append(f"-{argument.name}:{to_text(await evaluator.value(argument.value))}")
        else:
            value = await evaluator.value(argument)
            argv.extend(to_text(item) for item in (value if isinstance(value, list) else [value]))
    process = evaluator.process
    path = name if not name.startswith((".\\", "./")) else process.files.absolute(name)
    if path.lower().endswith(".ps1"):
        await _script_file(evaluator, path, argv, operator)
        return
    try:
        if process.windows:
            body = process.find_command(path)
        else:
            body = find_in_path(process, path, process.env.get("PATH"))
    except OSError:
        raise PowerShellError(
            f"The term '{name}' is not recognized as the name of a cmdlet, function, script "
            "file, or operable program. Check the spelling of the name, or if a path was included, "
            "verify that the path is correct and try again.",
            f"ObjectNotFound: ({name}:String) [], CommandNotFoundException",
            "CommandNotFoundException",
            where=operator or name,
        ) from None
    evaluator.flush()
    child = process.child([name, *argv])
    child.env = evaluator.env.plain()
    if given is not None:
        child.stdin = BytesSource(
            "".join(to_text(item) + "\r\n" for item in given).encode("utf-8", "surrogateescape")
        )
    output = _NativeOutput()
    captured = evaluator.emit != evaluator.show
    if captured:
        child.stdout = CallSink(output.write)
    if evaluator.merging and captured:
        child.stderr = CallSink(output.write_error)
    elif evaluator.merging:
        child.stderr = child.stdout
    try:
        evaluator.last_exit = await child.run(body)
    finally:
        child.ended()
    evaluator.success = evaluator.last_exit == 0
    first = True
    for is_error, line in output.lines():
        if is_error:
            evaluator.emit(_native_error(evaluator, name, line, first))
            first = False
        else:
            evaluator.emit(line)


class _NativeOutput:
    """What a program writes, in lines, with those of its standard error where they were written."""

    def __init__(self) -> None:
        self._parts: list[tuple[bool, bytearray]] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._add(False, data)

    def write_error(self, data: bytes) -> None:
        self._add(True, data)

    def _add(self, is_error: bool, data: bytes) -> None:
        self._size += len(data)
        check_size(self._size, MAX_INPUT)
        if not self._parts or self._parts[-1][0] != is_error:
            self._parts.append((is_error, bytearray()))
        self._parts[-1][1].extend(data)

    def lines(self) -> Iterator[tuple[bool, str]]:
        for is_error, data in self._parts:
            shown = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
            for line in shown.removesuffix("\n").split("\n") if shown else []:
                yield is_error, line


def _native_error(evaluator: PowerShellSession, name: str, line: str, first: bool) -> PsObject:
    """A line of a program's standard error after 2>&1."""
    error = PowerShellError(
        line,
        f"NotSpecified: ({line}:String) [], RemoteException",
        "NativeCommandError" if first else "NativeCommandErrorMessage",
        where=name if first else "",
    )
    error.extent = evaluator.extent
    return error_record(error)


async def _script_file(
    evaluator: PowerShellSession, path: str, argv: list[str], operator: str
) -> None:
    """`.`: its definitions are visible to its caller."""
    dotted = operator == "."
    path = evaluator.process.files.absolute(path)
    try:
        source = evaluator.process.files.text(path)
    except OSError:
        raise PowerShellError(
            f"The term '{path}' is not recognized as the name of a cmdlet, function, script "
            "file, or operable program. Check the spelling of the name, or if a path was included, "
            "verify that the path is correct and try again.",
            f"ObjectNotFound: ({path}:String) [], CommandNotFoundException",
            "CommandNotFoundException",
            where=operator or path,
        ) from None
    check_script(evaluator, path)
    node = parse_powershell(source, evaluator.core)
    first = node.statements[0] if node.statements else None
    parameters = first.parameters if isinstance(first, ParamStatement) else ()
    body = node.rest() if parameters else node
    named: dict[str, Any] = {}
    rest: list[Any] = []
    waiting = ""
    for word in argv:
        if re.fullmatch(r"-[A-Za-z]\w*", word):
            waiting = word[1:]
            named[waiting] = True
        elif waiting:
            named[waiting], waiting = word, ""
        else:
            rest.append(word)
    place = {"psscriptroot": evaluator.process.files.parent(path), "pscommandpath": path}
    before = {name: evaluator.scopes[-1].get(name) for name in place}
    try:
        if dotted and not parameters:
            evaluator.scopes[-1] |= place
            await evaluator.call_block(ScriptBlock((), body), rest)
        else:
            await evaluator.call_block(
                ScriptBlock(parameters, body), rest, None, named, own_scope=True, variables=place
            )
    except Exit as end:  # ends the script, not its caller
        evaluator.last_exit = evaluator.exited = end.code
        evaluator.success = end.code == 0
    finally:
        if dotted and not parameters:
            evaluator.scopes[-1] |= before

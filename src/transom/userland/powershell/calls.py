"""Runs the commands of a script: script blocks, functions, cmdlets, programs of the container,
other scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from transom.userland.posix.scripts import find_in_path
from transom.userland.powershell.execution_policy import check_script
from transom.userland.powershell.parameters import SWITCHES
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
    ScriptBlock,
    to_items,
    to_text,
)
from transom.userland.process import Exit
from transom.userland.streams import BytesSource, CollectingSink

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
        saved = evaluator.emit
        quiet = [r for r in redirects if r.stream in ("2", "*")]
        errors = evaluator.process.stderr
        to_file = any(r.stream in ("1", "*") for r in redirects)
        if to_file:
            evaluator.emit = out.append
        merging = evaluator.merging
        if quiet and await _is_merged(evaluator, quiet[0]):
            evaluator.merging = True
        elif quiet:
            evaluator.merging = False
            evaluator.process.stderr = await _error_sink(evaluator, quiet[0])
        try:
            await run_command(evaluator, CommandNode(node.name, arguments, (), operator), given)
        finally:
            evaluator.emit = saved
            evaluator.merging = merging
            evaluator.process.stderr = errors
        if to_file:
            await evaluator.redirect(redirects, out)
        return
    evaluator.success = True
    if isinstance(target, ScriptBlock):
        await _call_function(evaluator, "", target, arguments, given, own_scope=operator == "&")
        return
    name = evaluator.aliases.get(to_text(target).lower(), to_text(target))
    function = evaluator.functions.get(name.lower())
    if function is not None:
        await _call_function(evaluator, name, function, arguments, given)
        return
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
    await _native(evaluator, name, arguments, given, dotted=operator == ".")


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


async def _is_merged(evaluator: PowerShellSession, redirect: StreamRedirect) -> bool:
    """2>&1: errors go where the output goes."""
    return to_text(await evaluator.value(redirect.target)).startswith("&")


async def _error_sink(evaluator: PowerShellSession, redirect: StreamRedirect) -> Any:
    path = await evaluator.value(redirect.target)
    if path is None:
        return CollectingSink()
    return evaluator.process.files.sink(to_text(path), redirect.operator == ">>")


async def _call_function(
    evaluator: PowerShellSession,
    name: str,
    function: ScriptBlock,
    arguments: Sequence[BoundArgument],
    given: list[Any] | None,
    *,
    own_scope: bool = True,
) -> None:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    known = {parameter.name.lower(): parameter for parameter in function.parameters}

    def meant(written: str) -> str:
        """The parameter with this name, or with this beginning."""
        lower = written.lower()
        return (
            lower
            if lower in known
            else next((one for one in known if one.startswith(lower)), written)
        )

    waiting = ""
    for argument in arguments:
        if isinstance(argument, ParameterArgument):
            if waiting:
                named[waiting] = True
            waiting = meant(argument.name)
            if waiting in known and known[waiting].type in SWITCHES:
                named[waiting], waiting = True, ""
        elif isinstance(argument, NamedArgument):
            named[meant(argument.name)] = await evaluator.value(argument.value)
        else:
            value = await evaluator.value(argument)
            if waiting:
                named[waiting], waiting = value, ""
            else:
                positional.append(value)
    if waiting:
        named[waiting] = True
    if given is not None:
        evaluator.put("input", given)
    await evaluator.call_block(
        function,
        positional,
        given[-1] if given else None,
        named,
        own_scope=own_scope,
        items=given,
        name=name,
    )


async def _native(
    evaluator: PowerShellSession,
    name: str,
    arguments: Sequence[BoundArgument],
    given: list[Any] | None,
    *,
    dotted: bool = False,
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
        await _script_file(evaluator, path, argv, dotted)
        return
    try:
        if process.windows:
            body = process.find_command(path)
        else:
            body = find_in_path(process, path, process.env.get("PATH"))
    except OSError:
        raise PowerShellError(
            f"The term '{name}' is not recognized as the name of a cmdlet, function, script "
            "file, or operable \r\nprogram. "
            "Check the spelling of the name, or if a path was included, verify that the path "
            "is correct and try again.",
            f"ObjectNotFound: ({name}:String) [], CommandNotFoundException",
            "CommandNotFoundException",
            where=name,
        ) from None
    evaluator.flush()
    child = process.child([name, *argv])
    child.env = evaluator.env.plain()
    if given is not None:
        child.stdin = BytesSource(
            "".join(to_text(item) + "\r\n" for item in given).encode("utf-8", "surrogateescape")
        )
    collected = CollectingSink()
    captured = evaluator.emit != evaluator.show
    if captured:
        child.stdout = collected
    if evaluator.merging:
        child.stderr = child.stdout
    try:
        evaluator.last_exit = await child.run(body)
    finally:
        child.ended()
    evaluator.success = evaluator.last_exit == 0
    if captured:
        shown = collected.data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        for line in shown.removesuffix("\n").split("\n") if shown else []:
            evaluator.emit(line)


async def _script_file(
    evaluator: PowerShellSession, path: str, argv: list[str], dotted: bool
) -> None:
    """`dotted`: its definitions are visible to its caller."""
    path = evaluator.process.files.absolute(path)
    try:
        source = evaluator.process.files.text(path)
    except OSError:
        raise PowerShellError(
            f"The term '{path}' is not recognized as the name of a cmdlet, function, script "
            "file, or operable \r\nprogram. "
            "Check the spelling of the name, or if a path was included, verify that the path "
            "is correct and try again.",
            f"ObjectNotFound: ({path}:String) [], CommandNotFoundException",
            "CommandNotFoundException",
            where=path,
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

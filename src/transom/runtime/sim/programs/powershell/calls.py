"""Commands of a script: script blocks, functions, cmdlets, programs of the container, other scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transom.runtime.sim.programs.launch import find as find_linux
from transom.runtime.sim.programs.powershell.cmdlets import Call, find
from transom.runtime.sim.programs.powershell.lexer import Node
from transom.runtime.sim.programs.powershell.parser import parse
from transom.runtime.sim.programs.powershell.values import PowerShellError, ScriptBlock, text
from transom.runtime.sim.programs.process import Exit
from transom.runtime.sim.programs.streams import BytesSource, Collector

if TYPE_CHECKING:
    from transom.runtime.sim.programs.powershell.evaluator import Evaluator


async def run_command(evaluator: Evaluator, node: Node, given: list[Any] | None) -> None:
    _, name_node, arguments, redirects, operator = node
    target = await evaluator.value(name_node)
    if redirects:
        out: list[Any] = []
        saved = evaluator.emit
        quiet = [r for r in redirects if r[1] in ("2", "*")]
        errors = evaluator.process.stderr
        to_file = any(r[1] in ("1", "*") for r in redirects)
        if to_file:
            evaluator.emit = out.append
        if quiet:
            evaluator.process.stderr = await _error_sink(evaluator, quiet[0])
        try:
            await run_command(evaluator, (node[0], name_node, arguments, (), operator), given)
        finally:
            evaluator.emit = saved
            evaluator.process.stderr = errors
        if to_file:
            await evaluator.redirect(redirects, out)
        return
    evaluator.success = True
    positional: list[Any] = []
    if isinstance(target, ScriptBlock):
        for argument in arguments:
            if argument[0] not in ("parameter", "named"):
                positional.append(await evaluator.value(argument))
        await evaluator.call_block(target, positional, own_scope=operator == "&")
        return
    name = text(target)
    function = evaluator.functions.get(name.lower())
    if function is not None:
        await _call_function(evaluator, function, arguments, given)
        return
    cmdlet = find(name, machine=evaluator.process.context.machine is not None)
    if cmdlet is not None:
        call = Call(evaluator, cmdlet, name, given)
        await call.bind(arguments)
        await call.run()
        return
    await _native(evaluator, name, arguments, given)


async def _error_sink(evaluator: Evaluator, redirect: Node) -> Any:
    path = await evaluator.value(redirect[3])
    if path is None:
        return Collector()
    if text(path).startswith("&"):
        return evaluator.process.stdout
    return evaluator.process.files.sink(text(path), redirect[2] == ">>")


async def _call_function(
    evaluator: Evaluator, function: ScriptBlock, arguments: Sequence[Node], given: list[Any] | None
) -> None:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    waiting = ""
    for argument in arguments:
        if argument[0] == "parameter":
            if waiting:
                named[waiting] = True
            waiting = argument[1]
        elif argument[0] == "named":
            named[argument[1]] = await evaluator.value(argument[2])
        else:
            value = await evaluator.value(argument)
            if waiting:
                named[waiting], waiting = value, ""
            else:
                positional.append(value)
    if waiting:
        named[waiting] = True
    known = [name for name, _ in function.parameters]
    full = {next((name for name in known if name.lower().startswith(key.lower())), key): value for key, value in named.items()}
    if given is not None:
        evaluator.put("input", given)
    await evaluator.call_block(function, positional, given[-1] if given else None, full, own_scope=True)


async def _native(evaluator: Evaluator, name: str, arguments: Sequence[Node], given: list[Any] | None) -> None:
    from transom.runtime.sim.programs.win import launch

    argv: list[str] = []
    for argument in arguments:
        if argument[0] == "parameter":
            argv.append("-" + argument[1])
        elif argument[0] == "named":
            argv.append(f"-{argument[1]}:{text(await evaluator.value(argument[2]))}")
        else:
            value = await evaluator.value(argument)
            argv.extend(text(item) for item in (value if isinstance(value, list) else [value]))
    process = evaluator.process
    path = name if not name.startswith((".\\", "./")) else process.files.absolute(name)
    if path.lower().endswith(".ps1"):
        await _script_file(evaluator, path, argv)
        return
    try:
        if process.windows:
            body = launch.find(process.context, path, process.cwd)
        else:
            body = find_linux(process, path, process.env.get("PATH"))
    except OSError:
        raise PowerShellError(
            f"The term '{name}' is not recognized as the name of a cmdlet, function, script file, or operable \r\nprogram. "
            "Check the spelling of the name, or if a path was included, verify that the path is correct and try again.",
            f"ObjectNotFound: ({name}:String) [], CommandNotFoundException", "CommandNotFoundException", where=name,
        ) from None  # fmt: skip
    evaluator.flush()
    child = process.child([name, *argv])
    child.env = evaluator.env.plain()
    if given is not None:
        child.stdin = BytesSource("".join(text(item) + "\r\n" for item in given).encode("utf-8", "surrogateescape"))
    collected = Collector()
    captured = evaluator.emit != evaluator.show
    if captured:
        child.stdout = collected
    try:
        evaluator.last_exit = await child.run(body)
    finally:
        child.ended()
    evaluator.success = evaluator.last_exit == 0
    if captured:
        shown = collected.data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        for line in shown.removesuffix("\n").split("\n") if shown else []:
            evaluator.emit(line)


async def _script_file(evaluator: Evaluator, path: str, argv: list[str]) -> None:
    try:
        source = evaluator.process.files.text(path)
    except OSError:
        raise PowerShellError(
            f"The term '{path}' is not recognized as the name of a cmdlet, function, script file, or operable \r\nprogram. "
            "Check the spelling of the name, or if a path was included, verify that the path is correct and try again.",
            f"ObjectNotFound: ({path}:String) [], CommandNotFoundException", "CommandNotFoundException", where=path,
        ) from None  # fmt: skip
    node = parse(source)
    first = node[1][0] if node[1] else None
    parameters = first[1] if first is not None and first[0] == "param" else ()
    body = ("block", node[1][1:]) if parameters else node
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
    try:
        await evaluator.call_block(ScriptBlock(parameters, body), rest, None, named, own_scope=True)
    except Exit as end:  # of the script, not of whoever called it
        evaluator.last_exit = evaluator.exited = end.code
        evaluator.success = end.code == 0

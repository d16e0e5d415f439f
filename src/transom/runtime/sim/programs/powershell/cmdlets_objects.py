"""Cmdlets over whatever comes along a pipeline: Where, ForEach, Select, Sort, Measure and their like."""

from __future__ import annotations

import inspect
from functools import cmp_to_key
from typing import Any

from transom.runtime.sim.programs.powershell import members
from transom.runtime.sim.programs.powershell.cmdlets import Call, row
from transom.runtime.sim.programs.powershell.formatting import property_of
from transom.runtime.sim.programs.powershell.operators import OPERATORS, expression
from transom.runtime.sim.programs.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    items,
    number,
    text,
    truth,
    unrolled,
)


def _objects(call: Call) -> list[Any]:
    return call.input if call.input is not None else items(call.get("InputObject"))


async def _for_each(call: Call) -> None:
    target = call.get("Process")
    blocks = [block for block in items(target) if isinstance(block, ScriptBlock)]
    begin, end = call.get("Begin"), call.get("End")
    if isinstance(begin, ScriptBlock):
        await call.each(begin, None)
    for item in _objects(call):
        await call.process.breathe()
        if blocks:
            for block in blocks:
                await call.each(block, item)
        else:
            value = members.property_of(call.evaluator, item, text(target))
            if value is None and text(target):
                value = members.call(call.evaluator, item, text(target), [])
            call.emit(value)
    if isinstance(end, ScriptBlock):
        await call.each(end, None)


_ORDERED = ("EQ", "NE", "GT", "GE", "LT", "LE", "Like", "NotLike", "Match", "NotMatch", "Contains", "In", "NotIn")
_COMPARISONS = (*_ORDERED, "Is")
_ANY_CASE = {f"I{name}": name for name in _ORDERED}


async def _where(call: Call) -> None:
    block = call.get("FilterScript")
    for item in _objects(call):
        if isinstance(block, ScriptBlock):
            hit = truth(unrolled(await call.evaluator.invoke(block, [], item)))
        else:
            value = members.property_of(call.evaluator, item, text(block))
            given = next((name for name in (*_COMPARISONS, *_ANY_CASE) if call.has(name)), "")
            operator = _ANY_CASE.get(given, given)  # comparisons do not mind case in any case
            if not operator:
                hit = truth(value)
            elif operator == "Match":
                hit = expression(call.text(given)).search(text(value)) is not None
            else:
                hit = truth(OPERATORS[f"-{operator.lower()}"](value, call.get(given)))
        if hit:
            call.emit(item)


async def computed(call: Call, item: Any, wanted: Any) -> tuple[str, Any]:
    """A property by its name, or by a table with a name and an expression."""
    if isinstance(wanted, Hashtable):
        name = text(wanted.find("Name") or wanted.find("N") or wanted.find("Label") or wanted.find("L"))
        source = wanted.find("Expression") or wanted.find("E")
        if isinstance(source, ScriptBlock):
            return name, unrolled(await call.evaluator.invoke(source, [], item))
        return name or text(source), property_of(item, text(source))
    return text(wanted), members.property_of(call.evaluator, item, text(wanted))


async def _select(call: Call) -> None:
    values = list(_objects(call))
    if call.has("Unique"):
        values = list({text(value): value for value in reversed(values)}.values())[::-1]
    if call.has("Skip"):
        values = values[int(number(call.get("Skip"))) :]
    if call.has("First"):
        values = values[: int(number(call.get("First")))]
    if call.has("Last"):
        count = int(number(call.get("Last")))
        values = values[-count:] if count else []
    if call.has("Index"):
        values = [values[int(number(index))] for index in items(call.get("Index"))]
    expand = call.text("ExpandProperty")
    wanted = items(call.get("Property"))
    for value in values:
        if expand:
            for inner in items(members.property_of(call.evaluator, value, expand)):
                call.emit(inner)
        elif wanted and wanted != ["*"]:
            pairs = [await computed(call, value, one) for one in wanted]
            call.emit(PsObject("Selected.System.Management.Automation.PSCustomObject", dict(pairs)))
        else:
            call.emit(value)


async def _sort(call: Call) -> None:
    values = list(_objects(call))
    wanted = items(call.get("Property"))
    keyed: list[tuple[list[Any], Any]] = []
    for value in values:
        keys = [
            (await computed(call, value, one))[1]
            if not isinstance(one, ScriptBlock)
            else unrolled(await call.evaluator.invoke(one, [], value))
            for one in wanted
        ]
        keyed.append((keys or [value], value))

    def compare(left: tuple[list[Any], Any], right: tuple[list[Any], Any]) -> int:
        for a, b in zip(left[0], right[0], strict=True):
            if truth(OPERATORS["-lt"](a, b)):
                return -1
            if truth(OPERATORS["-gt"](a, b)):
                return 1
        return 0

    keyed.sort(key=cmp_to_key(compare), reverse=call.has("Descending"))
    last: Any = None
    for keys, value in keyed:
        if call.has("Unique") and last is not None and truth(OPERATORS["-eq"](keys[0], last)):
            continue
        last = keys[0]
        call.emit(value)


def _measure(call: Call) -> None:
    values = list(_objects(call))
    name = call.text("Property")
    if call.has("Line"):
        lines = sum(text(value).count("\n") + 1 for value in values)
        call.emit(
            PsObject(
                "Microsoft.PowerShell.Commands.TextMeasureInfo",
                {"Lines": lines, "Words": None, "Characters": None, "Property": None},
            )
        )
        return
    picked = [property_of(value, name) if name else value for value in values]
    numbers = [
        number(value)
        for value in picked
        if isinstance(value, int | float | str) and text(value).replace(".", "").lstrip("-").isdigit()
    ]
    result: dict[str, Any] = {
        "Count": len(picked),
        "Average": None,
        "Sum": None,
        "Maximum": None,
        "Minimum": None,
        "Property": name or None,
    }
    if numbers:
        if call.has("Sum"):
            result["Sum"] = sum(numbers)
        if call.has("Average"):
            result["Average"] = sum(numbers) / len(numbers)
        if call.has("Maximum"):
            result["Maximum"] = max(numbers)
        if call.has("Minimum"):
            result["Minimum"] = min(numbers)
    call.emit(PsObject("Microsoft.PowerShell.Commands.GenericMeasureInfo", result))


async def _group(call: Call) -> None:
    groups: dict[str, list[Any]] = {}
    for value in _objects(call):
        key = (await computed(call, value, items(call.get("Property"))[0]))[1] if call.has("Property") else value
        groups.setdefault(text(key), []).append(value)
    for name, members_ in groups.items():
        call.emit(
            PsObject("Microsoft.PowerShell.Commands.GroupInfo", {"Count": len(members_), "Name": name, "Group": members_})
        )


def _select_string(call: Call) -> None:
    patterns = [text(one) for one in items(call.get("Pattern"))]
    simple = call.has("SimpleMatch")
    sources: list[tuple[str, list[str]]] = []
    if call.has("Path"):
        for path in items(call.get("Path")):
            sources.append(
                (text(path), call.process.files.text(text(path)).replace("\r\n", "\n").removesuffix("\n").split("\n"))
            )
    else:
        sources.append(
            ("InputStream", [line for value in _objects(call) for line in text(value).replace("\r\n", "\n").split("\n")])
        )
    for path, found in sources:
        for index, line in enumerate(found, 1):
            hit = any((one.lower() in line.lower()) if simple else expression(one).search(line) for one in patterns)
            if hit != call.has("NotMatch"):
                if call.has("Quiet"):
                    call.emit(True)
                    return
                call.emit(line if path == "InputStream" else f"{path}:{index}:{line}")
    if call.has("Quiet"):
        call.emit(False)


async def _new_object(call: Call) -> None:
    arguments = items(call.get("ArgumentList"))
    made = members.create(call.evaluator, call.text("TypeName"), arguments)
    made = await made if inspect.isawaitable(made) else made
    properties = call.get("Property")
    if isinstance(made, PsObject) and isinstance(properties, Hashtable):
        made.properties.update({text(key): value for key, value in properties.items()})
    call.emit(made)


def _add_member(call: Call) -> None:
    for value in _objects(call):
        name, content = call.text("Name"), call.get("Value")
        if isinstance(value, PsObject):
            value.properties[name] = content
        if call.has("PassThru"):
            call.emit(value)


def _get_member(call: Call) -> None:
    for value in _objects(call)[:1]:
        names = value.properties if isinstance(value, PsObject) else {}
        for name in names:
            call.emit(
                PsObject(
                    "Microsoft.PowerShell.Commands.MemberDefinition",
                    {"Name": name, "MemberType": "Property", "Definition": f"{name} {{get;set;}}"},
                )
            )


async def _invoke_expression(call: Call) -> None:
    from transom.runtime.sim.programs.powershell.parser import parse

    source = call.text("Command", text(call.input[0]) if call.input else "")
    await call.evaluator.block(parse(source))


async def _invoke_command(call: Call) -> None:
    block = call.get("ScriptBlock")
    if not isinstance(block, ScriptBlock):
        raise PowerShellError("Cannot evaluate parameter 'ScriptBlock'.")
    await call.evaluator.call_block(block, items(call.get("ArgumentList")), own_scope=True)


async def _measure_command(call: Call) -> None:
    from transom.runtime.sim.programs.powershell.operators import time_span

    clock = call.process.context.clock
    start = clock.monotonic()
    block = call.get("Expression")
    if isinstance(block, ScriptBlock):
        await call.evaluator.invoke(block, [])
    call.emit(time_span(clock.monotonic() - start))


def _get_random(call: Call) -> None:
    rng = call.process.context.rng
    pool = _objects(call)
    if pool:
        count = int(number(call.get("Count", 1)))
        for value in rng.sample(pool, min(count, len(pool))):
            call.emit(value)
        return
    low, high = int(number(call.get("Minimum", 0))), int(number(call.get("Maximum", 2147483647)))
    call.emit(rng.randrange(low, high))


def _set_variable(call: Call) -> None:
    call.evaluator.put(call.text("Name"), call.get("Value"))


def _get_variable(call: Call) -> None:
    value = call.evaluator.get(call.text("Name"))
    call.emit(
        value
        if call.has("ValueOnly")
        else PsObject("System.Management.Automation.PSVariable", {"Name": call.text("Name"), "Value": value})
    )


def _compare_object(call: Call) -> None:
    left, right = items(call.get("ReferenceObject")), items(call.get("DifferenceObject"))
    for value in right:
        if value not in left:
            call.emit(PsObject("System.Management.Automation.PSCustomObject", {"InputObject": value, "SideIndicator": "=>"}))
    for value in left:
        if value not in right:
            call.emit(PsObject("System.Management.Automation.PSCustomObject", {"InputObject": value, "SideIndicator": "<="}))


CMDLETS = (
    row("ForEach-Object", _for_each, "Process*", "Parallel", "Begin End InputObject"),
    row("Where-Object", _where, "FilterScript", "", " ".join((*_COMPARISONS, *_ANY_CASE)) + " InputObject"),
    row("Select-Object", _select, "Property*", "Unique", "First Last Skip ExpandProperty Index InputObject"),
    row("Sort-Object", _sort, "Property*", "Descending Unique", "InputObject"),
    row("Measure-Object", _measure, "Property", "Sum Average Maximum Minimum Line Word Character", "InputObject"),
    row("Group-Object", _group, "Property*", "NoElement", "InputObject"),
    row("Select-String", _select_string, "Pattern Path", "SimpleMatch Quiet NotMatch CaseSensitive AllMatches", "InputObject"),
    row("New-Object", _new_object, "TypeName ArgumentList*", "", "Property ComObject"),
    row("Add-Member", _add_member, "MemberType Name Value", "PassThru Force", "InputObject NotePropertyName NotePropertyValue"),
    row("Get-Member", _get_member, "Name", "Static Force", "InputObject MemberType"),
    row("Invoke-Expression", _invoke_expression, "Command"),
    row("Invoke-Command", _invoke_command, "ScriptBlock", "", "ArgumentList ComputerName"),
    row("Measure-Command", _measure_command, "Expression"),
    row("Get-Random", _get_random, "Maximum", "", "Minimum Count InputObject"),
    row("Set-Variable", _set_variable, "Name Value", "", "Scope Option"),
    row("New-Variable", _set_variable, "Name Value", "", "Scope Option"),
    row("Get-Variable", _get_variable, "Name", "ValueOnly"),
    row("Compare-Object", _compare_object, "ReferenceObject DifferenceObject"),
)

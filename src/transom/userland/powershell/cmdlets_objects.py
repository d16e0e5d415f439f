"""Cmdlets for pipelines: Where-Object, ForEach-Object, Select-Object, Sort-Object, Measure-Object
and others.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any, Final

from transom.userland.limits import MAX_SORTED, bounded, check_size
from transom.userland.powershell import members, statics
from transom.userland.powershell.automatic import AUTOMATIC
from transom.userland.powershell.classes import defined_method
from transom.userland.powershell.cmdlets import CmdletCall, cmdlet_row
from transom.userland.powershell.cmdlets_files import expand_wildcards
from transom.userland.powershell.formatting import property_text
from transom.userland.powershell.new_object import create_powershell_object
from transom.userland.powershell.operators import OPERATORS, expression, matches_wildcard, time_span
from transom.userland.powershell.parser import parse_powershell
from transom.userland.powershell.selecting import computed, selected
from transom.userland.powershell.values import (
    Hashtable,
    PowerShellError,
    PsObject,
    ScriptBlock,
    to_bool,
    to_items,
    to_number,
    to_text,
    unrolled,
)
from transom.userland.preemption import check_slice


async def _for_each_parallel(call: CmdletCall) -> None:
    """Only PowerShell 7 has -Parallel; 5.1 takes the word for the argument of a method."""
    block = call.get("Process")
    if not call.process.name.startswith("pwsh") or not isinstance(block, ScriptBlock):
        raise PowerShellError(
            "Parameter set cannot be resolved using the specified named parameters.",
            "MetadataError: (:) [ForEach-Object], ParameterBindingException",
            "AmbiguousParameterSet,Microsoft.PowerShell.Commands.ForEachObjectCommand",
            where="ForEach-Object",
        )
    for item in call.objects():  # in the order of the input, which PowerShell does not promise
        await call.process.breathe()
        await call.each(block, item)


async def _for_each(call: CmdletCall) -> None:
    if call.has("Parallel"):
        await _for_each_parallel(call)
        return
    target = call.get("Process", call.get("MemberName"))
    arguments = to_items(call.get("ArgumentList"))
    blocks = [block for block in to_items(target) if isinstance(block, ScriptBlock)]
    begin, end = call.get("Begin"), call.get("End")
    if len(blocks) > 1 and begin is None:  # the first of several is -Begin, a third is -End
        begin, blocks = blocks[0], blocks[1:]
        if len(blocks) > 1 and end is None:
            *blocks, end = blocks
    if isinstance(begin, ScriptBlock):
        await call.each(begin, None)
    for item in call.objects():
        await call.process.breathe()
        if blocks:
            for block in blocks:
                await call.each(block, item)
        else:
            value = members.get_property(call.evaluator, item, to_text(target))
            if (value is None or arguments) and to_text(target):
                value = defined_method(call.evaluator, item, to_text(target), arguments)
                if value is None:
                    value = members.call_method(call.evaluator, item, to_text(target), arguments)
                value = await value if inspect.isawaitable(value) else value
            call.emit(value)
    if isinstance(end, ScriptBlock):
        await call.each(end, None)


_ORDERED = (
    "EQ",
    "NE",
    "GT",
    "GE",
    "LT",
    "LE",
    "Like",
    "NotLike",
    "Match",
    "NotMatch",
    "Contains",
    "In",
    "NotIn",
)
_COMPARISONS = (*_ORDERED, "Is")
_ANY_CASE = {f"I{name}": name for name in _ORDERED}


async def _where(call: CmdletCall) -> None:
    block = call.get("FilterScript")
    for item in call.objects():
        if isinstance(block, ScriptBlock):
            hit = to_bool(unrolled(await call.evaluator.invoke(block, [], item)))
        else:
            value = members.get_property(call.evaluator, item, to_text(block))
            given = next((name for name in (*_COMPARISONS, *_ANY_CASE) if call.has(name)), "")
            operator = _ANY_CASE.get(given, given)  # comparisons ignore case anyway
            if not operator:
                hit = to_bool(value)
            elif operator == "Match":
                hit = expression(call.text(given)).search(to_text(value)) is not None
            else:
                hit = to_bool(OPERATORS[f"-{operator.lower()}"](value, call.get(given)))
        if hit:
            call.emit(item)


async def _select(call: CmdletCall) -> None:
    values = list(call.objects())
    expand = call.text("ExpandProperty")
    wanted = to_items(call.get("Property"))
    if call.has("ExcludeProperty") and not wanted:
        wanted = ["*"]
    if call.has("Unique") and not expand and not wanted:
        first: dict[str, Any] = {}
        for value in values:
            first.setdefault(to_text(value), value)
        values = list(first.values())
    if call.has("Skip"):
        values = values[int(to_number(call.get("Skip"))) :]
    if call.has("SkipLast"):
        count = int(to_number(call.get("SkipLast")))
        values = values[:-count] if count else values
    if call.has("First"):
        values = values[: int(to_number(call.get("First")))]
    if call.has("Last"):
        count = int(to_number(call.get("Last")))
        values = values[-count:] if count else []
    if call.has("Index"):
        places = [int(to_number(index)) for index in to_items(call.get("Index"))]
        values = [values[place] for place in places if -len(values) <= place < len(values)]
    seen = set[str]()
    for value in values:
        if expand:
            for inner in to_items(members.get_property(call.evaluator, value, expand)):
                if not call.has("Unique") or to_text(inner) not in seen:
                    call.emit(inner)
                seen.add(to_text(inner))
        elif wanted:
            made = await selected(call, value, wanted)
            shown = repr([to_text(one) for one in made.values()])
            if not call.has("Unique") or shown not in seen:
                call.emit(PsObject("Selected.System.Management.Automation.PSCustomObject", made))
            seen.add(shown)
        else:
            call.emit(value)


def _descending(wanted: Any, usual: bool) -> bool:
    """The direction of one sort key: a table may have its own."""
    if isinstance(wanted, Hashtable):
        if wanted.find("Descending") is not None:
            return to_bool(wanted.find("Descending"))
        if wanted.find("Ascending") is not None:
            return not to_bool(wanted.find("Ascending"))
    return usual


async def _sort(call: CmdletCall) -> None:
    values = list(bounded(call.objects(), MAX_SORTED))
    wanted = to_items(call.get("Property"))
    keyed: list[tuple[list[Any], Any]] = []
    for value in values:
        await call.process.take_turn()
        keys = [
            (await computed(call, value, one))[1]
            if not isinstance(one, ScriptBlock)
            else unrolled(await call.evaluator.invoke(one, [], value))
            for one in wanted
        ]
        keyed.append((keys or [value], value))

    strict, falling = call.has("CaseSensitive"), call.has("Descending")
    orders = [_descending(one, falling) for one in wanted] or [falling]

    def compare(left: tuple[list[Any], Any], right: tuple[list[Any], Any]) -> int:
        check_slice()
        for (a, b), down in zip(zip(left[0], right[0], strict=True), orders, strict=True):
            if down:
                a, b = b, a
            if strict and isinstance(a, str) and isinstance(b, str) and a.lower() == b.lower():
                if a != b:  # lower case comes first
                    return -1 if a.swapcase() < b.swapcase() else 1
                continue
            if to_bool(OPERATORS["-lt"](a, b)):
                return -1
            if to_bool(OPERATORS["-gt"](a, b)):
                return 1
        return 0

    keyed.sort(key=cmp_to_key(compare))
    last: Any = None
    for keys, value in keyed:
        if call.has("Unique") and last is not None and to_bool(OPERATORS["-eq"](keys[0], last)):
            continue
        last = keys[0]
        call.emit(value)


def _measure(call: CmdletCall) -> None:
    values = list(call.objects())
    name = call.text("Property")
    if any(call.has(one) for one in ("Line", "Word", "Character")):
        texts = [to_text(value) for value in values]
        counts = {
            "Lines": sum(text.count("\n") + 1 for text in texts) if call.has("Line") else None,
            "Words": sum(len(text.split()) for text in texts) if call.has("Word") else None,
            "Characters": sum(map(len, texts)) if call.has("Character") else None,
            "Property": None,
        }
        call.emit(PsObject("Microsoft.PowerShell.Commands.TextMeasureInfo", counts))
        return
    picked = [property_text(value, name) if name else value for value in values]
    if name:
        picked = [value for value in picked if value is not None]
        if values and not picked:
            call.fail(
                f'The property "{name}" cannot be found in the input for any objects.',
                "InvalidArgument: (:) [Measure-Object], PSArgumentException",
                "GenericMeasurePropertyNotFound",
            )
            return
    numbers = [
        to_number(value)
        for value in picked
        if isinstance(value, int | float | str)
        and to_text(value).replace(".", "").lstrip("-").isdigit()
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


async def _group(call: CmdletCall) -> None:
    groups: dict[str, tuple[list[Any], list[Any]]] = {}
    properties = to_items(call.get("Property"))
    for value in call.objects():
        values = [(await computed(call, value, one))[1] for one in properties] or [value]
        name = ", ".join(to_text(one) for one in values)
        key = name if call.has("CaseSensitive") else name.lower()
        groups.setdefault(key, (values, []))[1].append(value)
    if call.has("AsHashTable"):
        table = Hashtable()
        for values, members_ in groups.values():
            as_text = call.has("AsString") or len(values) > 1
            key_ = ", ".join(map(to_text, values)) if as_text else values[0]
            table[key_] = members_
        call.emit(table)
        return
    for values, members_ in groups.values():
        call.emit(
            PsObject(
                "Microsoft.PowerShell.Commands.GroupInfo"
                + ("#NoElement" if call.has("NoElement") else ""),
                {"Count": len(members_), "Name": ", ".join(map(to_text, values))}
                | ({} if call.has("NoElement") else {"Group": members_})
                | {"Values": values},
            )
        )


def _searched(call: CmdletCall) -> list[tuple[str, list[str]]]:
    """The lines to search, by file; those of the pipeline are `InputStream`."""
    files = call.process.files
    paths = [
        path
        for given in to_items(call.get("Path"))
        for path in expand_wildcards(call, to_text(given))
    ]
    plain: list[str] = []
    for value in call.objects() if not call.has("Path") else ():
        if isinstance(value, PsObject) and value.kind == "System.IO.FileInfo":
            paths.append(to_text(value.get("FullName")))
        else:
            plain += to_text(value).replace("\r\n", "\n").split("\n")
    found: list[tuple[str, list[str]]] = [("InputStream", plain)] if plain else []
    for path in paths:
        if files.is_directory(path):
            continue
        try:
            text = files.text(path)
        except OSError:
            full = files.absolute(path)
            call.fail(
                f"Cannot find path '{full}' because it does not exist.",
                f"ObjectNotFound: ({full}:String) [Select-String], ItemNotFoundException",
                "PathNotFound",
            )
            continue
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
        found.append((files.absolute(path), lines))
    return found


def _context_lines(call: CmdletCall) -> tuple[int, int]:
    """-Context: the number of lines before and after a match."""
    given = [int(to_number(one)) for one in to_items(call.get("Context"))]
    return (given[0], given[-1]) if given else (0, 0)


def _match_context(lines: Sequence[str], index: int, before: int, after: int) -> PsObject | None:
    if not before and not after:
        return None
    return PsObject(
        "Microsoft.PowerShell.Commands.MatchInfoContext",
        {
            "PreContext": list(lines[max(0, index - 1 - before) : index - 1]),
            "PostContext": list(lines[index : index + after]),
        },
    )


def _match_text(path: str, lines: Sequence[str], index: int, before: int, after: int) -> str:
    """With -Context, a mark is before each line: `>` for the one that matches."""
    marks = bool(before or after)
    first, last = max(1, index - before), min(len(lines), index + after)
    return "\n".join(
        ("" if not marks else "> " if number == index else "  ")
        + ("" if path == "InputStream" else f"{path}:{number}:")
        + lines[number - 1]
        for number in range(first, last + 1)
    )


def _select_string(call: CmdletCall) -> None:
    patterns = [to_text(one) for one in to_items(call.get("Pattern"))]
    simple, fold = call.has("SimpleMatch"), not call.has("CaseSensitive")
    compiled = [(one, expression(re.escape(one) if simple else one, fold=fold)) for one in patterns]
    before, after = _context_lines(call)
    for path, lines in _searched(call):
        for index, line in enumerate(lines, 1):
            hit = next(
                ((one, found) for one, pattern in compiled if (found := pattern.search(line))), None
            )
            if (hit is not None) == call.has("NotMatch"):
                continue
            if call.has("Quiet"):
                call.emit(True)
                return
            every = [statics.match_object(hit[1])] if hit is not None else []
            if hit is not None and call.has("AllMatches"):
                every = statics.all_matches(line, hit[0], fold=fold)
            call.emit(
                PsObject(
                    "Microsoft.PowerShell.Commands.MatchInfo",
                    {
                        "IgnoreCase": fold,
                        "LineNumber": index,
                        "Line": line,
                        "Filename": path.rpartition("\\")[2],
                        "Path": path,
                        "Pattern": hit[0] if hit is not None else patterns[0],
                        "Context": _match_context(lines, index, before, after),
                        "Matches": every,
                    },
                    _match_text(path, lines, index, before, after),
                )
            )
            if call.has("List"):
                break
    if call.has("Quiet"):
        call.emit(False)


async def _new_object(call: CmdletCall) -> None:
    arguments = to_items(call.get("ArgumentList"))
    made = create_powershell_object(call.evaluator, call.text("TypeName"), arguments)
    made = await made if inspect.isawaitable(made) else made
    properties = call.get("Property")
    if isinstance(made, PsObject) and isinstance(properties, Hashtable):
        made.properties.update({to_text(key): value for key, value in properties.items()})
    call.emit(made)


_MEMBER_TYPES = ("", "noteproperty", "scriptproperty", "scriptmethod", "aliasproperty")


def _add_script(value: PsObject, kind: str, name: str, block: ScriptBlock) -> None:
    if kind == "scriptmethod":
        value.script_methods = {**(value.script_methods or {}), name.lower(): block}
    else:
        value.script_properties = {**(value.script_properties or {}), name: block}
        value.properties[name] = None


async def _add_member(call: CmdletCall) -> None:
    for value in call.objects():
        name = call.text("NotePropertyName", call.text("Name"))
        content = call.get("NotePropertyValue", call.get("Value"))
        kind = call.text("MemberType").lower()
        if kind not in _MEMBER_TYPES:  # `Add-Member NAME VALUE`
            name, content = (
                (call.text("MemberType"), call.get("Name"))
                if call.has("MemberType")
                else (name, content)
            )
        if isinstance(value, PsObject):
            if kind in ("scriptmethod", "scriptproperty") and isinstance(content, ScriptBlock):
                _add_script(value, kind, name, content)
                await call.evaluator.refresh(value)
            elif kind == "aliasproperty":
                value.properties[name] = value.get(to_text(content))
            else:
                value.properties[name] = content
            for one, given in (call.get("NotePropertyMembers") or {}).items():
                value.properties[to_text(one)] = given
        if call.has("PassThru"):
            call.emit(value)


async def _invoke_expression(call: CmdletCall) -> None:
    source = call.text("Command", to_text(call.input[0]) if call.input else "")
    await call.evaluator.block(parse_powershell(source, call.evaluator.core))


async def _measure_command(call: CmdletCall) -> None:
    clock = call.process.context.clock
    start = clock.monotonic()
    block = call.get("Expression")
    if isinstance(block, ScriptBlock):
        await call.evaluator.invoke(block, [])
    call.emit(time_span(clock.monotonic() - start))


def _get_random(call: CmdletCall) -> None:
    rng = call.process.context.rng
    pool = call.objects()
    if pool:
        count = int(to_number(call.get("Count", 1)))
        for value in rng.sample(pool, min(count, len(pool))):
            call.emit(value)
        return
    low, high = (
        int(to_number(call.get("Minimum", 0))),
        int(to_number(call.get("Maximum", 2147483647))),
    )
    call.emit(rng.randrange(low, high))


_GLOBAL_SCOPES: Final = ("global", "script")


def _set_variable(call: CmdletCall) -> None:
    """-Scope: global, script, local, or how many scopes up; -Option: ReadOnly and Constant."""
    evaluator = call.evaluator
    scope = call.text("Scope", "0").lower()
    value = call.get("Value", unrolled(call.input) if call.input is not None else None)
    for given in to_items(call.get("Name")):
        name = to_text(given).lower().removeprefix("$")
        if call.cmdlet.name == "New-Variable" and name in evaluator.scopes[-1]:
            if not call.has("Force"):
                call.fail(
                    f"A variable with name '{name}' already exists.",
                    f"ResourceExists: ({name}:String) [New-Variable], SessionStateException",
                    "VariableAlreadyExists",
                )
                continue
            evaluator.constants.discard(name)
        if scope.isdigit() and int(scope) < len(evaluator.scopes):
            evaluator.check_writable(name)
            evaluator.scopes[-1 - int(scope)][name] = value
        else:
            evaluator.put(f"global:{name}" if scope in _GLOBAL_SCOPES else name, value)
        if call.text("Option").lower() in ("readonly", "constant"):
            evaluator.constants.add(name)


def _get_variable(call: CmdletCall) -> None:
    evaluator = call.evaluator
    named = {name for scope in evaluator.scopes for name in scope} | set(AUTOMATIC)
    for given in to_items(call.get("Name")) or ["*"]:
        wanted = to_text(given)
        found = sorted(name for name in named if matches_wildcard(name, wanted))
        if not found and "*" not in wanted:
            call.fail(
                f"Cannot find a variable with the name '{wanted}'.",
                f"ObjectNotFound: ({wanted}:String) [Get-Variable], ItemNotFoundException",
                "VariableNotFound",
            )
        for name in found:
            shown = name if "*" in wanted else wanted
            value = evaluator.get(name)
            call.emit(
                value
                if call.has("ValueOnly")
                else PsObject(
                    "System.Management.Automation.PSVariable", {"Name": shown, "Value": value}
                )
            )


def _compare_object(call: CmdletCall) -> None:
    """Objects are equal if their values are, or the properties of -Property; text ignores case."""
    left, right = to_items(call.get("ReferenceObject")), to_items(call.get("DifferenceObject"))
    given = call.input if call.input is not None and not call.has("DifferenceObject") else None
    right = list(given) if given is not None else right
    names = [to_text(one) for one in to_items(call.get("Property"))]
    cased = call.has("CaseSensitive")

    def key(value: Any) -> Any:
        parts = [members.get_property(call.evaluator, value, one) for one in names] or [value]
        return tuple(to_text(one) if cased else to_text(one).lower() for one in parts)

    def emit(value: Any, side: str) -> None:
        if call.has("PassThru"):
            call.emit(value)
            return
        shown = {name: members.get_property(call.evaluator, value, name) for name in names}
        made = (shown or {"InputObject": value}) | {"SideIndicator": side}
        call.emit(PsObject("System.Management.Automation.PSCustomObject", made))

    check_size(max(len(left), len(right)), MAX_SORTED)
    waiting: dict[Any, list[Any]] = {}
    for value in left:
        check_slice()
        waiting.setdefault(key(value), []).append(value)
    equal: list[Any] = []
    only_right: list[Any] = []
    for value in right:
        check_slice()
        found = waiting.get(key(value))
        if found:
            equal.append(found.pop(0))
        else:
            only_right.append(value)
    if call.has("IncludeEqual") or call.has("ExcludeDifferent"):
        for value in equal:
            emit(value, "==")
    if call.has("ExcludeDifferent"):
        return
    for value in only_right:
        emit(value, "=>")
    for left_over in waiting.values():
        for value in left_over:
            emit(value, "<=")


CMDLETS = (
    cmdlet_row(
        "ForEach-Object",
        _for_each,
        "Process*",
        "Parallel",
        "Begin End InputObject MemberName ArgumentList",
    ),
    cmdlet_row(
        "Where-Object",
        _where,
        "FilterScript",
        "",
        " ".join((*_COMPARISONS, *_ANY_CASE)) + " InputObject",
    ),
    cmdlet_row(
        "Select-Object",
        _select,
        "Property*",
        "Unique",
        "First Last Skip SkipLast ExpandProperty ExcludeProperty Index InputObject",
    ),
    cmdlet_row("Sort-Object", _sort, "Property*", "Descending Unique CaseSensitive", "InputObject"),
    cmdlet_row(
        "Measure-Object",
        _measure,
        "Property",
        "Sum Average Maximum Minimum Line Word Character",
        "InputObject",
    ),
    cmdlet_row(
        "Group-Object",
        _group,
        "Property*",
        "NoElement AsHashTable AsString CaseSensitive",
        "InputObject",
    ),
    cmdlet_row(
        "Select-String",
        _select_string,
        "Pattern Path",
        "SimpleMatch Quiet NotMatch CaseSensitive AllMatches List",
        "InputObject Context",
    ),
    cmdlet_row("New-Object", _new_object, "TypeName ArgumentList*", "", "Property ComObject"),
    cmdlet_row(
        "Add-Member",
        _add_member,
        "MemberType Name Value",
        "PassThru Force",
        "InputObject NotePropertyName NotePropertyValue NotePropertyMembers",
    ),
    cmdlet_row("Invoke-Expression", _invoke_expression, "Command"),
    cmdlet_row("Measure-Command", _measure_command, "Expression"),
    cmdlet_row("Get-Random", _get_random, "Maximum", "", "Minimum Count InputObject"),
    cmdlet_row("Set-Variable", _set_variable, "Name Value", "Force", "Scope Option"),
    cmdlet_row("New-Variable", _set_variable, "Name Value", "Force", "Scope Option"),
    cmdlet_row("Get-Variable", _get_variable, "Name", "ValueOnly"),
    cmdlet_row(
        "Compare-Object",
        _compare_object,
        "ReferenceObject DifferenceObject",
        "IncludeEqual ExcludeDifferent PassThru CaseSensitive",
        "Property",
    ),
)

"""Cmdlets perform every parameter that they declare."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from transom.userland.powershell.cmdlet_table import container_cmdlets, node_cmdlets
from transom.userland.powershell.cmdlets import Cmdlet
from transom.userland.powershell.unsupported_parameters import is_unsupported

# Parameters that need no code, by the reason.
_NO_EFFECT = {
    "No command here asks for confirmation or protects what -Force overrides": {
        "Force": "Add-Member Clear-ItemProperty Clear-Variable ConvertTo-SecureString "
        "Export-Certificate Get-Item Get-Member Import-Module Move-Item Remove-ItemProperty "
        "Remove-Job Remove-Module Remove-PSDrive Remove-SmbGlobalMapping Remove-SmbShare "
        "Remove-Variable Rename-Computer Rename-Item Rename-ItemProperty Restart-Computer "
        "Set-ExecutionPolicy Stop-Computer Stop-Process",
        "Confirm": "Disable-NetAdapter Enable-NetAdapter Restart-NetAdapter Import-Certificate",
    },
    "It is what the cmdlet does anyway": {
        "All": "Disable-WindowsOptionalFeature Enable-WindowsOptionalFeature Get-Command "
        "Get-Module Get-NetFirewallProfile Get-NetFirewallRule Get-NetIPConfiguration "
        "Set-NetFirewallProfile",
        "AccountNeverExpires": "New-LocalUser",
        "AddressFamily": "New-NetRoute Remove-NetIPAddress Remove-NetNeighbor Set-NetIPAddress",
        "AsString": "Get-Unique",
        "Detailed": "Get-NetIPConfiguration Get-Help",
        "Examples": "Get-Help",
        "Full": "Get-Help",
        "Global": "Import-Module",
        "HideComputerName": "Invoke-Command",
        "IncludeAllSubFeature": "Add-WindowsFeature Install-WindowsFeature",
        "IncludeHidden": "Get-NetAdapter",
        "IncludeManagementTools": "Add-WindowsFeature Install-WindowsFeature",
        "InputObject": "Get-Partition Get-Volume Out-Null",
        "LoadUserProfile": "Start-Process",
        "NoRestart": "Disable-WindowsOptionalFeature Enable-WindowsOptionalFeature",
        "Online": "Disable-WindowsOptionalFeature Enable-WindowsOptionalFeature "
        "Get-WindowsOptionalFeature",
        "Parent": "Split-Path",
        "UseBasicParsing": "Invoke-RestMethod Invoke-WebRequest",
    },
    "It changes only what a window, a terminal's colours or the wire would show": {
        "Activity": "Write-Progress",
        "AutoSize": "Format-Table Format-Wide",
        "BackgroundColor": "Write-Host",
        "Completed": "Write-Progress",
        "CompressionLevel": "Compress-Archive",
        "DisableKeepAlive": "Invoke-WebRequest",
        "DisableNameChecking": "Import-Module",
        "ForegroundColor": "Write-Host",
        "Id": "Write-Progress",
        "Message": "Get-Credential",
        "PercentComplete": "Write-Progress",
        "Status": "Write-Progress",
        "Tags": "Write-Information",
        "Verb": "Start-Process",
        "WindowStyle": "Start-Process",
        "Width": "Out-File Out-String",
        "Wrap": "Format-Table",
        **dict.fromkeys(("RequireIntegrity", "RequirePrivacy"), "New-SmbGlobalMapping"),
        **dict.fromkeys(("Persistent", "UseWriteThrough"), "New-SmbGlobalMapping"),
    },
    "The cluster's networks have no LLMNR, NetBIOS or DNSSEC": dict.fromkeys(
        (
            "DnssecCd",
            "DnssecOk",
            "LlmnrFallback",
            "LlmnrNetbiosOnly",
            "LlmnrOnly",
            "NetbiosFallback",
            "NoIdn",
        ),
        "Resolve-DnsName",
    ),
    "There is no C# compiler: the call fails already": dict.fromkeys(
        ("Language", "Name", "Namespace", "PassThru", "ReferencedAssemblies", "UsingNamespace"),
        "Add-Type",
    ),
}


@cache
def _parse(function: types.FunctionType) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _constants(node: ast.AST) -> Iterator[str]:
    """Strings in code that can name a parameter. Property names of objects cannot: keys of
    dictionaries, and what is read from something other than the call.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    skipped: list[ast.AST | None] = []
    if isinstance(node, ast.Dict) and not all(isinstance(v, ast.Constant) for v in node.values):
        skipped = list(node.keys)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "find")
        and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "call")
    ):
        skipped = [one for one in node.args if isinstance(one, ast.Constant)]
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _constants(child)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | list | frozenset | set | dict):
        for one in value:
            yield from _strings(one)


def _read_by(value: Any, seen: set[int]) -> set[str]:
    """The strings in a function, and in those functions that it hands the call to."""
    if id(value) in seen:
        return set()
    seen.add(id(value))
    if isinstance(value, dict):
        return {*_strings(value)}.union(*(_read_by(one, seen) for one in value.values()))
    if not isinstance(value, types.FunctionType):
        return set(_strings(value))
    if "call" not in inspect.signature(value).parameters:
        return set()
    tree = _parse(value)
    found = set(_constants(tree))
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    if "objects" in attributes:
        found.add("InputObject")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used = [value.__globals__[name] for name in names if name in value.__globals__]
    used += [
        vars(value.__globals__[node.value.id]).get(node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and isinstance(value.__globals__.get(node.value.id), types.ModuleType)
    ]
    used += [cell.cell_contents for cell in value.__closure__ or ()]
    return found.union(*(_read_by(one, seen) for one in used))


def _declared(row: Cmdlet) -> set[str]:
    return {one.rstrip("*") for one in (*row.positional, *row.switches, *row.named)}


def _rows() -> list[Cmdlet]:
    rows = [*container_cmdlets().all(), *node_cmdlets().all()]
    return list({id(row): row for row in rows}.values())


def _without_effect() -> set[tuple[str, str]]:
    return {
        (cmdlet, parameter)
        for parameters in _NO_EFFECT.values()
        for parameter, cmdlets in parameters.items()
        for cmdlet in cmdlets.split()
    }


def test_cmdlets_read_the_parameters_that_they_declare() -> None:
    ignored = {
        (row.name, parameter)
        for row in _rows()
        for parameter in _declared(row) - _read_by(row.run, set())
        if not is_unsupported(row.name, parameter)
    }
    assert sorted(ignored - _without_effect()) == []
    assert sorted(_without_effect() - ignored) == []  # the list names nothing that is performed


_SCRIPTS = [
    (
        "New-EventLog Application app; 'a', 'b' | % { Write-EventLog Application app -EventId "
        "($_[0] - 96) -EntryType Warning -Message $_ }; "
        '(Get-WinEvent Application -FilterXPath "*[System[EventID=1 and Level=3]]").Message; '
        "(Get-WinEvent Application -FilterXPath "
        "\"*[System[Provider[@Name='app'] and (EventID=2 or EventID=9)]]\").Message; "
        "(Get-WinEvent Application -FilterXPath "
        "'*[System[TimeCreated[timediff(@SystemTime) <= 1000]]]' -Oldest).Message; "
        "(wevtutil qe Application '/q:*[System/EventID=2]' /f:text)[-2]",
        "a\r\nb\r\na\r\nb\r\nb\r\n",
    ),
    (
        "(Get-CimInstance Win32_OperatingSystem -Namespace root\\cimv2).SystemDirectory; "
        "try { Get-CimInstance Win32_OperatingSystem -Namespace root\\nope -EA Stop } "
        'catch { "$_" }',
        "C:\\Windows\\system32\r\nInvalid namespace \r\n",
    ),
    (  # the clock is at Thursday, 2 January 2020
        "$t = New-ScheduledTaskTrigger -Weekly -DaysOfWeek Monday, Friday -At 1am; "
        "Register-ScheduledTask w -Action (New-ScheduledTaskAction cmd) -Trigger $t "
        "-RunLevel Highest | % { $_.Principal.RunLevel }; "
        "(Get-ScheduledTaskInfo w).NextRunTime.ToString('yyyy-MM-dd HH'); "
        "schtasks /create /tn s /tr cmd /sc weekly /d SUN /st 05:00 | Out-Null; "
        "(Get-ScheduledTaskInfo s).NextRunTime.DayOfWeek; "
        "Get-ScheduledTask -TaskPath \\other\\; "
        'try { New-ScheduledTaskTrigger -Weekly -At 1am -EA Stop } catch { "$_" }',
        "Highest\r\n2020-01-03 01\r\nSunday\r\nCannot process command because of one or more "
        "missing mandatory parameters: DaysOfWeek.\r\n",
    ),
    (
        "md C:\\s | Out-Null; New-SmbShare a C:\\s -FullAccess Administrators -ReadAccess Everyone "
        '| % Name; Get-SmbShareAccess a | % { "$($_.AccountName) $($_.AccessRight)" }; '
        'try { New-SmbShare b C:\\s -FullAccess nobody -EA Stop } catch { "$_" }; '
        "net share c=C:\\s '/grant:Users,CHANGE' | Out-Null; (Get-SmbShareAccess c).AccessRight",
        "a\r\nBUILTIN\\Administrators Full\r\nEveryone Read\r\nNo mapping between account names "
        "and security IDs was done. \r\nChange\r\n",
    ),
    (
        "'typed' | Set-Content C:\\in.txt; Start-Process more -RedirectStandardInput C:\\in.txt "
        "-RedirectStandardOutput C:\\out.txt -Wait; Get-Content C:\\out.txt; "
        'try { Start-Process cmd -RedirectStandardInput C:\\no.txt } catch { "$_" }',
        "typed\r\nThis command cannot be run due to the error: Could not find file "
        "'C:\\no.txt'.\r\n",
    ),
    (
        'try { 1..2 | ForEach-Object -Parallel { $_ } } catch { "$_" }',
        "Parameter set cannot be resolved using the specified named parameters.\r\n",
    ),
    (
        "try { [No.Such.Type]'x' } catch { \"$_\" }; [ushort]'7' + 1; ([hashtable]@{a=1}).a",
        "Unable to find type [No.Such.Type].\r\n8\r\n1\r\n",
    ),
    (
        "Set-Content C:\\e.txt 'x' -Encoding Unicode -NoNewline; "
        "(Get-Content C:\\e.txt -Encoding Byte) -join ' '; Get-Content C:\\e.txt",
        "255 254 120 0\r\nx\r\n",
    ),
    (
        "Set-Content C:\\r.txt a; attrib +r C:\\r.txt; Set-Content C:\\r.txt b -Force; "
        "Get-Content C:\\r.txt; (Get-Item C:\\r.txt).IsReadOnly",
        "b\r\nTrue\r\n",
    ),
    (
        "New-NetFirewallRule -Name a -DisplayName a -Group g | Out-Null; "
        "New-NetFirewallRule -Name b -DisplayName b -Group h | Out-Null; "
        "Set-NetFirewallRule -Name b -RemoteAddress 10.0.0.1 -Description d; "
        "Remove-NetFirewallRule -Group g; (Get-NetFirewallRule -Name a, b -EA 0).Description",
        "d\r\n",
    ),
    (
        'try { Wait-Job -Any } catch { "$_" }',
        "The parameter 'Any' of Wait-Job is not supported on simulated machines.\r\n",
    ),
]


@pytest.mark.parametrize(("script", "expected"), _SCRIPTS)
def test_parameters_have_their_effect(windows, script: str, expected: str) -> None:
    result = windows.run("powershell", "-Command", script)
    assert (result.out, result.err) == (expected, "")

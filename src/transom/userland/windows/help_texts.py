"""What `help`, and `/?` after a command, print: the purpose of each command and its syntax, as far
as it is supported.
"""

from __future__ import annotations

from typing import Final

from transom.kit.named_tuple import NamedTuple


class HelpText(NamedTuple):
    purpose: str
    syntax: str


HELP: Final = {
    "assoc": HelpText("Shows or changes the types of file extensions.", "[.ext[=[type]]]"),
    "attrib": HelpText(
        "Shows or changes file attributes.", "[+R|-R] [+A|-A] [+S|-S] [+H|-H] [path] [/S [/D]]"
    ),
    "call": HelpText("Calls a batch file or a label from a batch file.", "file|:label [arguments]"),
    "cd": HelpText("Shows or changes the current directory.", "[/D] [drive:][path]"),
    "cls": HelpText("Clears the screen.", ""),
    "copy": HelpText("Copies files.", "[/A|/B] [/V] [/Y|/-Y] source [+ source ...] [destination]"),
    "date": HelpText("Shows or sets the date.", "[/T | date]"),
    "del": HelpText("Deletes files.", "[/P] [/F] [/S] [/Q] [/A:attributes] names"),
    "dir": HelpText(
        "Lists files and directories.",
        "[path] [/A:attributes] [/B] [/-C] [/L] [/O:order] [/Q] [/S] [/T:W] [/X]",
    ),
    "echo": HelpText("Shows a message, or turns echoing on or off.", "[ON | OFF | message]"),
    "exit": HelpText("Ends cmd.exe or the current batch file.", "[/B] [code]"),
    "find": HelpText("Searches for text in files.", '[/V] [/C] [/N] [/I] "string" [path ...]'),
    "findstr": HelpText(
        "Searches for strings or regular expressions in files.",
        "[/B] [/E] [/L] [/R] [/S] [/I] [/X] [/V] [/N] [/M] [/P] [/C:string] [/G:file] [/D:dirs] "
        "strings [path ...]",
    ),
    "for": HelpText("Runs a command for each item of a set.", "%variable IN (set) DO command"),
    "goto": HelpText("Continues at a label of a batch file.", "label"),
    "if": HelpText("Runs a command under a condition.", "[NOT] condition command [ELSE command]"),
    "ipconfig": HelpText(
        "Shows the network configuration.",
        "[/allcompartments] [/all | /flushdns | /displaydns | /registerdns | /renew | /release]",
    ),
    "md": HelpText("Creates a directory.", "[drive:]path"),
    "mklink": HelpText("Creates a link.", "[/D | /H | /J] link target"),
    "more": HelpText("Shows text.", "[path]"),
    "move": HelpText("Moves or renames files.", "[/Y | /-Y] source destination"),
    "netstat": HelpText(
        "Shows connections and listening ports.",
        "[-a] [-b] [-e] [-f] [-n] [-o] [-p protocol] [-q] [-r] [-s]",
    ),
    "path": HelpText("Shows or sets the search path.", "[path[;...]]"),
    "pause": HelpText("Waits for a key.", ""),
    "ping": HelpText("Sends echo requests.", "[-t] [-n count] [-4] [-6] [-w timeout] target"),
    "popd": HelpText("Returns to the directory that pushd saved.", ""),
    "pushd": HelpText("Saves the current directory, then changes it.", "[path]"),
    "rd": HelpText("Removes a directory.", "[/S] [/Q] path"),
    "reg": HelpText(
        "Shows and changes the registry.",
        "query | add | delete | copy | compare | export | import  key [options]",
    ),
    "rem": HelpText("A comment.", "[text]"),
    "ren": HelpText("Renames files.", "path name"),
    "robocopy": HelpText(
        "Copies directories robustly.",
        "source destination [file ...] [/S] [/E] [/PURGE] [/MIR] [/MOV] [/MOVE] [/L] "
        "[/XF file ...] [/XD dir ...] [/XO] [/R:n] [/W:n] [/MT[:n]] [/Z] [/LOG:file] "
        "[/NJH] [/NJS] [/NFL] [/NDL] [/NC] [/NS] [/NP]",
    ),
    "route": HelpText("Shows and changes routes.", "[-p] [-4|-6] print | add | change | delete"),
    "schtasks": HelpText(
        "Manages scheduled tasks.", "/create | /delete | /query | /change | /run | /end  [options]"
    ),
    "set": HelpText(
        "Shows, sets or removes variables.",
        "[/A expression | /P variable=prompt | variable=[value]]",
    ),
    "setx": HelpText("Sets a variable for later processes.", "variable value [/M]"),
    "shutdown": HelpText(
        "Shuts the machine down.", "[/r | /s | /a | /p] [/t seconds] [/f] [/c comment]"
    ),
    "sort": HelpText("Sorts lines.", "[/R] [/+n] [path] [/O path]"),
    "start": HelpText(
        "Starts a program in its own window.", '["title"] [/D path] [/B] [/WAIT] program'
    ),
    "systeminfo": HelpText("Shows the configuration of the machine.", "[/FO TABLE|LIST|CSV] [/NH]"),
    "takeown": HelpText("Takes ownership of files.", "/F path [/A] [/R [/D Y|N]]"),
    "taskkill": HelpText(
        "Ends processes.", "[/S system] [/F] [/T] [/FI filter] /PID number | /IM name"
    ),
    "tasklist": HelpText(
        "Lists processes.", "[/S system] [/SVC | /V | /M [module]] [/FO format] [/NH] [/FI filter]"
    ),
    "time": HelpText("Shows or sets the time.", "[/T | time]"),
    "timeout": HelpText("Waits.", "/T seconds [/NOBREAK]"),
    "tracert": HelpText("Shows the hops to a host.", "[-d] [-h hops] [-w timeout] target"),
    "tree": HelpText("Shows directories as a tree.", "[path] [/F] [/A]"),
    "type": HelpText("Shows text files.", "path ..."),
    "ver": HelpText("Shows the version of Windows.", ""),
    "vol": HelpText("Shows the label and serial number of a drive.", "[drive:]"),
    "where": HelpText(
        "Finds files in the search path.", "[/R directory] [/Q] [/F] [/T] pattern ..."
    ),
    "whoami": HelpText(
        "Shows the current user.", "[/USER | /GROUPS | /PRIV | /ALL] [/FO format] [/NH]"
    ),
    "xcopy": HelpText(
        "Copies files and directories.",
        "source [destination] [/S] [/E] [/T] [/D[:m-d-y]] [/U] [/EXCLUDE:file] [/I] [/L] [/F] "
        "[/Q] [/C] [/H] [/R] [/K] [/V] [/Z] [/J] [/Y]",
    ),
}
_SAME: Final = {"chdir": "cd", "mkdir": "md", "rmdir": "rd", "erase": "del", "rename": "ren"}


def help_text(name: str) -> str | None:
    """None for a command without one."""
    lower = name.lower()
    found = HELP.get(_SAME.get(lower, lower))
    if found is None:
        return None
    return f"{found.purpose}\r\n\r\n{name.upper()} {found.syntax}".rstrip() + "\r\n"


def help_list() -> str:
    rows = "".join(f"{name.upper():<15}{one.purpose}\r\n" for name, one in sorted(HELP.items()))
    return f"For more information on a specific command, type HELP command-name\r\n{rows}"

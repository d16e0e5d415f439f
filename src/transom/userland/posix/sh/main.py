"""`sh`: runs commands from `-c`, from a file or from standard input, with a prompt on a terminal."""

from __future__ import annotations

from transom.userland.files import error_text
from transom.userland.posix.sh.builtins import set_options
from transom.userland.posix.sh.control import FunctionReturn, LoopExit
from transom.userland.posix.sh.parser import parse_shell, parse_shell_input
from transom.userland.posix.sh.shell import Shell
from transom.userland.posix.sh.tree import Incomplete, ShellSyntaxError
from transom.userland.process import Exit, Process


async def run_shell(process: Process) -> int:
    name = process.argv[0]  # in full: its messages begin with it
    shell = Shell(process, name, bash=name.rpartition("/")[2].lstrip("-") == "bash")
    arguments = process.argv[1:]
    text: str | None = None
    wants_text = interactive = False
    while arguments and arguments[0][:1] in "-+" and len(arguments[0]) > 1:
        option = arguments.pop(0)
        if option == "--":
            break
        if option.startswith("--"):
            if option == "--version" and shell.bash:
                process.write("GNU bash, version 5.0.3(1)-release (x86_64-pc-linux-gnu)\n")
                return 0
            continue
        wants_text = wants_text or "c" in option
        interactive = interactive or "i" in option
        if not _apply_letters(shell, option, arguments):
            return 2
    if wants_text:
        if not arguments:
            shell.complain("-c requires an argument")
            return 2
        text = arguments.pop(0)
        if arguments:
            shell.name = shell.zero = arguments.pop(0)
    elif arguments:
        text = _read_script(shell, arguments.pop(0))
        if text is None:
            return 127 if shell.bash else 2
    shell.arguments = arguments
    if text is not None:
        return await shell.main(text)
    shell.interactive = interactive or process.context.terminal.tty
    return await _converse(shell)


def _apply_letters(shell: Shell, option: str, arguments: list[str]) -> bool:
    """Sets the options of one word, for example `-eo` with its value in `arguments`. False if a
    letter is unknown.
    """
    for letter in option[1:]:
        if letter in "cils":
            continue  # those of the program, not of `set`
        if letter == "o" and arguments:
            set_options(shell, [option[0] + "o", arguments.pop(0)])
        elif letter in shell.options:
            shell.options[letter] = option[0] == "-"
        else:
            shell.complain(f"illegal option -{letter}")
            return False
    return True


def _read_script(shell: Shell, path: str) -> str | None:
    """The text of a script, which names the shell from now on; None if it cannot be read."""
    try:
        text = shell.process.files.text(path)
    except OSError as error:
        shell.zero = path
        shell.complain(
            f"{path}: {error_text(error)}"
            if shell.bash
            else f"can't open '{path}': {error_text(error)}"
        )
        return None
    shell.zero = shell.name = path
    return text


async def _converse(shell: Shell) -> int:
    """Runs commands from standard input as they arrive."""
    process = shell.process
    if shell.interactive:
        shell.variables.setdefault("PS1", _default_prompt(shell))
        shell.variables.setdefault("PS2", "> ")
    collected = ""
    while True:
        if shell.interactive:
            prompt = shell.variables.get("PS2" if collected else "PS1") or ""
            shell.prompt = _prompt(shell, prompt)
            process.stderr.write(shell.prompt.encode("utf-8", "surrogateescape"))
        line = await process.stdin.readline()
        if not line and not collected:
            if shell.interactive and shell.bash:
                process.complain("exit")
            break
        collected += line.decode("utf-8", "surrogateescape")
        try:
            if collected.endswith("\\\n") and line:
                raise Incomplete("")
            node = parse_shell_input(collected) if line else parse_shell(collected)
        except Incomplete as error:
            if line:
                continue
            shell.complain(f"syntax error: {error}")
            shell.status = 2
            break
        except ShellSyntaxError as error:
            shell.complain(f"syntax error: {error}")
            shell.status = 2
            collected = ""
            if not shell.interactive:
                break
            continue
        collected = ""
        try:
            await shell.run(node)
        except Exit as end:
            return await shell.finish(end.code)
        except (FunctionReturn, LoopExit):
            continue
    return await shell.finish(shell.status)


def _default_prompt(shell: Shell) -> str:
    if shell.bash:
        return r"\u@\h:\w\$ "
    return r"\w \$ " if shell.process.context.image.userland == "busybox" else r"\$ "


def _prompt(shell: Shell, text: str) -> str:
    context = shell.process.context
    home = shell.get("HOME") or ""
    cwd = shell.process.cwd
    shown = (
        "~" + cwd[len(home) :]
        if home and home != "/" and (cwd == home or cwd.startswith(home + "/"))
        else cwd
    )
    user = (
        "root"
        if context.credentials.uid == 0
        else (
            context.credentials.user
            if not context.credentials.user.isdigit()
            else "I have no name!"
        )
    )
    for mark, value in (
        ("\\u", user),
        ("\\h", context.network.hostname.split(".")[0]),
        ("\\w", shown),
        ("\\$", "#" if context.credentials.uid == 0 else "$"),
    ):
        text = text.replace(mark, value)
    return text

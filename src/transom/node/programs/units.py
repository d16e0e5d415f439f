"""The systemd units of the programs on a Linux node: their files and the settings in them.

An unchanged unit has the command line of the node's specification. A unit that users have edited,
or a drop-in, overrides it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from transom.kit.lazy import lazy_pattern
from transom.machines.smallfiles import list_small_directory, read_small_file
from transom.node.programs.command_lines import CommandLine
from transom.node.programs.setup_mark import is_unchanged_setup_file, mark_setup_file

if TYPE_CHECKING:
    from transom.machines.api import Files

VENDOR: Final = "/usr/lib/systemd/system"
LOCAL: Final = "/etc/systemd/system"
WANTS: Final = f"{LOCAL}/multi-user.target.wants"
DESCRIPTIONS: Final = {
    "kubelet": "kubelet: The Kubernetes Node Agent",
    "kube-proxy": "kube-proxy: The Kubernetes Network Proxy",
    "flanneld": "flanneld: The overlay network of pods",
}
_VARIABLE: Final = lazy_pattern(r"\$\{?(\w+)\}?")


def install_unit(files: Files, binary: str, line: CommandLine) -> None:
    """Writes the unit of a program, unless users have changed it; a new unit is enabled."""
    path, text = f"{VENDOR}/{binary}.service", _read(files, f"{VENDOR}/{binary}.service")
    if text is None:
        files.mkdir(VENDOR)
        files.mkdir(WANTS)
        files.symlink(path, f"{WANTS}/{binary}.service")
    if text is None or is_unchanged_setup_file(text):
        files.write(path, _unit_text(binary, line).encode())


def is_unit_enabled(files: Files, binary: str) -> bool:
    """Whether it starts at boot. A node without units starts all programs."""
    return not files.exists(f"{VENDOR}/{binary}.service") or files.exists(
        f"{WANTS}/{binary}.service"
    )


def enable_unit(files: Files, binary: str, *, on: bool) -> str:
    """Returns the line that systemctl prints; empty if nothing changes."""
    link, target = f"{WANTS}/{binary}.service", f"{VENDOR}/{binary}.service"
    if on == is_unit_enabled(files, binary):
        return ""
    if on:
        files.mkdir(WANTS)
        files.symlink(target, link)
        return f"Created symlink {link} \N{RIGHTWARDS ARROW} {target}."
    files.remove(link)
    return f"Removed {link}."


def unit_files(files: Files, binary: str) -> list[tuple[str, str]]:
    """The path and content of a unit and its drop-ins, in order of precedence."""
    found: list[tuple[str, str]] = []
    for directory in (LOCAL, VENDOR):
        text = _read(files, f"{directory}/{binary}.service")
        if text is not None:
            found.append((f"{directory}/{binary}.service", text))
            break
    drop_ins: dict[str, str] = {}
    for directory in (VENDOR, LOCAL):
        folder = f"{directory}/{binary}.service.d"
        for name in list_small_directory(files, folder) if files.exists(folder) else ():
            if name.endswith(".conf"):
                drop_ins[name] = f"{folder}/{name}"
    for _, path in sorted(drop_ins.items()):
        found.append((path, _read(files, path) or ""))
    return found


def edited_command_line(files: Files, binary: str) -> CommandLine | None:
    """The command line of the unit, if users have changed it. The path is empty without an
    ExecStart.
    """
    found = unit_files(files, binary)
    if not found or (len(found) == 1 and is_unchanged_setup_file(found[0][1])):
        return None
    command, environment = "", dict[str, str]()
    for key, value in _service_settings(found):
        if key == "ExecStart":
            command = value
        elif key == "Environment":
            environment |= _assignments(value)
        elif key == "EnvironmentFile":
            text = _read(files, value.removeprefix("-"))
            for entry in (text or "").splitlines():
                if not entry.lstrip().startswith(("#", ";")):
                    environment |= _assignments(entry)
    words = _words(_VARIABLE.sub(lambda name: environment.get(name[1], ""), command))
    return CommandLine(words[0].lstrip("-@+!:") if words else "", words[1:], environment)


def _service_settings(found: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for _, text in found:
        section = ""
        for line in text.replace("\\\n", " ").splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line
            elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
                key, _, value = line.partition("=")
                yield key.strip(), value.strip()


def _assignments(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in _words(text))
    return {name: value for name, sign, value in pairs if sign}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unterminated quote
        return text.split()


def _unit_text(binary: str, line: CommandLine) -> str:
    variables = [f"Environment={name}={value}" for name, value in line.environment.items()]
    body = "\n".join(
        [
            "[Unit]",
            f"Description={DESCRIPTIONS[binary]}",
            "Wants=network-online.target",
            "After=network-online.target",
            "",
            "[Service]",
            *variables,
            f"ExecStart={shlex.join((line.path, *line.argv))}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )
    return mark_setup_file(body)


def _read(files: Files, path: str) -> str | None:
    try:
        return read_small_file(files, path).decode(errors="replace")
    except OSError:
        return None

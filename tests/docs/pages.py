"""The code blocks of README.md, CONTRIBUTING.md and docs/, and a shell that runs them as a reader
would.

A block of ``sh`` is a list of commands, one of ``console`` commands (`$ `) with what they print,
one of ``powershell`` is typed on a Windows node. Every command must succeed, unless a comment
behind it says ``exit code N``. In expected output ``...`` stands for anything; ages, ports,
addresses and other numbers that differ from run to run match each other.

A comment above a block, which readers do not see, says what the test needs:

    <!-- test: setup: COMMAND -->     run this first
    <!-- test: cleanup: COMMAND -->   and this afterwards
    <!-- test: skip: REASON -->       do not run the block
    <!-- test: node: NAME -->         for powershell: the node
    <!-- test: until stopped -->      commands that do not end by themselves are stopped after a moment
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
RUN: Final = ("sh", "console", "powershell")
OTHER: Final = ("text", "yaml", "python", "json", "mermaid", "ini")

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```[ \t]*$", re.S | re.M
)
_DIRECTIVE = re.compile(
    r"<!-- test: (setup|cleanup|skip|node|until stopped)(?:: (.*?))? -->\n", re.S
)
_EXIT_CODE = re.compile(r"#.*\bexit code (\d+)")
# Programs that this machine need not have; what needs one is skipped where it is missing.
_TOOLS = ("docker", "helm", "kustomize", "ginkgo", "e2e.test", "dig", "jq", "nsenter")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@cache
def _works(tool: str) -> bool:
    if shutil.which(tool) is None:
        return False
    return (
        tool != "docker" or subprocess.run(["docker", "info"], capture_output=True).returncode == 0
    )  # its daemon, too


def _accept_interrupts() -> None:
    """As in a terminal; programs that a shell starts in the background ignore CTRL+C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Command:
    text: str
    expected: str | None = None  # what it prints, where that is shown

    @property
    def exit_code(self) -> int:
        found = _EXIT_CODE.search(self.text)
        return int(found[1]) if found else 0

    @property
    def missing_tool(self) -> str:
        return next(
            (
                t
                for t in _TOOLS
                if re.search(rf"(^|[|;&(] *){re.escape(t)}\b", self.text) and not _works(t)
            ),
            "",
        )


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    body: str
    setup: tuple[str, ...] = ()
    cleanup: tuple[str, ...] = ()
    skip: str = ""
    node: str = ""
    until_stopped: bool = False

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[Command]:
        if self.language == "sh":
            return [Command(text) for text in _statements(self.body.splitlines())]
        if self.language == "powershell":
            lines = [line for line in self.body.splitlines() if line.strip()]
            return [
                Command(f"transom node exec {self.node} -- powershell -Command {_quoted(line)}")
                for line in lines
            ]
        return list(_session(self.body.splitlines()))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def pages() -> list[str]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    found = []
    end = 0
    for match in _FENCE.finditer(text):
        directives: dict[str, list[str]] = {}
        for directive in _DIRECTIVE.finditer(text, end, match.start()):
            directives.setdefault(directive[1], []).append(directive[2] or "")
        end = match.end()
        found.append(
            Block(
                page,
                text.count("\n", 0, match.start()) + 1,
                match["language"],
                textwrap.dedent(match["body"]) if match["indent"] else match["body"],
                tuple(directives.get("setup", ())),
                tuple(directives.get("cleanup", ())),
                "; ".join(directives.get("skip", ())),
                "".join(directives.get("node", ())),
                "until stopped" in directives,
            )
        )
    return found


def _statements(lines: list[str]) -> Iterator[str]:
    """Commands with their continued lines and here-documents; what stands between quotes may have
    several lines, too.
    """
    held: list[str] = []
    for line in lines:
        held.append(line)
        text = "\n".join(held)
        heredoc = _HEREDOC.search(text)
        if line.endswith("\\") or (heredoc and heredoc[1] not in [h.strip() for h in held[1:]]):
            continue
        if text.strip() and not text.lstrip().startswith("#"):
            yield text
        held = []


def _session(lines: list[str]) -> Iterator[Command]:
    command: list[str] = []
    output: list[str] = []
    for line in [*lines, "$ "]:
        if line.startswith("$ "):
            if command:
                yield Command("\n".join(command), "\n".join(output) if output else None)
            command, output = [line[2:]], []
        elif command and (command[-1].endswith("\\") or line.startswith("> ")):
            command.append(line.removeprefix("> "))
        else:
            output.append(line)


# ---- output ----

# What is not the same in two runs. Both sides are normalised.
_VARIABLE = [
    (re.compile(r"\d+(\.\d+)? s\b"), "N s"),
    (re.compile(r"\b(\d+d)?(\d+h)?(\d+m)?\d+s\b|\b\d+[dhm]\b"), "AGE"),
    (re.compile(r"(127\.\d+\.\d+\.\d+|\[::1\]):\d+"), "LOOPBACK:PORT"),
    (re.compile(r"\b(10\.(?:24[4-9]|96)|172\.20)\.\d+\.\d+(:\d+)?"), "ADDRESS"),
    (re.compile(r"\b([0-9a-fA-F]{2}[-:]){5}[0-9a-fA-F]{2}\b"), "MAC"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"-[0-9a-f]{8,10}-[a-z0-9]{5}\b"), "-HASH"),
    (re.compile(r"[ \t]+"), " "),
]


def _normalised(text: str) -> str:
    for pattern, name in _VARIABLE:
        text = pattern.sub(name, text)
    return text.strip()


def difference(expected: str, printed: str) -> str:
    """Empty if what was printed is what the page shows; a line of `...` stands for any lines,
    otherwise for any text.
    """
    wanted = [_normalised(line) for line in expected.strip().splitlines()]
    found = "\n".join(_normalised(line) for line in printed.strip().splitlines())
    pattern = ""
    for number, line in enumerate(wanted):
        if line == "...":
            pattern += r"(?:.*\n)*?" if number + 1 < len(wanted) else r"(?:.*\n?)*"
            continue
        pattern += ".*".join(re.escape(part) for part in line.split("...")) + (
            "\\s*" if number + 1 == len(wanted) else "\n"
        )
    if re.fullmatch(pattern, found):
        return ""
    return f"shown:\n{textwrap.indent(expected.strip(), '    ')}\nprinted:\n{textwrap.indent(printed.strip(), '    ')}"


# ---- running ----


@dataclass
class Shell:
    """Runs the commands of one page, in one folder; variables and folders do not carry over, files
    do.
    """

    folder: Path
    env: Mapping[str, str]
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def run_block(self, block: Block) -> None:
        if block.skip:
            self.skipped.append(f"{block.where}: {block.skip}")
            return
        for text in block.setup:
            self._check(block, Command(text), "setup: ")
        # Variables and `trap` carry over inside of a block.
        if block.language == "sh" and any(
            re.match(r"\w+=|trap ", c.text) for c in block.commands()
        ):
            self._check(block, Command(block.body), "")
        else:
            for command in block.commands():
                if command.missing_tool:
                    self.skipped.append(
                        f"{block.where}: there is no {command.missing_tool} on this machine"
                    )
                else:
                    self._check(block, command, "")
        for text in block.cleanup:
            self._check(block, Command(text), "cleanup: ")

    def _check(self, block: Block, command: Command, what: str) -> None:
        began = time.monotonic()
        code, printed = self.run(command.text, until_stopped=block.until_stopped and not what)
        self.seconds[f"{block.where}: {what}{command.text[:60]}"] = time.monotonic() - began
        if code != command.exit_code:
            self.problems.append(
                f"{block.where}: {what}{command.text}\nexit code {code}\n{printed}"
            )
        elif command.expected is not None:
            wrong = difference(command.expected, printed)
            if wrong:
                self.problems.append(f"{block.where}: {command.text}\n{wrong}")

    def run(self, text: str, *, until_stopped: bool = False) -> tuple[int, str]:
        process = subprocess.Popen(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_accept_interrupts,
        )
        try:
            printed, _ = process.communicate(timeout=2 if until_stopped else 120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT if until_stopped else signal.SIGKILL)
            printed, _ = process.communicate(timeout=30)
            ended_well = until_stopped and process.returncode in (0, 130, -signal.SIGINT)
            return (0 if ended_well else process.returncode), printed
        finally:
            if until_stopped:  # what it left in the background
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        return process.returncode, printed

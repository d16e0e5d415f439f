"""Command lines: quoted arguments arrive unchanged, and those of an image are not changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.kit.argv import join_arguments, quote_argument
from transom.runtime.api import ContainerConfig
from transom.runtime.wine import commandline

_ARGUMENT = st.text(alphabet=st.sampled_from(' \t"\\abü%^&'), max_size=12)
_PROGRAM = st.text(alphabet=st.sampled_from(" \\ab:."), min_size=1, max_size=12).filter(
    lambda name: name.strip() and not name.endswith("\\")
)


@given(_PROGRAM, st.lists(_ARGUMENT, max_size=6))
def test_what_is_quoted_is_what_arrives(program: str, arguments: list[str]) -> None:
    assert commandline.split_windows_command_line(join_arguments([program, *arguments])) == [
        program,
        *arguments,
    ]


@pytest.mark.parametrize(
    "argument, quoted",
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ("tab\there", '"tab\there"'),
        ('say "hi"', r'"say \"hi\""'),
        ('a"b', r"a\"b"),
        (r"C:\dir", r"C:\dir"),
        ("C:\\my dir\\", '"C:\\my dir\\\\"'),
        (r"x\"y", r"x\\\"y"),
        ("%PATH%", "%PATH%"),
        ("a&b|c", "a&b|c"),
    ],
)
def test_one_argument(argument: str, quoted: str) -> None:
    assert quote_argument(argument) == quoted


@pytest.mark.parametrize(
    "line, words",
    [
        ("", []),
        ("a b  c", ["a", "b", "c"]),
        (r'"C:\Program Files\x.exe" -a', [r"C:\Program Files\x.exe", "-a"]),
        (r"x\"y z", [r"x\y", "z"]),  # in the program's name backslashes mean nothing
        (r'p a\\\"b "c d"e', ["p", r"a\"b", "c de"]),
        ('p "a""b"', ["p", 'a"b']),
        (r"p a\\b\ ", ["p", r"a\\b" + "\\"]),
    ],
)
def test_taken_apart(line: str, words: list[str]) -> None:
    assert commandline.split_windows_command_line(line) == words


_SHELL = {"Entrypoint": None, "Cmd": ["cmd /S /C echo %A% b"], "ArgsEscaped": True}
_ENTRY = {
    "Entrypoint": ["powershell -File C:\\run me.ps1"],
    "Cmd": ["a b", "c"],
    "ArgsEscaped": True,
}
_EXEC = {"Entrypoint": ["C:\\my app\\x.exe"], "Cmd": ["-v", "a b"]}


@pytest.mark.parametrize(
    "image, command, args, line",
    [
        ({}, (), (), ""),
        ({}, ("x", "a b"), (), 'x "a b"'),
        (_SHELL, (), (), "cmd /S /C echo %A% b"),
        (_SHELL, (), ("x y", "z"), '"x y" z'),  # nothing of the image is left
        (_SHELL, ("x y",), (), '"x y"'),
        (_ENTRY, (), (), 'powershell -File C:\\run me.ps1 "a b" c'),
        (_ENTRY, (), ("d e",), 'powershell -File C:\\run me.ps1 "d e"'),
        (_ENTRY, ("x",), (), "x"),
        (_ENTRY, ("x",), ("y z",), 'x "y z"'),
        (_EXEC, (), (), '"C:\\my app\\x.exe" -v "a b"'),
        (_EXEC, (), ("-q",), '"C:\\my app\\x.exe" -q'),
    ],
)
def test_of_a_container(
    image: dict[str, Any], command: tuple[str, ...], args: tuple[str, ...], line: str
) -> None:
    config = ContainerConfig("c", 0, "image", "id", command=command, args=args)
    assert commandline.container_command_line(config, image) == line

"""Command lines as Go's libraries parse them, and their error messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.node.programs.flags.golang import (
    BOOL,
    BOOL_MAP,
    DURATION,
    INT32,
    LABELS,
    LANGLE_MAP,
    LEVEL,
    STRING,
    STRING_MAP,
    STRINGS,
    TAINTS,
    FlagError,
    parse_flag,
    parse_pflag,
)

TABLE = {
    "dry": BOOL,
    "name": STRING,
    "max-pods": INT32,
    "deadline": DURATION,
    "dns": STRINGS,
    "gates": BOOL_MAP,
    "reserved": STRING_MAP,
    "hard": LANGLE_MAP,
    "labels": LABELS,
    "taints": TAINTS,
    "v": LEVEL,
    "help": BOOL,
}


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--name=a b", "--dry"], {"name": "a b", "dry": True}),
        (["--name", "a", "--dry=false"], {"name": "a", "dry": False}),
        (["--name="], {"name": ""}),
        (["--name=x--kubeconfig=c:\\k\\config"], {"name": "x--kubeconfig=c:\\k\\config"}),
        (["--max_pods=0x10"], {"max-pods": 16}),
        (["-v=4"], {"v": 4}),
        (["-v4"], {"v": 4}),
        (["-v", "4", "-h"], {"v": 4, "help": True}),
        (["--deadline=20m"], {"deadline": 1200.0}),
        (["--dns="], {"dns": ()}),
        (
            ["--dns=10.0.0.1,10.0.0.2", "--dns=10.0.0.3"],
            {"dns": ("10.0.0.1", "10.0.0.2", "10.0.0.3")},
        ),
        (["--gates=A=true,B=false", "--gates=C=1"], {"gates": {"A": True, "B": False, "C": True}}),
        (["--reserved=cpu=100m,memory=1Gi"], {"reserved": {"cpu": "100m", "memory": "1Gi"}}),
        (["--hard=memory.available<500Mi"], {"hard": {"memory.available": "500Mi"}}),
        (["--labels=a=b,c"], {"labels": {"a": "b", "c": ""}}),
        (
            ["--taints=os=windows:NoSchedule"],
            {"taints": ({"key": "os", "value": "windows", "effect": "NoSchedule"},)},
        ),
        (["--taints="], {"taints": ()}),
    ],
)
def test_pflag(argv: list[str], values: dict[str, Any]) -> None:
    assert parse_pflag(TABLE, argv).values == values


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--nope"], "unknown flag: --nope"),
        (["--nope=1"], "unknown flag: --nope"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["-hx"], "unknown shorthand flag: 'x' in -x"),
        (["--name"], "flag needs an argument: --name"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (["--=1"], "bad flag syntax: --=1"),
        (
            ["--dry=maybe"],
            (
                'invalid argument "maybe" for "--dry" flag: strconv.ParseBool: parsing "maybe": '
                "invalid syntax"
            ),
        ),
        (
            ["--max-pods=many"],
            (
                'invalid argument "many" for "--max-pods" flag: strconv.ParseInt: parsing '
                '"many": invalid syntax'
            ),
        ),
        (
            ["--max-pods=3000000000"],
            (
                'invalid argument "3000000000" for "--max-pods" flag: strconv.ParseInt: parsing '
                '"3000000000": value out of range'
            ),
        ),
        (
            ["--v=x"],
            (
                'invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid '
                "syntax"
            ),
        ),
        (
            ["--deadline=20"],
            'invalid argument "20" for "--deadline" flag: time: missing unit in duration "20"',
        ),
        (
            ["--gates=A"],
            'invalid argument "A" for "--gates" flag: malformed pair, expect string=bool',
        ),
        (
            ["--gates=A=x"],
            'invalid argument "A=x" for "--gates" flag: invalid value of A: x, err: '
            'strconv.ParseBool: parsing "x": '
            "invalid syntax",
        ),
        (
            ["--hard=memory.available=1"],
            (
                'invalid argument "memory.available=1" for "--hard" flag: malformed pair, expect '
                "string<string"
            ),
        ),
        (
            ["--taints=os=windows:Never"],
            (
                'invalid argument "os=windows:Never" for "--taints" flag: invalid taint effect: '
                "Never, unsupported taint effect"
            ),
        ),
    ],
)
def test_what_pflag_refuses(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as refused:
        parse_pflag(TABLE, argv)
    assert str(refused.value) == text


def test_arguments_that_are_not_flags() -> None:
    assert parse_pflag(TABLE, ["a", "--dry", "b", "--", "--name=x"]).arguments == [
        "a",
        "b",
        "--name=x",
    ]
    assert parse_flag(TABLE, ["-dry", "a", "-name=x"]).arguments == ["a", "-name=x"]


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["-nope"], "flag provided but not defined: -nope"),
        (["--dry=maybe"], 'invalid boolean value "maybe" for -dry: parse error'),
        (["--max-pods=x"], 'invalid value "x" for flag -max-pods: parse error'),
        (["-name"], "flag needs an argument: -name"),
    ],
)
def test_what_the_standard_library_refuses(argv: list[str], text: str) -> None:
    with pytest.raises(FlagError) as refused:
        parse_flag(TABLE, argv)
    assert str(refused.value) == text


@given(st.lists(st.text(max_size=12), max_size=6))
def test_any_line_is_read_or_refused(argv: list[str]) -> None:
    for parse in (parse_pflag, parse_flag):
        try:
            parse(TABLE, argv)
        except FlagError as refused:
            assert str(refused)

"""Switches accept the values that those of Kubernetes accept, and a word for no."""

from __future__ import annotations

import argparse

import pytest

from transom.cli.switches import SwitchAction


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], None),
        (["--lead"], True),
        (["--lead=true"], True),
        (["--lead=0"], False),
        (["--lead=False"], False),
        (["--no-lead"], False),
        (["--no-lead=false"], True),
        (["--lead", "--other=x"], True),
    ],
)
def test_switch(given: list[str], found: bool | None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lead", action=SwitchAction)
    parser.add_argument("--other")
    assert parser.parse_args(given).lead is found

"""The systemd units and the load balancer of docs/high-availability.md are valid."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from transom.cli.main import make_parser
from transom.store.etcd.client import parse_etcd_address

PAGE = (Path(__file__).parents[2] / "docs" / "high-availability.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE, re.S | re.M)
    return [dedent(text) for text in found]


def unit_command(unit: str) -> list[str]:
    found = re.search(r"^ExecStart=(.*)", unit.replace("\\\n", ""), re.M)
    assert found is not None
    return shlex.split(found[1])


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed (apt-get install systemd)")
    units = blocks("ini")
    assert len(units) == 2
    for name, unit in zip(("etcd.service", "transom.service"), units, strict=True):
        # The programs, which are not where the page has them on this machine.
        (tmp_path / name).write_text(unit.replace(unit_command(unit)[0], sys.executable))
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and str(tmp_path / name) not in done.stderr, done.stderr


def test_the_unit_of_a_server_has_valid_options() -> None:
    program, verb, *options = unit_command(blocks("ini")[1])
    assert (program, verb) == ("/opt/transom/bin/transom", "apiserver")
    args = make_parser(verb)[0].parse_args(options)
    assert args.bind_address == "10.0.0.2"
    address = parse_etcd_address(args.store)
    assert [str(host) for host, *_ in address.endpoints] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_haproxy_accepts_the_load_balancer(tmp_path: Path) -> None:
    if shutil.which("haproxy") is None:
        pytest.skip("haproxy is not installed (apt-get install haproxy)")
    (found,) = (text for text in blocks("text") if text.startswith("frontend"))
    config = tmp_path / "haproxy.cfg"
    config.write_text(found)
    done = subprocess.run(
        ["haproxy", "-c", "-f", str(config)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr

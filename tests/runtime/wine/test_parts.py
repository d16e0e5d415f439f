"""The parts of a Windows container, separately: registry, paths, variables, accounts, limits, jobs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from transom.machines.windows import accounts as known
from transom.network.api import DnsConfig
from transom.runtime.api import ContainerConfig, Mount, WindowsContainer, WindowsResources
from transom.runtime.native.platform import CgroupLimits, CgroupUsage
from transom.runtime.wine import (
    accounts,
    bundle,
    drives,
    environment,
    jobs,
    limits,
    registry,
    roots,
    template,
)
from transom.runtime.wine.helpers import Helpers
from transom.runtime.wine.installation import WineInstallation
from transom.runtime.wine.platform import WinePlatform
from transom.windows.builds import BUILDS

_MIB = 1 << 20


def test_registry_sections() -> None:
    values = {
        "n": registry.registry_number(10),
        'q"': registry.registry_text("C:\\x"),
        "ü": registry.registry_expand_text("%A%\n"),
    }
    assert registry.registry_sections({r"A\B": values}) == (
        '\n[A\\\\B] 0\n"n"=dword:0000000a\n"q\\""="C:\\\\x"\n"\\x00fc"=str(2):"%A%\\n"\n'
    )
    content = 'HEAD\n\n[A\\\\B] 1\n"x"="y"\n\n[A\\\\B\\\\C] 1\n\n[A\\\\BC] 1\n\n[D] 1\n'
    assert (
        registry.without_sections(content, [r"a\b" + "\\"])
        == 'HEAD\n\n[A\\\\B] 1\n"x"="y"\n\n[A\\\\BC] 1\n\n[D] 1\n'
    )
    assert registry.without_sections(content, [r"A\B"]) == "HEAD\n\n[D] 1\n"


def test_identity_of_every_build() -> None:
    for build in BUILDS.values():
        text = template.template_identity(build)
        assert f'"CurrentBuild"="{build.number}"' in text and f'"UBR"=dword:{build.ubr:08x}' in text
        assert f'"ProductName"="{build.product}"' in text


@pytest.mark.parametrize(
    "path, found",
    [
        (r"C:\a\b", ("c", ["a", "b"])),
        ("c:/a//b/", ("c", ["a", "b"])),
        (r"\a\.\b\..\c", ("c", ["a", "c"])),
        (r"C:\..\..\x", ("c", ["x"])),
        ("D:", ("d", [])),
        ("e:\\", ("e", [])),
        (r"\\?\C:\a", ("c", ["a"])),
    ],
)
def test_paths(path: str, found: tuple[str, list[str]]) -> None:
    assert drives.split_windows_path(path) == found


def test_spelling(tmp_path: Path) -> None:
    (tmp_path / "Program Files" / "App").mkdir(parents=True)
    assert (
        str(drives.spelled_path(tmp_path, ["program files", "APP", "New", "x"]))
        == "Program Files/App/New/x"
    )


def test_what_layers_spell_otherwise_is_united(tmp_path: Path) -> None:
    base, layer, snapshot = tmp_path / "template", tmp_path / "layer", tmp_path / "snapshot"
    (base / "windows" / "system32").mkdir(parents=True)
    (layer / "Windows").mkdir(parents=True)
    for path in (
        "windows/system32/a.dll",
        "Windows/System32/A.dll",
        "Windows/System32/New/b",
        "Windows/win.ini",
    ):
        (snapshot / path).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / path).write_text(path)
    drives.join_windows_path(snapshot, base, [layer])
    found = {
        str(path.relative_to(snapshot)): path.read_text()
        for path in snapshot.rglob("*")
        if path.is_file()
    }
    assert found == {
        "windows/system32/a.dll": "Windows/System32/A.dll",
        "windows/system32/New/b": "Windows/System32/New/b",
        "windows/win.ini": "Windows/win.ini",
    }


def test_programs_are_found_as_createprocess_does(tmp_path: Path) -> None:
    drive = tmp_path / "drive_c"
    for path in ("app/server.exe", "windows/system32/cmd.exe", "tools/run.bat"):
        (drive / path).parent.mkdir(parents=True, exist_ok=True)
        (drive / path).touch()
    (tmp_path / "drives" / "d").mkdir(parents=True)
    (tmp_path / "drives" / "d" / "x.exe").touch()
    folders = environment.windows_search_path({"PATH": r"C:\Tools;D:\\"})
    table = {
        "cmd": True,
        "CMD.EXE": True,
        "server": True,
        r".\SERVER.exe": True,
        r"C:\App\server": True,
        "run.bat": True,
        "run": False,
        "x": True,
        r"D:\x.exe": True,
        r"E:\x.exe": False,
        r"tools\server.exe": False,
        "nothing": False,
    }
    assert {name: drives.has_program(tmp_path, name, folders, r"C:\app") for name in table} == table


def test_where_volumes_go(tmp_path: Path) -> None:
    (tmp_path / "Windows").mkdir()
    paths = (r"C:\DATA\Inner\x", r"c:\data", r"C:\windows\y", "D:", r"d:\z", r"C:\data\inner")
    found = bundle.destinations(tmp_path, [Mount(path, "host") for path in paths])
    assert {mount.container_path: path for mount, path in found} == {
        r"c:\data": "/wine/drive_c/data",
        r"C:\data\inner": "/wine/drive_c/data/inner",
        r"C:\DATA\Inner\x": "/wine/drive_c/data/inner/x",
        r"C:\windows\y": "/wine/drive_c/Windows/y",
        "D:": "/wine/drives/d",
        r"d:\z": "/wine/drives/d/z",
    }
    assert found[0][0].container_path == "D:" and found[-1][0].container_path == r"C:\DATA\Inner\x"


def test_variables() -> None:
    image = environment.image_environment(["PATH=C:\\app", "EMPTY=", "broken", "a=1"])
    env = environment.process_environment(
        known.USER, "a-very-long-hostname", 4, image, [("A", "2"), ("Temp", "C:\\t")]
    )
    assert (env["Path"], env["EMPTY"], env["a"], env["TEMP"]) == ("C:\\app", "", "2", "C:\\t")
    assert (env["COMPUTERNAME"], env["USERNAME"], env["NUMBER_OF_PROCESSORS"]) == (
        "A-VERY-LONG-HOS",
        "ContainerUser",
        "4",
    )
    assert env["APPDATA"] == r"C:\Users\ContainerUser\AppData\Roaming"


@pytest.mark.parametrize(
    "requested, image, name, number",
    [
        ("", {}, "ContainerAdministrator", 0),
        ("", {"User": "ContainerUser"}, "ContainerUser", template.USER_ID),
        ("containeradministrator", {"User": "ContainerUser"}, "ContainerAdministrator", 0),
        ("", {"User": "app"}, "app", template.USER_ID),
        (r".\app", {"User": "app"}, "app", template.USER_ID),
        ("svc", {}, "svc", template.USER_ID),  # has a profile in a layer
        (r"NT AUTHORITY\SYSTEM", {}, "SYSTEM", 0),
        ("Public", {}, None, 0),
        ("nobody", {"User": "app"}, None, 0),
    ],
)
def test_accounts(
    tmp_path: Path, requested: str, image: dict[str, Any], name: str | None, number: int
) -> None:
    (tmp_path / "Users" / "svc").mkdir(parents=True)
    (tmp_path / "Users" / "Public").mkdir()
    config = ContainerConfig("c", 0, "i", "i", windows=WindowsContainer(run_as_user_name=requested))
    found = accounts.find_wine_account(config, image, [tmp_path], "web")
    assert (found.name if found else None) == name
    assert found is None or accounts.unix_id(found) == number


@pytest.mark.parametrize(
    "requested, cpus, given",
    [
        (WindowsResources(), 4, CgroupLimits()),
        (
            WindowsResources(cpu_maximum=2500),
            4,
            CgroupLimits(cpu_quota=100_000, cpu_period=100_000),
        ),
        (WindowsResources(cpu_maximum=10_000), 4, CgroupLimits()),
        (WindowsResources(cpu_maximum=1), 4, CgroupLimits(cpu_quota=1000, cpu_period=100_000)),
        (WindowsResources(cpu_count=2), 4, CgroupLimits(cpu_quota=200_000, cpu_period=100_000)),
        (
            WindowsResources(cpu_count=2, cpu_maximum=5000),
            4,
            CgroupLimits(cpu_quota=100_000, cpu_period=100_000),
        ),
        (WindowsResources(cpu_shares=5000, cpu_maximum=100), 4, CgroupLimits(cpu_shares=1024)),
        (WindowsResources(memory_limit=_MIB), 4, CgroupLimits(memory_soft=_MIB)),
    ],
)
def test_limits(requested: WindowsResources, cpus: int, given: CgroupLimits) -> None:
    assert limits.limits_of_resources(requested, cpus) == given


def test_a_share_is_one_of_the_nodes_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet has divided by those, and the machine may have others."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    config = ContainerConfig(
        "c", 0, "i", "i", windows=WindowsContainer(resources=WindowsResources(cpu_maximum=1000))
    )
    assert WinePlatform(Path("/nonexistent")).limits(config, 4).cpu_quota == 40_000


def test_memory_beyond_the_limit_is_paged() -> None:
    counted = CgroupUsage(1, 300 * _MIB, 250 * _MIB, 200 * _MIB, 0, 0, 3)
    assert limits.shown_usage(WindowsResources(), counted) == counted
    shown = limits.shown_usage(WindowsResources(memory_limit=100 * _MIB), counted)
    assert (shown.working_set, shown.paged, shown.usage) == (100 * _MIB, 150 * _MIB, 300 * _MIB)
    assert (
        100 * _MIB
        < limits.process_data_limit(WindowsResources(memory_limit=100 * _MIB))
        < 130 * _MIB
    )
    assert limits.process_data_limit(WindowsResources()) == 0


@pytest.mark.parametrize(
    "written, status, code",
    [
        ("pid 32\nexit 0\n", 0, 0),
        ("pid 32\nexit 3221225786\n", 58, -1073741510),
        ("pid 32\nexit 4294967295\n", 255, -1),
        ("pid 32\n", 137, -1),  # killed
        ("pid 32\nexit 4", 137, -1),  # a line that is not complete does not count
        ("error 2\n", 128, 128),
        ("", 137, 137),
        (None, 44, 44),
    ],
)
def test_exit_codes(tmp_path: Path, written: str | None, status: int, code: int) -> None:
    (tmp_path / "jobs").mkdir()
    if written is not None:
        (tmp_path / "jobs" / "main.status").write_text(written)
    assert jobs.job_exit_code(jobs.read_job(tmp_path, "main"), status) == code


def test_one_suffix() -> None:
    dns = DnsConfig(("10.96.0.10",), ("ns.svc.cluster.local", "svc.cluster.local"), ("ndots:5",))
    assert (
        roots.root_resolver(dns)
        == "nameserver 10.96.0.10\nsearch ns.svc.cluster.local\noptions timeout:2 attempts:2\n"
    )


def test_containers_that_would_have_the_same_root_share_it(tmp_path: Path) -> None:
    def root(user: known.WindowsUser = known.USER, server: str = "10.96.0.10") -> Path:
        dns, own = DnsConfig((server,)), Helpers(tmp_path)
        return roots.prefix_root(
            tmp_path / "roots", ("usr", "tmp"), "/wine", "/x/hosts", user, own, dns
        )

    first = root()
    made = {first, root(), root(server="10.96.0.11"), root(known.ADMINISTRATOR)}
    assert len(made) == 3
    assert set((tmp_path / "roots").iterdir()) == made, "nothing half made stays"
    assert (first / "etc/passwd").read_text().startswith("ContainerUser:x:")
    assert (first / "etc/resolv.conf").read_text().startswith("nameserver 10.96.0.10\n")
    assert (first / "tmp").stat().st_mode & 0o7777 == 0o1777


def test_a_prefix_that_cannot_be_made_leaves_no_processes(tmp_path: Path) -> None:
    """Wine's would go on for minutes, each taking a processor."""
    loader, server, printed = tmp_path / "wine", tmp_path / "wineserver", tmp_path / "printed"
    loader.write_text('#!/bin/sh\n[ "$1" = --version ] && echo wine-8.0\n')
    server.write_text(f'#!/bin/sh\necho "$1" "$WINEPREFIX" >> {printed}\n')
    for script in (loader, server):
        script.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        template.prepare_template(
            tmp_path / "cache", WineInstallation(loader, server, tmp_path), Helpers(tmp_path)
        )
    what, prefix = printed.read_text().split()
    assert what == "--kill" and prefix.startswith(str(tmp_path / "cache" / "making-"))
    assert not list((tmp_path / "cache").glob("making-*"))

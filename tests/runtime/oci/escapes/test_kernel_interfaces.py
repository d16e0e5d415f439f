"""Ways out by what the kernel offers: CVE-2022-0492 (release_agent of cgroups), CVE-2022-0811
(sysctls that carry others), user namespaces, device nodes, privileges of programs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.oci.escapes.attack import SHELL, linux, masked

from transom.runtime.api import LinuxSandbox, Mount, RuntimeFailure

Play = Callable[[Any], None]


def _text(path: str) -> str:
    return Path(path).read_text()


def _restore(path: str, text: str) -> None:
    Path(path).write_text(text)


def _release_agents() -> list[str]:
    return [path.read_text() for path in Path("/sys/fs/cgroup").glob("*/release_agent")]


@pytest.mark.parametrize("seccomp", ["", "unconfined"])
async def test_cgroups_run_no_program_of_a_container(
    oci: Play, tmp_path: Path, seccomp: str
) -> None:
    """The attack makes a user and a cgroup namespace, mounts a hierarchy there and names a program
    for the kernel to run.
    """

    async with oci() as b:
        attack = (
            'mkdir /mnt; for kind in rdma memory pids; do unshare -UrmC sh -c "mount -t '
            "cgroup -o $kind none /mnt && "
            f'echo {tmp_path}/pwned > /mnt/release_agent" && echo escaped; done 2>/dev/null; '
            "for f in $(find /sys/fs/cgroup -name release_agent); do (echo /evil > $f) && "
            "echo escaped; done 2>/dev/null; true"
        )
        printed = await b.output((*SHELL, attack), **masked(seccomp=seccomp))
        assert printed == []
        assert not any("evil" in text for text in _release_agents())


@pytest.mark.parametrize(
    "sysctls",
    [
        {"kernel.shm_rmid_forced": "1+kernel.core_pattern=|/evil #"},
        {"kernel.shm_rmid_forced": "1\nkernel.core_pattern=|/evil"},
        {"kernel.core_pattern": "|/evil"},
        {"kernel/core_pattern": "|/evil"},
        {"net.ipv4/../../kernel/core_pattern": "|/evil"},
        {"net...kernel.core_pattern": "|/evil"},
    ],
)
async def test_sysctls_of_a_pod_are_its_own(oci: Play, sysctls: dict[str, str]) -> None:
    async with oci() as b:
        before = _text("/proc/sys/kernel/core_pattern")
        try:
            # the kernel may take the first line of a value for all of it
            with suppress(RuntimeFailure):
                await b.sandbox(linux=LinuxSandbox(sysctls=sysctls))
        finally:
            changed = _text("/proc/sys/kernel/core_pattern") != before
            if changed:
                _restore("/proc/sys/kernel/core_pattern", before)
        assert not changed


async def test_the_usual_filter_is_the_default(oci: Play) -> None:
    async with oci() as b:
        sandbox = await b.sandbox()
        probe = (
            *SHELL,
            (
                "grep Seccomp: /proc/self/status; unshare -U true 2>&1; mount -t tmpfs none /tmp "
                "2>&1; true"
            ),
        )
        refused = "unshare: unshare(0x10000000): Operation not permitted"
        assert (await b.output(probe, sandbox, **masked()))[:2] == ["Seccomp:\t2", refused]
        assert (await b.output(probe, sandbox, **masked(seccomp="runtime/default")))[:2] == [
            "Seccomp:\t2",
            refused,
        ]
        assert (await b.output(probe, sandbox, **masked(seccomp="unconfined")))[0] == "Seccomp:\t0"
        assert (await b.output(probe, sandbox, **linux(privileged=True)))[0] == "Seccomp:\t0"
        made = await b.run(("sleep", "1000"), sandbox, **masked())
        assert (
            await b.runtime.exec_sync(made, ("grep", "Seccomp:", "/proc/self/status"))
        ).stdout == b"Seccomp:\t2\n"


async def test_device_nodes_that_a_container_makes(oci: Play) -> None:
    """It may make nodes, and open none; neither does the kubelet for it, as the file that it reads
    or writes for a client.
    """

    async with oci() as b:
        path, _ = b.volume("data")
        disk = os.stat("/").st_dev
        make = (
            f"mknod /data/disk b {os.major(disk)} {os.minor(disk)}; mknod /data/mem c 1 1; "
            "mkfifo /data/pipe; "
            "for f in disk mem; do dd if=/data/$f of=/dev/null bs=1 count=1 2>&1 | grep -c "
            "'not permitted\\|No such'; done"
        )
        # in a user namespace it cannot even make them
        sandbox = await b.sandbox(linux=LinuxSandbox(host_users=True))
        assert await b.output((*SHELL, make), sandbox, mounts=(Mount("/data", path),)) == ["1", "1"]
        for name in ("disk", "mem"):
            with pytest.raises(PermissionError):
                b.host.files.read(f"{path}/{name}")
            with pytest.raises(PermissionError):
                b.host.files.write(f"{path}/{name}", b"x")
            with pytest.raises(PermissionError):
                b.host.files.append(f"{path}/{name}", b"x")
        with pytest.raises(OSError):
            b.host.files.write(f"{path}/pipe", b"x")  # does not wait for a reader


async def test_privileges(oci: Play) -> None:
    async with oci() as b:
        sandbox = await b.sandbox()
        flags = await b.output(
            ("grep", "NoNewPrivs", "/proc/self/status"), sandbox, **masked(no_new_privileges=True)
        )
        assert flags == ["NoNewPrivs:\t1"]
        caps = await b.output(("grep", "CapInh\\|CapAmb", "/proc/self/status"), sandbox, **masked())
        assert [line.split()[1] for line in caps] == ["0" * 16, "0" * 16]  # CVE-2022-29162
        other = masked(run_as_user=1000)
        caps = await b.output(("grep", "CapEff\\|CapPrm", "/proc/self/status"), sandbox, **other)
        assert [line.split()[1] for line in caps] == ["0" * 16, "0" * 16]

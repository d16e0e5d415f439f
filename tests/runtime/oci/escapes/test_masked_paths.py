"""CVE-2025-31133, CVE-2025-52565: runc hides paths by mounting the container's /dev/null over them,
whatever it is by then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.oci.escapes.attack import masked, running, tried

from transom.runtime.api import LinuxContainer, Mount, RuntimeFailure

Play = Callable[[Any], None]
CORE_PATTERN = "/proc/sys/kernel/core_pattern"


def _core_pattern() -> str:
    return Path(CORE_PATTERN).read_text()


@pytest.mark.parametrize(
    "destination",
    ["/dev", "/dev/null", "/dev/pts", "/dev/console", "/dev/../dev", "/alias", "/dev/fd"],
)
async def test_volumes_do_not_replace_devices(oci: Play, tmp_path: Path, destination: str) -> None:
    async with oci() as b:
        extra = tmp_path / "extra"
        extra.mkdir()
        (extra / "alias").symlink_to("dev")
        assert b.add_image is not None
        b.add_image("linked", [extra])
        path, _ = b.volume("data")
        with pytest.raises(
            RuntimeFailure,
            match="a volume cannot replace devices of a container that is not privileged",
        ):
            await b.run(("true",), image="linked", mounts=(Mount(destination, path),), **masked())


async def test_a_race_for_the_null_device(oci: Play) -> None:
    """The published attack: while containers start with a shared /dev, another one makes its null a
    link to core_pattern.
    """

    async with oci() as b:
        before = _core_pattern()
        path, _ = b.volume("dev")
        sandbox = await b.sandbox()
        swap = (
            f"echo ready; while true; do rm -f /data/null; ln -s {CORE_PATTERN} /data/null; done "
            "2>/dev/null"
        )
        async with running(b, swap, sandbox, Mount("/data", path)):
            for _ in range(4):
                printed = await tried(
                    b,
                    "echo '|/evil' > /proc/kcore; cat /proc/kcore",
                    sandbox,
                    Mount("/dev", path),
                    **masked(),
                )
                assert printed is None
        assert _core_pattern() == before


async def test_other_mounts_in_dev_and_privileged_containers_are_left_alone(oci: Play) -> None:
    async with oci() as b:
        path, _ = b.volume("data")
        b.host.files.write(f"{path}/x", b"here\n")
        sandbox = await b.sandbox()
        for destination in ("/dev/shm", "/dev/mine", "/dev/hugepages"):
            mount = (Mount(destination, path),)
            assert await b.output(
                ("cat", f"{destination}/x"), sandbox, mounts=mount, **masked()
            ) == ["here"]
        b.host.files.write("/dev/x", b"of the node\n")
        whole = (Mount("/dev", "/dev"),)
        printed = await b.output(
            ("cat", "/dev/x"), sandbox, mounts=whole, linux=LinuxContainer(privileged=True)
        )
        assert printed == ["of the node"]


async def test_what_is_hidden_and_read_only(oci: Play) -> None:
    async with oci() as b:
        look = (
            "for f in /proc/kcore /proc/keys /proc/timer_list; do test -e $f && wc -c < $f; "
            "done; ls /proc/acpi /sys/firmware "
            "2>/dev/null; for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger "
            "/proc/sys/vm/drop_caches "
            "/sys/kernel/uevent_helper /sys/fs/cgroup/memory/release_agent; do (echo x > $f) "
            "2>/dev/null && echo wrote; done; "
            "grep -c ' /proc/sys ' /proc/mounts"
        )
        printed = await b.output(("sh", "-c", look), **masked())
        assert [line for line in printed if line == "wrote"] == []
        assert set(printed[:-1]) <= {"0", "/proc/acpi:", "/sys/firmware:", ""}
        assert printed[-1] == "1"

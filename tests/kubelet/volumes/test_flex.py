"""FlexVolume drivers: scripts that are really run on nodes with real files, and those of a name on simulated ones."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.machines import UID, Machine, mount, pod

from transom.hosts.realfiles import RealFiles
from transom.kubelet.base import VolumeFailure
from transom.kubelet.volumes.manager import VolumeManager

EXEC = "usr/libexec/kubernetes/kubelet-plugins/volume/exec"
SCRIPT = """\
#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case $1 in
init) echo '{"status": "Success", "capabilities": {"attach": %s}}';;
attach) echo '{"status": "Success", "device": "/dev/x"}';;
mount) rmdir "$2" && ln -s /disk "$2" && echo '{"status": "Success"}';;
unmount) rm "$2" && echo '{"status": "Success"}';;
detach) echo '{"status": "Success"}';;
*) echo '{"status": "Not supported"}';;
esac
"""


def using(driver: str, **options: str) -> dict[str, Any]:
    volume = {"name": "v", "flexVolume": {"driver": driver, "fsType": "ext4", "options": options}}
    return pod({"volumeMounts": [mount("v")]}, volumes=[volume])


def node(folder: Path, script: str) -> tuple[Machine, RealFiles]:
    machine = Machine()
    files = RealFiles(folder)
    machine.env = replace(machine.env, host=SimpleNamespace(files=files))  # type: ignore[arg-type]
    machine.volumes = VolumeManager(machine.env, machine.objects)
    path = folder / EXEC / "example.com~disk/disk"
    path.parent.mkdir(parents=True)
    path.write_text(script)
    path.chmod(0o755)
    (folder / "disk").mkdir()
    return machine, files


@pytest.mark.windows("STO-11", "STO-12", "SUP-STO-009")
@pytest.mark.parametrize(("attach", "commands"), [
    ("false", ["init", "mount", "init", "unmount"]),
    ("true", ["init", "attach", "waitforattach", "mountdevice", "mount", "init", "unmount", "unmountdevice", "detach"]),
])
def test_a_script_is_run_for_each_step(tmp_path: Path, attach: str, commands: list[str]) -> None:
    machine, files = node(tmp_path, SCRIPT % attach)
    wanted = using("example.com/disk", size="3")

    async def scenario() -> None:
        await machine.volumes.mount(wanted)
        path = machine.volumes.of(UID)["v"].path
        assert path == f"/var/lib/kubelet/pods/{UID}/volumes/example.com~disk/v"
        files.write(path + "/f", b"x")
        assert (tmp_path / "disk/f").read_bytes() == b"x"
        await machine.volumes.unmount(UID)

    asyncio.run(scenario())
    lines = (tmp_path / EXEC / "example.com~disk/calls").read_text().splitlines()
    assert [line.split()[0] for line in lines] == commands
    mounted = next(line for line in lines if line.startswith("mount "))
    options = json.loads(mounted.split(" ", 2)[2])
    assert mounted.split()[1] == str(tmp_path / f"var/lib/kubelet/pods/{UID}/volumes/example.com~disk/v")
    assert options["kubernetes.io/fsType"] == "ext4" and options["size"] == "3" and options["kubernetes.io/pod.name"] == "web"
    assert files.listdir("/var/lib/kubelet/pods") == [] and (tmp_path / "disk/f").exists()
    files.close()


@pytest.mark.parametrize(("script", "text"), [
    ('echo \'{"status": "Failure", "message": "no disk"}\'; exit 1', "init command failed, status: Failure, reason: no disk"),
    ("echo nonsense", "invalid character 'n' looking for beginning of value"),
    ("exit 3", "exit status 3"),
])
def test_a_script_that_fails(tmp_path: Path, script: str, text: str) -> None:
    machine, files = node(tmp_path, f"#!/bin/sh\n{script}\n")

    async def scenario() -> None:
        task = asyncio.create_task(machine.volumes.mount(using("example.com/disk")))
        for _ in range(500):
            if machine.events.told:
                break
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(scenario())
    assert machine.events.told[0] == ("FailedMount", f'MountVolume.SetUp failed for volume "v" : {text}')
    files.close()


@pytest.mark.windows("STO-15", "STO-16", "SUP-STO-010", "SUP-STO-011")
@pytest.mark.parametrize(("driver", "good", "bad"), [
    ("microsoft.com/smb.cmd", {"source": "//server/share"}, {"source": "server"}),
    ("microsoft.com/iscsi.cmd", {"targetPortal": "1.2.3.4", "iqn": "iqn.x:y"}, {"targetPortal": "1.2.3.4"}),
])
def test_microsofts_drivers_by_their_names(driver: str, good: dict[str, str], bad: dict[str, str]) -> None:
    machine = Machine("windows")
    with pytest.raises(VolumeFailure, match="no volume plugin matched"):
        machine.run(machine.volumes.mount(using(driver, **good)))
    folder = "C:\\" + EXEC.replace("/", "\\") + "\\" + driver.replace("/", "~")
    machine.files.mkdir(folder)
    machine.files.write(folder + "\\" + driver.partition("/")[2], b"@powershell")
    with pytest.raises(TimeoutError):
        machine.run(machine.volumes.mount(using(driver, **bad)))
    assert "mount command failed, status: Failure, reason: Caught exception" in machine.events.told[0][1]
    machine.run(machine.volumes.mount(using(driver, **good)), seconds=2)
    path = machine.volumes.of(UID)["v"].path
    machine.files.write(path + "\\f", b"x")
    machine.run(machine.volumes.unmount(UID))
    assert not machine.files.exists(path)
    machine.run(machine.volumes.mount(using(driver, **good)), seconds=2)
    assert machine.files.read(path + "\\f") == b"x"

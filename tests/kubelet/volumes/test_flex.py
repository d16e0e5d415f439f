"""FlexVolume drivers: scripts that are really run on nodes with real files, and those of a name on
simulated ones.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubelet.machines import UID, Machine, mount, pod

from transom.kubelet.base import DriverFolders, ProgramOutput
from transom.kubelet.failures import VolumeFailure
from transom.kubelet.volumes.manager import VolumeManager
from transom.machines.realfiles import RealFiles

EXEC = "usr/libexec/kubernetes/kubelet-plugins/volume/exec"
SCRIPT = """\
#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case $1 in
init) echo '{"status": "Success", "capabilities": {"attach": %s}}';;
attach) echo '{"status": "Success", "device": ""}';;
mount) mount --bind %s "$2" && echo '{"status": "Success"}';;
unmount) umount "$2" && echo '{"status": "Success"}';;
detach) echo '{"status": "Success"}';;
*) echo '{"status": "Not supported"}';;
esac
"""


def using(driver: str, **options: str) -> dict[str, Any]:
    volume = {"name": "v", "flexVolume": {"driver": driver, "fsType": "ext4", "options": options}}
    return pod({"volumeMounts": [mount("v")]}, volumes=[volume])


def install(folder: Path, script: str) -> Path:
    path = folder / "example.com~disk/disk"
    path.parent.mkdir(parents=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


def node(top: Path, script: str = "") -> tuple[Machine, RealFiles]:
    """A node with real files in `top/machines/node`; `script` becomes a driver of the cluster's
    owner.
    """
    machine = Machine()
    files = RealFiles(top / "machines/node")
    folders = DriverFolders(str(top / "drivers"), str(top / "volumes"), (str(top / "machines"),))
    machine.env = replace(machine.env, host=SimpleNamespace(files=files), drivers=folders)  # type: ignore[arg-type]
    machine.volumes = VolumeManager(machine.env, machine.objects)
    if script:
        install(top / "drivers", script)
    (top / "disk").mkdir()
    return machine, files


def failure(machine: Machine) -> str:
    """Why the volume of a pod that uses the driver cannot be mounted."""

    async def scenario() -> None:
        task = asyncio.create_task(machine.volumes.mount(using("example.com/disk")))
        for _ in range(500):
            if machine.events.recorded:
                break
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(scenario())
    reason, message = machine.events.recorded[0]
    begin = 'MountVolume.SetUp failed for volume "v" : '
    assert reason == "FailedMount" and message.startswith(begin)
    return message.removeprefix(begin)


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")


@root_only
@pytest.mark.windows("STO-11", "STO-12", "SUP-STO-009")
@pytest.mark.parametrize(
    ("attach", "commands"),
    [
        ("false", ["init", "mount", "unmount"]),
        (
            "true",
            [
                "init",
                "getvolumename",
                "attach",
                "waitforattach",
                "mountdevice",
                "mount",
                "unmount",
                "detach",
            ],
        ),
    ],
)
async def test_a_script_is_run_for_each_step(
    tmp_path: Path, attach: str, commands: list[str]
) -> None:
    machine, files = node(tmp_path, SCRIPT % (attach, tmp_path / "disk"))
    wanted = using("example.com/disk", size="3")

    await machine.volumes.mount(wanted)
    path = machine.volumes.of(UID)["v"].path
    assert path == f"/var/lib/kubelet/pods/{UID}/volumes/example.com~disk/v"
    files.write(path + "/f", b"x")
    assert (tmp_path / "disk/f").read_bytes() == b"x"
    await machine.volumes.unmount(UID)
    lines = (tmp_path / "drivers/example.com~disk/calls").read_text().splitlines()
    assert [line.split()[0] for line in lines] == commands
    mounted = next(line for line in lines if line.startswith("mount "))
    options = json.loads(mounted.split(" ", 2)[2])
    assert Path(mounted.split()[1]).parent == tmp_path / "volumes", (
        "containers cannot change this path"
    )
    assert (
        options["kubernetes.io/fsType"] == "ext4"
        and options["size"] == "3"
        and options["kubernetes.io/pod.name"] == "web"
    )
    assert files.listdir("/var/lib/kubelet/pods") == [] and (tmp_path / "disk/f").exists()
    assert (
        not list((tmp_path / "volumes").iterdir())
        and str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    )
    files.close()


@pytest.mark.parametrize(
    "script",
    [
        'echo \'{"status": "Failure", "message": "no disk"}\'; exit 1',
        "echo nonsense",
        "exit 3",
    ],
)
def test_a_script_whose_init_fails(tmp_path: Path, script: str) -> None:
    machine, files = node(tmp_path, f"#!/bin/sh\n{script}\n")
    with pytest.raises(VolumeFailure, match="no volume plugin matched"):
        asyncio.run(machine.volumes.mount(using("example.com/disk")))
    files.close()


def planted(top: Path) -> str:
    """A script that leaves a mark when it runs."""
    return f'#!/bin/sh\ntouch {top / "mark"}\necho \'{{"status": "Success"}}\'\n'


def test_a_driver_in_the_files_of_the_node_is_not_run(tmp_path: Path) -> None:
    """A pod with a hostPath can write there."""
    machine, files = node(tmp_path)
    install(tmp_path / "machines/node" / EXEC, planted(tmp_path))
    assert failure(machine) == (
        f"fork/exec /{EXEC}/example.com~disk/disk: permission denied: the driver was not "
        "installed by the cluster's owner, "
        f"whose drivers are in {tmp_path / 'drivers'}"
    )
    assert not (tmp_path / "mark").exists()
    files.close()


@pytest.mark.parametrize(
    "attack",
    [
        "folder is in a node",
        "link to the node",
        "link to the node's program",
        "foreign owner",
        "writable file",
        "writable folder",
        "writable folder above",
    ],
)
def test_a_driver_that_others_can_write_is_not_run(tmp_path: Path, attack: str) -> None:
    machine, files = node(tmp_path)
    inside = tmp_path / "machines/node" / EXEC
    program = install(inside, planted(tmp_path))
    drivers = tmp_path / "drivers"
    if attack == "folder is in a node":
        folders = replace(machine.env.drivers, programs=str(inside))
        machine.env = replace(machine.env, drivers=folders)
        machine.volumes = VolumeManager(machine.env, machine.objects)
    elif attack == "link to the node":
        drivers.symlink_to(inside)
    else:
        own = install(drivers, planted(tmp_path))
        if attack == "link to the node's program":
            own.unlink()
            own.symlink_to(program)
        elif attack == "foreign owner":
            if os.geteuid() != 0:
                pytest.skip("needs root, to change owners")
            os.chown(own, 4242, 4242)
        elif attack == "writable file":
            own.chmod(0o757)
        elif attack == "writable folder":
            own.parent.chmod(0o777)
        else:
            drivers.chmod(0o777)
    text = failure(machine)
    assert text.startswith(f"fork/exec /{EXEC}/example.com~disk/disk: permission denied: ")
    assert not (tmp_path / "mark").exists()
    files.close()


@root_only
def test_a_directory_that_becomes_a_link_leads_no_driver_out_of_the_node(tmp_path: Path) -> None:
    """A container exchanges the directory of the volume for a link, just when the driver is asked
    to mount there.
    """
    target = tmp_path / "machines/node/var/lib/kubelet/pods" / UID / "volumes/example.com~disk/v"
    swap = f"rmdir {target} && ln -s {tmp_path}/outside {target}"
    script = SCRIPT.replace("mount) ", f"mount) {swap} && ", 1) % ("false", tmp_path / "disk")
    machine, files = node(tmp_path, script)
    (tmp_path / "outside").mkdir()
    (tmp_path / "disk/secret").touch()
    assert failure(machine).startswith("mount /var/lib/kubelet/pods/")
    assert not list((tmp_path / "outside").iterdir())
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    files.close()


def test_a_driver_gets_a_short_environment_and_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "x")
    report = tmp_path / "report"
    machine, files = node(
        tmp_path,
        f"#!/bin/sh\nenv > {report}; pwd >> {report}; ls /proc/$$/fd >> {report}\nexit 3\n",
    )
    with (tmp_path / "leak").open("w") as leak:
        os.set_inheritable(leak.fileno(), True)
        number = leak.fileno()
        with pytest.raises(VolumeFailure, match="no volume plugin matched"):
            asyncio.run(machine.volumes.mount(using("example.com/disk")))
    lines = report.read_text().splitlines()
    assert "SECRET=x" not in lines and "/" in lines and str(number) not in lines
    files.close()


class Program:
    """A driver on a simulated node: answers by command, and what it was called with."""

    def __init__(self, machine: Machine, **answers: str | tuple[int, str] | OSError) -> None:
        self.machine = machine
        self.answers = {
            "init": '{"status": "Success", "capabilities": {"attach": false}}',
            **answers,
        }
        self.calls: list[list[str]] = []
        machine.env = replace(machine.env, run_program=self.run)
        machine.volumes = VolumeManager(machine.env, machine.objects)
        self.path = f"/{EXEC}/example.com~disk/disk"
        machine.files.mkdir(f"/{EXEC}/example.com~disk")
        machine.files.write(self.path, b"#!/bin/sh", 0o755)

    async def run(self, argv: Sequence[str], seconds: float, **_: Any) -> ProgramOutput:
        assert argv[0] == self.path
        self.calls.append(list(argv[1:]))
        answer = self.answers.get(argv[1], '{"status": "Not supported"}')
        if isinstance(answer, OSError):
            raise answer
        code, text = answer if isinstance(answer, tuple) else (0, answer)
        if argv[1] in ("mount", "mountdevice") and (code, text) == (0, OK):
            self.machine.files.mount_tmpfs(argv[2], 1 << 20)  # type: ignore[attr-defined]
        if argv[1] in ("unmount", "unmountdevice") and (code, text) == (0, OK):
            self.machine.files.unmount(argv[2])  # type: ignore[attr-defined]
        return ProgramOutput(code, text.encode())

    @property
    def commands(self) -> list[str]:
        return [call[0] for call in self.calls]


OK = '{"status": "Success"}'
ATTACHING = '{"status": "Success", "Capabilities": {"attach": true}}'


def test_a_driver_on_a_simulated_node_is_asked_for_init_once() -> None:
    machine = Machine()
    program = Program(machine, mount=OK, unmount=OK)
    for _ in range(2):
        machine.run(machine.volumes.mount(using("example.com/disk")))
        machine.run(machine.volumes.unmount(UID))
    assert program.commands == ["init", "mount", "unmount", "mount", "unmount"]
    machine.files.write(program.path, b"#!/bin/sh\n# another", 0o755)
    machine.run(machine.volumes.mount(using("example.com/disk")))
    assert program.commands[5:] == ["init", "mount"]


def test_a_driver_that_attaches_gets_all_calls_in_order() -> None:
    machine = Machine()
    attached = '{"status": "Success", "device": "/dev/sdx"}'
    program = Program(
        machine,
        init=ATTACHING,
        attach=attached,
        waitforattach='{"status": "Success", "device": "/dev/sdy"}',
        mountdevice=OK,
        unmountdevice=OK,
        mount=OK,
        unmount=OK,
        detach=OK,
    )
    machine.run(machine.volumes.mount(using("example.com/disk", size="3")))
    machine.run(machine.volumes.unmount(UID))
    assert program.commands == [
        "init",
        "getvolumename",
        "attach",
        "waitforattach",
        "mountdevice",
        "mount",
        "unmount",
        "unmountdevice",
        "detach",
    ]
    given = '{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"rw","size":"3"}'
    node, device = (
        machine.env.config.node_name,
        "/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com~disk/mounts/v",
    )
    by_name = {call[0]: call[1:] for call in program.calls}
    assert by_name["attach"] == [given, node]
    assert by_name["waitforattach"] == ["/dev/sdx", given]
    assert by_name["mountdevice"] == [device, "/dev/sdy", given]
    assert by_name["unmountdevice"] == [device]
    assert by_name["detach"] == ["v", node]
    assert (
        "SuccessfulAttachVolume",
        'AttachVolume.Attach succeeded for volume "v" ',
    ) in machine.events.recorded
    assert '"kubernetes.io/pod.name":"web"' in by_name["mount"][1]


def test_what_a_driver_does_not_support_is_not_asked_again_and_done_by_the_kubelet() -> None:
    machine = Machine()
    program = Program(machine, init=ATTACHING, mountdevice=OK, unmountdevice=OK)
    for _ in range(2):
        machine.run(machine.volumes.mount(using("example.com/disk")))
        machine.files.write(machine.volumes.of(UID)["v"].path + "/f", b"x")
        machine.run(machine.volumes.unmount(UID))
    assert program.commands == [
        "init",
        "getvolumename",
        "attach",
        "waitforattach",
        "mountdevice",
        "mount",
        "unmount",
        "unmountdevice",
        "detach",
        "mountdevice",
        "unmountdevice",
    ]


@pytest.mark.windows("STO-11", "STO-12")
@pytest.mark.parametrize(
    ("answers", "reason", "message"),
    [
        (
            {"mount": (1, '{"status": "Failure", "message": "no disk"}')},
            "FailedMount",
            (
                'MountVolume.SetUp failed for volume "v" : mount command failed, status: '
                "Failure, reason: no disk"
            ),
        ),
        (
            {"mount": "nonsense"},
            "FailedMount",
            (
                "MountVolume.SetUp failed for volume \"v\" : invalid character 'o' in literal "
                "null (expecting 'u')"
            ),
        ),
        (
            {"mount": (3, "")},
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : unexpected end of JSON input',
        ),
        (
            {"mount": (3, OK)},
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : exit status 3',
        ),
        (
            {"mount": OK + "x"},
            "FailedMount",
            (
                "MountVolume.SetUp failed for volume \"v\" : invalid character 'x' after "
                "top-level value"
            ),
        ),
        (
            {"mount": "[1]"},
            "FailedMount",
            (
                'MountVolume.SetUp failed for volume "v" : json: cannot unmarshal array into Go '
                "value of type flexvolume.DriverStatus"
            ),
        ),
        (
            {"mount": PermissionError(13, "Permission denied")},
            "FailedMount",
            (
                'MountVolume.SetUp failed for volume "v" : fork/exec '
                f"/{EXEC}/example.com~disk/disk: permission denied"
            ),
        ),
        (
            {"init": ATTACHING, "attach": '{"status": "Failure", "message": "busy"}'},
            "FailedAttachVolume",
            (
                'AttachVolume.Attach failed for volume "v" : attach command failed, status: '
                "Failure, reason: busy"
            ),
        ),
        (
            {"init": ATTACHING, "waitforattach": '{"status": "Failure"}'},
            "FailedMount",
            (
                'MountVolume.WaitForAttach failed for volume "v" : waitforattach command failed, '
                "status: Failure, reason: "
            ),
        ),
        (
            {"init": ATTACHING, "mountdevice": '{"status": "Failure", "message": "bad"}'},
            "FailedMount",
            (
                'MountVolume.MountDevice failed for volume "v" : mountdevice command failed, '
                "status: Failure, reason: bad"
            ),
        ),
    ],
)
def test_a_driver_that_fails_makes_the_mount_fail(
    answers: dict[str, Any], reason: str, message: str
) -> None:
    machine = Machine()
    Program(machine, **answers)
    with pytest.raises(TimeoutError):
        machine.run(machine.volumes.mount(using("example.com/disk")))
    recorded = [event for event in machine.events.recorded if event[0].startswith("Failed")]
    assert recorded[0] == (reason, message)
    assert not machine.files.exists(f"/var/lib/kubelet/pods/{UID}/volumes/example.com~disk/v")


@pytest.mark.parametrize(
    "answer", ['{"status": "Failure"}', "nonsense", (1, ""), OSError(8, "Exec format error")]
)
def test_a_driver_whose_init_fails_is_not_used(answer: Any) -> None:
    machine = Machine()
    Program(machine, init=answer)
    with pytest.raises(
        VolumeFailure,
        match='failed to get Plugin from volumeSpec for volume "v" err=no volume plugin matched',
    ):
        machine.run(machine.volumes.mount(using("example.com/disk")))

"""The real plugins of Debian's containernetworking-plugins and ours answer the same JSON to the
same calls.

host-local runs as it is, with a directory of the test for its data. loopback and bridge run in
network namespaces of their own, which only root can make; they end with the processes that hold
them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.network.cni.debian_plugins import (
    DEBIAN,
    exec_plugin,
    plugin_programs,
    supported_versions,
)

from transom.network.cni.plugin import CniCall, CniError
from transom.network.cni.plugins import plugin_table
from transom.network.cni.results import as_version
from transom.network.cni.runner import Execute, in_process

pytestmark = pytest.mark.skipif(
    not Path(DEBIAN, "host-local").exists(),
    reason=f"Debian's package containernetworking-plugins is not in {DEBIAN}",
)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("nsenter"),
    reason="network namespaces need root, unshare and nsenter",
)


def plainly(
    argv: Sequence[str], environment: Mapping[str, str], data: bytes
) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        argv, env=dict(environment), input=data, capture_output=True, timeout=30, check=False
    )
    return done.returncode, done.stdout, done.stderr


def printed(execute: Execute, kind: str, call: CniCall) -> Any:
    try:
        result = execute(kind, call)
        return (
            None if result is None else as_version(result, call.config.get("cniVersion") or "0.1.0")
        )
    except CniError as error:
        return error.as_json()


VERSIONS = ("", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_host_local_says_the_same(node: Any, tmp_path: Path, version: str) -> None:
    def conf(*ranges: Any, **more: Any) -> dict[str, Any]:
        return {
            "name": "net",
            "type": "x",
            **({"cniVersion": version} if version else {}),
            "ipam": {
                "type": "host-local",
                "dataDir": str(tmp_path),
                "ranges": list(ranges),
                **more,
            },
        }

    small, six = [{"subnet": "10.1.2.0/29"}], [{"subnet": "fd00::/64"}]
    two = [{"subnet": "10.8.0.0/30"}, {"subnet": "10.9.0.0/30", "gateway": "10.9.0.2"}]
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "10.0.0.0/8", "gw": "10.1.2.3"}]
    steps: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
        ("ADD", "a", conf(small, six, routes=routes), {}),
        ("ADD", "a", conf(small, six), {}),
        ("ADD", "b", conf(small, six), {"IP": "10.1.2.6"}),
        ("ADD", "c", conf(small, six), {"IP": "10.1.2.6"}),
        ("ADD", "c", conf(small, six), {"IP": "10.1.2.1"}),
        ("ADD", "c", conf(small, six), {"IP": "10.77.0.1"}),
        ("ADD", "c", conf(small, six), {"X": "1"}),
        ("ADD", "c", conf(small, six), {"X": "1", "IgnoreUnknown": "true"}),
        ("CHECK", "c", conf(small, six), {}),
        ("CHECK", "nobody", conf(small, six), {}),
        ("DEL", "a", conf(small, six), {}),
        ("DEL", "a", conf(small, six), {}),
        *(("ADD", f"d{number}", conf(small), {}) for number in range(6)),
        *(("ADD", f"e{number}", conf(two), {}) for number in range(5)),
        ("DEL", "d1", conf(small), {}),
        ("ADD", "f", conf(small), {}),
        ("ADD", "g", conf(small, [{"subnet": "10.3.0.0/24"}]), {}),
        ("ADD", "h", conf([{"subnet": "10.1.0.0/16"}], [{"subnet": "10.1.3.0/24"}]), {}),
        ("ADD", "h", conf([{"subnet": "10.1.0.0/16", "rangeStart": "10.2.0.1"}]), {}),
        ("ADD", "h", conf([{"subnet": "10.1.0.1/16"}]), {}),
        ("ADD", "h", conf([{"subnet": "10.1.0.0/32"}]), {}),
        ("ADD", "h", conf([{"subnet": "nonsense"}]), {}),
        ("ADD", "h", conf(), {}),
        ("ADD", "h", {"name": "net", "cniVersion": version}, {}),
        ("ADD", "h", {"cniVersion": version}, {}),
    ]
    real, ours = plugin_programs(plainly), in_process(node.machine)
    for command, container, config, args in steps:
        call = CniCall(command, container, "/ns", "eth0", args, DEBIAN, config)  # type: ignore[arg-type]
        assert printed(ours, "host-local", call) == printed(real, "host-local", call), (
            command,
            container,
            config,
            args,
        )
    if version != "1.1.0":
        there = {path.name: path.read_bytes() for path in (tmp_path / "net").iterdir()}
        here = node.files.listdir(f"{tmp_path}/net")
        assert {name: node.files.read(f"{tmp_path}/net/{name}") for name in here} == there


def test_versions_and_failures_of_programs(tmp_path: Path) -> None:
    versions = supported_versions(plainly)
    for kind in ("bridge", "host-local", "loopback", "portmap", "static"):
        assert versions(kind) == plugin_table("linux")[kind].versions
    assert versions("nothing") is None
    call = CniCall("ADD", "c", "/ns", "eth0", {}, str(tmp_path), {})
    for body, text in (
        ("exit 3", "netplugin failed with no error message: exit status 3"),
        ("echo help >&2; exit 1", 'netplugin failed: "help\\n"'),
        (
            "echo no; exit 1",
            'netplugin failed but error parsing its diagnostic message "no\\n": '
            "invalid character 'o' in literal null (expecting 'u')",
        ),
        ('echo \'{"code":7,"msg":"m","details":"d"}\'; exit 1', "m; d"),
    ):
        program = tmp_path / "x"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        with pytest.raises(CniError) as caught:
            exec_plugin(plainly, str(tmp_path), "x", call)
        assert str(caught.value) == text
    with pytest.raises(CniError) as caught:
        exec_plugin(plainly, str(tmp_path), "y", call)
    assert str(caught.value) == f'failed to find plugin "y" in path [{tmp_path}]'


@pytest.fixture
def namespaces() -> Iterator[list[int]]:
    """Two processes, each with a network namespace of its own."""
    held = [
        subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE
        )
        for _ in "ab"
    ]
    try:
        for process in held:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield [process.pid for process in held]
    finally:
        for process in held:
            process.kill()
            process.communicate()


def plain(answer: Any, path: str) -> str:
    """Without what is another one every time."""
    text = re.sub(r"veth[0-9a-f]{8}", "vethX", str(answer).replace(path, "PATH"))
    return re.sub(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC", text)


@needs_root
@pytest.mark.parametrize("version", ["0.2.0", "0.3.1", "0.4.0", "1.0.0"])
def test_bridge_and_loopback_say_the_same(
    node: Any, namespaces: list[int], tmp_path: Path, version: str
) -> None:
    host, inside = namespaces

    def run_in(
        argv: Sequence[str], environment: Mapping[str, str], data: bytes
    ) -> tuple[int, bytes, bytes]:
        return plainly(["nsenter", "-t", str(host), "-n", *argv], environment, data)

    real, ours = plugin_programs(run_in), in_process(node.machine)
    there, here = f"/proc/{inside}/ns/net", node.sandbox("c1")
    ipam = {
        "type": "host-local",
        "dataDir": str(tmp_path),
        "ranges": [[{"subnet": "10.1.2.0/24"}]],
        "routes": [{"dst": "10.0.0.0/8"}],
    }
    conf = {
        "name": "net",
        "cniVersion": version,
        "bridge": "br0",
        "isDefaultGateway": True,
        "ipam": ipam,
        "mtu": 1400,
        "hairpinMode": True,
        "dns": {"nameservers": ["10.96.0.10"]},
    }
    call = CniCall("ADD", "c1", there, "eth0", {}, DEBIAN, conf)
    loop = replace(call, config={"name": "lo", "cniVersion": version})
    node.machine.fabric.stacks["n1/c1"].add_address("lo", "::1/128")
    answers: list[Any] = []
    for execute, path in ((real, there), (ours, here)):
        added = printed(execute, "bridge", replace(call, netns=path))
        previous = {**conf, "prevResult": added}
        answers.append(
            [
                plain(answer, path)
                for answer in (
                    added,
                    printed(
                        execute,
                        "bridge",
                        replace(call, netns=path, command="CHECK", config=previous),
                    ),
                    printed(execute, "bridge", replace(call, netns=path, container_id="c2")),
                    printed(
                        execute,
                        "bridge",
                        replace(
                            call,
                            netns=path,
                            container_id="c3",
                            config={
                                **conf,
                                "ipam": {**ipam, "ranges": [[{"subnet": "10.5.0.0/24"}]]},
                            },
                            ifname="eth1",
                        ),
                    ),
                    printed(
                        execute,
                        "bridge",
                        replace(call, netns=path, config={**conf, "bridge": "lo"}),
                    ),
                    printed(
                        execute, "bridge", replace(call, netns=path, config={**conf, "vlan": 5000})
                    ),
                    printed(execute, "bridge", replace(call, netns="/none")),
                    printed(execute, "bridge", replace(call, netns=path, command="DEL")),
                    printed(execute, "bridge", replace(call, netns=path, command="DEL")),
                    # Debian's writes the form of 1.0.0 whatever it is asked for
                    *(
                        [printed(execute, "loopback", replace(loop, netns=path))]
                        if version == "1.0.0"
                        else []
                    ),
                    printed(
                        execute,
                        "loopback",
                        replace(loop, netns=path, config={**loop.config, "prevResult": added}),
                    ),
                )
            ]
        )
    for real_answer, our_answer in zip(*answers, strict=True):
        assert our_answer == real_answer

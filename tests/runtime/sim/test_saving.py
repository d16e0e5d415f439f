"""What a simulated docker or containerd has after a restart of the process: as after a reboot of
its machine.
"""

from __future__ import annotations

from typing import Literal

import pytest
from tests.runtime.sim.harness import SimHarness, make

from transom.machines.saving import SavedContents, pack_state, unpack_state
from transom.runtime.api import Mount
from transom.runtime.sim.engine import Flavour


async def again(
    harness: SimHarness, os: Literal["linux", "windows"], flavour: Flavour
) -> SimHarness:
    await harness.clock.run_for(5)
    contents = SavedContents()
    data = pack_state(
        {"host": harness.host.save(contents), "runtime": harness.runtime.save(contents)}, contents
    )
    new = make(os, flavour)
    document, contents = unpack_state(data)
    new.host.restore(document["host"], contents)
    new.runtime.restore(document["runtime"], contents)
    return new


@pytest.mark.parametrize("flavour", ["docker", "containerd"])
@pytest.mark.parametrize("os", ["linux", "windows"])
async def test_containers_have_ended_and_keep_what_they_had(
    os: Literal["linux", "windows"], flavour: Flavour
) -> None:
    harness = make(os, flavour)
    image = "busybox" if os == "linux" else "mcr.microsoft.com/windows/nanoserver:1809"
    folder = "/data" if os == "linux" else "C:\\data"
    harness.host.files.mkdir(folder)
    sandbox = await harness.sandbox(labels={"a": "b"}, attempt=2)
    ended = await harness.container(
        "exit", "3", image=image, sandbox=sandbox, log_path="main_0.log"
    )
    runs = await harness.container(
        "say",
        "hello\n",
        image=image,
        sandbox=sandbox,
        attempt=1,
        log_path="main_1.log",
        labels={"c": "d"},
        env=(("A", "1"),),
        mounts=(Mount("/mnt" if os == "linux" else "C:\\mnt", folder, True),),
    )
    before = {c.id: c for c in harness.runtime.containers()}
    images = {i.id: i for i in harness.runtime.images()}
    used = harness.host.disk().used
    new = await again(harness, os, flavour)
    assert {i.id: i for i in new.runtime.images()} == images
    assert new.runtime.image_filesystem() == harness.runtime.image_filesystem()
    assert new.host.disk().used == used
    (box,) = new.runtime.sandboxes("uid-1")
    assert (box.id, box.state, box.config.attempt) == (sandbox, "notready", 2)
    assert box.config == harness.runtime.sandboxes()[0].config
    assert new.state(ended) == before[ended]
    after = new.state(runs)
    assert (after.state, after.exit_code, after.reason) == ("exited", 255, "Error")
    assert after.started_at == before[runs].started_at
    assert after.finished_at > after.started_at
    assert (after.labels, after.mounts, after.attempt) == (
        before[runs].labels,
        before[runs].mounts,
        1,
    )
    log = new.host.files.read(after.log_path)
    assert log.endswith(b"hello\n")
    # What a kubelet does next works: the old one goes, a new one is made from the image that is
    # there.
    await new.do(new.runtime.stop_sandbox(sandbox))
    await new.do(new.runtime.remove_sandbox(sandbox))
    assert not new.runtime.containers()
    assert new.runtime.image(image) is not None
    started = await new.container(
        "polite", image=image, sandbox=await new.sandbox(attempt=3), attempt=2
    )
    assert new.state(started).state == "running"


async def test_the_writable_layer_counts_and_is_given_back() -> None:
    harness = make()
    container = await harness.container("polite")
    harness.programs[-1].context.files.write("/big", b"x" * 1_000_000)
    (before,) = [
        stat for stat in harness.runtime.container_stats() if stat.writable_layer is not None
    ]
    assert before.writable_layer is not None
    assert before.writable_layer.used > 1_000_000
    used = harness.host.disk().used
    new = await again(harness, "linux", "docker")
    assert new.host.disk().used == used
    await new.do(new.runtime.remove_container(container))
    assert new.host.disk().used <= used - before.writable_layer.used

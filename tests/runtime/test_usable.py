"""Parts of a node that this machine does not have are left out of requests to real runtimes."""

from __future__ import annotations

import os

from transom.runtime.api import LinuxResources
from transom.runtime.cri.to_cri import cri_linux_resources
from transom.runtime.usable import usable_cpus, usable_numa_nodes


def test_only_cpus_and_numa_nodes_of_this_machine_are_used() -> None:
    first = str(min(os.sched_getaffinity(0)))
    assert (usable_cpus(first), usable_cpus("4000"), usable_cpus("")) == (first, "", "")
    assert (usable_numa_nodes("0"), usable_numa_nodes("0,100")) == ("0", "")


def test_a_cri_request_has_the_cpus_and_numa_nodes() -> None:
    first = str(min(os.sched_getaffinity(0)))
    message = cri_linux_resources(LinuxResources(cpuset_cpus=first, cpuset_mems="0"))
    assert (message["cpuset_cpus"], message["cpuset_mems"]) == (first, "0")

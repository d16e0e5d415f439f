"""The source VIP of a Windows node with an overlay network: an address of its subnet that kube-proxy puts in as the source.

The scripts that start such a node have host-local give it to a container `dummy` that does not exist, and write down what
they asked and what they got. They ask once: after the node has joined again with another subnet the file is stale.
"""

from __future__ import annotations

import orjson

from transom.network.cni import results
from transom.network.cni.plugin import Call, Machine
from transom.network.cni.runner import Execute, in_process

FILE = r"C:\k\sourceVip.json"
REQUEST = r"C:\k\sourceVipRequest.json"


def source_vip(machine: Machine, network: str, subnet: str, execute: Execute | None = None) -> str:
    """Raises CniError when there is no address left."""
    files = machine.files
    if not files.exists(FILE):
        request = {
            "cniVersion": "0.2.0", "name": network,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "dataDir": "/var/lib/cni/networks"},
        }  # fmt: skip
        files.mkdir("C:\\k")
        files.write(REQUEST, orjson.dumps(request))
        run = execute or in_process(machine)
        answer = run("host-local", Call("ADD", "dummy", "dummy", "dummy", {}, r"C:\k\cni", request))
        assert answer is not None
        files.write(FILE, orjson.dumps(results.as_version(answer, "0.2.0"), option=orjson.OPT_INDENT_2))
    return str(orjson.loads(files.read(FILE))["ip4"]["ip"]).split("/")[0]

"""The source VIP of a Windows node with an overlay network: an address of its subnet that
kube-proxy uses as source.

The scripts that start such a node request it from host-local for a container `dummy` that does not
exist, and save the request and the response. They do this only once: if the node joins again with
another subnet, the file is stale.
"""

from __future__ import annotations

import codecs

import orjson

from transom.machines.api import Files
from transom.machines.smallfiles import read_small_file
from transom.network.cni import results
from transom.network.cni.plugin import CniCall, CniNode
from transom.network.cni.runner import Execute, in_process

FILE = r"C:\k\sourceVip.json"
REQUEST = r"C:\k\sourceVipRequest.json"


def source_vip(machine: CniNode, network: str, subnet: str, execute: Execute | None = None) -> str:
    """Raises CniError if no address is left."""
    files = machine.files
    if not files.exists(FILE):
        request = {
            "cniVersion": "0.2.0",
            "name": network,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": subnet}]],
                "dataDir": "/var/lib/cni/networks",
            },
        }
        files.mkdir("C:\\k")
        files.write(REQUEST, orjson.dumps(request))
        run = execute or in_process(machine)
        # An address that an earlier request reserved would make this one fail.
        run("host-local", CniCall("DEL", "dummy", "dummy", "dummy", {}, r"C:\k\cni", request))
        answer = run(
            "host-local", CniCall("ADD", "dummy", "dummy", "dummy", {}, r"C:\k\cni", request)
        )
        assert answer is not None
        files.write(
            FILE, orjson.dumps(results.as_version(answer, "0.2.0"), option=orjson.OPT_INDENT_2)
        )
    return saved_source_vip(files)


def saved_source_vip(files: Files) -> str:
    """The address in the file, which the script of a node writes with Out-File, as UTF-16. Raises
    OSError, ValueError, KeyError or TypeError.
    """
    content = read_small_file(files, FILE)
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    answer = orjson.loads(content.decode("utf-16" if wide else "utf-8-sig"))
    return str(answer["ip4"]["ip"]).partition("/")[0]

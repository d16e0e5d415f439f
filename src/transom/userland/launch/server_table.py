"""The table of server programs."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.kit.lazy import lazy_function
from transom.userland.api import Program, ProgramContext
from transom.userland.servers import interpreters, load, redis, simple, web
from transom.userland.servers.agnhost import agnhost
from transom.userland.servers.idle import Pause

if TYPE_CHECKING:
    from transom.userland.csi.attacher import csi_attacher
    from transom.userland.csi.driver import csi_driver
    from transom.userland.csi.provisioner import csi_provisioner
    from transom.userland.csi.registrar import csi_liveness, csi_registrar, csi_waiting
    from transom.userland.csi.resizer import csi_resizer
    from transom.userland.csi.snapshots import csi_snapshotter, snapshot_controller
    from transom.userland.dra.driver import dra_example_driver
    from transom.userland.servers.node_agents import (
        csi_proxy,
        node_agent,
        windows_flannel,
        windows_kube_proxy,
    )
    from transom.userland.servers.sample_apiserver import sample_apiserver
else:  # few clusters have CSI drivers and agents in containers
    csi_attacher = lazy_function("transom.userland.csi.attacher", "csi_attacher")
    csi_driver = lazy_function("transom.userland.csi.driver", "csi_driver")
    csi_liveness = lazy_function("transom.userland.csi.registrar", "csi_liveness")
    csi_provisioner = lazy_function("transom.userland.csi.provisioner", "csi_provisioner")
    csi_registrar = lazy_function("transom.userland.csi.registrar", "csi_registrar")
    csi_resizer = lazy_function("transom.userland.csi.resizer", "csi_resizer")
    csi_snapshotter = lazy_function("transom.userland.csi.snapshots", "csi_snapshotter")
    csi_waiting = lazy_function("transom.userland.csi.registrar", "csi_waiting")
    dra_example_driver = lazy_function("transom.userland.dra.driver", "dra_example_driver")
    snapshot_controller = lazy_function("transom.userland.csi.snapshots", "snapshot_controller")
    csi_proxy = lazy_function("transom.userland.servers.node_agents", "csi_proxy")
    sample_apiserver = lazy_function(
        "transom.userland.servers.sample_apiserver", "sample_apiserver"
    )
    node_agent = lazy_function("transom.userland.servers.node_agents", "node_agent")
    windows_flannel = lazy_function("transom.userland.servers.node_agents", "windows_flannel")
    windows_kube_proxy = lazy_function("transom.userland.servers.node_agents", "windows_kube_proxy")

Factory = Callable[[ProgramContext], Program]
assumed_server = simple.assumed_server


# By the names in the image catalogue.
PROGRAMS: dict[str, Factory] = {
    "agnhost": agnhost,
    "aspnet": simple.aspnet,
    "csi-attacher": csi_attacher,
    "csi-driver": csi_driver,
    "csi-liveness": csi_liveness,
    "csi-provisioner": csi_provisioner,
    "csi-proxy": csi_proxy,
    "csi-registrar": csi_registrar,
    "csi-resizer": csi_resizer,
    "csi-snapshotter": csi_snapshotter,
    "csi-waiting": csi_waiting,
    "dra-example-driver": dra_example_driver,
    "echoserver": simple.echo_server,
    "hello-app": simple.hello_app,
    "hello-world": interpreters.hello_world,
    "hpa-example": simple.hpa_example,
    "http": simple.generic,
    "http-echo": simple.http_echo,
    "httpd": web.httpd,
    "iis": web.iis,
    "liveness": simple.liveness_server,
    "nginx": web.nginx,
    "node": interpreters.node_program,
    "node-agent": node_agent,
    "nonroot": interpreters.nonroot,
    "pause": Pause,
    "perl": interpreters.perl,
    "python": interpreters.python,
    "redis": redis.redis,
    "resource-consumer": load.resource_consumer,
    "sample-apiserver": sample_apiserver,
    "serve-hostname": simple.serve_hostname,
    "server": simple.generic,
    "set-uid": interpreters.set_uid,
    "snapshot-controller": snapshot_controller,
    "stress": load.stress,
    "testlimit": load.testlimit,
    "windows-flannel": windows_flannel,
    "windows-kube-proxy": windows_kube_proxy,
}

# By the name of the executable, whatever the image.
_EXECUTABLES: dict[str, str] = {
    "agnhost": "agnhost",
    "agnhost-2": "agnhost",
    "apache2-foreground": "httpd",
    "calico": "node-agent",
    "calico-ipam": "node-agent",
    "calico-node": "node-agent",
    "check-status": "node-agent",
    "hello-app": "hello-app",
    "http-echo": "http-echo",
    "httpd": "httpd",
    "httpd-foreground": "httpd",
    "nginx": "nginx",
    "node": "node",
    "npm": "node",
    "pause": "pause",
    "perl": "perl",
    "python": "python",
    "python2": "python",
    "python3": "python",
    "redis-server": "redis",
    "serve_hostname": "serve-hostname",
    "servicemonitor": "iis",
    "stress": "stress",
    "stress-ng": "stress",
    "testlimit": "testlimit",
    "yarn": "node",
}


_NOT_OWN = frozenset(
    ("sh", "bash", "ash", "cmd", "powershell", "pwsh", "docker-entrypoint.sh", "entrypoint.sh")
)


def program_for(context: ProgramContext, name: str) -> Factory | None:
    """A server by the executable's name, if the image contains it: it is the image's own program,
    or the image is unknown.
    """
    windows = context.os == "windows"
    base = (
        ntpath.basename(name).lower().removesuffix(".exe") if windows else posixpath.basename(name)
    )
    image = context.image
    program = _EXECUTABLES.get(base)
    programs = (image.program, *image.options.get("programs", "").split())
    if program is not None and (image.userland == "any" or program in programs):
        return PROGRAMS[program]
    own = (*image.entrypoint[:1], *image.cmd[:1])
    if windows and not ntpath.dirname(name):  # found in the root of the image's volume
        own = tuple(ntpath.basename(path).lower() for path in own)
        name = name.lower() if name.lower().endswith(".exe") else f"{name.lower()}.exe"
    if image.program and base not in _NOT_OWN and name in own:
        return PROGRAMS.get(image.program)
    return None


def image_program(context: ProgramContext) -> Factory | None:
    """The image's program, if the command is the image's own."""
    image = context.image
    own = image.entrypoint or image.cmd
    if not image.program or not own or context.argv[: len(own)] != own:
        return None
    return PROGRAMS.get(image.program)

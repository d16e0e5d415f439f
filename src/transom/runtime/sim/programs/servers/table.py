"""Which program serves under which name."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Callable
from importlib import import_module

from transom.runtime.sim.program_api import Program, ProgramContext
from transom.runtime.sim.programs.servers import interpreters, load, redis, simple, web
from transom.runtime.sim.programs.servers.agnhost import agnhost
from transom.runtime.sim.programs.servers.idle import Pause

Factory = Callable[[ProgramContext], Program]
generic = simple.generic


def _late(module: str, name: str) -> Factory:
    """One of a package that few clusters need."""

    def start(context: ProgramContext) -> Program:
        found: Factory = getattr(import_module(f"transom.runtime.sim.programs.csi.{module}"), name)
        return found(context)

    return start


# As images of the catalogue name them.
PROGRAMS: dict[str, Factory] = {
    "agnhost": agnhost,
    "aspnet": simple.aspnet,
    "csi-attacher": _late("attacher", "attacher"),
    "csi-driver": _late("driver", "driver"),
    "csi-liveness": _late("registrar", "liveness"),
    "csi-provisioner": _late("provisioner", "provisioner"),
    "csi-registrar": _late("registrar", "registrar"),
    "csi-resizer": _late("resizer", "resizer"),
    "csi-snapshotter": _late("snapshots", "snapshotter"),
    "csi-waiting": _late("registrar", "waiting"),
    "echoserver": simple.echo_server,
    "hello-app": simple.hello_app,
    "hello-world": interpreters.hello_world,
    "hpa-example": simple.hpa_example,
    "http": simple.generic,
    "http-echo": simple.http_echo,
    "httpd": web.httpd,
    "iis": web.iis,
    "liveness": simple.liveness,
    "nginx": web.nginx,
    "node": interpreters.node,
    "nonroot": interpreters.nonroot,
    "pause": Pause,
    "perl": interpreters.perl,
    "python": interpreters.python,
    "redis": redis.redis,
    "resource-consumer": load.resource_consumer,
    "serve-hostname": simple.serve_hostname,
    "server": simple.generic,
    "set-uid": interpreters.set_uid,
    "snapshot-controller": _late("snapshots", "controller"),
    "stress": load.stress,
}

# By the name of the file that is run, whatever the image.
_EXECUTABLES: dict[str, str] = {
    "agnhost": "agnhost",
    "agnhost-2": "agnhost",
    "apache2-foreground": "httpd",
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
    "yarn": "node",
}


_NOT_OWN = frozenset(("sh", "bash", "ash", "cmd", "powershell", "pwsh", "docker-entrypoint.sh", "entrypoint.sh"))


def program_for(context: ProgramContext, name: str) -> Factory | None:
    """By the executable's name, when the image has it: it is the image's own program, or nobody knows the image."""
    windows = context.os == "windows"
    base = ntpath.basename(name).lower().removesuffix(".exe") if windows else posixpath.basename(name)
    image = context.image
    program = _EXECUTABLES.get(base)
    if program is not None and (image.userland == "any" or program == image.program):
        return PROGRAMS[program]
    if image.program and base not in _NOT_OWN and name in (*image.entrypoint[:1], *image.cmd[:1]):
        return PROGRAMS.get(image.program)
    return None


def factory_of_image(context: ProgramContext) -> Factory | None:
    """The image's program when the command is the image's own."""
    image = context.image
    own = image.entrypoint or image.cmd
    if not image.program or not own or context.argv[: len(own)] != own:
        return None
    return PROGRAMS.get(image.program)

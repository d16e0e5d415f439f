r"""The objects that the demo deploys on each kind of node.

Real Linux containers: busybox's httpd with a script. Real Windows containers: nginx.exe from the
Python package index, whose pages include the other server's response; without a network, our own
small server. Simulated containers: Kubernetes' test server (agnhost), which calls other servers on
request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from transom.demo.images import BuiltImage, nginx_image, own_image

NAMESPACE = "demo"
_TOLERATED = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane", "os")
_SIMULATED = "k8s.gcr.io/e2e-test-images/agnhost:2.21"

Object = dict[str, Any]
ReportProgress = Callable[[str], None]


class DemoSite(NamedTuple):
    """The web server of one operating system."""

    os: str
    program: str  # for display
    container: Object
    files: Mapping[str, Mapping[str, str]] = {}  # by ConfigMap; mounted as the container specifies
    hello: str = "/hello"  # returns one line that identifies the server
    page: str = "/"  # shows that line and the other server's response
    shows: str = ""  # part of the page once the other server has responded
    hosts: tuple[str, ...] = ()  # the nodes that it can run on


def choose_sites(
    nodes: Sequence[Mapping[str, Any]], report_progress: ReportProgress, *, fetch: bool
) -> list[DemoSite]:
    """A server for each operating system of these nodes."""
    linux, windows = (
        _best([node for node in nodes if node["os"] == os]) for os in ("linux", "windows")
    )
    sites = [
        *([_linux(linux)] if linux else ()),
        *([_windows(windows, report_progress, fetch)] if windows else ()),
    ]
    sites = [site._replace(hosts=_fitting(nodes, site)) for site in sites]
    if len(sites) == 1:
        report_progress(f"there are {sites[0].os} nodes only: the server asks itself")
    return [_introduced(site, other) for site, other in zip(sites, reversed(sites), strict=True)]


def _best(nodes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Nodes with real containers, all of one build; otherwise simulated nodes. Nodes that use the
    machine's own containerd are excluded: they are on another network.
    """
    for ends in (("-oci", "-wine"), ("-sim",)):
        found = [node for node in nodes if node["runtime"].endswith(ends)]
        if found:
            return [
                node for node in found if node["build"] == found[0]["build"] or ends == ("-sim",)
            ]
    return []


def _fitting(nodes: Sequence[Mapping[str, Any]], site: DemoSite) -> tuple[str, ...]:
    """The nodes that a site is limited to; empty if any node of its operating system works."""
    others = {node["name"] for node in nodes if node["os"] == site.os} - set(site.hosts)
    return site.hosts if others else ()


def _introduced(site: DemoSite, other: DemoSite) -> DemoSite:
    """Knows which server to query and what its response contains: pod names start with the name of
    their Deployment.
    """
    requested = f"{other.os}{other.hello}"
    page = site.page.replace("@HOST@", other.os).replace("@PATH@", other.hello.lstrip("/"))
    files = {
        name: {key: text.replace("@OTHER@", requested) for key, text in content.items()}
        for name, content in site.files.items()
    }
    container = {**site.container}
    if "args" in container:
        container["args"] = [word.replace("@OTHER@", requested) for word in container["args"]]
    return site._replace(page=page, files=files, container=container, shows=f"{other.os}-")


# ---- servers ----


def _simulated(os: str, nodes: Sequence[Mapping[str, Any]]) -> DemoSite:
    container = {"image": _SIMULATED, "args": ["netexec", "--http-port=80"]}
    page = "/dial?host=@HOST@&port=80&protocol=http&request=@PATH@"
    return DemoSite(
        os, "agnhost, simulated", container, hello="/hostname", page=page, hosts=_names(nodes)
    )


_START = """\
echo "hello from $(hostname), a web server on Linux" > /www/hello
httpd -f -v -p 80 -h /www &
trap 'echo received SIGTERM: exiting; kill $!' TERM
wait
"""
_LINUX_PAGE = """\
#!/bin/sh
printf 'Content-Type: text/html; charset=utf-8\\r\\n\\r\\n'
echo '<!DOCTYPE html><title>Linux</title>'
echo '<h1>Linux</h1>'
echo "<p>$(cat /www/hello)</p>"
echo '<p>Response of http://@OTHER@:</p>'
echo "<pre>$(timeout 5 wget -q -O - http://@OTHER@ 2>&1)</pre>"
"""


def _linux(nodes: Sequence[Mapping[str, Any]]) -> DemoSite:
    if _is_simulated(nodes):
        return _simulated("linux", nodes)
    container = {
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _START],
        "volumeMounts": [{"name": "linux-pages", "mountPath": "/www/cgi-bin"}],
    }
    return DemoSite(
        "linux",
        "busybox httpd",
        container,
        {"linux-pages": {"index.cgi": _LINUX_PAGE}},
        hosts=_names(nodes),
    )


_NGINX_CONF = """\
daemon off;
error_log stderr notice;
events {}
http {
  access_log off;
  server {
    listen 80;
    location / { ssi on; default_type text/html; charset utf-8; root html; }
    location = /hello { default_type text/plain; return 200 "hello from $hostname, nginx/$nginx_version on Windows\\n"; }
    location = /other { internal; proxy_pass http://@OTHER@; proxy_connect_timeout 2s; proxy_read_timeout 5s; }
  }
}
"""
_NGINX_PAGE = """\
<!DOCTYPE html><title>Windows</title>
<h1>Windows</h1>
<p>hello from <!--#echo var="hostname" -->, nginx/<!--#echo var="nginx_version" --> on Windows</p>
<p>Response of http://@OTHER@:</p>
<pre><!--#include virtual="/other" --></pre>
"""


def _windows(
    nodes: Sequence[Mapping[str, Any]], report_progress: ReportProgress, fetch: bool
) -> DemoSite:
    if _is_simulated(nodes):
        return _simulated("windows", nodes)
    build = int(nodes[0]["build"])
    image = nginx_image(build, report_progress) if fetch else None
    if image is None:
        image = own_image(build)
        return DemoSite(
            "windows",
            image.program,
            _container(image) | {"args": ["serve", "80", "@OTHER@"]},
            hosts=_names(nodes),
        )
    container = _container(image) | {
        "volumeMounts": [
            {"name": "windows-conf", "mountPath": "C:\\nginx\\conf"},
            {"name": "windows-pages", "mountPath": "C:\\nginx\\html"},
        ]
    }
    files = {
        "windows-conf": {"nginx.conf": _NGINX_CONF},
        "windows-pages": {"index.html": _NGINX_PAGE},
    }
    return DemoSite("windows", image.program, container, files, hosts=_names(nodes))


def _container(image: BuiltImage) -> Object:
    return {"image": image.name, "imagePullPolicy": "Never"}


def _is_simulated(nodes: Iterable[Mapping[str, Any]]) -> bool:
    return any(node["runtime"].endswith("-sim") for node in nodes)


def _names(nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(str(node["name"]) for node in nodes)


# ---- objects ----


def site_objects(sites: Sequence[DemoSite]) -> list[Object]:
    """In creation order: Services first, so that the servers can resolve each other when they
    start.
    """
    labels = {"app.kubernetes.io/part-of": "transom-demo"}
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    ]
    made += [_service(site.os) for site in sites]
    made += [_config_map(name, content) for site in sites for name, content in site.files.items()]
    return made + [_deployment(site) for site in sites]


def _service(os: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": os, "namespace": NAMESPACE},
        "spec": {
            "type": "NodePort",
            "selector": {"app": os},
            "ports": [{"name": "http", "port": 80, "targetPort": 80}],
        },
    }


def _config_map(name: str, content: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": dict(content),
    }


def _deployment(site: DemoSite) -> Object:
    labels = {"app": site.os}
    container = {
        "name": "web",
        "ports": [{"name": "http", "containerPort": 80}],
        "readinessProbe": {"httpGet": {"path": site.hello, "port": "http"}, "periodSeconds": 1},
        **site.container,
    }
    spec: Object = {
        "nodeSelector": {"kubernetes.io/os": site.os},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _TOLERATED
        ],
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [
            {"name": name, "configMap": {"name": name, "defaultMode": 0o755}} for name in site.files
        ],
    }
    if site.hosts:
        wanted = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(site.hosts)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": site.os, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }

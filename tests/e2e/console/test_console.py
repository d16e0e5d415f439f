"""The console in a browser: login, the picture of the cluster, objects, edits, logs, terminals."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conftest import Kubectl
from tests.e2e.console.conftest import ConsoleProcess, running_console, wait_until

# Playwright's own loop runs in this process.
pytestmark = [pytest.mark.e2e, pytest.mark.loop_budget(None)]

Screenshot = Callable[[Any, str], None]
WINDOWS_IMAGE = "mcr.microsoft.com/windows/servercore:ltsc2019"
ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def namespace(mixed_kubectl: Kubectl) -> Iterator[str]:
    name = f"console-{secrets.token_hex(3)}"
    mixed_kubectl("create", "namespace", name)
    yield name
    mixed_kubectl("delete", "namespace", name, "--wait=false")


def _apply(kubectl: Kubectl, namespace: str, *objects: dict[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    kubectl("--namespace", namespace, "apply", "-f", "-", stdin=json.dumps(document))


def _pod(name: str, script: str, **meta: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _deployment(replicas: int) -> dict[str, Any]:
    pod = _pod("", "sleep 3600")["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        },
    }


def _is_live(page: Any) -> None:
    page.wait_for_selector('#live[data-state="live"]')


def test_wrong_and_used_login(
    new_page: Callable[..., Any], console: ConsoleProcess, take_screenshot: Screenshot
) -> None:
    page = new_page()
    page.goto(console.origin)
    page.wait_for_selector("text=You are not logged in")
    take_screenshot(page, "login")
    page.fill("#token", "wrong")
    page.click("button")
    page.wait_for_selector("text=used already, has expired or is wrong")
    link = console.new_link()
    page.fill("#token", link)
    page.click("button")
    page.wait_for_selector("#picture")
    other = new_page()
    other.goto(link)
    other.wait_for_selector("text=Login failed")
    other.goto(f"{console.origin}/objects/core/v1/secrets")
    other.wait_for_selector("text=You are not logged in")


def test_a_page_says_that_its_session_ended(page: Any, console: ConsoleProcess) -> None:
    _is_live(page)
    other = page.context.new_page()
    other.goto(f"{console.origin}/objects")
    other.click("text=Log out")
    other.wait_for_selector("text=Log in")
    page.bring_to_front()
    page.wait_for_selector("#session-ended")


def test_cluster_picture_is_live(
    page: Any, namespace: str, mixed_kubectl: Kubectl, take_screenshot: Screenshot
) -> None:
    _is_live(page)
    wait_until(page, "window.transomPicture.model.nodes.size === 4")
    has = "key => window.transomPicture.model.pods.get(key)?.[2]"
    _apply(mixed_kubectl, namespace, _pod("steady", "sleep 3600"), _pod("failing", "exit 3"))
    wait_until(page, f"({has})('{namespace}/steady') === 'running'")
    wait_until(page, f"({has})('{namespace}/failing') === 'problem'")
    page.wait_for_selector("#problems >> text=exit code 3")
    take_screenshot(page, "cluster")
    page.click("#show-table")
    page.fill("#filter", f"{namespace} steady")
    page.wait_for_selector(f"#table-box >> text={namespace}/steady")
    mixed_kubectl("--namespace", namespace, "delete", "pod", "steady")
    wait_until(page, f"({has})('{namespace}/steady') === undefined")


def test_keyboard_in_the_picture(page: Any, console: ConsoleProcess) -> None:
    _is_live(page)
    wait_until(page, "window.transomPicture.model.nodes.size === 4")
    page.focus("#picture")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#tip >> text=Ready")
    page.keyboard.press("Enter")
    page.wait_for_url("**/objects/core/v1/nodes/-/*")
    page.wait_for_selector("#overview >> text=MemoryPressure")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/cluster")


def test_table_of_a_kind_is_live(
    page: Any, console: ConsoleProcess, namespace: str, mixed_kubectl: Kubectl
) -> None:
    page.goto(f"{console.origin}/objects/core/v1/configmaps?namespace={namespace}")
    _is_live(page)
    created = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    _apply(mixed_kubectl, namespace, created)
    page.wait_for_selector("#rows >> text=settings")
    mixed_kubectl("--namespace", namespace, "delete", "configmap", "settings")
    page.wait_for_selector("#rows >> text=settings", state="detached")


def test_custom_resources(
    page: Any, console: ConsoleProcess, namespace: str, mixed_kubectl: Kubectl
) -> None:
    group = f"{namespace}.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [version],
        },
    }
    _apply(mixed_kubectl, namespace, definition)
    try:
        mixed_kubectl("wait", "--for=condition=Established", f"crd/widgets.{group}")
        widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w1"}}
        _apply(mixed_kubectl, namespace, widget)
        for _ in range(40):  # the console reads the kinds again after a while
            page.goto(f"{console.origin}/objects/{group}/v1/widgets?namespace={namespace}")
            if page.query_selector("#rows"):
                break
            page.wait_for_timeout(500)
        page.click("#rows >> text=w1")
        page.click("#tab-yaml")
        page.wait_for_selector("#yaml-text >> text=kind: Widget")
    finally:
        mixed_kubectl("delete", f"crd/widgets.{group}")


def test_edit_with_difference_and_conflict(
    page: Any,
    console: ConsoleProcess,
    namespace: str,
    mixed_kubectl: Kubectl,
    take_screenshot: Screenshot,
) -> None:
    _apply(mixed_kubectl, namespace, _deployment(1))
    page.goto(f"{console.origin}/objects/apps/v1/deployments/{namespace}/web#yaml")
    _is_live(page)

    def edit(before: str, after: str) -> None:
        text = page.input_value("#editor")
        assert before in text
        page.fill("#editor", text.replace(before, after))

    page.click("#edit")
    edit("spec:\n  progress", "spec:\n  paused: true\n  progress")
    page.click("#preview")
    page.wait_for_selector(".diff .added >> text=paused: true")
    read = ("--namespace", namespace, "get", "deployment", "web", "--output", "json")
    assert "paused" not in json.loads(mixed_kubectl(*read).stdout)["spec"]  # it was a dry run
    page.click("#apply")
    page.wait_for_selector("#outcome >> text=Applied")
    assert json.loads(mixed_kubectl(*read).stdout)["spec"]["paused"] is True

    edit("replicas: 1", "replicas: 2")
    page.click("#apply")
    page.wait_for_selector("#outcome >> text=.spec.replicas")
    take_screenshot(page, "conflict")
    assert json.loads(mixed_kubectl(*read).stdout)["spec"]["replicas"] == 1
    page.click("text=Force: take over these fields")
    page.wait_for_selector(".diff .added >> text=replicas: 2")
    found = json.loads(mixed_kubectl(*read).stdout)["spec"]
    assert (found["replicas"], found["paused"]) == (2, True)
    page.click("#tab-fields")
    page.wait_for_selector("#fields >> text=transom-console")

    page.click("#tab-owners")
    page.wait_for_selector("#owners >> text=Deployment")
    page.click("#delete")
    page.click("#confirm-delete")
    page.wait_for_selector("#status >> text=deleted")


def test_logs_follow(
    page: Any, console: ConsoleProcess, namespace: str, mixed_kubectl: Kubectl
) -> None:
    script = "n=0; while true; do n=$((n+1)); echo line $n; sleep 0.2; done"
    _apply(mixed_kubectl, namespace, _pod("talker", script))
    mixed_kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/talker")
    page.goto(f"{console.origin}/objects/core/v1/pods/{namespace}/talker#logs")
    page.wait_for_selector("#log >> text=line 3")
    shown = page.inner_text("#log").count("line")
    wait_until(page, f"document.querySelectorAll('#log span').length > {shown + 3}")
    page.fill("#log-find", "line 2\n".strip())
    page.wait_for_selector("#log span[hidden]", state="attached")


def test_terminal_in_a_container_and_on_a_node(
    page: Any,
    console: ConsoleProcess,
    namespace: str,
    mixed_kubectl: Kubectl,
    take_screenshot: Screenshot,
) -> None:
    windows = _pod("cmd", "")
    windows["spec"]["nodeSelector"] = {"kubernetes.io/os": "windows"}
    windows["spec"]["containers"] = [{"name": "main", "image": WINDOWS_IMAGE}]
    windows["spec"]["containers"][0]["command"] = ["ping", "-t", "127.0.0.1"]
    _apply(mixed_kubectl, namespace, _pod("shell", "sleep 3600"), windows)
    mixed_kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/shell")
    page.goto(f"{console.origin}/objects/core/v1/pods/{namespace}/shell#terminal")
    page.click("#terminal-run")
    page.wait_for_selector('#terminal-state[data-state="live"]')
    page.keyboard.type("echo $((6*7))$HOSTNAME\n")
    page.wait_for_selector(".terminal >> text=42shell")
    take_screenshot(page, "terminal")
    page.keyboard.type("exit 5\n")
    page.wait_for_selector("#terminal-state >> text=exit code 5")
    page.fill("#terminal-command", "no-such-program")
    page.click("#terminal-run")
    wait_until(
        page,
        "!['', 'connecting', 'connected'].includes("
        "document.querySelector('#terminal-state').textContent)",
    )
    mixed_kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/cmd")
    page.goto(f"{console.origin}/objects/core/v1/pods/{namespace}/cmd#terminal")
    assert page.input_value("#terminal-command") == "cmd"
    page.click("#terminal-run")
    page.wait_for_selector('#terminal-state[data-state="live"]')
    page.keyboard.type("echo %OS%-%COMPUTERNAME%\n")
    page.wait_for_selector(".terminal >> text=/Windows_NT-cmd/i")
    page.keyboard.type("exit 7\n")
    page.wait_for_selector("#terminal-state >> text=exit code 7")
    page.goto(f"{console.origin}/objects/core/v1/nodes/-/windows-1#terminal")
    page.click("#terminal-run")
    page.wait_for_selector('#terminal-state[data-state="live"]')
    page.keyboard.type("hostname\n")
    page.wait_for_selector(".terminal >> text=/windows-1/i")


def test_port_forward_opens_in_its_own_origin(
    page: Any, console: ConsoleProcess, namespace: str, mixed_kubectl: Kubectl
) -> None:
    pod = _pod("web", "")
    pod["spec"]["containers"] = [
        {"name": "web", "image": "nginx", "ports": [{"containerPort": 80}]}
    ]
    _apply(mixed_kubectl, namespace, pod)
    mixed_kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/web")
    page.goto(f"{console.origin}/objects/core/v1/pods/{namespace}/web#ports")
    page.click("#forward-form button")
    page.wait_for_selector("#forwards a")
    with page.context.expect_page() as opened:
        page.click("#forwards a")
    opened.value.wait_for_selector("text=Welcome to nginx!")
    assert not opened.value.url.startswith(console.origin)
    link = page.get_attribute("#forwards a", "href").partition("?")[0]
    page.click("#forwards button")
    page.wait_for_selector("#forwards a", state="detached")
    with pytest.raises(Exception, match="ERR_CONNECTION_REFUSED"):
        page.goto(link)


def test_markup_in_objects_is_only_text(
    page: Any, console: ConsoleProcess, namespace: str, mixed_kubectl: Kubectl
) -> None:
    """Labels cannot have markup, but annotations, messages, logs and events can."""
    name = "attack"
    script = f"while true; do echo '{ATTACK}'; sleep 0.5; done"
    pod = _pod(name, script, annotations={"note": ATTACK})
    _apply(mixed_kubectl, namespace, pod)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "attack.1"},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name},
        "reason": ATTACK,
        "message": ATTACK,
        "type": "Warning",
    }
    _apply(mixed_kubectl, namespace, event)
    waiting = _pod("waiting", "true")
    waiting["spec"]["containers"][0]["image"] = "x<y>"
    _apply(mixed_kubectl, namespace, waiting)
    base = f"{console.origin}/objects/core/v1/pods/{namespace}/{name}"
    page.goto(base)
    page.wait_for_selector("#overview >> text=onerror=alert(1)")
    page.click("#tab-events")
    page.wait_for_selector("#events >> text=onerror=alert(1) >> nth=0")
    page.click("#tab-yaml")
    page.wait_for_selector("#yaml-text >> text=onerror=alert(1)")
    page.click("#tab-logs")
    page.wait_for_selector("#log >> text=onerror=alert(1) >> nth=0")
    page.goto(f"{console.origin}/objects/core/v1/events?namespace={namespace}&wide=1")
    page.wait_for_selector("#rows >> text=onerror=alert(1) >> nth=0")
    page.goto(f"{console.origin}/objects/core/v1/pods?namespace={namespace}&labels={ATTACK}")
    page.wait_for_selector(".problem")
    assert page.query_selector("img[src=x]") is None
    assert page.evaluate("document.querySelectorAll('script:not([src])').length") == 0


def test_a_user_without_permissions_gets_the_reason(
    new_page: Callable[..., Any], mixed_kubectl: Kubectl, mixed_cluster: Any, namespace: str
) -> None:
    kubeconfig = mixed_cluster.kubeconfig.with_name(f"{namespace}.kubeconfig")
    config = json.loads(
        mixed_kubectl("config", "view", "--raw", "--minify", "--output", "json").stdout
    )
    config["users"][0]["user"]["as"] = "nobody@example.com"
    kubeconfig.write_text(json.dumps(config))
    with running_console(mixed_cluster, "--kubeconfig", str(kubeconfig)) as console:
        page = new_page()
        page.goto(console.new_link())
        page.wait_for_selector("#states >> text=nobody@example.com")
        page.goto(f"{console.origin}/objects/core/v1/secrets")
        page.wait_for_selector("h2 >> text=Not allowed")
        page.wait_for_selector(".problem >> text=cannot list resource")


def test_a_user_who_may_only_read_sees_what_is_refused(
    new_page: Callable[..., Any], mixed_kubectl: Kubectl, mixed_cluster: Any, namespace: str
) -> None:
    reader = f"{namespace}@example.com"
    binding = ("create", "rolebinding", "reader", "--clusterrole=view", f"--user={reader}")
    mixed_kubectl("--namespace", namespace, *binding)
    _apply(mixed_kubectl, namespace, _pod("shell", "echo hello; sleep 3600"))
    mixed_kubectl("--namespace", namespace, "wait", "--for=condition=Ready", "pod/shell")
    kubeconfig = mixed_cluster.kubeconfig.with_name(f"{namespace}.reader.kubeconfig")
    config = json.loads(
        mixed_kubectl("config", "view", "--raw", "--minify", "--output", "json").stdout
    )
    config["users"][0]["user"]["as"] = reader
    config["contexts"][0]["context"]["namespace"] = namespace
    kubeconfig.write_text(json.dumps(config))
    with running_console(mixed_cluster, "--kubeconfig", str(kubeconfig)) as console:
        page = new_page()
        page.goto(console.new_link())
        wait_until(page, f"window.transomPicture.model.pods.has('{namespace}/shell')")
        pod = f"{console.origin}/objects/core/v1/pods/{namespace}/shell"
        page.goto(f"{pod}#logs")
        page.wait_for_selector("#log >> text=hello")
        page.goto(f"{pod}#terminal")  # the same page: its tab changes
        page.click("#terminal-run")
        page.wait_for_selector("#terminal-state >> text=pods/exec")
        page.goto(f"{pod}#yaml")
        page.click("#edit")
        text = page.input_value("#editor")
        page.fill("#editor", text.replace("\nspec:\n", "\nspec:\n  activeDeadlineSeconds: 5\n", 1))
        page.click("#apply")
        page.wait_for_selector("#outcome >> text=cannot patch resource")
        page.click("#delete")
        page.click("#confirm-delete")
        page.wait_for_selector("dialog >> text=cannot delete resource")


def test_phone_dark_and_table(
    new_page: Callable[..., Any], console: ConsoleProcess, take_screenshot: Screenshot
) -> None:
    page = new_page(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(console.new_link())
    _is_live(page)
    wait_until(page, "window.transomPicture.model.nodes.size === 4")
    take_screenshot(page, "cluster-phone")
    for path in ("/cluster", "/objects", "/objects/core/v1/nodes/-/windows-1"):
        page.goto(console.origin + path)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, path

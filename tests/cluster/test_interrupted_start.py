"""A start that is interrupted or fails at any step leaves a cluster that can be listed, started and
deleted.

Every step of `transom up` that changes a file is found by an audit hook. One run for each step and
each fault: the process is killed there, interrupted there, or the disk is full there.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from transom.cluster import config as configs
from transom.cluster import daemon, kubeconfig, lifecycle
from transom.cluster.config import ClusterConfig
from transom.cluster.options import NodeOptions, UpOptions
from transom.cluster.pki import ensure_cluster_pki
from transom.cluster.protection import Protection
from transom.kit.user_errors import UserError
from transom.node import spec as nodes
from transom.node.settings import clusters_dir

_FORKED = 77  # the child has come to the fork: nothing is left to prepare
_FAILED = 78
_HARMLESS = 79  # as a full disk is for `mkdir -p` of a folder that exists


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power stays on here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def _is_change(event: str, arguments: tuple[object, ...]) -> bool:
    if not any(str(argument).startswith(os.environ["HOME"]) for argument in arguments):
        return False  # compiled modules, for example
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in ("os.rename", "os.mkdir", "os.link", "os.remove", "os.truncate", "os.chmod")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fill_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _interrupt() -> None:
    raise KeyboardInterrupt


def _run_with_fault(act: Callable[[], None], step: int, fault: Callable[[], None]) -> int:
    """Runs `act` in a process of its own, with the fault at a step; how that ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if _is_change(event, arguments):
            count += 1
            if count == step:
                fault()

    code = 99
    try:
        sys.addaudithook(hook)
        act()
        code = _FORKED if count < step else _HARMLESS
    except (OSError, UserError, KeyboardInterrupt):
        code = _FAILED
    finally:
        os._exit(code)


def _prepare(wanted: UpOptions) -> None:
    """`transom up` until it forks."""
    target = wanted.kubeconfig or kubeconfig.default_kubeconfig_path()
    kubeconfig.check_kubeconfig(target)
    lock, _, sockets, _ = lifecycle._prepare(wanted, str(target), lambda _: None)
    lock.release()
    for sock in sockets:
        sock.close()


def _check_usable(name: str, expected: ClusterConfig | None) -> None:
    """What is there can be listed, started with the options of the last success, and deleted."""
    listed = configs.known_clusters()
    state = clusters_dir() / name
    assert listed == ([name] if state.exists() else [])
    if listed:
        report = lifecycle.cluster_status_by_name(name)
        assert (report["state"], report.get("problem")) == ("stopped", None)
        config = configs.load_config(name)
        assert config is not None
        if expected is not None:
            assert config == expected
    else:
        assert expected is None
    lock, config, sockets, _ = lifecycle._prepare(
        UpOptions(name), str(kubeconfig.default_kubeconfig_path()), lambda _: None
    )
    lock.release()
    for sock in sockets:
        sock.close()
    if expected is not None:
        assert (config.release, config.no_nodes) == (expected.release, expected.no_nodes)
    kubeconfig.check_kubeconfig(kubeconfig.default_kubeconfig_path())
    assert lifecycle.delete_cluster(name, lambda _: None)
    assert not state.exists() and configs.known_clusters() == []
    assert not lifecycle.delete_cluster(name, lambda _: None)


def _every_step(
    act: Callable[[], None], fault: Callable[[], None], before: Callable[[], ClusterConfig | None]
) -> int:
    for step in range(1, 500):
        expected = before()
        ended = _run_with_fault(act, step, fault)
        if ended == _FORKED:
            lifecycle.delete_cluster("blue", lambda _: None)
            return step - 1
        assert ended in ([-signal.SIGKILL] if fault is _kill else [_FAILED, _HARMLESS]), (
            step,
            ended,
        )
        _check_usable("blue", expected)
    raise AssertionError("it never ends")


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("fault", [_kill, _fill_disk, _interrupt])
def test_first_start_fails_at_any_step(fault: Callable[[], None]) -> None:
    wanted = UpOptions("blue", nodes=False, protection=Protection(encrypt=True))
    assert _every_step(lambda: _prepare(wanted), fault, lambda: None) > 20


@pytest.mark.usefixtures("no_sync")
@pytest.mark.parametrize("fault", [_kill, _fill_disk, _interrupt])
def test_later_start_fails_at_any_step_and_its_options_are_not_remembered(
    fault: Callable[[], None],
) -> None:
    def before() -> ClusterConfig:
        config = ClusterConfig("blue", release="1.19", no_nodes=True, port=18443)
        configs.save_config(config)
        ensure_cluster_pki(config)
        return config

    wanted = UpOptions("blue", port=0, release="1.18", nodes=True, machines=NodeOptions(linux=3))
    assert _every_step(lambda: _prepare(wanted), fault, before) > 3


def test_process_is_killed_while_it_keeps_the_options_of_a_start_that_succeeded() -> None:
    """All or nothing of the configuration; the nodes come first."""
    old, new = ClusterConfig("blue", release="1.19"), ClusterConfig("blue", release="1.18")
    seen = set()
    for step in range(1, 10):
        configs.save_config(old)
        configs.save_nodes(old, nodes.demo_specs(old, 1, 0, None, False))
        configs.stage_config(
            new, {"nodes": configs.nodes_document(nodes.demo_specs(new, 2, 0, None, False))}
        )
        ended = _run_with_fault(lambda: configs.commit_config(new), step, _kill)
        found = configs.load_config("blue")
        assert found in (old, new)
        assert found is not None
        assert [len(configs.load_nodes(found) or []), found.release] in (
            [2, "1.19"],
            [3, "1.19"],
            [3, "1.18"],
        )
        seen.add(found.release)
        if ended == _FORKED:
            break
    assert seen == {"1.19", "1.18"}


def test_start_with_keys_that_failed_after_encrypting_does_not_lock_the_data(home: Path) -> None:
    """The keys of the attempt still open what it encrypted; the next success forgets them."""
    key_file = home / "keys"
    from transom.cluster import protection
    from transom.kit import keyring

    keyring.create_key_file(key_file)
    configs.save_config(ClusterConfig("blue", no_nodes=True))
    _prepare(UpOptions("blue", protection=Protection(key_file=key_file)))
    encrypted = ClusterConfig("blue", encryption_key_file=str(key_file), encrypt=True)
    sealed = protection.sealing(encrypted).to_disk("secrets/a", b"x")
    _prepare(UpOptions("blue", release="1.19"))
    attempt = configs.load_starting_config("blue")
    assert attempt is not None and (attempt.encrypt, attempt.former_key_files) == (
        False,
        (str(key_file),),
    )
    assert protection.sealing(attempt).from_disk("secrets/a", sealed) == b"x"
    assert protection.sealing(attempt).is_stale("secrets/a", sealed)
    configs.commit_config(attempt)
    later = configs.load_config("blue")
    assert later is not None and (
        later.release,
        later.former_key_files,
        later.encryption_key_file,
    ) == ("1.19", (), "")


def test_key_file_is_replaced_by_another_whose_key_has_the_same_name(home: Path) -> None:
    from transom.cluster import protection
    from transom.kit import keyring

    for name in ("a", "b"):
        keyring.create_key_file(home / name)
    old = protection.choose_protection(ClusterConfig("blue"), Protection(key_file=home / "a"))
    sealed = protection.sealing(old).to_disk("secrets/a", b"x")
    new = protection.choose_protection(old, Protection(key_file=home / "b"))
    sealing = protection.sealing(new)
    assert sealing.from_disk("secrets/a", sealed) == b"x" and sealing.is_stale("secrets/a", sealed)
    assert not sealing.is_stale("secrets/a", sealing.to_disk("secrets/a", b"x"))


@pytest.mark.parametrize("content", [b"a: [", b"[]", b"\x00\xff\xfe", b"contexts: {a: 1}"])
def test_broken_kubeconfig_is_reported_before_anything_starts(home: Path, content: bytes) -> None:
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_bytes(content)
    with pytest.raises(UserError, match="is not a valid kubeconfig"):
        lifecycle.start_cluster(UpOptions("blue", nodes=False), lambda _: None)
    assert configs.known_clusters() == [] and not (clusters_dir() / "blue").exists()
    assert (home / ".kube" / "config").read_bytes() == content


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("/dev/null/config"),
        lambda path: path.parent.joinpath("x").touch(),
    ],
    ids=["directory", "dangling link", "parent is a file"],
)
def test_unwritable_kubeconfig_is_reported_before_anything_starts(
    home: Path, make: Callable[[Path], None]
) -> None:
    path = home / "config"
    make(path)
    target = home / "x" / "config" if (home / "x").exists() else path
    with pytest.raises(UserError, match=r"cannot (read|write)") as error:
        lifecycle.start_cluster(UpOptions("blue", nodes=False, kubeconfig=target), lambda _: None)
    assert "--kubeconfig FILE" in error.value.hint
    assert not (clusters_dir() / "blue").exists()


def test_broken_kubeconfig_does_not_keep_a_cluster_from_being_deleted(home: Path) -> None:
    (home / "config").write_text("a: [")
    configs.save_config(ClusterConfig("blue", kubeconfig=str(home / "config")))
    printed: list[str] = []
    assert lifecycle.delete_cluster("blue", printed.append)
    assert printed == [
        f"note: context 'blue' is still in the kubeconfig: {home / 'config'} is not a valid "
        "kubeconfig: yaml: line 1: did not find expected node content"
    ]


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"\xff", b'{"release": "9.9"}', b'{"network": 3}', b'{"port": []}']
)
def test_cluster_with_a_damaged_configuration_is_listed_and_deleted(content: bytes) -> None:
    configs.save_config(ClusterConfig("blue"))
    (clusters_dir() / "blue" / "cluster.json").write_bytes(content)
    assert configs.known_clusters() == ["blue"]
    report = lifecycle.cluster_status_by_name("blue")
    assert report["state"] == "stopped"
    if content != b'{"port": []}':
        assert "cluster.json" in report["problem"]
        with pytest.raises(UserError) as error:
            lifecycle.existing_cluster("blue")
        assert error.value.hint
    printed: list[str] = []
    assert lifecycle.delete_cluster("blue", printed.append) and configs.known_clusters() == []


def test_lock_of_a_kubeconfig_that_a_killed_process_left_is_removed(home: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (home / "config.lock").write_text(f"transom {ended.pid}\n")
    kubeconfig.check_kubeconfig(home / "config")
    assert not (home / "config.lock").exists()


def test_stop_never_signals_a_process_that_does_not_hold_the_lock(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may still have the pid of a process that ended, when another one has just locked
    it.
    """
    config = ClusterConfig("blue")
    lock = daemon.ClusterLock(config)
    other = subprocess.Popen(["sleep", "60"])
    try:
        config.pid_file.write_text(f"{other.pid}\n")
        monkeypatch.setattr(time, "sleep", lambda _: None)
        with pytest.raises(UserError, match="in use by another transom command"):
            daemon.stop_daemon(config, 0.05, lambda _: None)
        assert other.poll() is None
    finally:
        lock.release()
        other.kill()
        other.wait()


def test_concurrent_deletes_of_one_cluster_succeed() -> None:
    """No delete removes the folder of another one, or fails because of it; nothing is left."""
    for _ in range(20):
        _prepare(UpOptions("blue"))
        with ThreadPoolExecutor(4) as pool:
            deletes = [pool.submit(lifecycle.delete_cluster, "blue", print) for _ in range(4)]
            results = [one.result() for one in deletes]
        assert any(results)
        assert not [path.name for path in clusters_dir().iterdir() if "blue" in path.name]


def test_what_a_killed_delete_left_is_removed_by_the_next_one() -> None:
    rest = clusters_dir() / ".deleted.blue.1"
    rest.mkdir(parents=True)
    (rest / "store.db").touch()
    assert configs.known_clusters() == []
    _prepare(UpOptions("green"))
    assert lifecycle.delete_cluster("green", print)
    assert not rest.exists()


def test_lock_of_a_deleted_cluster_is_not_taken_for_that_of_a_new_one() -> None:
    config = ClusterConfig("blue")
    lock = daemon.ClusterLock(config)
    config.pid_file.unlink()
    again = daemon.ClusterLock(config)
    assert daemon._is_file(again._fd, config.pid_file) and not daemon._is_file(
        lock._fd, config.pid_file
    )
    lock.release()
    again.release()


# ---- real processes ----


@pytest.fixture
def transom(
    isolated_environment: dict[str, str],
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "transom.cli.main", *args]
        return subprocess.run(
            command, env=isolated_environment, capture_output=True, text=True, timeout=60
        )

    yield run
    run("delete", "--all")


def _start(env: dict[str, str], *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "transom.cli.main",
        "up",
        "--name",
        "blue",
        "--no-nodes",
        *options,
    ]
    return subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.001)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("number", "file"),
    [
        (signal.SIGKILL, "transom.pid"),
        (signal.SIGKILL, "transom.log"),
        (signal.SIGINT, "starting.json"),
    ],
)
def test_signal_during_up(
    isolated_environment: dict[str, str],
    transom: Callable[..., subprocess.CompletedProcess[str]],
    number: signal.Signals,
    file: str,
) -> None:
    state = Path(isolated_environment["XDG_DATA_HOME"]) / "transom" / "blue"
    process = _start(isolated_environment)
    _wait_for(state / file)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors
    if number == signal.SIGINT and process.returncode != 0:  # or it was done already
        assert process.returncode == 130
    listed = json.loads(transom("status", "--all", "--output", "json").stdout)
    assert [cluster["name"] for cluster in listed] == (["blue"] if state.exists() else [])
    again = transom("up", "--name", "blue", "--no-nodes")
    assert again.returncode == 0 or "already running" in again.stderr, again.stderr
    deleted = transom("delete", "--all")
    assert (
        deleted.returncode,
        deleted.stderr.replace("waiting for cluster 'blue' to stop ...\n", ""),
    ) == (0, "")
    assert not state.exists()


@pytest.mark.e2e
def test_option_that_fails_in_the_background_is_not_remembered(
    isolated_environment: dict[str, str],
    transom: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    assert transom("up", "--name", "blue", "--no-nodes").returncode == 0
    assert transom("down", "--name", "blue").returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert (
            transom("up", "--name", "blue", "--port", str(port), "--release", "1.18").returncode
            == 1
        )
    state = Path(isolated_environment["XDG_DATA_HOME"]) / "transom" / "blue"
    good = (state / "store.db").read_bytes()
    (state / "store.db").unlink()
    (state / "store.db").mkdir()  # found out by the background process alone
    failed = transom("up", "--name", "blue", "--release", "1.18")
    assert failed.returncode != 0 and "Traceback" not in failed.stderr, failed.stderr
    (state / "store.db").rmdir()
    (state / "store.db").write_bytes(good)
    assert transom("up", "--name", "blue").returncode == 0
    report = json.loads(transom("status", "--name", "blue", "--output", "json").stdout)
    assert (report["release"], report["nodes"]) == ("1.20", False)

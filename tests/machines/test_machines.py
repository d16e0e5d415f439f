from __future__ import annotations

from transom.kit.clock import VirtualClock
from transom.machines.api import Hardware, Host
from transom.machines.inodes import DiskQuota
from transom.machines.linux import LinuxHost
from transom.machines.windows import WindowsHost, accounts
from transom.machines.windows.host import CURRENT_VERSION, version_keys
from transom.machines.windows.registry import WindowsRegistry
from transom.windows import builds

GIB = 1 << 30


def test_identity_stays_and_the_boot_id_does_not() -> None:
    clock = VirtualClock()
    for make in (LinuxHost, WindowsHost):
        host: Host = make("node-1", clock)
        first = host.identity
        assert make("node-1", clock).identity == first
        assert make("node-1", clock, seed="x").identity.system_uuid != first.system_uuid
        assert make("node-2", clock).identity.system_uuid != first.system_uuid
        host.reboot()
        assert host.identity.boot_id != first.boot_id
        assert host.identity._replace(boot_id=first.boot_id) == first


def test_a_windows_machine_is_what_its_registry_says() -> None:
    host = WindowsHost("win-1", VirtualClock(), build=builds.BUILDS[20348])
    assert host.identity.kernel_version == "10.0.20348.587"
    assert host.identity.os_image == "Windows Server 2022 Datacenter"
    assert host.identity.machine_id == "win-1"
    boots = int(host.identity.boot_id)
    host.registry.set(CURRENT_VERSION, "ubr", 9999)
    host.reboot()
    assert host.identity.kernel_version == "10.0.20348.9999"
    assert host.identity.boot_id == str(boots + 1)


def test_a_reboot_ends_everything_but_files() -> None:
    clock = VirtualClock()
    host = LinuxHost("l", clock)
    host.files.write("/etc/kept", b"")
    host.files.write("/run/lost", b"")
    idle = host.memory().working_set
    account = host.account("c")
    account.set_memory(GIB)
    account.set_cpu(1)
    clock.advance(100)
    recorded: list[float] = []
    host.on_reboot(lambda: recorded.append(host.cpu_seconds()))
    host.reboot()
    assert recorded == [0.0]
    assert host.boot_time == clock.time()
    assert host.memory().working_set == idle
    assert host.files.exists("/etc/kept")
    assert host.files.listdir("/var/run") == ["lock"]
    account.set_cpu(3)  # it is gone
    assert not account.set_memory(GIB)
    account.close()
    clock.advance(10)
    assert host.cpu_seconds() == 10 * host.system_cores
    assert host.memory().working_set == idle


def test_processor_time_is_shared_when_all_want_more_than_there_is() -> None:
    clock = VirtualClock()
    host = LinuxHost("l", clock, Hardware(cpus=2))
    host.system.set_cpu(0)
    one, two = host.account("one"), host.account("two")
    one.set_cpu(1)
    clock.advance(10)
    two.set_cpu(3)  # four for two processors
    clock.advance(10)
    assert (one.cpu_seconds(), two.cpu_seconds()) == (15, 15)
    two.close()
    clock.advance(10)
    one.use_cpu(2)
    assert (one.cpu_seconds(), two.cpu_seconds()) == (27, 15)
    assert host.cpu_seconds() == 42


def test_the_clock_can_be_wrong() -> None:
    clock = VirtualClock()
    host = LinuxHost("l", clock)
    clock.advance(60)
    host.jump(3600)
    assert host.time() == host.clock.time() == clock.time() + 3600
    assert host.time() - host.boot_time == 60
    host.files.write("/x", b"")
    assert host.files.stat("/x").mtime == host.time()


def test_a_disk_can_be_full() -> None:
    host = LinuxHost("l", VirtualClock())
    before = host.disk()
    assert before.used >= host.hardware.disk_used
    assert before.inodes_used < before.inodes
    host.fill_disk()
    assert host.disk().available == 0
    host.fill_disk(GIB)
    assert host.disk().used == before.used + GIB
    host.fill_disk(0)
    assert host.disk() == before
    assert WindowsHost("w", VirtualClock()).disk().inodes == 0


def test_linux_kills_by_size_and_score() -> None:
    host = LinuxHost("l", VirtualClock(), Hardware(memory=8 * GIB))
    dead: list[str] = []

    def account(name: str, adjustment: int, size: int) -> bool:
        return host.account(name, adjustment, lambda: dead.append(name)).set_memory(size)

    assert account("guaranteed", -997, 4 * GIB)
    assert account("burstable", 900, 2 * GIB)
    assert account("best effort", 1000, GIB)
    assert host.oom_victim() is not None
    assert 0.8 < host.committed / host.hardware.memory < 1
    assert dead == []
    assert account("more", 0, GIB)  # too much by the system's part
    assert dead == ["burstable"]
    assert not account("greedy", 1000, 9 * GIB)
    assert dead == ["burstable", "greedy"]
    assert host.memory().working_set == 6 * GIB + host.system_memory
    assert host.fill_memory(2 * GIB)
    assert dead == ["burstable", "greedy", "best effort"]
    assert host.fill_memory(0)
    assert host.memory().working_set == 5 * GIB + host.system_memory


def test_windows_pages_and_refuses_but_never_kills() -> None:
    host = WindowsHost("w", VirtualClock(), Hardware(memory=4 * GIB, page_file=4 * GIB))
    host.system.set_memory(0)
    killed: list[str] = []
    one = host.account("one", killed=lambda: killed.append("one"))
    two = host.account("two", killed=lambda: killed.append("two"))
    assert one.set_memory(3 * GIB)
    assert host.slowdown() == 1.0
    assert two.set_memory(3 * GIB)
    assert one.working_set == two.working_set == 2 * GIB
    assert one.paged == GIB
    use = host.memory()
    assert (use.working_set, use.usage, use.paged, use.rss) == (4 * GIB, 6 * GIB, 2 * GIB, 0)
    assert host.slowdown() > 5
    assert not two.set_memory(6 * GIB)
    assert two.memory == 3 * GIB
    assert two.set_memory(5 * GIB)
    assert killed == []
    one.close()
    assert two.set_memory(GIB)
    assert host.slowdown() == 1.0
    assert (two.working_set, two.paged) == (GIB, 0)


def test_registry() -> None:
    base = version_keys(builds.DEFAULT)
    one, two = WindowsRegistry(base), WindowsRegistry(base)
    key = r"hkey_local_machine\software\MICROSOFT\windows nt\currentversion"
    assert one.get(key, "currentbuildnumber") == "17763"
    assert one.get(key, "none") is None
    assert one.values(r"HKLM\None") is None
    one.set(key, "Mine", 1)
    one.set(r"HKLM\SOFTWARE\New\Key", "", "default")
    assert one.keys(r"HKLM\software") == ["Classes", "Microsoft", "New"]
    assert one.exists(r"HKLM\SOFTWARE\new")
    assert two.get(key, "Mine") is None
    assert one.delete(key, "MINE")
    assert not one.delete(key, "MINE")
    assert one.delete(r"HKLM\SOFTWARE\Microsoft")
    assert one.keys(r"HKLM\SOFTWARE") == ["Classes", "New"]
    assert two.exists(key)
    one.create(key)
    assert one.values(key) == {}


def test_users_of_container_processes() -> None:
    assert accounts.find_windows_user("containeradministrator") == accounts.ADMINISTRATOR
    assert accounts.find_windows_user(r"User Manager\ContainerUser") == accounts.USER
    system = accounts.find_windows_user(r"nt authority\system")
    assert system is not None
    assert system.administrator
    assert accounts.find_windows_user("FooLish") is None
    assert accounts.find_windows_user(r"contoso\ContainerUser") is None
    web = accounts.find_windows_user(r".\WEB", "pod-1", local=["web"])
    assert web is not None
    assert web.whoami == r"pod-1\web"
    assert web.profile == r"C:\Users\web"


def test_the_files_of_the_operating_system_leave_room_for_others() -> None:
    space = DiskQuota(1 << 40, 1 << 24)
    space.install(1 << 34, DiskQuota.MAX_FILES - 1)
    assert space.take(0, DiskQuota.MAX_FILES)
    assert not space.take(0, 1)
    assert space.inodes_used == 2 * DiskQuota.MAX_FILES - 1

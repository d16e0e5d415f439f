"""Seccomp: the default policy of container runtimes, as data, and profiles from files.

A call that is not allowed fails with EPERM. Some are allowed with certain arguments only, some only
with the capability that the kernel requires anyway.
"""

from __future__ import annotations

import errno
import json
import platform
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

from transom.runtime.native.platform import Spec

_ALWAYS: Final = """
accept accept4 access adjtimex alarm bind brk cachestat capget capset chdir chmod chown chown32 clock_adjtime clock_adjtime64
clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range
connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2
epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64
fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex
futex_requeue futex_time64 futex_wait futex_waitv futex_wake futimesat getcpu getcwd getdents getdents64 getegid getegid32
geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getppid getpriority
getrandom getresgid getresgid32 getresuid getresuid32 getrlimit get_robust_list getrusage getsid getsockname getsockopt
get_thread_area gettid gettimeofday getuid getuid32 getxattr inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
io_cancel ioctl io_destroy io_getevents io_pgetevents io_pgetevents_time64 ioprio_get ioprio_set io_setup io_submit ipc kill
landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr
llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier memfd_create memfd_secret
mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 mprotect mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap msgctl msgget msgrcv msgsnd msync
munlock munlockall munmap name_to_handle_at nanosleep newfstatat _newselect open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2
prlimit64 process_mrelease pselect6 pselect6_time64 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recv
recvfrom recvmmsg recvmmsg_time64 recvmsg remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq
rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min
sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64
sendmmsg sendmsg sendto setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid
setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setrlimit set_robust_list
setsid setsockopt set_thread_area set_tid_address setuid setuid32 setxattr shmat shmctl shmdt shmget shutdown sigaltstack
signalfd signalfd4 sigprocmask sigreturn socketcall socketpair splice stat stat64 statfs statfs64 statx symlink symlinkat
sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64
timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill
truncate truncate64 ugetrlimit umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4
waitid waitpid write writev ptrace process_vm_readv process_vm_writev
"""

_BY_MACHINE: Final[Mapping[str, str]] = {
    "x86_64": "arch_prctl modify_ldt",
    "aarch64": "arm_fadvise64_64 arm_sync_file_range sync_file_range2 breakpoint cacheflush set_tls",
}
_BY_CAPABILITY: Final[Mapping[str, str]] = {
    "CAP_DAC_READ_SEARCH": "open_by_handle_at",
    "CAP_SYS_ADMIN": "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount "
    "mount_setattr "
    "move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname "
    "setns syslog umount umount2 unshare",
    "CAP_SYS_BOOT": "reboot",
    "CAP_SYS_CHROOT": "chroot",
    "CAP_SYS_MODULE": "delete_module init_module finit_module",
    "CAP_SYS_PACCT": "acct",
    "CAP_SYS_PTRACE": "kcmp pidfd_getfd process_madvise",
    "CAP_SYS_RAWIO": "iopl ioperm",
    "CAP_SYS_TIME": "settimeofday stime clock_settime clock_settime64",
    "CAP_SYS_TTY_CONFIG": "vhangup",
    "CAP_SYS_NICE": "get_mempolicy mbind set_mempolicy set_mempolicy_home_node",
    "CAP_SYSLOG": "syslog",
    "CAP_BPF": "bpf",
    "CAP_PERFMON": "perf_event_open",
}
_PERSONALITIES: Final = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
_VSOCK: Final = 40
_NEW_NAMESPACES: Final = 0x7E020000
_ARCHITECTURES: Final[Mapping[str, list[str]]] = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}


class BadProfile(Exception):
    """The text is containerd's."""


def _allow(names: list[str], *arguments: Spec) -> Spec:
    rule: Spec = {"names": names, "action": "SCMP_ACT_ALLOW"}
    if arguments:
        rule["args"] = list(arguments)
    return rule


def _equal(value: int) -> Spec:
    return {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}


def default_seccomp_profile(
    capabilities: Collection[str], *, native: bool = False, old_abis: bool = True
) -> Spec:
    """The default policy for these capabilities. `native`: excludes programs for older
    architectures of the same kind, whose calls have different numbers; each such set takes runc as
    long as the first one to compile into a filter, on every start (4 ms). Without `old_abis`,
    32-bit programs work, but not those of the rarely used x32 ABI.
    """
    made = _default(frozenset(capabilities))
    if native or not old_abis:
        return {**made, "architectures": made["architectures"][: 1 if native else 2]}
    return made


@cache
def _default(capabilities: frozenset[str]) -> Spec:
    machine = platform.machine()
    allowed = [*_ALWAYS.split(), *_BY_MACHINE.get(machine, "").split()]
    for capability, names in _BY_CAPABILITY.items():
        if capability in capabilities:
            allowed += names.split()
    rules = [_allow(sorted(set(allowed)))]
    rules += [_allow(["personality"], _equal(value)) for value in _PERSONALITIES]
    # Sockets of virtual machines could bypass the network namespace.
    rules.append(_allow(["socket"], {"index": 0, "value": _VSOCK, "op": "SCMP_CMP_NE"}))
    if "CAP_SYS_ADMIN" not in capabilities:
        masked = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        rules.append(_allow(["clone"], masked))
        # Its flags are in memory, where no filter can check them: programs fall back to clone.
        rules.append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS})
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.EPERM,
        "architectures": _ARCHITECTURES.get(machine, []),
        "syscalls": rules,
    }


def seccomp_profile_from_file(data: bytes, capabilities: Collection[str]) -> Spec:
    """A profile in the format of docker and containerd, or of specifications. Raises BadProfile."""
    try:
        profile = json.loads(data)
    except ValueError as problem:
        raise BadProfile(f"decoding seccomp profile failed: {problem}") from problem
    if not isinstance(profile, dict) or not isinstance(profile.get("defaultAction"), str):
        raise BadProfile("decoding seccomp profile failed: it has no defaultAction")
    found: Spec = {"defaultAction": profile["defaultAction"], "syscalls": []}
    for key in ("defaultErrnoRet", "flags", "listenerPath", "listenerMetadata"):
        if key in profile:
            found[key] = profile[key]
    found["architectures"] = _architectures(profile)
    for rule in profile.get("syscalls") or ():
        if _applies(rule, capabilities):
            names = rule.get("names") or [rule["name"]]
            kept = {key: rule[key] for key in ("action", "errnoRet") if key in rule}
            arguments = rule.get("args")
            found["syscalls"].append(
                {"names": names, **kept, **({"args": arguments} if arguments else {})}
            )
    return found


def _architectures(profile: Mapping[str, Any]) -> list[str]:
    if profile.get("architectures"):
        return list(profile["architectures"])
    native = _ARCHITECTURES.get(platform.machine(), [])
    for entry in profile.get("archMap") or ():
        if entry.get("architecture") in native[:1]:
            return [entry["architecture"], *(entry.get("subArchitectures") or ())]
    return []


def _applies(rule: Mapping[str, Any], capabilities: Collection[str]) -> bool:
    """Whether a rule of a docker profile applies."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    own = {"x86_64": {"amd64", "x86", "x32"}, "aarch64": {"arm64", "arm"}}.get(
        platform.machine(), set()
    )
    if any(capability not in capabilities for capability in includes.get("caps") or ()):
        return False
    if any(capability in capabilities for capability in excludes.get("caps") or ()):
        return False
    if includes.get("arches") and not own & set(includes["arches"]):
        return False
    return not own & set(excludes.get("arches") or ())

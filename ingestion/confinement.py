"""What the kernel takes away from a parser process: resources, network, system calls, files.

Linux; elsewhere only rlimits. Every measure is tried and reported, none is assumed. See seccomp(2), landlock(7).
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000

# System calls that no parser needs, by machine: (x86_64, aarch64). None where the machine lacks it.
_DENIED: Final[dict[str, tuple[int | None, int]]] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "kill": (62, 129),
    "tkill": (200, 130),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265),
    "fork": (57, 1079),
    "vfork": (58, 1071),
}
_MACHINES: Final = {"x86_64": (0, 0xC000003E, 56, 435), "aarch64": (1, 0xC00000B7, 220, 435)}
_X32_BIT: Final = 0x40000000
_CLONE_THREAD: Final = 0x00010000

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_FS_READ: Final = (1 << 2) | (1 << 3)
_FS_FILE_READ: Final = 1 << 2


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of one parser child."""

    memory_bytes: int = 2 * 1024**3
    cpu_s: int = 30
    wall_s: float = 120.0
    file_bytes: int = 256 * 1024**2
    output_bytes: int = 256 * 1024**2
    processes: int = 64


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Get a signal when the parent (thread) goes; exits at once when it went already. No effect outside Linux."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def leave_network() -> bool:
    """Move this process (and its later children) into an empty network namespace. False where not allowed."""
    if sys.platform != "linux":
        return False
    libc = _libc()
    if libc.unshare(_CLONE_NEWNET) == 0:
        return True
    # A plain user needs a user namespace first; file access by ownership stays as it was.
    return os.geteuid() != 0 and bool(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0)


def limit_resources(limits: ProcessLimits, cpu_s: int) -> None:
    """Set the rlimits of this process. A limit above the inherited hard limit is lowered to it."""
    wanted = (
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
        # SIGXCPU at the soft limit says why it died; SIGKILL a little later ends a process that ignores it.
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 2),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NPROC, limits.processes, limits.processes),
        (resource.RLIMIT_CORE, 0, 0),
    )
    for kind, soft, hard in wanted:
        ceiling = resource.getrlimit(kind)[1]
        if ceiling == resource.RLIM_INFINITY:
            ceiling = hard
        try:
            resource.setrlimit(kind, (min(soft, ceiling), min(hard, ceiling)))
        except (ValueError, OSError):  # macOS refuses RLIMIT_AS
            continue


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filters", ctypes.POINTER(_Filter)))


def filter_system_calls() -> bool:
    """Deny (EPERM) sockets, exec, signals to others, new processes and kernel interfaces. False where impossible."""
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return False
    column, arch, clone, clone3 = machine
    deny = _ERRNO | errno.EPERM
    program: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4),  # architecture: a call by another convention would dodge the numbers below
        (_JUMP_EQ, 1, 0, arch),
        (_RETURN, 0, 0, deny),
        (_LOAD, 0, 0, 0),  # number of the call
    ]
    if column == 0:
        program += [(_JUMP_GE, 0, 1, _X32_BIT), (_RETURN, 0, 0, deny)]
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None and number < 1000:
            program += [(_JUMP_EQ, 0, 1, number), (_RETURN, 0, 0, deny)]
    program += [
        # glibc falls back to clone when clone3 does not exist; clone's flags can be looked at, clone3's cannot.
        (_JUMP_EQ, 0, 1, clone3),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_JUMP_EQ, 0, 3, clone),
        (_LOAD, 0, 0, 16),  # low half of the first argument
        (_JUMP_SET, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, deny),
        (_RETURN, 0, 0, _ALLOW),
    ]
    filters = (_Filter * len(program))(*(_Filter(*step) for step in program))
    block = _Program(len(program), filters)
    libc = _libc()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(block), 0, 0) == 0)


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def library_paths() -> list[Path]:
    """Folders whose files the interpreter and the parsers need to read."""
    names = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    names |= {sys.base_prefix + "/lib", sys.prefix + "/lib", str(Path(__file__).parent)}
    names |= {entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    names |= {"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/usr/share", "/etc/localtime"}
    names |= {"/etc/mime.types", "/dev/urandom", "/etc/ld.so.cache"}
    return [Path(name) for name in sorted(names) if name and Path(name).exists()]


def restrict_files(readable: Sequence[Path], writable: Sequence[Path]) -> bool:
    """Landlock: read under `readable`, everything under `writable`, nothing else. False where the kernel lacks it."""
    if sys.platform != "linux":
        return False
    libc = _libc()
    version = libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    handled = (1 << 13) - 1
    if version >= 2:
        handled |= 1 << 13
    if version >= 3:
        handled |= 1 << 14
    attributes = _Ruleset(handled, 0b11 if version >= 4 else 0)
    size = ctypes.sizeof(_Ruleset) if version >= 4 else 8
    ruleset = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        return False
    try:
        rules = [(path, _FS_READ) for path in readable] + [(path, handled) for path in writable]
        for path, access in rules:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                allowed = access if path.is_dir() else access & _FS_FILE_READ
                rule = _Beneath(allowed, descriptor)
                if libc.syscall(_LANDLOCK_ADD, ruleset, 1, ctypes.byref(rule), 0) != 0:
                    return False
            finally:
                os.close(descriptor)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0)
    finally:
        os.close(ruleset)

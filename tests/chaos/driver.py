"""Runs, plans and maintenance in processes of their own, that are killed at any write to files, or find no room.

    python -m tests.chaos.driver     # reads one :class:`Order` a line as JSON, answers each with an :class:`Outcome`

Everything is imported once; each order is carried out by a forked child. To be killed, the child is traced (ptrace): it
stops at every system call, those that change a file under the warehouse are its *moments*, and before one of them it
gets SIGKILL. So a moment has a number that another run of the same order meets again.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations import maintenance
from tests.chaos.world import PLANS, World, without_audit

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Order:
    """What to do in the world in ``folder``: ``run`` an interval by a plan version, ``plan`` or ``maintain``.

    ``moment``: the number of the write before which to be killed (0: count them; None: not traced). ``room``: bytes
    that a file may have at most.
    """

    folder: str
    what: str
    version: int = 1
    begin: int = 60
    end: int = 120
    run_id: str = "driver"
    plan: int = 0
    moment: int | None = None
    room: int | None = None


@dataclass(frozen=True)
class Outcome:
    """``said``: ``done``, a code, another error's text, or ``killed``; ``moments``: those that it met, the last of them
    in words."""

    said: str
    moments: int = 0
    last: str = ""


def carry_out(order: Order) -> str:
    if order.room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.room, resource.RLIM_INFINITY))
    world = World.at(Path(order.folder))
    try:
        with without_audit():
            if order.what == "run":
                world.run(order.version, order.begin, order.end, order.run_id)
            elif order.what == "plan":
                world.plan(PLANS[order.plan])
            else:
                maintenance.maintain(world.warehouse)
    except HeddleError as error:
        return error.diagnostic.code
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"


# ------------------------------------------------------------------------------------------ being traced
UNTRACEABLE = "the system lets no process be traced"
"""What a child answers that is to be killed and cannot be."""

TRACEME, SYSCALL, SETOPTIONS, SYSCALL_INFO = 0, 24, 0x4200, 0x420E
OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000  # mark system calls, follow forks and threads, die with the tracer
ANY_CHILD = 0x40000000
CALLS = {
    "x86_64": {
        **{1: "write", 18: "pwrite", 20: "writev", 74: "fsync", 75: "fdatasync", 77: "ftruncate", 82: "rename"},
        **{83: "mkdir", 86: "link", 87: "unlink", 257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat"},
        **{265: "linkat", 316: "renameat"},
    },
    "aarch64": {
        **{64: "write", 68: "pwrite", 66: "writev", 82: "fsync", 83: "fdatasync", 46: "ftruncate"},
        **{56: "openat", 34: "mkdirat", 35: "unlinkat", 38: "renameat", 37: "linkat", 276: "renameat"},
    },
}
BY_DESCRIPTOR = {"write", "pwrite", "writev", "fsync", "fdatasync", "ftruncate"}


class _Info(ctypes.Structure):
    _fields_ = [
        *(("op", ctypes.c_uint8), ("pad", ctypes.c_uint8 * 3), ("arch", ctypes.c_uint32)),
        *(("ip", ctypes.c_uint64), ("sp", ctypes.c_uint64), ("number", ctypes.c_uint64)),
        *(("given", ctypes.c_uint64 * 6), ("rest", ctypes.c_uint64 * 8)),
    ]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _trace(request: int, process: int, address: int = 0, data: int | ctypes._Pointer[_Info] = 0) -> int:  # type: ignore[type-arg]
    return int(_libc.ptrace(request, process, address, data))


def traced(child: int, root: str, moment: int) -> tuple[bool, int, str]:
    """Let a child that stopped itself go on to its end, or to its ``moment``-th write under ``root``; whether it was
    killed, the writes, the last one."""
    if not os.WIFSTOPPED(os.waitpid(child, 0)[1]):
        return False, 0, ""
    _trace(SETOPTIONS, child, 0, OPTIONS)
    _trace(SYSCALL, child)
    calls, info, met, last = CALLS[platform.machine()], _Info(), 0, ""
    while True:
        thread, status = os.waitpid(-1, ANY_CHILD)
        if not os.WIFSTOPPED(status):
            if thread == child:
                return False, met, last
            continue
        number = os.WSTOPSIG(status)
        deliver = 0 if number in (signal.SIGTRAP, signal.SIGSTOP, signal.SIGTRAP | 0x80) else number
        if number == signal.SIGTRAP | 0x80:
            _libc.ptrace(SYSCALL_INFO, thread, ctypes.sizeof(info), ctypes.byref(info))
            name = calls.get(info.number) if info.op == 1 else None
            if name is not None and (path := _path(thread, name, info)).startswith(root):
                met, last = met + 1, f"{name} {path.removeprefix(root)}"
                if met == moment:
                    os.kill(child, signal.SIGKILL)
                    while os.waitpid(-1, ANY_CHILD)[0] != child:
                        pass
                    return True, met, last
        _trace(SYSCALL, thread, 0, deliver)


def _path(thread: int, name: str, info: _Info) -> str:
    """The file that a system call changes; empty for those that change none."""
    try:
        if name in BY_DESCRIPTOR:
            return str(Path(f"/proc/{thread}/fd/{info.given[0]}").readlink())
        if name == "openat" and not info.given[2] & os.O_CREAT:
            return ""
        at = info.given[1] if name.endswith("at") else info.given[0]
        with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(at)
            return memory.read(400).split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


def _child(order: Order, answers: int) -> None:
    if order.moment is not None:
        if _trace(TRACEME, 0) != 0:
            os.write(answers, UNTRACEABLE.encode())
            os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
    answer = carry_out(order)
    os.write(answers, answer[:2000].encode())
    os._exit(0)


def main() -> None:
    for line in sys.stdin:
        order = Order(**json.loads(line))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _child(order, writing)
            finally:
                os._exit(70)
        os.close(writing)
        killed, met, last = False, 0, ""
        if order.moment is None:
            os.waitpid(child, 0)
        else:
            killed, met, last = traced(child, order.folder + "/warehouse", order.moment)
        with os.fdopen(reading, "rb") as pipe:
            answer = "killed" if killed else pipe.read().decode() or "no answer"
        print(json.dumps(asdict(Outcome(answer, met, last))), flush=True)


class Drivers:
    """The process that carries out orders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(self, order: Order) -> Outcome:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(asdict(order)), file=self.process.stdin, flush=True)
        return Outcome(**json.loads(self.process.stdout.readline()))


@contextmanager
def drivers() -> Iterator[Drivers]:
    command = [sys.executable, "-m", "tests.chaos.driver"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Drivers(process)
    finally:
        process.kill()
        process.wait(60)


if __name__ == "__main__":
    main()

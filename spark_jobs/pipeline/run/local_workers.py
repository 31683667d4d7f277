"""The process that the local engine forks its workers from (:mod:`spark_jobs.engine.local`): what tasks import is
imported once, here, not in each."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys

from spark_jobs.engine.light_imports import arrow_alone, numba_alone


def _work(connection: socket.socket) -> None:
    """Do tasks until there are none."""
    with connection.makefile("rwb") as stream:
        while True:
            try:
                work, numbers = pickle.load(stream)
            except EOFError:
                return
            try:
                answer = pickle.dumps((list(pickle.loads(work)(numbers)), None))
            except Exception as error:
                answer = pickle.dumps((None, _plain(error)))
            stream.write(answer)
            stream.flush()


def _plain(error: Exception) -> Exception:
    """An error that can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def main(sockets: list[int]) -> None:
    """Import what tasks need, fork a worker for each socket, and end them when standard input does."""
    arrow_alone()
    numba_alone()

    # Ctrl-C reaches all processes of the terminal; the parent decides when these end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    workers = []
    for number in sockets:
        pid = os.fork()
        if not pid:
            os.close(0)
            for other in set(sockets) - {number}:
                os.close(other)
            _work(socket.socket(fileno=number))
            os._exit(0)
        workers.append(pid)
    for number in sockets:
        os.close(number)
    while os.read(0, 1):
        pass
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(list(map(int, sys.argv[1:])))

"""A port on the host's 127.0.0.1 that leads to a port inside a machine.

Run as a program of its own: `python forward.py ENDPOINT-FILE PID HOST PORT [LISTEN-PORT]`. A socket belongs to the network
namespace its process was in when it was made: the listening one is made here, then the process moves into the machine's
namespace, and every socket it dials with is made there. It needs the standard library alone.
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
from pathlib import Path

CLONE_NEWNET = 0x40000000
CHUNK = 64 * 1024


def enter_network(pid: int) -> None:
    """Move this (single-threaded) process into the network namespace of process `pid`; raise OSError if that fails."""
    handle = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, f"setns to the network of process {pid}: {os.strerror(error)}")
    finally:
        os.close(handle)


def listen(port: int) -> socket.socket:
    """Listen on 127.0.0.1:`port`, or on any free port when that one is taken or 0."""
    try:
        return socket.create_server(("127.0.0.1", port), backlog=128)
    except OSError:
        return socket.create_server(("127.0.0.1", 0), backlog=128)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def serve(server: socket.socket, host: str, port: int) -> None:
    """Join every connection that `server` accepts with a new one to `host`:`port`, for ever."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        for side in (writer, far_writer):
            side.close()

    async with await asyncio.start_server(join, sock=server) as running:
        await running.serve_forever()


def main() -> None:
    endpoint, pid, host, port = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    server = listen(int(sys.argv[5]) if len(sys.argv) > 5 else 0)
    enter_network(pid)
    draft = endpoint.with_name(f".{endpoint.name}.new")
    draft.write_text(json.dumps({"port": server.getsockname()[1], "pid": os.getpid()}))
    draft.replace(endpoint)
    asyncio.run(serve(server, host, port))


if __name__ == "__main__":
    main()

"""Health checks of the local stack's servers: small, asynchronous, over loopback, true or false."""

import asyncio
from collections.abc import Awaitable, Callable

from app.local.ports import HOST

Check = Callable[[], Awaitable[bool]]
CHECK_TIMEOUT_S = 2.0


async def http_status(port: int, path: str, timeout_s: float = CHECK_TIMEOUT_S) -> tuple[int, bytes]:
    """Status and body of `GET path`; (0, b"") when nobody answers in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {HOST}:{port}\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
                head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return int(head.split(b" ", 2)[1]), body
    except (OSError, TimeoutError, ValueError, IndexError):
        return 0, b""


def http_ok(port: int, path: str, holding: str = "") -> Check:
    """True once `GET path` answers 200 with `holding` in its body: another installation on the port is not ours."""

    async def check() -> bool:
        status, body = await http_status(port, path)
        return status == 200 and holding.encode() in body

    return check


def valkey_ping(port: int, password: str) -> Check:
    """True once the server accepts the password and answers PING (RESP protocol)."""

    async def check() -> bool:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(HOST, port)
                try:
                    writer.write(f"AUTH {password}\r\nPING\r\n".encode())
                    await writer.drain()
                    return await reader.readline() == b"+OK\r\n" and await reader.readline() == b"+PONG\r\n"
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    return check

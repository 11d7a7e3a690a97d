"""Proxies as they are often written, for the controls: what an attack does where nobody thought of it.

`trusting` ones pass everything on. `careless` ones have an allow-list and make the well-known mistakes with it: names
are compared by how they end, a request is judged by its Host and sent to where its first line says, an address is
looked up once to be judged and once more to be dialled, and only the first address is looked at.
"""

import asyncio
import ipaddress
import socket
import struct


class PlainProxy:
    """HTTP and SOCKS5 on one port: the first byte says which."""

    def __init__(self, careless_about=None):
        self.careless_about = careless_about

    async def start(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=2048)
        return server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            first = await reader.readexactly(1)
            await (self.socks if first == b"\5" else self.http)(first, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, OSError, ValueError):
            pass
        writer.close()

    async def admits(self, judged, port):
        if self.careless_about is None:
            return True
        if not any(judged.endswith(name) for name in self.careless_about):
            return False
        found = await asyncio.get_running_loop().getaddrinfo(judged, port, type=socket.SOCK_STREAM)
        return ipaddress.ip_address(found[0][4][0]).is_global

    async def http(self, first, reader, writer):
        head = first + await reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode("latin-1").split("\r\n")
        method, target, _ = line.split(" ", 2)
        if method == "CONNECT":
            host, port = place(target, 443)
        else:
            host, port = place(target.split("://", 1)[1].split("/", 1)[0], 80)
        hosts = [header.split(":", 1)[1].strip() for header in headers if header.lower().startswith("host:")]
        judged = place(hosts[-1], 80)[0] if hosts and method != "CONNECT" else host
        if not await self.admits(judged, port):
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        theirs = await asyncio.open_connection(host, port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            path = "/" + target.split("://", 1)[1].partition("/")[2]
            rest = [header for header in headers if not header.lower().startswith("proxy-")]
            theirs[1].write("\r\n".join([f"{method} {path} HTTP/1.1", *rest]).encode("latin-1"))
        await both_ways((reader, writer), theirs)

    async def socks(self, _, reader, writer):
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\5\0")
        _, command, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
        elif kind == 4:
            host = socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("latin-1")
        port, = struct.unpack(">H", await reader.readexactly(2))
        here = b"\0\1" + socket.inet_aton("127.0.0.1")
        if command == 2:
            waiting = socket.create_server(("127.0.0.1", 0))
            writer.write(b"\5\0" + here + struct.pack(">H", waiting.getsockname()[1]))
            await reader.read()
            return
        if command == 3:
            relay = Datagrams()
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: relay, ("127.0.0.1", 0))
            writer.write(b"\5\0" + here + struct.pack(">H", transport.get_extra_info("sockname")[1]))
            await reader.read()
            return
        if not await self.admits(host, port):
            writer.write(b"\5\2" + here + b"\0\0")
            return
        theirs = await asyncio.open_connection(host, port)
        writer.write(b"\5\0" + here + b"\0\0")
        await both_ways((reader, writer), theirs)


class Datagrams(asyncio.DatagramProtocol):
    """SOCKS5's relay of datagrams, one way."""

    def datagram_received(self, data, _):
        if data[3] == 1:
            address, port = socket.inet_ntop(socket.AF_INET, data[4:8]), struct.unpack(">H", data[8:10])[0]
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                out.sendto(data[10:], (address, port))


def place(text, otherwise):
    """Host and port of an authority, with brackets or without, and whatever comes before an @."""
    text = text.rpartition("@")[2]
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, int(port[1:] or otherwise)
    host, colon, port = text.rpartition(":")
    return (host, int(port)) if colon else (text, otherwise)


async def both_ways(one, other):
    async def pour(reader, writer):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    try:
        await asyncio.gather(pour(one[0], other[1]), pour(other[0], one[1]))
    except OSError:
        pass
    other[1].close()

"""Servers of the internet that speak neither HTTP nor DNS."""

import asyncio
import os
import struct

ECHO, SINK, SOURCE, POSTGRES, SSH = 7, 9, 19, 5432, 22
PIECE = 1 << 18


async def serve_quietly(what, port):
    async def quietly(reader, writer):
        try:
            await what(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, struct.error):
            pass
        writer.close()

    for address in ("0.0.0.0", "::"):
        await asyncio.start_server(quietly, address, port, backlog=2048, limit=PIECE)


async def echo(reader, writer):
    while data := await reader.read(PIECE):
        writer.write(data)
        await writer.drain()
    # What was said last still arrives where only one side is done.
    writer.write_eof()


async def sink(reader, writer):
    """Takes what it gets and says, when the other side is done, how much it was."""
    count = 0
    while data := await reader.read(PIECE):
        count += len(data)
    writer.write(b"%d\n" % count)
    await writer.drain()


async def source(reader, writer):
    while True:
        writer.write(b"x" * PIECE)
        await writer.drain()


async def postgres(reader, writer):
    """As much of the database's protocol as a client sees of a small query. The server never speaks first."""
    length, version = struct.unpack(">II", await reader.readexactly(8))
    if version == 80877103:  # A wish for TLS.
        writer.write(b"N")
        length, version = struct.unpack(">II", await reader.readexactly(8))
    user = (await reader.readexactly(length - 8)).split(b"\0")[1]

    def say(kind, data):
        writer.write(kind + struct.pack(">I", len(data) + 4) + data)

    say(b"R", struct.pack(">I", 0))
    say(b"Z", b"I")
    while True:
        kind, length = struct.unpack(">cI", await reader.readexactly(5))
        query = await reader.readexactly(length - 4)
        if kind == b"X":
            return
        row = user + b" asked " + query.rstrip(b"\0")
        say(b"D", struct.pack(">HI", 1, len(row)) + row)
        say(b"C", b"SELECT 1\0")
        say(b"Z", b"I")
        await writer.drain()


async def start(folder):
    await serve_quietly(echo, ECHO)
    await serve_quietly(sink, SINK)
    await serve_quietly(source, SOURCE)
    await serve_quietly(postgres, POSTGRES)
    if os.path.exists("/usr/sbin/dropbear"):
        # Its messages are for whoever looks into a world that does not work.
        log = open(os.path.join(folder, "ssh.log"), "wb")
        await asyncio.create_subprocess_exec("/usr/sbin/dropbear", "-F", "-E", "-s", "-p", str(SSH), "-P", "",
                                             "-r", os.path.join(folder, "ssh_host_key"), stdout=log, stderr=log,
                                             stdin=asyncio.subprocess.DEVNULL)

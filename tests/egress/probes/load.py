"""Many connections, questions and bad manners, from inside of a box.

    python3 load.py WHAT WORDS...

Prints one line of JSON. Whatever waits longer than PATIENCE has failed.
"""

import asyncio
import collections
import json
import random
import resource
import socket
import struct
import sys
import time

PATIENCE = 60


def more_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def echo(host, port, text, together=None):
    """One connection that says something that looks like no request and hears it again; with `together` it stays until all have."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(text)
    heard = await reader.readexactly(len(text))
    if together is not None:
        together["there"] += 1
        if together["there"] == together["all"]:
            together["gate"].set()
        await together["gate"].wait()
        # All are open now; each still works.
        writer.write(text)
        heard = await reader.readexactly(len(text))
    writer.close()
    await writer.wait_closed()
    return heard == text


async def at_once(host, port, count):
    """That many connections at the same time, all of them in use."""
    count = int(count)
    together = {"there": 0, "all": count, "gate": asyncio.Event()}
    tasks = [echo(host, int(port), b"\0hello %d" % number, together) for number in range(count)]
    done = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    return {"same": sum(done)}


async def one_by_one(host, port, count):
    """That many connections one after the other, a few at a time."""
    count, same = int(count), 0
    address = (await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM))[0][4][0]
    places = asyncio.Semaphore(8)

    async def one(number):
        async with places:
            return await echo(address, int(port), b"\0hello %d" % number)

    for start in range(0, count, 500):
        tasks = [one(number) for number in range(start, min(count, start + 500))]
        same += sum(await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE))
    return {"same": same}


def question(name, number):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", number & 0xFFFF, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)


async def questions(count, *patterns):
    """That many questions, with the number of each in place of N; counts the codes that come back."""
    count, codes = int(count), collections.Counter()
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE)
    made.connect(("127.0.0.1", 53))
    window = 32
    for start in range(0, count, window):
        batch = range(start, min(count, start + window))
        for number in batch:
            made.send(question(patterns[number % len(patterns)].replace("N", str(number)), number))
        for _ in batch:
            codes[made.recv(4096)[3] & 15] += 1
    return {"codes": codes}


async def rude(seed, host):
    """Every way of being a bad guest, at every door, many times over; then how many were shown out."""
    draw = random.Random(int(seed))
    doors = [("127.0.0.1", 3128), ("127.0.0.1", 1080), ("127.0.0.1", 53), (host, 80), (host, 443)]
    beginnings = [b"", b"GET http://", b"CONNECT a", b"GET / HTTP/1.1\r\nHost: ", b"\x05\x01\0\x05\x01\0\x03\xff", b"\x16\x03\x01\xff\xff\x01",
                  b"\xff\xff", b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\nContent-Length: 99999999999\r\n\r\n" % (host.encode(), host.encode()),
                  b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000, b"A" * 100_000, b"\x05" + b"\xff" * 300, b"\0" * 5000]
    ended = collections.Counter()

    async def guest(place, text, half_close):
        try:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(text)
            if half_close:
                writer.write_eof()
            try:
                while await asyncio.wait_for(reader.read(65536), 0.2):
                    pass
                ended["closed"] += 1
            except asyncio.TimeoutError:
                ended["waiting"] += 1
            writer.transport.abort()
        except OSError as error:
            ended[type(error).__name__] += 1

    for _ in range(4):
        guests = [guest(place, text + draw.randbytes(draw.randrange(400)), draw.random() < 0.5)
                  for place in doors for text in beginnings]
        await asyncio.gather(*guests)
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.connect(("127.0.0.1", 53))
    for _ in range(2000):
        # Noise, and questions that were damaged.
        packet = bytearray(question("a.b.c", 7))
        for _ in range(draw.randrange(4)):
            packet[draw.randrange(len(packet))] = draw.randrange(256)
        made.send(bytes(packet[:draw.randrange(len(packet)) + 1]) if draw.random() < 0.5 else draw.randbytes(draw.randrange(1, 600)))
    return {"ended": ended}


async def hold(count, *doors):
    """Half-open guests: that many at each door, a byte now and then, until this program is ended."""
    count, kept = int(count), []
    words = {3128: b"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n", 1080: b"\x05\x02\0", 53: b"\0\x40\0"}
    for door in map(int, doors):
        for _ in range(count):
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", door)
                writer.write(words[door])
                kept.append(writer)
            except OSError:
                pass
    open("holding", "w").close()
    while True:
        for writer in kept:
            writer.write(b"x")
        await asyncio.sleep(1)


def main():
    more_files()
    start = time.monotonic()
    said = asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
    print(json.dumps(dict(said, seconds=time.monotonic() - start)))


main()

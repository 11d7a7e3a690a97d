"""The internet's name server: zones that tests write, and a record of every question it was asked."""

import asyncio
import collections
import ipaddress
import itertools
import socket
import struct

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "ANY": 255}
NAMES = {number: name for name, number in TYPES.items()}
NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5
WEB4, WEB6 = "93.184.216.34", "2606:2800:220:1::34"


class Entry:
    """What is known of a name. Each list of answers is given in its turn, the last one for ever after or,
    with `rotate`, all over again."""

    def __init__(self, answers=None, cname=None, rcode=None, silent=False, delay=0, rotate=False, ttl=0):
        turns = itertools.cycle if rotate else lambda lists: itertools.chain(lists, itertools.repeat(lists[-1]))
        self.turns = {kind: turns(lists) for kind, lists in (answers or {}).items()}
        self.cname, self.rcode, self.silent, self.delay, self.ttl = cname, rcode, silent, delay, ttl


class Zones:
    """Names by their text; `*.suffix` stands for all below a suffix that have no entry of their own."""

    def __init__(self):
        self.entries = {}
        self.asked = collections.deque(maxlen=300_000)

    def put(self, name, **entry):
        self.entries[name] = Entry(**entry)

    def find(self, name):
        if name in self.entries:
            return self.entries[name]
        labels = name.split(".")
        suffixes = ("*." + ".".join(labels[start:]) for start in range(1, len(labels)))
        return next((self.entries[suffix] for suffix in suffixes if suffix in self.entries), None)

    def answer(self, name, kind):
        """Records for a question, the code, and how long to wait; no code means that no answer is given."""
        records, delay = [], 0
        for _ in range(20):
            entry = self.find(name)
            if entry is None:
                return records, NOERROR if records else NXDOMAIN, delay
            delay = max(delay, entry.delay)
            if entry.silent:
                return [], None, delay
            if entry.rcode is not None:
                return records, entry.rcode, delay
            if entry.cname is None:
                values = next(entry.turns[kind]) if kind in entry.turns else []
                records += [(name, kind, value, entry.ttl) for value in values]
                return records, NOERROR, delay
            records.append((name, "CNAME", entry.cname, entry.ttl))
            name = entry.cname
        return records, SERVFAIL, delay


def spelled(name):
    labels = [label.encode("latin-1") for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def data_of(kind, value):
    if kind in ("A", "AAAA"):
        return ipaddress.ip_address(value).packed
    if kind == "TXT":
        return bytes([len(value)]) + value.encode()
    return spelled(value)


def read_question(packet):
    """The name, kind and bytes of the one question; raises whatever a broken packet makes it raise."""
    at, labels = 12, []
    while length := packet[at]:
        if length > 63:
            raise ValueError("a pointer in a question")
        labels.append(packet[at + 1:at + 1 + length].decode("latin-1"))
        at += 1 + length
    number, _ = struct.unpack_from(">HH", packet, at + 1)
    return ".".join(labels), NAMES.get(number, str(number)), packet[12:at + 5]


class NameServer:
    def __init__(self):
        self.zones = Zones()
        self.datagrams = []

    async def start(self):
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            # Every address is this server's: the answer has to come from the one that was asked.
            datagrams = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET:
                datagrams.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
            else:
                datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
                datagrams.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # FREEBIND: answers from addresses that nobody set
            datagrams.bind((address, 53))
            datagrams.setblocking(False)
            asyncio.get_running_loop().add_reader(datagrams, self.drain, datagrams)
            self.datagrams.append(datagrams)
            await asyncio.start_server(self.stream, address, 53, family=family)

    def drain(self, datagrams):
        while True:
            try:
                packet, about, _, peer = datagrams.recvmsg(4096, 256)
            except (BlockingIOError, ConnectionError):
                return
            asyncio.ensure_future(self.reply(datagrams, packet, about, peer))

    async def reply(self, datagrams, packet, about, peer):
        answer = await self.answer(packet, "udp", peer[0])
        if answer is None:
            return
        limit = 1232 if packet[11:12] and packet[11] else 512
        if len(answer) > limit:
            # Cut off after the question, which says: ask again over a stream.
            _, _, question = read_question(packet)
            answer = answer[:2] + bytes([answer[2] | 2]) + answer[3:4] + b"\0\1\0\0\0\0\0\0" + question
        # IP_PKTINFO's own address comes back as the source; an interface must not be named.
        told = [(level, kind, self.source(data)) for level, kind, data in about]
        try:
            datagrams.sendmsg([answer], told, 0, peer)
        except OSError:
            pass  # The asker is gone.

    @staticmethod
    def source(data):
        """pktinfo as received, turned into pktinfo to send."""
        if len(data) == 12:
            _, _, address = struct.unpack("=I4s4s", data)
            return struct.pack("=I4s4s", 0, address, b"\0" * 4)
        return data[:16] + struct.pack("=I", 0)

    async def stream(self, reader, writer):
        peer = writer.get_extra_info("peername")[0]
        try:
            while True:
                length, = struct.unpack(">H", await reader.readexactly(2))
                answer = await self.answer(await reader.readexactly(length), "tcp", peer)
                if answer is None:
                    break
                writer.write(struct.pack(">H", len(answer)) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    async def answer(self, packet, way, peer):
        try:
            name, kind, question = read_question(packet)
        except (IndexError, struct.error, ValueError):
            self.zones.asked.append({"name": repr(packet[:64]), "type": "broken", "way": way, "from": peer})
            return None
        self.zones.asked.append({"name": name, "type": kind, "way": way, "from": peer})
        records, code, delay = self.zones.answer(name.lower(), kind)
        if delay:
            await asyncio.sleep(delay)
        if code is None:
            return None
        header = packet[:2] + struct.pack(">HHHHH", 0x8480 | code, 1, len(records), 0, 0)
        lines = []
        for owner, record, value, ttl in records:
            data = data_of(record, value)
            lines.append(spelled(owner) + struct.pack(">HHIH", TYPES[record], 1, ttl, len(data)) + data)
        return header + question + b"".join(lines)

    def questions(self, about=""):
        """What was asked so far that has this text in its name, in lower case."""
        for datagrams in self.datagrams:
            self.drain(datagrams)
        return [asked for asked in self.zones.asked if about in asked["name"].lower()]

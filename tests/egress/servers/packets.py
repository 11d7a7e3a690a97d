"""Sees every packet that reaches the internet, whatever it is, and counts them by kind and place."""

import asyncio
import collections
import ipaddress
import socket
import struct

EVERYTHING = 3
IPV4, IPV6, FROM_US = 0x0800, 0x86DD, 4
PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmp6", 132: "sctp", 136: "udplite"}
MARKER_PORT = 4711


class Packets:
    """Of TCP only the first packet of a connection is counted, so that a big transfer is one."""

    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERYTHING))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self.socket.bind((device, EVERYTHING))
        self.socket.setblocking(False)
        self.counts = collections.Counter()
        self.markers = set()
        self.marked = asyncio.Event()
        self.lost = 0
        asyncio.get_running_loop().add_reader(self.socket, self.drain)

    def drain(self):
        while True:
            try:
                packet, (_, protocol, direction, *_) = self.socket.recvfrom(256)
            except BlockingIOError:
                return
            except OSError:
                continue  # The cable was unplugged for a moment: said once.
            if direction != FROM_US:
                self.note(protocol, packet)

    def note(self, ethernet, packet):
        if ethernet == IPV4:
            header, number = (packet[0] & 15) * 4, packet[9]
            target = ipaddress.ip_address(packet[16:20])
        elif ethernet == IPV6:
            header, number = 40, packet[6]
            target = ipaddress.ip_address(packet[24:40])
        else:
            self.counts[(f"ethernet-{ethernet:04x}", "", 0)] += 1
            return
        kind, port = PROTOCOLS.get(number, str(number)), 0
        if kind in ("tcp", "udp", "dccp", "sctp", "udplite"):
            port, = struct.unpack_from(">H", packet, header + 2)
        if kind == "tcp" and packet[header + 13] & 0x12 != 0x02:
            return
        if kind == "udp" and port == MARKER_PORT:
            self.markers.add(packet[header + 8:].decode("latin-1"))
            self.marked.set()
            return
        self.counts[(kind, str(target), port)] += 1

    async def seen(self, marker):
        """All so far. The marker was sent after what is asked about, by the same way: once it is here, so is the rest."""
        while True:
            self.drain()
            if marker in self.markers:
                self.markers.discard(marker)
                break
            self.marked.clear()
            await asyncio.wait_for(self.marked.wait(), 20)
        return [{"kind": kind, "to": to, "port": port, "count": count} for (kind, to, port), count in self.counts.items()]

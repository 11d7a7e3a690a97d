"""Places that nobody should come to, and that remember whoever does."""

import asyncio
import collections
import socket


class Canaries:
    """Each is a port of its own, for streams and datagrams, at one address; a stream is greeted with its name."""

    def __init__(self):
        self.places = {}
        self.visitors = collections.deque(maxlen=200)

    def open(self, address, port=0):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for _ in range(50):
            streams = socket.socket(family, socket.SOCK_STREAM)
            datagrams = socket.socket(family, socket.SOCK_DGRAM)
            streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                for one in (streams, datagrams):
                    if family == socket.AF_INET6:
                        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    one.setsockopt(socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6,
                                   15 if family == socket.AF_INET else 78, 1)  # FREEBIND
                streams.bind((address, port))
                number = streams.getsockname()[1]
                datagrams.bind((address, number))
                break
            except OSError:
                streams.close()
                datagrams.close()
        else:
            raise OSError(f"no port for a canary at {address}")
        streams.listen(64)
        self.keep(f"{address} {number}", streams, datagrams)
        return number

    def open_abstract(self, name):
        streams = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        streams.bind("\0" + name)
        streams.listen(64)
        self.keep(name, streams)

    def keep(self, name, *sockets):
        visits = []
        self.places[name] = (sockets, visits)
        for one in sockets:
            one.setblocking(False)
            asyncio.get_running_loop().add_reader(one, self.drain, one, visits)

    def drain(self, one, visits):
        """Takes in who is waiting, now, so that an answer about visits misses nobody."""
        while True:
            try:
                if one.type == socket.SOCK_DGRAM:
                    data, peer = one.recvfrom(2048)
                    visits.append({"way": "udp", "from": peer[0], "data": data.decode("latin-1")})
                    continue
                stream, peer = one.accept()
            except (BlockingIOError, ConnectionError):
                return
            visits.append({"way": "tcp", "from": str(peer[0]) if isinstance(peer, tuple) else ""})
            greeting = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ncanary\n"
            try:
                stream.send(greeting)
                stream.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            # Kept: closed with something unread it would take the greeting back.
            self.visitors.append(stream)

    def visits(self, name):
        sockets, visits = self.places[name]
        for one in sockets:
            self.drain(one, visits)
        return visits

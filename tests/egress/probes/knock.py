"""Knocks at doors, in a box or without one, and tells what came of it.

    python3 knock.py ATTEMPTS_JSON

Each attempt is an object with the kind in "do". Answers come as one list, in the order of the attempts. Nothing waits
longer than PATIENCE, and whoever does says `timeout`, which no wall should ever cause.
"""

import ctypes
import errno
import json
import socket
import ssl
import struct
import sys
import time

PATIENCE = 20
KINDS = {"A": 1, "CNAME": 5, "PTR": 12, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "ANY": 255}
SCTP, DCCP, UDPLITE = 132, 33, 136


def stream(place, family=None):
    """A connection to a place, by an address or a name."""
    host, port = place
    if family is None and not host[:1].isdigit() and ":" not in host:
        return socket.create_connection((host, port), PATIENCE)
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    made.settimeout(PATIENCE)
    made.connect((host, port))
    return made


def read(made, until=None, most=1 << 16):
    """What comes until the other side ends, or, with `until`, until that was said."""
    got = b""
    while len(got) < most:
        try:
            piece = made.recv(most - len(got))
        except (ConnectionError, ssl.SSLError) as error:
            return got.decode("latin-1") + f"<{name_of(error)}>"
        if not piece:
            break
        got += piece
        if until is not None and until.encode("latin-1") in got:
            break
    return got.decode("latin-1")


def say(place, text, until=None):
    """Says something and hears the answer. Of a list each part waits for an answer to the one before."""
    made = stream(place)
    parts = text if isinstance(text, list) else [text]
    heard = ""
    try:
        for part in parts[:-1]:
            made.sendall(part.encode("latin-1"))
            heard += made.recv(1 << 16).decode("latin-1")
        made.sendall(parts[-1].encode("latin-1"))
    except ConnectionError as error:
        return heard + f"<{name_of(error)}>"
    return heard + read(made, until)


def connect(place):
    """Whether a connection comes about, and what the other side says by itself within it."""
    made = stream(place)
    made.sendall(b"GET / HTTP/1.0\r\n\r\n")
    return read(made)


def tls(place, name, proxy=None, send="", hello=None):
    """A TLS connection that names `name`, or sends the bytes of `hello`; what is heard."""
    made = stream(proxy or place)
    if proxy:
        made.sendall(f"CONNECT {place[0]}:{place[1]} HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n\r\n".encode())
        head = read(made, "\r\n\r\n", 1 << 16)
        if " 200 " not in head.split("\r\n")[0]:
            return "proxy: " + head
    if hello is not None:
        made.sendall(bytes.fromhex(hello))
        return read(made, most=64)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(made, server_hostname=name) as wrapped:
        wrapped.sendall(send.encode("latin-1"))
        return read(wrapped)


def fast_open(place, text):
    """Says something before there is a connection."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A time limit of Python's own would make the socket one that does not wait.
    for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        made.setsockopt(socket.SOL_SOCKET, limit, struct.pack("@ll", PATIENCE, 0))
    made.sendto(text.encode(), socket.MSG_FASTOPEN, tuple(place))
    return read(made)


def datagram(place, text, protocol=0, type=socket.SOCK_DGRAM, answer=False):
    """Sends a datagram, connected, twice: the second one hears of the first one's refusal."""
    made = socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET, type, protocol)
    made.settimeout(PATIENCE)
    made.connect(tuple(place))
    made.send(text.encode("latin-1"))
    if answer:
        return made.recv(4096).decode("latin-1")
    # Refusals of datagrams come back on the box's own loopback, at once.
    time.sleep(0.05)
    made.send(text.encode("latin-1"))
    return "sent"


def open_socket(family, type, protocol, send_to=None):
    made = socket.socket(family, type, protocol)
    if send_to:
        made.sendto(b"\x08\0\xf7\xff\0\0\0\0", tuple(send_to))
    return "made"


def resolve(name):
    return sorted({found[4][0] for found in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})


def spelled(name):
    return b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".") if label) + b"\0"


def ask_dns(name, kind="A", server="127.0.0.1", port=53, way="udp", edns=True, raw=None, identity=4242):
    """One question by our own hand: the code, the flags and what came as records."""
    question = struct.pack(">HHHHHH", identity, 0x0100, 1, 0, 0, int(edns)) + spelled(name) + struct.pack(">HH", KINDS[kind], 1)
    if edns:
        question += b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
    packet = bytes.fromhex(raw) if raw is not None else question
    made = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET,
                         socket.SOCK_DGRAM if way == "udp" else socket.SOCK_STREAM)
    made.settimeout(PATIENCE)
    made.connect((server, port))
    if way == "udp":
        made.send(packet)
        answer = made.recv(4096)
    else:
        made.sendall(struct.pack(">H", len(packet)) + packet)
        length = made.recv(2)
        if len(length) < 2:
            raise ConnectionResetError(errno.ECONNRESET, "closed")
        answer = b""
        while len(answer) < struct.unpack(">H", length)[0]:
            answer += made.recv(4096)
    return read_dns(answer)


def read_dns(answer):
    identity, flags, questions, answers, _, more = struct.unpack(">HHHHHH", answer[:12])
    at = 12

    def name(at):
        labels, jumped = [], None
        for _ in range(128):
            length = answer[at]
            if length >= 192:
                jumped = jumped or at + 2
                at = struct.unpack(">H", answer[at:at + 2])[0] & 0x3FFF
            elif length == 0:
                return ".".join(labels), jumped or at + 1
            else:
                labels.append(answer[at + 1:at + 1 + length].decode("latin-1"))
                at += 1 + length
        raise ValueError("a name without end")

    for _ in range(questions):
        _, at = name(at)
        at += 4
    records = []
    for _ in range(answers):
        owner, at = name(at)
        kind, _, ttl, length = struct.unpack(">HHIH", answer[at:at + 10])
        data = answer[at + 10:at + 10 + length]
        shown = socket.inet_ntop(socket.AF_INET, data) if kind == 1 else (
            socket.inet_ntop(socket.AF_INET6, data) if kind == 28 else data.hex())
        records.append([owner, kind, ttl, shown])
        at += 10 + length
    return {"code": flags & 15, "cut": bool(flags & 0x200), "records": records, "identity": identity,
            "rest": answer[at:].decode("latin-1")}


def netlink(kind, protocol=0):
    """Asks the kernel to change the network: the error it answers with. 20 is an address, 24 a route."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    if kind == "addr":
        body = struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, 1) + struct.pack("=HH", 8, 2) + socket.inet_aton("10.77.0.1")
        number = 20
    elif kind == "route":
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, 32, 0, 0, 254, 3, 0, 1, 0)
        body += struct.pack("=HH", 8, 1) + socket.inet_aton("10.77.0.2") + struct.pack("=HHI", 8, 4, 1)
        number = 24
    else:
        body = struct.pack("=BBHiII", 0, 0, 0, 1, 0, 0xFFFFFFFF)  # lo, down
        number = 16
    made.send(struct.pack("=IHHII", 16 + len(body), number, 0x505, 1, 0) + body)
    answer = made.recv(4096)
    code = -struct.unpack("=i", answer[16:20])[0]
    return "done" if code == 0 else errno.errorcode[code]


def system_call(number, *words):
    """A system call by its number; what it returned or the error it gave."""
    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.syscall(number, *[ctypes.create_string_buffer(512) if word == "room" else ctypes.c_long(word) for word in words])
    return "done" if got >= 0 else errno.errorcode[ctypes.get_errno()]


def listening():
    """Ports that somebody listens on here, by /proc."""
    ports = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as lines:
            rows = [line.split() for line in lines][1:]
        ports.update(int(row[1].rsplit(":", 1)[1], 16) for row in rows if row[3] == "0A")
    return sorted(ports)


def connections(address):
    """How many connections there are to this address, besides those that are over."""
    number = "".join(f"{byte:02X}" for byte in reversed(socket.inet_aton(address)))
    with open("/proc/net/tcp") as lines:
        rows = [line.split() for line in lines][1:]
    return sum(1 for row in rows if row[2].startswith(number) and row[3] != "06")


def abstract(name):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(PATIENCE)
    made.connect("\0" + name)
    return "connected"


def name_of(error):
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, socket.gaierror):
        return {socket.EAI_NONAME: "EAI_NONAME", socket.EAI_AGAIN: "EAI_AGAIN", socket.EAI_NODATA: "EAI_NODATA",
                socket.EAI_FAIL: "EAI_FAIL"}.get(error.errno, str(error.errno))
    if isinstance(error, ssl.SSLError):
        return f"tls {error.reason}"
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    return f"{type(error).__name__}: {error}"


DO = {"say": say, "connect": connect, "tls": tls, "fast-open": fast_open, "datagram": datagram, "socket": open_socket,
      "resolve": resolve, "dns": ask_dns, "abstract": abstract, "netlink": netlink, "call": lambda words: system_call(*words),
      "listening": listening, "connections": connections}


def attempt(what):
    try:
        return {"heard": DO[what.pop("do")](**what)}
    except Exception as error:  # Whatever it was, it goes into the answer.
        return {"error": name_of(error)}


def main():
    print(json.dumps([attempt(what) for what in json.loads(sys.argv[1])]))


main()

"""Stands in for systemd on a message bus: python3 systemd.py SOCKET MOOD

Takes systemd's name, prints `ready`, and answers StartTransientUnit according to MOOD: good, failed, refuse
or silent. What it was asked for is printed as JSON. Written against the specification, not against our own
code, so that the two check each other; the bus daemon between them checks both.
"""
import json
import os
import socket
import struct
import sys

ALIGN = {"y": 1, "b": 4, "u": 4, "s": 4, "o": 4, "g": 1, "v": 1, "a": 4, "(": 8}


def pad(data, to):
    return data + b"\0" * (-len(data) % to)


def single(signature):
    """The first complete type of a signature, and the rest."""
    if signature[0] == "a":
        inner, rest = single(signature[1:])
        return "a" + inner, rest
    if signature[0] == "(":
        depth = 0
        for at, letter in enumerate(signature):
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth == 0:
                return signature[: at + 1], signature[at + 1 :]
    return signature[0], signature[1:]


def write(data, signature, value):
    kind = signature[0]
    data = pad(data, ALIGN[kind])
    if kind == "y":
        return data + bytes([value])
    if kind in "bu":
        return data + struct.pack("<I", value)
    if kind in "so":
        return data + struct.pack("<I", len(value.encode())) + value.encode() + b"\0"
    if kind == "g":
        return data + bytes([len(value)]) + value.encode() + b"\0"
    if kind == "v":
        return write(write(data, "g", value[0]), value[0], value[1])
    if kind == "(":
        inner = signature[1:-1]
        for part in value:
            one, inner = single(inner)
            data = write(data, one, part)
        return data
    start = pad(data + b"\0" * 4, ALIGN[signature[1]])
    body = start
    for part in value:
        body = write(body, signature[1:], part)
    return body[: len(data)] + struct.pack("<I", len(body) - len(start)) + body[len(data) + 4 :]


def read(data, at, signature):
    kind = signature[0]
    at += -at % ALIGN[kind]
    if kind == "y":
        return data[at], at + 1
    if kind in "bu":
        value = struct.unpack_from("<I", data, at)[0]
        return (bool(value) if kind == "b" else value), at + 4
    if kind in "so":
        end = at + 4 + struct.unpack_from("<I", data, at)[0]
        assert data[end] == 0
        return data[at + 4 : end].decode(), end + 1
    if kind == "g":
        end = at + 1 + data[at]
        assert data[end] == 0
        return data[at + 1 : end].decode(), end + 1
    if kind == "v":
        inner, at = read(data, at, "g")
        return read(data, at, inner)
    values = []
    if kind == "(":
        inner = signature[1:-1]
        while inner:
            one, inner = single(inner)
            value, at = read(data, at, one)
            values.append(value)
        return values, at
    length = struct.unpack_from("<I", data, at)[0]
    at += 4
    at += -at % ALIGN[signature[1]]
    end = at + length
    while at < end:
        value, at = read(data, at, signature[1:])
        values.append(value)
    assert at == end
    return values, at


class Bus:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.serial = 0
        uid = str(os.getuid()).encode().hex().encode()
        self.socket.sendall(b"\0AUTH EXTERNAL " + uid + b"\r\n")
        assert self.socket.recv(100).startswith(b"OK ")
        self.socket.sendall(b"BEGIN\r\n")

    def send(self, kind, fields, signature="", values=()):
        body = b""
        rest = signature
        for value in values:
            one, rest = single(rest)
            body = write(body, one, value)
        if signature:
            fields = fields + [(8, ("g", signature))]
        self.serial += 1
        head = struct.pack("<cBBBII", b"l", kind, 0, 1, len(body), self.serial)
        self.socket.sendall(pad(write(head, "a(yv)", fields), 8) + body)

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit(0)
            data += more
        return data

    def receive(self):
        head = self.exactly(16)
        assert head[:1] == b"l" and head[3] == 1
        body_length, serial, fields_length = struct.unpack_from("<III", head, 4)
        rest = self.exactly(fields_length + -fields_length % 8 + body_length)
        fields, end = read(head + rest, 12, "a(yv)")
        fields = dict((code, value) for code, value in fields)
        end += -end % 8
        body, at, signature, values = (head + rest)[end:], 0, fields.get(8, ""), []
        while signature:
            one, signature = single(signature)
            value, at = read(body, at, one)
            values.append(value)
        assert at == len(body)
        return head[1], serial, fields, values

    def call(self, member, signature, values):
        name = "org.freedesktop.DBus"
        path = "/org/freedesktop/DBus"
        self.send(1, [(1, ("o", path)), (2, ("s", name)), (3, ("s", member)), (6, ("s", name))], signature, values)


bus = Bus(sys.argv[1])
mood = sys.argv[2]
bus.call("Hello", "", ())
bus.call("RequestName", "su", ("org.freedesktop.systemd1", 4))
owned = False
while True:
    kind, serial, fields, values = bus.receive()
    if kind == 2 and values == [1] and not owned:
        owned = True
        print("ready", flush=True)
    if kind != 1:
        continue
    answer = [(5, ("u", serial)), (6, ("s", fields[7]))]
    if fields[3] == "Subscribe":
        bus.send(2, answer)
    if fields[3] != "StartTransientUnit":
        continue
    print(json.dumps({"path": fields[1], "interface": fields[2], "arguments": values}), flush=True)
    if mood == "silent":
        continue
    if mood == "refuse":
        bus.send(3, answer + [(4, ("s", "org.freedesktop.systemd1.UnitExists"))], "s", ("Unit is there already.",))
        continue
    job = "/org/freedesktop/systemd1/job/77"
    bus.send(2, answer, "o", (job,))
    manager = [
        (1, ("o", "/org/freedesktop/systemd1")),
        (2, ("s", "org.freedesktop.systemd1.Manager")),
        (3, ("s", "JobRemoved")),
    ]
    bus.send(4, manager, "uoss", (76, "/org/freedesktop/systemd1/job/76", "other.service", "failed"))
    result = "done" if mood == "good" else "failed"
    bus.send(4, manager, "uoss", (77, job, values[0], result))

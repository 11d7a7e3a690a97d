"""Asks a database one question by its own protocol: query.py HOST. Standard library only."""

import socket
import struct
import sys

with socket.create_connection((sys.argv[1], 5432), 20) as line:
    words = b"user\0somebody\0database\0things\0\0"
    line.sendall(struct.pack(">II", 8 + len(words), 196608) + words)
    heard = b""
    while b"Z\0\0\0\5I" not in heard:
        piece = line.recv(4096)
        if not piece:
            sys.exit("the server closed the connection")
        heard += piece
    query = b"select a thing\0"
    line.sendall(b"Q" + struct.pack(">I", 4 + len(query)) + query)
    heard = b""
    while b"Z\0\0\0\5I" not in heard:
        heard += line.recv(4096)
    print(heard.split(b"D")[1][10:].split(b"C\0")[0].decode())

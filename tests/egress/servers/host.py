"""The host of the tests' world: makes the world, and answers its tests. What is for the internet is passed on.

    python3 host.py FOLDER

Has all rights over this world and none beyond it, which a user's programs there have not.
"""

import asyncio
import ctypes
import errno
import json
import os
import shutil
import signal
import socket
import sys

import cable
from canaries import Canaries
from line import answer_questions, say
from packets import MARKER_PORT
from plain_proxy import PlainProxy

BEYOND = "93.184.216.1"
HUGE, STEP = 1 << 26, 1 << 22
LIBC = ctypes.CDLL(None, use_errno=True)


def mark(marker):
    """Sends a datagram after all that was sent before."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(marker.encode("latin-1"), (BEYOND, MARKER_PORT))


async def run(words, folder, given=""):
    """Runs a program with the rights that this one has."""
    program = await asyncio.create_subprocess_exec(*words, cwd=folder, stdin=asyncio.subprocess.PIPE,
                                                   stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await asyncio.wait_for(program.communicate(given.encode()), 60)
    return {"code": program.returncode, "out": out.decode("latin-1"), "err": err.decode("latin-1")}


def members(first):
    """All processes with the process numbers of this one, the ones that hide from their user included."""
    space = os.readlink(f"/proc/{first}/ns/pid")
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == space:
                found.append(int(pid))
        except OSError:
            pass  # Somebody else's, or gone.
    return found


class Piece(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def copy(pid, start, room, length):
    """Memory of a process; the files in /proc belong to somebody else where a process hides."""
    here, there = Piece(ctypes.addressof(room), length), Piece(start, length)
    return LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


def scan(pids, needles):
    """Which of these texts is in the memory of which process: every readable page of each is looked at."""
    found = {needle: [] for needle in needles}
    sizes = {}
    for pid in pids:
        try:
            sizes[pid] = sum(look_at(pid, area, needles, found) for area in areas_of(pid))
        except (ProcessLookupError, FileNotFoundError):
            pass  # Over before it was looked at.
    return {"found": found, "sizes": sizes}


def areas_of(pid):
    with open(f"/proc/{pid}/maps") as maps:
        areas = [line.split() for line in maps]
    return [area for area in areas if area[1].startswith("r") and area[-1] not in ("[vvar]", "[vvar_vclock]", "[vsyscall]")]


def look_at(pid, area, needles, found):
    start, end = (int(part, 16) for part in area[0].split("-"))
    total = 0
    for part in filled(pid, start, end):
        seen, size = look(pid, *part, needles)
        total += size
        for needle in seen:
            found[needle].append([pid, area[-1] if len(area) > 5 else "anonymous"])
    return total


def filled(pid, start, end):
    """The parts of an area with something in them; some programs reserve more than any memory has."""
    if end - start < HUGE:
        return [(start, end)]
    parts = []
    with open(f"/proc/{pid}/pagemap", "rb") as pages:
        pages.seek(start // 4096 * 8)
        for at in range(start, end, STEP):
            entries = pages.read(min(STEP, end - at) // 4096 * 8)
            # One and the same about every page, and that it is not there.
            if entries != entries[:8] * (len(entries) // 8) or entries[7] & 0xC0:
                parts.append((at, min(at + STEP, end)))
    return parts


def look(pid, start, end, needles):
    seen, before, size = set(), b"", 0
    room = ctypes.create_string_buffer(1 << 22)
    longest = max(map(len, needles))
    while start < end:
        length = copy(pid, start, room, min(len(room), end - start))
        if length <= 0:
            if ctypes.get_errno() != errno.EFAULT:
                raise OSError(ctypes.get_errno(), f"process {pid} cannot be looked at")
            start, before = (start | 0xFFF) + 1, b""  # A page that was reserved and never filled.
            continue
        text = before + room.raw[:length]
        seen.update(needle for needle in needles if needle.encode() in text)
        before = text[-longest:]
        start += length
        size += length
    return seen, size


async def main(folder):
    # It ends with its standard input, and puts things in order then; not when everybody around is told to end.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)
    internet = await cable.lay(folder)
    canaries = Canaries()

    async def beyond(question):
        internet.stdin.write(json.dumps(question).encode() + b"\n")
        reply = json.loads(await internet.stdout.readline() or b'{"failed": "the internet is gone"}')
        if "failed" in reply:
            raise RuntimeError(reply["failed"])
        return reply["said"]

    async def proxy(careless_about=None):
        return await PlainProxy(careless_about).start()

    say({"said": "ready"})
    await answer_questions({"canary": canaries.open, "abstract": canaries.open_abstract, "visits": canaries.visits,
                            "proxy": proxy, "mark": mark, "run": run, "scan": scan, "members": members, "internet": beyond})
    internet.stdin.close()
    await internet.wait()
    shutil.rmtree(folder)


asyncio.run(main(*sys.argv[1:]))

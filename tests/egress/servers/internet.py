"""The internet of the tests' world: every address is here.

    python3 internet.py DEVICE FOLDER

FOLDER has what the servers need: cert.pem, key.pem, ssh_host_key, git/, pages.json.
"""

import asyncio
import json
import os
import sys

import streams
from canaries import Canaries
from dns import WEB4, WEB6, NameServer
from line import answer_questions, say
from packets import Packets
from web import Web

# What the whole world knows; tests add their own.
BOTH = {"A": [[WEB4]], "AAAA": [[WEB6]]}
KNOWN = ["allowed.test", "denied.test", "*.wild.test", "evilallowed.test", "allowed.test.evil.test", "*.exfil.test",
         "api.anthropic.com", "registry.test", "ssh.test", "db.test"]


async def main(device, folder):
    packets = Packets(device)
    names = NameServer()
    for name in KNOWN:
        names.zones.put(name, answers=BOTH)
    await names.start()
    with open(os.path.join(folder, "pages.json")) as pages:
        files = {path: (kind, bytes.fromhex(content)) for path, (kind, content) in json.load(pages).items()}
    web = Web(files, os.path.join(folder, "git"))
    await web.start(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    await streams.start(folder)
    canaries = Canaries()

    def shell(command):
        web.shell_command = command

    say({"said": "ready"})
    await answer_questions({"name": names.zones.put, "questions": names.questions, "requests": web.requests,
                            "packets": packets.seen, "canary": canaries.open, "visits": canaries.visits,
                            "shell": shell, "open": lambda: web.open,
                            "hellos": lambda about: [name for name in web.hellos if name and about in name]})


asyncio.run(main(*sys.argv[1:]))

"""Makes the two halves of the tests' world: a host, an internet, and a cable between them.

The caller is in fresh network and mount namespaces, which become the host's, with all rights over them. The folder has
resolv.conf, hosts, ca.pem and passwd. Nothing has to be taken down: namespaces end with those who are in them.
"""

import asyncio
import os
import sys

# The internet's first process. It waits for the cable before it takes any address.
INTERNET = """
mount --bind "$1/passwd" /etc/passwd
echo born
read -r _
ip link set lo up
ip addr add 93.184.216.1/30 dev beyond
ip -6 addr add 2606:2800:220:1::1/126 dev beyond nodad
ip link set beyond up
# Every address there is but the host's: after what is known of the cable.
ip route add local 0.0.0.0/0 dev lo table main
ip -6 route add local ::/0 dev lo table main
exec "$2" "$3/internet.py" beyond "$1"
"""

HOST = """
ip link set lo up
ip link add uplink type veth peer name beyond netns "$1"
ip addr add 93.184.216.2/30 dev uplink
ip -6 addr add 2606:2800:220:1::2/126 dev uplink nodad
ip link set uplink up
# Whoever runs the tests may send pings, where no wall stops them.
echo "$(id -g) $(id -g)" > /proc/sys/net/ipv4/ping_group_range
"""

ROUTES = """
ip route add default via 93.184.216.1
ip -6 route add default via 2606:2800:220:1::1
"""


async def shell(script, *words):
    program = await asyncio.create_subprocess_exec("sh", "-euc", script, "sh", *words)
    if await program.wait():
        sys.exit("the tests' world could not be made")


async def lay(folder):
    """Lays the cable and starts the internet; the internet's process, to be talked to."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = {"resolv.conf": "/etc/resolv.conf", "hosts": "/etc/hosts", "ca.pem": "/etc/ssl/certs/ca-certificates.crt"}
    for name, place in places.items():
        await shell('mount --bind "$1" "$2"', os.path.join(folder, name), os.path.realpath(place))
    # With process numbers of its own, the end of its first process is the end of all.
    internet = await asyncio.create_subprocess_exec(
        "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", INTERNET, "internet", folder,
        sys.executable, here, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26)
    await internet.stdout.readline()
    with open(f"/proc/{internet.pid}/task/{internet.pid}/children") as children:
        first = children.read().split()[0]
    await shell(HOST, first)
    internet.stdin.write(b"plugged\n")
    if not await internet.stdout.readline():
        sys.exit("the tests' internet did not start")
    await shell(ROUTES)
    return internet

"""The internet's web server, with and without TLS, at every address: it tells what it got."""

import asyncio
import collections
import json
import ssl
import urllib.parse

import messages

LIMIT = 1 << 16


class Request:
    def __init__(self, method, target, version, headers, server):
        self.method, self.target, self.version, self.headers = method, target, version, headers
        self.path, _, query = target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query))
        self.server = server
        self.body = b""

    def header(self, name, otherwise=""):
        return next((value for key, value in self.headers if key.lower() == name), otherwise)


class Web:
    def __init__(self, files, git):
        """`files` are answers by path: (type, bytes). `git` is the folder of repositories."""
        self.files, self.git = files, git
        self.log = collections.deque(maxlen=50_000)
        self.hellos = collections.deque(maxlen=50_000)
        self.shell_command = "true"
        self.open = 0

    async def start(self, certificate, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["http/1.1"])

        def name_of(tls, name, _):
            tls.asked_for = name
            self.hellos.append(name)

        context.sni_callback = name_of
        for address in ("0.0.0.0", "::"):
            for port in (80, 8080):
                await asyncio.start_server(self.serve, address, port, backlog=2048, limit=LIMIT)
            for port in (443, 8443):
                await asyncio.start_server(self.serve, address, port, ssl=context, backlog=2048, limit=LIMIT)

    async def serve(self, reader, writer):
        tls = writer.get_extra_info("ssl_object")
        address, port = writer.get_extra_info("sockname")[:2]
        server = {"tls": tls is not None, "sni": getattr(tls, "asked_for", None), "address": address, "port": port,
                  "from": writer.get_extra_info("peername")[0]}
        self.open += 1
        try:
            while await self.one(reader, writer, server):
                pass
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ssl.SSLError, ValueError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def one(self, reader, writer, server):
        """One request and its answer; whether another may follow."""
        first = await reader.readline()
        if not first.strip():
            return False
        method, target, version = first.decode("latin-1").split()
        headers = []
        while (line := (await reader.readline()).decode("latin-1").rstrip("\r\n")):
            name, _, value = line.partition(":")
            headers.append((name, value.strip()))
        request = Request(method, target, version, headers, server)
        self.log.append({"method": method, "target": target, "host": request.header("host"),
                         "headers": headers, **server})
        if request.header("expect").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.body = await self.body(reader, request)
        await self.answer(request, reader, writer)
        await writer.drain()
        return request.header("connection").lower() != "close" and version == "HTTP/1.1"

    @staticmethod
    async def body(reader, request):
        if "chunked" in request.header("transfer-encoding").lower():
            parts = []
            while size := int((await reader.readline()).split(b";")[0], 16):
                parts.append(await reader.readexactly(size))
                await reader.readline()
            await reader.readline()
            return b"".join(parts)
        return await reader.readexactly(int(request.header("content-length", "0")))

    async def answer(self, request, reader, writer):
        words = [urllib.parse.unquote(word) for word in request.path.split("/")[1:]] or [""]
        about = getattr(self, "on_" + words[0].replace("-", "_"), None)
        if request.path in self.files:
            kind, content = self.files[request.path]
            content = content.replace(b"{host}", request.header("host").encode())
            send(writer, content, kind, head=request.method == "HEAD")
        elif about:
            await about(request, words, reader, writer)
        else:
            send(writer, b"no such page\n", status="404 Not Found")

    async def on_echo(self, request, words, reader, writer):
        """All that was received, as JSON."""
        told = {"method": request.method, "target": request.target, "headers": request.headers,
                "body": len(request.body), **request.server}
        send(writer, json.dumps(told).encode(), "application/json", head=request.method == "HEAD")

    async def on_redirect(self, request, words, reader, writer):
        send(writer, b"", status="302 Found", more=[("Location", request.query["to"])])

    async def on_bytes(self, request, words, reader, writer):
        left = int(words[1])
        send(writer, None, more=[("Content-Length", str(left))])
        while left and request.method != "HEAD":
            piece = b"x" * min(left, 1 << 16)
            writer.write(piece)
            await writer.drain()
            left -= len(piece)

    async def on_chunked(self, request, words, reader, writer):
        send(writer, None, more=[("Transfer-Encoding", "chunked")])
        for number in range(int(words[1])):
            writer.write(b"%x\r\n%s\r\n" % (len(b"chunk %d\n" % number), b"chunk %d\n" % number))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def on_endless(self, request, words, reader, writer):
        """A body that goes on until somebody ends it."""
        send(writer, None, more=[("Transfer-Encoding", "chunked")])
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    async def on_hold(self, request, words, reader, writer):
        """The beginning of an answer; the rest never comes. Ends when the asker does."""
        send(writer, b"held\n", more=[("Content-Length", "1000000")])
        await writer.drain()
        while await reader.read(LIMIT):
            pass
        raise ConnectionError

    async def on_upgrade(self, request, words, reader, writer):
        """After 101 everything comes back; only for those who asked for another protocol, unless told otherwise."""
        wanted = request.header("upgrade", request.query.get("unasked", ""))
        if not wanted:
            send(writer, b"upgrade first\n", status="426 Upgrade Required")
            return
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {wanted}\r\n\r\n".encode())
        while data := await reader.read(LIMIT):
            writer.write(data)
            await writer.drain()
        raise ConnectionError

    async def on_long_header(self, request, words, reader, writer):
        send(writer, b"ok\n", more=[("X-Long", "h" * int(words[1]))])

    async def on_v1(self, request, words, reader, writer):
        """The Messages API."""
        content, kind = messages.answer(request.method, request.path, request.body, self.shell_command)
        send(writer, content, kind, head=request.method == "HEAD")

    on_api = on_v1

    async def on_git(self, request, words, reader, writer):
        """git's own program for it, by the rules of CGI."""
        surroundings = {"GIT_PROJECT_ROOT": self.git, "GIT_HTTP_EXPORT_ALL": "1", "PATH": "/usr/bin:/bin", "HOME": self.git,
                        "REQUEST_METHOD": request.method, "PATH_INFO": request.path[len("/git"):],
                        "QUERY_STRING": request.target.partition("?")[2], "CONTENT_TYPE": request.header("content-type"),
                        "CONTENT_LENGTH": str(len(request.body)), "REMOTE_ADDR": request.server["from"],
                        "HTTP_CONTENT_ENCODING": request.header("content-encoding"),
                        "GIT_PROTOCOL": request.header("git-protocol")}
        program = await asyncio.create_subprocess_exec("git", "-c", "safe.directory=*", "http-backend", env=surroundings,
                                                       stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        out, _ = await program.communicate(request.body)
        head, _, body = out.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if line]
        status = next((value for name, value in headers if name.lower() == "status"), "200 OK")
        kind = next((value for name, value in headers if name.lower() == "content-type"), "text/plain")
        send(writer, body, kind, status=status)

    def requests(self, about):
        """Those with this text in their host or target."""
        return [seen for seen in self.log if about in seen["host"] or about in seen["target"]]


def send(writer, content, kind="text/plain", status="200 OK", more=(), head=False):
    """An answer; without content only its head, for those who go on by themselves."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}"]
    named = {name for name, _ in more}
    if content is not None and "Content-Length" not in named:
        lines.append(f"Content-Length: {len(content)}")
    lines += [f"{name}: {value}" for name, value in more]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
    if content and not head:
        writer.write(content)

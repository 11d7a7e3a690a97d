"""A stand-in for the Messages API, for an agent that runs in a box without a network.

    python3 stand_in_api.py PORT_PIPE SHELL_COMMAND FINAL_TEXT

Answers the first message with one call of the Bash tool, and the tool's result with a text.
Listens on loopback and writes its port to the named pipe once it can be reached. Standard library only.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT_PIPE, SHELL_COMMAND, FINAL_TEXT = sys.argv[1:4]


def blocks(request):
    """Every content block of the conversation so far."""
    for message in request.get("messages", []):
        content = message.get("content")
        if isinstance(content, list):
            yield from content


def answer(request):
    """The one content block to answer with, and why the answer ends."""
    tools = {tool.get("name") for tool in request.get("tools", [])}
    results = [block for block in blocks(request) if block.get("type") == "tool_result"]
    if "Bash" in tools and not results:
        arguments = {"command": SHELL_COMMAND, "description": "Do the work"}
        return {"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": arguments}, "tool_use"
    text = FINAL_TEXT
    if results:
        text += "; the tool said: " + json.dumps(results[-1].get("content"))
    return {"type": "text", "text": text}, "end_turn"


def events(request):
    """The answer as the stream of events the API would send."""
    block, reason = answer(request)
    usage = {"input_tokens": 10, "output_tokens": 10}
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": request.get("model"),
               "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield "message_start", {"message": message}
    if block["type"] == "tool_use":
        empty, delta = dict(block, input={}), {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    yield "content_block_start", {"index": 0, "content_block": empty}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield "message_stop", {}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Quiet: standard error is the agent's."""

    def send(self, content, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self):
        self.send(b"{}")

    do_HEAD = do_GET

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            self.send(b'{"input_tokens": 10}')
        elif not path.endswith("/messages"):
            self.send(b"{}")
        elif request.get("stream"):
            lines = (f"event: {name}\ndata: {json.dumps(dict(type=name, **data))}\n\n" for name, data in events(request))
            self.send("".join(lines).encode(), "text/event-stream")
        else:
            block, reason = answer(request)
            message = next(events(request))[1]["message"]
            self.send(json.dumps(dict(message, content=[block], stop_reason=reason)).encode())


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(PORT_PIPE, "w") as pipe:
        print(server.server_port, file=pipe)
    server.serve_forever()

"""The Messages API as far as an agent needs it for one call of its shell and one sentence."""

import importlib.util
import json
import os
import sys

FINAL_TEXT = "The work is done"


def _stand_in():
    """The stand-in that other tests use; it reads its words when it is loaded, and serves only as a program."""
    path = os.path.join(os.path.dirname(__file__), "../../programs/stand_in_api.py")
    about = importlib.util.spec_from_file_location("stand_in_api", path)
    module = importlib.util.module_from_spec(about)
    sys.argv, kept = ["stand_in_api", "", "", FINAL_TEXT], sys.argv
    about.loader.exec_module(module)
    sys.argv = kept
    return module


STAND_IN = _stand_in()


def answer(method, path, body, shell_command):
    """What to say to a request, and its type."""
    STAND_IN.SHELL_COMMAND = shell_command
    request = json.loads(body or b"{}") if method == "POST" else {}
    if path.endswith("/count_tokens"):
        return b'{"input_tokens": 10}', "application/json"
    if method != "POST" or not path.endswith("/messages"):
        return b"{}", "application/json"
    if request.get("stream"):
        lines = (f"event: {name}\ndata: {json.dumps(dict(type=name, **data))}\n\n" for name, data in STAND_IN.events(request))
        return "".join(lines).encode(), "text/event-stream"
    block, reason = STAND_IN.answer(request)
    message = next(STAND_IN.events(request))[1]["message"]
    return json.dumps(dict(message, content=[block], stop_reason=reason)).encode(), "application/json"

"""How a test talks to the programs of its world: questions and answers as lines of JSON.

The end of standard input is the end of the program.
"""

import asyncio
import json
import os
import sys


async def answer_questions(answers):
    """Answers each line by the function of `answers` that it names in "ask", until there are no more."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        question = json.loads(line)
        try:
            said = answers[question.pop("ask")](**question)
            if asyncio.iscoroutine(said):
                said = await said
            reply = {"said": said}
        except Exception as error:  # The test has to hear of it, whatever it is.
            reply = {"failed": f"{type(error).__name__}: {error}"}
        say(reply)


def say(value):
    """One line out, whole: the pipe may be full and must not be left half written."""
    data = memoryview(json.dumps(value).encode() + b"\n")
    os.set_blocking(1, True)
    while data:
        data = data[os.write(1, data):]

"""An agent over plain HTTP: Python's standard library, and no SDK.

    python3 agent.py FILE "What to do with it"

It asks a model, makes the calls that the model wants by `paddock serve`, and gives their
results back, until the model has an answer. The token is in the variable PADDOCK_TOKEN.
"""
import json
import os
import sys
import urllib.request
from pathlib import Path

from model import ask

SERVER = "http://127.0.0.1:5555"
SESSION = "speech"  # a name of our own: the first call makes the session
MOST = 10  # turns, should the model not come to an end


def request(method, path, body):
    headers = {"Authorization": f"Bearer {os.environ['PADDOCK_TOKEN']}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(SERVER + path, body, headers, method=method)) as answer:
        return answer.read()


def mcp(method, **params):
    """Sends one message of MCP. One call needs no handshake before it."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    answer = json.loads(request("POST", "/mcp", body.encode()))
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    return answer["result"]


def call(name, arguments):
    """Makes a call, and returns what the model shall read of its result."""
    print("→", name, json.dumps(arguments))
    result = mcp("tools/call", name=name, arguments={**arguments, "session_id": SESSION})
    text = "\n".join(block.get("text", f"({block['type']})") for block in result["content"]).strip()
    print("←", text)
    return text


def main(file, task):
    mcp("tools/call", name="create_session", arguments={"session_id": SESSION, "language": "python"})
    request("PUT", f"/v1/sessions/{SESSION}/files/{file.name}", file.read_bytes())
    tools = mcp("tools/list")["tools"]
    messages = [{"role": "user", "content": task}]
    for _ in range(MOST):
        reply = ask(messages, tools)
        messages.append(reply)
        if not reply["calls"]:
            print(reply["content"])
            return
        for one in reply["calls"]:
            messages.append({"role": "tool", "id": one["id"], "content": call(one["name"], one["arguments"])})


main(Path(sys.argv[1]), sys.argv[2])

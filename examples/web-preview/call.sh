#!/usr/bin/env bash
# call.sh TOOL ARGUMENTS: calls a tool of the paddock that serves on this machine, and
# prints what it answers.
curl -sS http://127.0.0.1:5555/mcp -H 'Content-Type: application/json' \
  -d "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/call\", \"params\": {\"name\": \"$1\", \"arguments\": $2}}"
echo

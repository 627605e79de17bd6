"""The model of the agent. This one is a script, so that the example runs without a key."""


def ask(messages, tools):
    """Gives the model the conversation and the tools, and returns what it answers."""
    # ---- A real model goes here ---------------------------------------------------------
    # Send messages and tools (name, description, inputSchema) to your model's API, and
    # return {"role": "assistant", "content": its text, "calls": its tool calls}, each call
    # with an id, a name and arguments. The message with its result repeats the id.
    return scripted(messages, tools)
    # -------------------------------------------------------------------------------------


def scripted(messages, tools):
    """Writes a file, counts its words, and reads the result."""
    assert any(tool["name"] == "execute_code" for tool in tools), "there is no tool execute_code"
    turn = sum(message["role"] == "assistant" for message in messages)
    programs = [
        "text = open('speech.txt').read().lower().split()\nlen(text)",
        "from collections import Counter\nopen('words.csv', 'w').writelines(f'{w},{n}\\n' for w, n in Counter(text).most_common(3))",
        "print(open('words.csv').readline().split(',')[0])",
    ]
    if turn < len(programs):
        call = {"id": f"call-{turn}", "name": "execute_code", "arguments": {"code": programs[turn]}}
        return {"role": "assistant", "content": "", "calls": [call]}
    return {"role": "assistant", "content": f"The most frequent word is {messages[-1]['content']!r}.", "calls": []}

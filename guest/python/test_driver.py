"""Tests of the Python driver on a native CPython of the guest's version.

    python3.13 -I -X utf8 guest/python/test_driver.py [names of tests]

guest/python_test.go runs them with the interpreter that `make guests` leaves.
Each test has an interpreter of its own, forked from one that has imported
what the guest's image holds, and speaks with its driver as the host does.
"""
import _thread
import binascii
import functools
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
import types
import unittest
import zipfile

__builtins__ = vars(__builtins__).copy()  # for the guests' processes, whose programs may change them

encode, decode = functools.partial(binascii.b2a_base64, newline=False), binascii.a2b_base64

HERE = os.path.dirname(os.path.abspath(__file__))
NATIVE = [p for p in sys.path if p]  # where this interpreter's library lies; /lib/python in the guest
PATIENCE = 60

sys.path.insert(0, HERE)
sys.modules["_paddock"] = types.ModuleType("_paddock")
sys.modules["_paddock"].call = lambda message: host_call(message)
sys.modules["_paddock"].unraisable = sys.unraisablehook
sys.modules["_paddock"].reseed = lambda: None
sys.modules["_paddock"].dup2 = os.dup2

socket._socket = types.SimpleNamespace(**vars(socket._socket))  # the tests' own sockets are this machine's

import _paddock_driver
import _paddock_errors

for _name in _paddock_driver.PRELUDE:
    __import__(_name)


class Outcome(dict):
    """A driver's answer, with what the program printed meanwhile."""

    stdout = stderr = ""

    @property
    def error(self):
        return self.get("error", {})


class Guest:
    """A driver in a process of its own."""

    def __init__(self, cwd, env):
        self.stdout, self.stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.displays = []
        self.host = self.show  # answers the guest's messages
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            os.dup2(self.stdout.fileno(), 1)
            os.dup2(self.stderr.fileno(), 2)
            serve(theirs)
        theirs.close()
        self.socket, self.lines = ours, ours.makefile("rwb")
        self.ask(op="prelude")
        self.path = self.ask(op="start", env=env, cwd=cwd, seed="00" * 32)["path"]

    def close(self):
        self.lines.close()
        self.socket.close()
        _, status = os.waitpid(self.pid, 0)
        self.stdout.close()
        self.stderr.close()
        return status

    def show(self, message):
        head, _, data = message.partition(b"\n")
        self.displays.append((json.loads(head), data))
        return b"{}"

    def ask(self, **request):
        """Sends a request; what the guest tells the host meanwhile is passed to self.host."""
        self.send(json.dumps(request).encode())
        while True:
            kind, body = self.receive()
            if kind == "answer":
                break
            if kind == "fault":
                raise AssertionError("the driver did not answer:\n" + body.decode())
            self.send(self.host(body))
        outcome = Outcome(json.loads(body))
        outcome.stdout, outcome.stderr = self.printed(self.stdout), self.printed(self.stderr)
        return outcome

    def send(self, body):
        self.lines.write(encode(body) + b"\n")
        self.lines.flush()

    def receive(self):
        kind, _, body = self.lines.readline().partition(b" ")
        if not kind:
            raise AssertionError("the guest's process died: " + self.printed(self.stderr))
        return kind.decode(), decode(body)

    def printed(self, file):
        """What was printed since the last time. The guest shares the file's position."""
        text = os.pread(file.fileno(), 64 << 20, 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.ftruncate(file.fileno(), 0)
        return text.decode("utf-8", "surrogateescape")


def serve(theirs):
    """The life of a guest's process. What glue.c and the worker do is done here."""
    global host_call
    reader, writer = os.fdopen(theirs.fileno(), "rb"), os.fdopen(os.dup(theirs.fileno()), "wb")

    def tell(kind, body):
        writer.write(kind + b" " + encode(body) + b"\n")
        writer.flush()

    def host_call(message):
        tell(b"call", message)
        answer = decode(reader.readline())
        if answer == b"interrupt":
            interrupt()  # sets what the worker sets in the guest's memory
        return answer

    def own(filename, own=_paddock_errors.own):
        for place in NATIVE + [HERE]:
            if filename.startswith(place):
                filename = "/lib/python" + filename[len(place):]
        return own(filename)

    _paddock_errors.own = own
    handle, exit, interrupt, format_exc = _paddock_driver.handle, os._exit, _thread.interrupt_main, traceback.format_exc
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for line in reader:
            request = decode(line)
            try:
                answer = handle(request)
            except BaseException:
                tell(b"fault", format_exc().encode("utf-8", "replace"))
                continue
            if b'"op": "start"' in request:
                answer = json.dumps(json.loads(answer) | {"path": sys.path}).encode()
                sys.path += NATIVE
            tell(b"answer", answer)
    except BaseException as error:
        os.write(2, repr(error).encode())
        exit(1)
    exit(0)


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.cwd = os.path.realpath(folder.name)
        self.guest = self.start()

    def start(self, **env):
        guest = Guest(self.cwd, env)
        self.addCleanup(lambda: self.assertEqual(guest.close(), 0, "the guest's process died"))
        return guest

    def exec(self, code, name="<cell>", args=()):
        return self.guest.ask(op="exec", code=code, name=name, args=list(args))

    def run_to_end(self, code):
        """Executes code and resumes it until it is done, whatever the timers say."""
        outcome = self.exec(code)
        stdout, stderr = outcome.stdout, outcome.stderr
        while outcome["status"] == "waiting":
            outcome = self.guest.ask(op="resume")
            stdout, stderr = stdout + outcome.stdout, stderr + outcome.stderr
        outcome.stdout, outcome.stderr = stdout, stderr
        return outcome

    def gives(self, code, result=None, stdout="", stderr=""):
        """Checks that code ends well, its result, and what it prints."""
        outcome = self.run_to_end(code)
        self.assertEqual(
            ({"status": "done", "exit_code": 0} | ({} if result is None else {"result": result}), stdout, stderr),
            (dict(outcome), outcome.stdout, outcome.stderr))

    def fails(self, code, kind, message=None, line=None, name="<cell>"):
        """Checks that code ends with an error, and gives it."""
        outcome = self.exec(code, name=name)
        while outcome["status"] == "waiting":
            outcome = self.guest.ask(op="resume")
        error = outcome.error
        self.assertEqual(("done", kind), (outcome["status"], error.get("type")), outcome)
        self.assertEqual(outcome["exit_code"], 130 if error.get("kind") == "interrupted" else 1)
        self.assertNotIn("result", outcome)
        if message is not None:
            self.assertEqual(error["message"], message)
        if line is not None:
            self.assertEqual(error["line"], line)
        self.assertIn(error["traceback"], outcome.stderr)
        self.assertNotIn("/_paddock", error["traceback"])
        return error

    def exits(self, code, exit_code, stderr=""):
        outcome = self.exec(code)
        self.assertEqual(({"status": "done", "exit_code": exit_code}, stderr), (dict(outcome), outcome.stderr))

    def lives(self):
        """Checks that the session goes on."""
        self.gives("print('lives'); 6 * 7", "42", "lives\n")


class Servers(Case):
    """Calls of tools. The host is played here: it answers with what self.answer gives."""

    ECHO = """from servers import tool
Made = int
@tool("ev", "get-echo", {"text": "text", "class_": "class"})
def echo(text, *, class_=...):
    '''Says it again.

    More of it.'''
"""

    def setUp(self):
        super().setUp()
        self.bind(self.guest)
        self.asked, self.begun, self.given_up = [], {}, []

    def bind(self, guest):
        self.guest = guest
        guest.host = self.host
        self.exec(f"import servers\nservers.__path__[:] = [{self.cwd + '/tree'!r}]")

    def answer(self, message):
        return {"value": message}

    def host(self, message):
        head, _, body = message.partition(b"\n")
        head = json.loads(head)
        if head["op"] == "call":
            self.asked.append(json.loads(body))
            return json.dumps(self.answer(self.asked[-1])).encode()
        if head["op"] == "begin":
            self.asked.append(json.loads(body))
            self.begun[len(self.asked)] = self.asked[-1]
            return b"%d" % len(self.asked)
        if head["op"] == "await":
            return json.dumps(self.replies()).encode()
        if head["op"] == "giveUp":
            self.given_up.append(head["call"])
            return b"{}"
        return self.guest.show(message)

    def replies(self):
        replies = [[number, self.answer(message)] for number, message in self.begun.items()]
        self.begun = {}
        return replies

    def run_to_end(self, code):
        outcome = self.exec(code)
        stdout, stderr = outcome.stdout, outcome.stderr
        while outcome["status"] == "waiting":
            outcome = self.guest.ask(op="resume", replies=self.replies())
            stdout, stderr = stdout + outcome.stdout, stderr + outcome.stderr
        outcome.stdout, outcome.stderr = stdout, stderr
        return outcome

    def file(self, name, text):
        path = os.path.join(self.cwd, "tree", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def tree(self):
        lazy = "from servers import lazy\n__getattr__, __dir__ = lazy(__name__, {'echo': 'echo', 'broken': 'broken'})\n"
        self.file("ev/__init__.py", lazy)
        self.file("ev/tools.py", lazy)
        self.file("ev/echo.py", self.ECHO)
        self.file("ev/broken.py", "1 / 0")

    def test_a_tool_is_called_with_the_names_of_its_server(self):
        self.exec(self.ECHO)
        for code, arguments in (
                ("echo(text='a')", {"text": "a"}), ("echo('a')", {"text": "a"}), ("echo('a', class_=1)", {"text": "a", "class": 1}),
                ("echo('a', ...)", {"text": "a"}), ("echo(text='a', class_=...)", {"text": "a"}), ("echo(text=None)", {"text": None})):
            with self.subTest(code):
                self.gives(code + "['arguments']", repr(arguments))
                self.assertEqual(self.asked.pop(), {"op": "call", "server": "ev", "tool": "get-echo", "arguments": arguments})

    def test_arguments_that_a_tool_does_not_have(self):
        self.exec(self.ECHO)
        self.assertIn("it takes text, class_", self.fails("echo(txt='a')", "TypeError", line=1)["message"])
        self.fails("echo(1, 2, 3)", "TypeError", "echo() takes 2 arguments, and 3 were given")
        self.fails("echo(1, text=2)", "TypeError", "echo() was given text twice")
        self.fails("await echo.aio(txt=1)", "TypeError")
        self.assertEqual(self.asked, [])

    def test_values_that_json_does_not_know(self):
        self.exec(self.ECHO + """
import dataclasses, datetime, decimal, enum, pathlib, uuid, collections, array
@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date
class Colour(enum.Enum):
    RED = "red"
Pair = collections.namedtuple("Pair", "a b")
""")
        for value, sent in (
                ("Point(1, datetime.date(2026, 1, 2))", {"x": 1, "when": "2026-01-02"}), ("Colour.RED", "red"),
                ("pathlib.Path('/a/b')", "/a/b"), ("uuid.UUID(int=5)", "00000000-0000-0000-0000-000000000005"), (r"b'\0\xff'", "AP8="),
                ("{3}", [3]), ("decimal.Decimal('1.5')", 1.5), ("decimal.Decimal('7')", 7), ("(n for n in (1, 2))", [1, 2]),
                ("array.array('i', [1, 2])", [1, 2]), ("10 ** 30", 10 ** 30), ("Pair(1, 2)", [1, 2]), ("{1: 'ü\u2028'}", {"1": "ü\u2028"})):
            with self.subTest(value):
                self.gives(f"_ = echo({value})")
                self.assertEqual(self.asked.pop()["arguments"]["text"], sent)
        self.fails("echo(object())", "TypeError", "an argument of the type object cannot be sent to a tool", line=1)
        self.fails("echo(float('nan'))", "ValueError")
        self.fails("x = []; x.append(x); echo(x)", "ValueError")

    def test_what_is_awaited_lets_others_go_on(self):
        self.exec(self.ECHO)
        outcome = self.exec("x = await echo(text='a')")
        self.assertEqual((outcome["status"], outcome["timeout"], len(self.begun)), ("waiting", None, 1))
        self.assertEqual(self.guest.ask(op="resume", replies=self.replies())["status"], "done")
        self.gives("x['arguments']", "{'text': 'a'}")
        for code in (
                "await echo(text='b')", "await echo.aio('b')", "await servers.call('ev', 'get-echo', {'text': 'b'})",
                "import mayflower_mcp\nawait mayflower_mcp.call('ev', 'get-echo', {'text': 'b'})",
                "async def f():\n    return await echo(text='b')\nawait f()",
                "import asyncio\n(await asyncio.gather(echo.aio('b'), asyncio.sleep(0.001)))[0]"):
            with self.subTest(code):
                self.gives(code, "{'op': 'call', 'server': 'ev', 'tool': 'get-echo', 'arguments': {'text': 'b'}}")

    def test_what_is_not_awaited_is_answered_at_once(self):
        self.exec(self.ECHO)
        self.gives("def f():\n    return echo(text='c')\nf()['arguments'], [echo(text=n)['arguments'] for n in '12']", "({'text': 'c'}, [{'text': '1'}, {'text': '2'}])")
        self.gives("import asyncio\nasync def g():\n    x = echo(text='d')\n    return x['arguments']\nasyncio.run(g())", "{'text': 'd'}")
        self.assertEqual(self.begun, {})
        self.gives("async def g():\n    return (await echo(text='e'))['arguments']\nasyncio.run(g())", "{'text': 'e'}")

    def test_many_calls_are_under_way_at_once_and_no_more_than_may_be(self):
        self.exec(self.ECHO)
        outcome = self.exec("import asyncio\nall = await asyncio.gather(*(echo.aio(n) for n in range(200)))\nlen(all), all[150]['arguments']")
        self.assertEqual(len(self.begun), 63)
        rounds = 0
        while outcome["status"] == "waiting":
            rounds += 1
            outcome = self.guest.ask(op="resume", replies=self.replies())
        self.assertEqual((rounds, outcome["result"]), (4, "(200, {'text': 150})"))

    def test_a_call_that_nobody_waits_for_is_given_up(self):
        self.exec(self.ECHO)
        outcome = self.exec("import asyncio\ntry:\n    await asyncio.wait_for(echo.aio('x'), 0.001)\nexcept TimeoutError:\n    print('late')\nawait asyncio.sleep(0.001)")
        late = self.replies()
        while outcome["status"] == "waiting":
            outcome = self.guest.ask(op="resume")
        self.assertEqual(self.given_up, [late[0][0]])
        self.exec("import asyncio\nawait asyncio.sleep(3600)")
        self.guest.ask(op="resume", replies=late)  # it is for nobody
        self.guest.ask(op="interrupt")
        self.lives()

    def test_the_calls_of_a_run_that_was_interrupted_are_forgotten(self):
        self.exec(self.ECHO)
        self.exec("""
async def f():
    try:
        return await echo(text='x')
    except servers.ToolError as error:
        print(error.kind)
import asyncio, servers
task = asyncio.ensure_future(f())
await asyncio.sleep(3600)""")
        self.guest.ask(op="interrupt")
        self.begun = {}
        self.gives("done = await asyncio.wait([task])\ntask.done()", "True", "unavailable\n")
        self.fails("import asyncio\nawait asyncio.Event().wait()", "Deadlock")

    def test_a_program_that_waits_is_given_up_by_another(self):
        self.exec(self.ECHO)
        self.exec("kept = 1\nawait echo(text='x')\nprint('never')")
        late = self.replies()
        self.gives("kept", "1")
        outcome = self.guest.ask(op="resume", replies=late)
        self.assertEqual((outcome["status"], outcome.error.get("message")), ("done", "there is no program that waits"))
        self.lives()

    def test_errors(self):
        self.exec(self.ECHO)
        self.answer = lambda message: {"error": {"kind": "denied", "message": "not this one", "field": "text"}}
        error = self.fails("echo(text='a')", "ToolError", "not this one", line=1)
        self.assertEqual(error["traceback"].count("File"), 1, error["traceback"])
        self.gives("try:\n    await echo(text='a')\nexcept servers.ToolError as e:\n    print(e.kind, e.server, e.tool, e.field)", stdout="denied ev get-echo text\n")
        self.answer = lambda message: None
        self.fails("echo(text='a')", "ToolError", "nothing answers calls of tools here")

    def test_pictures_and_files(self):
        self.exec(self.ECHO)
        self.file("big.json", "[1, 2]")
        picture = {"base64": "AAEC", "mime": "image/png"}
        self.answer = lambda message: {"value": picture, "binary": True}
        self.gives("echo(1)", "<image/png, 3 bytes>")
        self.assertEqual(self.guest.displays.pop(), ({"op": "display", "mime": "image/png"}, b"\0\1\2"))
        self.gives("p = echo(1); bytes(p), p.mime, len(p)", r"(b'\x00\x01\x02', 'image/png', 3)")
        self.answer = lambda message: {"value": ["text", picture], "binary": True}
        self.gives("echo(1)", "['text', <image/png, 3 bytes>]")
        self.answer = lambda message: {"file": {"path": self.cwd + "/tree/big.json", "size": 6, "preview": "[1,"}}
        self.gives("import os\nf = echo(1); f.json(), f.size, f.text(), os.fspath(f) == f.path", "([1, 2], 6, '[1, 2]', True)")

    def test_json_in_a_text(self):
        self.exec(self.ECHO)
        self.answer = lambda message: {"value": ' {"a": [1, 2.5]}', "parse": True}
        self.gives("import json, copy, pickle\nr = echo(1); r['a'], r.text, r == {'a': [1, 2.5]}, json.dumps(r), copy.copy(r).text == r.text == pickle.loads(pickle.dumps(r)).text", """([1, 2.5], ' {"a": [1, 2.5]}', True, '{"a": [1, 2.5]}', True)""")
        self.gives("r", "{'a': [1, 2.5]}")
        self.answer = lambda message: {"value": '[1, {"b": null}]', "parse": True}
        self.gives("r = await echo(1); r[1:], isinstance(r, list), r.text", """([{'b': None}], True, '[1, {"b": null}]')""")
        self.answer = lambda message: {"value": "[" * 9000 + "]" * 9000, "parse": True}
        self.gives("isinstance(echo(1), (str, list))", "True")

    def test_servers_are_found_as_files(self):
        self.tree()
        for code in (
                "from servers.ev import echo\necho(text=1)['tool']", "from servers.ev import tools\ntools.echo(text=1)['tool']",
                "from servers.ev.tools import echo\necho(text=1)['tool']", "import servers.ev\nservers.ev.echo(text=1)['tool']",
                "import servers.ev.echo\nservers.ev.echo(text=1)['tool']", "from servers.ev.echo import echo\necho(text=1)['tool']",
                "from servers import ev\nev.echo(text=1)['tool']", "import servers\nservers.ev.echo(text=1)['tool']",
                "import servers\nservers.ev.tools.echo(text=1)['tool']", "from servers.ev.echo import Made, echo\nMade('3'), echo(text=1)['tool']"):
            with self.subTest(code):
                self.bind(self.start())
                self.gives(code, "(3, 'get-echo')" if "Made" in code else "'get-echo'")
        self.gives("from servers.ev import tools, echo\nimport servers.ev.echo\nfrom servers.ev import echo as again\ndir(tools), again is echo", "(['broken', 'echo'], True)")
        self.fails("tools.ecco", "AttributeError", "servers.ev.tools has no tool 'ecco'; it has broken, echo")
        self.fails("from servers.ev import broken", "ZeroDivisionError")
        there = "no server 'gone' is bound; there are ev"
        self.fails("servers.gone", "AttributeError", there)
        for code, kind, hint in (
                ("import servers.gone", "ModuleNotFoundError", there), ("import servers.gone.tools", "ModuleNotFoundError", there),
                ("from servers import gone", "ImportError", there),
                ("from servers.ev import gone", "ImportError", "the server ev has no tool 'gone'; it has broken, echo"),
                ("import servers.ev.gone", "ModuleNotFoundError", "the server ev has no tool 'gone'; it has broken, echo"),
                ("from servers.ev.tools import gone", "ImportError", "the server ev has no tool 'gone'; it has broken, echo"),
                ("import servers\nservers.__path__.clear()\nimport servers.gone", "ModuleNotFoundError", "no server 'gone' is bound; none is"),
                ("raise ImportError(name='servers')", "ImportError", "no server of this name is bound; none is"),
                ("class S(str): partition = None\nraise ImportError(name=S('servers.x'))", "ImportError", None),
                ("raise ImportError(name=5)", "ImportError", None)):
            with self.subTest(code):
                self.assertEqual(self.fails(code, kind).get("hint"), hint)
        self.gives("hasattr(servers, 'gone'), getattr(servers, 'gone', 5), hasattr(servers, '__file__')", "(False, 5, False)")
        self.gives("echo.__doc__.split(chr(10))[0], echo.__name__, repr(echo)", "('Says it again.', 'echo', '<tool ev.echo: Says it again.>')")
        self.gives("import inspect\nstr(inspect.signature(echo))", "'(text, *, class_=Ellipsis)'")

    def test_skills_are_found_by_their_names(self):
        self.guest = self.start()
        self.file("one.py", "two = 2")
        self.file("index.json", "{}")
        self.exec(f"import skills\nskills.__path__[:] = [{self.cwd + '/tree'!r}]")
        self.gives("skills.one.two, dir(skills)", "(2, ['one'])")
        there = "no skill 'gone' is installed; there are one"
        self.fails("skills.gone", "AttributeError", there)
        self.assertEqual(self.fails("from skills import gone", "ImportError")["hint"], there)
        self.assertEqual(self.fails("import skills.gone", "ModuleNotFoundError")["hint"], there)
        self.assertNotIn("hint", self.fails("from skills.one import gone", "ImportError"))

    def test_what_comes_along_with_the_skills_is_imported_by_its_name(self):
        self.guest = self.start()
        self.exec(f"import skills\nskills.__path__[:] = [{self.cwd + '/tree'!r}]")
        self.fails("import pypdf", "ModuleNotFoundError")  # and it is found as soon as it is there
        self.file("documents/__init__.py", "")
        self.file("documents/lib/__init__.py", "")
        self.file("documents/lib/_packages.py", "ready = []\nprepare = ready.append")
        with zipfile.ZipFile(os.path.join(self.cwd, "tree/documents/lib/packages.zip"), "w") as archive:
            for name in "openpyxl", "pypdf", "fonts":
                archive.writestr(name + "/__init__.py", "from . import of\ncame = 'along'")
                archive.writestr(name + "/of.py", "")
        self.gives("import pypdf, pypdf.of, skills.documents.lib._packages as p\npypdf.came, p.ready, type(pypdf.__loader__).__name__, pypdf.__loader__ is pypdf.__spec__.loader",
                   "('along', ['pypdf'], 'zipimporter', True)")
        for name in "fonts", "documents", "reportlab":
            self.fails(f"import {name}", "ModuleNotFoundError")
        self.gives("import importlib.util\nimportlib.util.find_spec('openpyxl') is not None, 'openpyxl' in __import__('sys').modules", "(True, False)")
        os.mkdir(os.path.join(self.cwd, "openpyxl"))
        with open(os.path.join(self.cwd, "openpyxl/__init__.py"), "w") as file:
            file.write("came = 'installed'")
        self.gives("importlib.invalidate_caches()\nimport openpyxl\nopenpyxl.came", "'installed'")

    def test_a_program_may_have_modules_of_these_names(self):
        self.guest = self.start()
        for name in "servers", "skills":
            os.mkdir(os.path.join(self.cwd, name))
        self.gives("import servers, skills\nservers.__path__, skills.__path__", "(['/servers'], ['/skills'])")
        self.guest = self.start()
        with open(os.path.join(self.cwd, "servers.py"), "w") as file:
            file.write("mine = 1")
        self.gives("import servers\nservers.mine", "1")

    def test_search(self):
        self.answer = lambda message: {"value": [message]}
        self.gives("servers.search('add numbers', limit=3)",
                   "[{'op': 'search', 'query': 'add numbers', 'limit': 3, 'detail_level': 'description', 'server': None}]")


class Start(Case):
    def test_environment_is_taken_over_whole(self):
        self.guest = self.start(A="1", B="ü =")
        self.gives("import os; dict(os.environ)", "{'A': '1', 'B': 'ü ='}")

    def test_the_path_holds_the_folder_and_the_library_alone(self):
        self.assertEqual(self.guest.path, [self.cwd, *_paddock_driver.PACKAGES])
        self.gives(f"import os; os.getcwd() == {self.cwd!r}", "True")

    def test_a_folder_that_is_not_there_becomes_the_root(self):
        self.cwd = "/no/such/folder"
        self.guest = self.start()
        self.gives("import os; os.getcwd()", "'/'")
        self.assertEqual(self.guest.path, ["/", *_paddock_driver.PACKAGES])

    def test_every_start_seeds_anew(self):
        """Interpreters are copies of one image: what the image drew, no two of them may draw again."""
        self.exec("import random, tempfile, secrets, uuid; random.seed(1); next(tempfile._get_candidate_names())")
        code = "random.random(), next(tempfile._get_candidate_names())"
        self.exec("r, t = random.getstate(), tempfile._name_sequence")
        drawn = {self.exec(code)["result"]}
        for _ in range(2):
            self.exec("random.setstate(r)")
            self.guest.ask(op="start", env={}, cwd=self.cwd, seed="00" * 32)  # even with one seed
            drawn.add(self.exec(code)["result"])
        self.assertEqual(len(drawn), 3)

    def test_arguments_and_name(self):
        outcome = self.exec("import sys; sys.argv", name="hello.py", args=["a", "b c"])
        self.assertEqual(outcome["result"], "['hello.py', 'a', 'b c']")
        self.gives("sys.argv", "['']")


class Values(Case):
    def test_last_expression(self):
        for code, result in {
            "1 + 1": "2", "x = 1": None, "x = 1\nx": "1", "None": None, "": None, "# nothing": None,
            "'text'": "'text'", "'''one\ntwo'''": r"'one\ntwo'", "x = 2; x": "2", "for x in 1, 2: x": None,
            "if True:\n    5": None, "def f(): 1": None, "(y := 4)": "4", "print": "<built-in function print>",
            "1,": "(1,)", "lambda: 0; 3": "3", "\n\n  \n7  # comment\n\n": "7", "0": "0", "''": "''", "False": "False",
            "f'{x!r}'": "'2'", "x: int = 3": None, "...": "Ellipsis", "type X = int\nX": "X",
        }.items():
            with self.subTest(code):
                self.gives(code, result)

    def test_state_is_kept(self):
        self.gives("import math\nx = 41\ndef f(): return x + 1\nclass C: n = 1")
        self.gives("x += 1; f(), C.n, math.pi > 3", "(43, 1, True)")
        self.gives("del x")
        self.fails("f()", "NameError", "name 'x' is not defined", 1)

    def test_state_of_a_cell_that_fails_is_kept_up_to_there(self):
        self.fails("a = 1\nb = a / 0\nc = 3", "ZeroDivisionError", line=2)
        self.gives("a, 'b' in globals(), 'c' in globals()", "(1, False, False)")

    def test_underscore_is_the_last_value(self):
        self.fails("_", "NameError")
        self.gives("5", "5")
        self.gives("x = 1")
        self.gives("_ + 1", "6")
        self.gives("None")
        self.gives("_", "6")

    def test_generators_survive_between_cells(self):
        self.gives("def count():\n    n = 0\n    while True:\n        n += 1\n        yield n\ng = count(); next(g)", "1")
        self.gives("next(g)", "2")
        self.gives("with_cleanup = []\ndef h():\n    try: yield 1\n    finally: with_cleanup.append('closed')\ni = h(); next(i)", "1")
        self.gives("del i; with_cleanup", "['closed']")

    def test_broken_repr(self):
        for name, body in {
            "ValueError": "raise ValueError('no')", "RecursionError": "return repr(self)", "SystemExit": "raise SystemExit(3)",
            "TypeError": "return 5", "GeneratorExit": "raise GeneratorExit",
        }.items():
            with self.subTest(name):
                self.gives(f"class C:\n    def __repr__(self): {body}\nC()", f"<repr failed: {name}>")

    def test_repr_that_is_not_quite_a_string(self):
        outcome = self.exec("""
class S(str):
    def __len__(self): return 0
    def __getitem__(self, _): raise ValueError
class C:
    def __repr__(self): return S("x" * 100_000)
C()""")
        self.assertEqual(outcome["result"], "x" * (16 << 10) + f"… ({100_000 - (16 << 10)} more characters)")

    def test_large_values_are_cut(self):
        for code, start in {
            "'x' * 10_000_000": "'xxx", "b'y' * 10_000_000": "b'yyy", "bytearray(10_000_000)": r"bytearray(b'\x00",
            "list(range(1_000_000))": "[0, 1, 2, ", "tuple(range(1_000_000))": "(0, 1, 2, ", "['x' * 100_000] * 5": "['xxx",
            "{n: str(n) for n in reversed(range(100_000))}": "{99999: '99999', 99998: ", "set(range(100_000))": "{0, 1, 2",
            "frozenset(range(100_000))": "frozenset({0, 1, ", "[bytes(100)] * 9_999": "[b'",
            "type('Long', (), {'__repr__': lambda s: 'z' * 1_000_000})()": "zzz",
        }.items():
            with self.subTest(code):
                result = self.exec(code)["result"]
                self.assertEqual(result[:len(start)], start)
                self.assertLess(len(result), 17_000)

    def test_large_bytes_are_cut_before_they_are_written_out(self):
        """Their repr is up to four times as large: the guest may not have that much."""
        self.exec("""
import tracemalloc
big = bytes(10_000_000)
array = bytearray(big)
tracemalloc.start()""")
        for code in "big", "array", "[big] * 20_000":
            with self.subTest(code):
                self.exec("tracemalloc.reset_peak()")
                self.exec(code)
                self.gives("tracemalloc.get_traced_memory()[1] < 25_000_000", "True")

    def test_huge_integers(self):
        self.gives("2 ** 100", str(2 ** 100))
        self.gives("len(repr(10 ** 4000))", "4001")
        for code in "10 ** 4000", "10 ** 5000", "-10 ** 100_000", "[10 ** 5000]", "[1] * 20_000 + [10 ** 5000]":
            with self.subTest(code):
                outcome = self.exec(code)
                self.assertEqual((outcome["exit_code"], outcome.error), (0, {}))
                self.assertLess(len(outcome["result"]), 17_000)

    def test_values_that_refer_to_themselves(self):
        self.gives("a = [1]; a.append(a); a", "[1, [...]]")
        self.gives("d = {}; d['d'] = d; d", "{'d': {...}}")

    def test_text_that_is_not_unicode(self):
        self.gives(r"'\ud800'", r"'\ud800'")
        self.gives("type('C', (), {'__repr__': lambda s: '\\ud800'})()", "\ud800")
        self.gives("'\\0 ü 語 \\u2028'", r"'\x00 ü 語 \u2028'")


class Errors(Case):
    def test_syntax_errors(self):
        for code, kind, message, line in (
            ("x = 1\ndef (:", "SyntaxError", "invalid syntax", 2),
            ("print('a'\nx = 1", "SyntaxError", "'(' was never closed", 1),
            ("if True:\nx = 1", "IndentationError", "expected an indented block after 'if' statement on line 1", 2),
            ("if True:\n\tx = 1\n        y = 2", "TabError", "inconsistent use of tabs and spaces in indentation", 3),
            ("x = 'abc", "SyntaxError", "unterminated string literal (detected at line 1)", 1),
            ("print 'hello'", "SyntaxError", "Missing parentheses in call to 'print'. Did you mean print(...)?", 1),
            ("return 1", "SyntaxError", "'return' outside function", 1),
            ("\nyield 1", "SyntaxError", "'yield' outside function", 2),
            ("x = 1\n\nawait = 3", "SyntaxError", None, 3),
            ("a\0b", "SyntaxError", "source code string cannot contain null bytes", None),
            ("(" * 300 + ")" * 300, "SyntaxError", "too many nested parentheses", 1),
        ):
            with self.subTest(code[:30]):
                error = self.fails(code, kind, message, line)
                self.assertIn(f"{kind}: ", error["traceback"])
        self.lives()

    def test_syntax_errors_show_the_line(self):
        traceback = self.fails("x = 1\ny = = 2\n", "SyntaxError")["traceback"]
        self.assertEqual(traceback, '  File "<cell 1>", line 2\n    y = = 2\n        ^\nSyntaxError: invalid syntax\n')

    def test_nothing_of_a_program_that_does_not_compile_is_run(self):
        self.fails("print('no')\nx = 1\n)", "SyntaxError", line=3)
        self.gives("'x' in globals()", "False")

    def test_syntax_error_in_text_that_the_program_compiles(self):
        error = self.fails("x = 1\n\nexec('a = = b')", "SyntaxError", line=3)
        self.assertIn('File "<string>", line 1\n', error["traceback"])
        self.assertIn('File "<cell 1>", line 3, in <module>\n', error["traceback"])

    def test_traceback(self):
        error = self.fails("def f(n):\n    return 1 / n\n\nf(0)\n", "ZeroDivisionError", "division by zero", 2)
        self.assertEqual(error["traceback"], (
            "Traceback (most recent call last):\n"
            '  File "<cell 1>", line 4, in <module>\n    f(0)\n    ~^^^\n'
            '  File "<cell 1>", line 2, in f\n    return 1 / n\n           ~~^~~\n'
            "ZeroDivisionError: division by zero\n"))
        self.assertNotIn("hint", error)
        self.assertNotIn("kind", error)

    def test_frames_of_the_library_are_cut(self):
        error = self.fails("import json\njson.loads('{')", "JSONDecodeError", line=2)
        self.assertEqual(error["traceback"].count("File "), 1)
        self.assertIn("json.decoder.JSONDecodeError: ", error["traceback"])
        error = self.fails("import functools\nfunctools.reduce(lambda a, b: a / b, [1, 0])", "ZeroDivisionError", line=2)
        self.assertEqual(error["traceback"].count("File "), 2)
        error = self.fails("import re\nre.sub('a', lambda m: 1 / 0, 'a')", "ZeroDivisionError", line=2)
        self.assertEqual(error["traceback"].count("File "), 2)  # the call and the callback, without re's own between them

    def test_frames_of_the_programs_own_modules_stay(self):
        with open(self.cwd + "/helper.py", "w") as f:
            f.write("def boom():\n    raise LookupError('deep')\n")
        error = self.fails("import helper\nhelper.boom()", "LookupError", "deep", 2)
        self.assertIn(f'File "{self.cwd}/helper.py", line 2, in boom\n    raise LookupError', error["traceback"])

    def test_line_is_the_innermost_of_the_present_cell(self):
        self.gives("def f():\n\n\n    raise ValueError('x')")
        error = self.fails("\nf()", "ValueError", line=2)
        self.assertIn('File "<cell 1>", line 4, in f\n    raise ValueError', error["traceback"])
        self.fails("def g():\n    h()\ndef h():\n    f()\ng()", "ValueError", line=4)

    def test_chained_errors(self):
        error = self.fails(
            "import json\ntry:\n    json.loads('x')\nexcept ValueError as e:\n    raise RuntimeError('outer') from e",
            "RuntimeError", "outer", 5)
        self.assertEqual(error["traceback"].count("File "), 2)
        self.assertIn("The above exception was the direct cause of the following exception", error["traceback"])
        error = self.fails("try:\n    1 / 0\nexcept ZeroDivisionError:\n    missing", "NameError", line=4)
        self.assertIn("During handling of the above exception", error["traceback"])
        error = self.fails("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k') from None", "KeyError", "'k'", 4)
        self.assertNotIn("ZeroDivisionError", error["traceback"].split("KeyError")[0].replace("except ZeroDivisionError", ""))

    def test_a_chain_in_a_circle(self):
        self.fails("a, b = ValueError('a'), ValueError('b')\na.__cause__, b.__cause__ = b, a\nraise a", "ValueError", "a", 3)

    def test_exception_groups(self):
        error = self.fails("""
import json
errors = []
for text in "x", "[":
    try:
        json.loads(text)
    except ValueError as e:
        errors.append(e)
raise ExceptionGroup("both", [errors[0], ExceptionGroup("inner", [errors[1], KeyError("k")])])
""", "ExceptionGroup", "both (2 sub-exceptions)", 9)
        self.assertIn("  + Exception Group Traceback", error["traceback"])
        self.assertIn("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", error["traceback"])
        self.assertIn("KeyError: 'k'", error["traceback"])
        self.assertNotIn("decoder.py", error["traceback"])

    def test_notes_and_suggestions(self):
        error = self.fails("e = ValueError('x')\ne.add_note('a note')\nraise e", "ValueError", "x")
        self.assertTrue(error["traceback"].endswith("ValueError: x\na note\n"))
        error = self.fails("import math\nmath.sqr(2)", "AttributeError")
        self.assertIn("Did you mean: 'sqrt'?", error["traceback"])

    def test_deep_recursion(self):
        error = self.fails("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError", line=2)
        self.assertIn("[Previous line repeated ", error["traceback"])
        self.assertLess(len(error["traceback"]), 2000)
        self.lives()

    def test_long_errors_are_cut(self):
        error = self.fails("raise ValueError('x' * 1_000_000)", "ValueError")
        self.assertEqual(error["message"], "x" * 4096 + f"… ({1_000_000 - 4096} more characters)")
        self.assertLess(len(error["traceback"]), 17_000)

    def test_errors_whose_text_is_broken(self):
        for body in "raise ValueError", "return 5", "return str(self)", "raise SystemExit":
            with self.subTest(body):
                error = self.fails(f"class E(Exception):\n    def __str__(self): {body}\nraise E", "E", line=3)
                self.assertEqual(error["message"], "(its text cannot be shown)")
                self.assertIn("E: ", error["traceback"])
        self.lives()

    def test_errors_that_are_broken_elsewhere(self):
        for name, code in {
            "a name that is no string": "raise ModuleNotFoundError('x', name=5)",
            "a line that is no number": "raise SyntaxError('x', ('<cell 1>', 'one', 1, ''))",
            "a message that is no string": "e = SyntaxError(); e.msg = 5\nraise e",
            "a file that is no string": "raise FileNotFoundError(2, 'x', 5)",
            "an errno that is no number": "raise OSError('a', 'b')",
            "an errno that cannot be asked for": "class E(OSError):\n    errno = property(lambda s: 1 / 0)\nraise E",
            "a type whose name is no string": "class M(type):\n    __name__ = 5\nclass E(Exception, metaclass=M): pass\nraise E",
            "a class that lies": "class E(Exception):\n    __class__ = property(lambda s: 1 / 0)\nraise E",
            "a traceback of its own": "class E(Exception):\n    __traceback__ = property(lambda s: 1 / 0)\nraise E",
            "text that is not quite a string": "class S(str):\n    __len__ = None\nclass E(Exception):\n    def __str__(s): return S('x')\nraise E",
        }.items():
            with self.subTest(name):
                self.guest = self.start()
                outcome = self.exec(code)
                self.assertEqual((outcome["status"], outcome["exit_code"]), ("done", 1))
                error = outcome.error
                self.assertEqual((type(error["type"]), type(error["message"]), type(error["line"])), (str, str, int))
                self.lives()

    def test_the_source_of_old_cells_is_forgotten(self):
        for _ in range(_paddock_driver.SOURCES):
            self.exec("def f(): 1 / 0")
        error = self.fails("f()", "ZeroDivisionError")
        self.assertIn("    f()\n", error["traceback"])
        self.gives("import linecache; len([k for k in linecache.cache if k.startswith('<cell')])", str(_paddock_driver.SOURCES))

    def test_the_source_of_a_program_that_runs_often_is_kept(self):
        for _ in range(_paddock_driver.SOURCES + 1):
            self.exec("x = 1", name="hello.py")
        error = self.fails("1 / 0", "ZeroDivisionError", line=1, name="hello.py")
        self.assertIn('  File "hello.py", line 1, in <module>\n    1 / 0\n', error["traceback"])

    def test_large_sources_are_forgotten_first(self):
        self.exec("def f(): 1 / 0")
        self.assertIn("    1 / 0\n", self.fails("#" * (3 << 20) + "\n1 / 0", "ZeroDivisionError", line=2)["traceback"])
        self.assertNotIn("def f()", self.fails("f()", "ZeroDivisionError")["traceback"])

    def test_hints(self):
        for code, kind, hint in (
            ("import numpy.linalg", "ModuleNotFoundError", "numpy is not available: it has native code"),
            ("import requests", "ModuleNotFoundError", "urllib.request is"),
            ("import no_such_module", "ModuleNotFoundError", "no_such_module is not installed in this sandbox"),
            ("input()", "EOFError", "no standard input"),
            ("raise RuntimeError(\"can't start new thread\")", "RuntimeError", "asyncio works"),
            ("import errno; raise OSError(errno.ENOTSUP, 'x')", "OSError", "no processes, devices or ports"),
            ("-" * 100_000 + "1", "MemoryError", "nested too deeply"),
            ("raise MemoryError", "MemoryError", "work in pieces"),
            ("open('/data/x')", "FileNotFoundError", "files lie in /workspace"),
        ):
            with self.subTest(code[:80]):
                self.assertIn(hint, self.fails(code, kind).get("hint", ""))
        for code, kind in ("open('x')", "FileNotFoundError"), ("open('/tmp/no/x')", "FileNotFoundError"), ("raise EOFError", "EOFError"):
            with self.subTest(code):
                self.assertNotIn("hint", self.fails(code, kind))

    def test_kinds(self):
        for code, kind, expected in (
            ("raise KeyboardInterrupt", "KeyboardInterrupt", "interrupted"),
            ("raise MemoryError", "MemoryError", "memory"),
            ("x = 'x' * (1 << 62)", "MemoryError", "memory"),
            ("-" * 100_000 + "1", "MemoryError", None),  # the parser's, which has memory but no stack
            ("import errno; raise OSError(errno.ENOSPC, 'full')", "OSError", "space"),
            ("import errno; raise OSError(errno.EDQUOT, 'full')", "OSError", "space"),
            ("raise OSError(2, 'x')", "FileNotFoundError", None),
            ("raise GeneratorExit", "GeneratorExit", None),
            ("raise BaseException('x')", "BaseException", None),
            ("raise StopIteration", "StopIteration", None),
        ):
            with self.subTest(code[:80]):
                self.assertEqual(self.fails(code, kind).get("kind"), expected)
        self.lives()

    def test_warnings_name_the_cell(self):
        self.gives("import warnings\nwarnings.warn('careful')", None, "", "<cell 1>:2: UserWarning: careful\n  warnings.warn('careful')\n")
        outcome = self.exec("x = 1\nx is 1")
        self.assertEqual(outcome["result"], "True")
        self.assertEqual(outcome.stderr.count("SyntaxWarning"), 1)


class Exits(Case):
    def test_codes(self):
        for value, code in {"": 0, "None": 0, "0": 0, "3": 3, "256": 0, "257": 1, "-1": 255, "True": 1, "10**30": 0}.items():
            for call in "import sys; sys.exit({})", "exit({})", "quit({})", "raise SystemExit({})", "1; await __import__('asyncio').sleep(0); exit({})":
                with self.subTest(call.format(value)):
                    self.exits(call.format(value), code)

    def test_codes_that_are_no_numbers(self):
        for value, stderr in {
            "'bye'": "bye\n", "''": "\n", "[1, 2]": "[1, 2]\n", "2.5": "2.5\n", "(1, 2)": "(1, 2)\n", "ValueError('x')": "x\n", r"'\ud800'": "\\ud800\n",
        }.items():
            with self.subTest(value):
                self.exits(f"import sys; sys.exit({value})", 1, stderr)

    def test_weird_codes(self):
        for body in "raise ValueError('no')", "return 5", "raise SystemExit('again')", "return str(self)":
            with self.subTest(body):
                outcome = self.exec(f"class C:\n    def __str__(self): {body}\nraise SystemExit(C())")
                self.assertEqual((outcome["exit_code"], outcome.error), (1, {}))
                self.lives()
        with self.subTest("a code that cannot be asked for"):
            outcome = self.exec("class E(SystemExit):\n    code = property(lambda s: 1 / 0)\nraise E")
            self.assertEqual(outcome["exit_code"], 1)
            self.lives()

    def test_what_was_printed_before_is_there(self):
        outcome = self.exec("print('a', end='')\nimport sys\nsys.exit(2)\nprint('b')")
        self.assertEqual((outcome["exit_code"], outcome.stdout), (2, "a"))

    def test_exit_can_be_caught_and_shown(self):
        self.gives("try:\n    exit(1)\nexcept SystemExit as e:\n    print(e.code)", None, "1\n")
        self.gives("exit", "Use exit() to end the program")

    def test_exit_inside_a_task(self):
        self.exits("import asyncio\nasync def f(): raise SystemExit(4)\nawait asyncio.gather(f(), asyncio.sleep(3600))", 4)
        self.lives()


class Interrupts(Case):
    def setUp(self):
        super().setUp()
        self.guest.host = self.on_call

    def on_call(self, message):
        if message == b"interrupt":
            return message
        return self.guest.show(message)

    def test_a_busy_program(self):
        error = self.fails("import _paddock\nx = 1\n_paddock.call(b'interrupt')\nwhile True: x += 1", "KeyboardInterrupt", "")
        self.assertEqual(error["kind"], "interrupted")
        self.assertIn("KeyboardInterrupt\n", error["traceback"])
        self.gives("x > 0", "True")

    def test_a_program_may_clean_up(self):
        self.fails("import _paddock\ntry:\n    _paddock.call(b'interrupt')\n    while True: pass\nfinally:\n    cleaned = True", "KeyboardInterrupt")
        self.gives("cleaned", "True")

    def test_a_program_may_catch_it(self):
        self.gives("import _paddock\ntry:\n    _paddock.call(b'interrupt')\n    while True: pass\nexcept KeyboardInterrupt:\n    print('caught')", None, "caught\n")

    def test_a_sleep_that_ends_early_is_not_an_error(self):
        """The guest's sleep says EINTR where it is interrupted; what follows is the signal's handler's."""
        self.gives("""
import asyncio, _paddock_loop
slept = []
def sleep(seconds, sleep=_paddock_loop._sleep):
    slept.append(seconds)
    if len(slept) == 1:
        raise InterruptedError
    sleep(seconds)
_paddock_loop._sleep = sleep
asyncio.run(asyncio.sleep(0.001, 5)), len(slept) > 0""", "(5, True)")

    def test_a_repr_is_interrupted(self):
        self.fails("import _paddock\nclass C:\n    def __repr__(self):\n        _paddock.call(b'interrupt')\n        while True: pass\nC()", "KeyboardInterrupt")
        self.lives()

    def test_the_text_of_an_error_is_interrupted(self):
        code = "import _paddock\nclass E(Exception):\n    def __str__(self):\n        _paddock.call(b'interrupt')\n        while True: pass\nraise E"
        outcome = self.exec(code)
        self.assertEqual((outcome["status"], outcome["exit_code"], outcome.error.get("kind")), ("done", 130, "interrupted"))
        self.lives()

    def test_an_interrupt_that_comes_too_late_changes_nothing(self):
        self.exec("""
import sys, _paddock
class Late:
    def __init__(self, stream): self.stream = stream
    def write(self, text): return self.stream.write(text)
    def flush(self):
        if Late.armed:
            Late.armed = False
            raise KeyboardInterrupt
        self.stream.flush()
Late.armed = False
sys.stdout = Late(sys.stdout)
""")
        self.gives("Late.armed = True; print('a'); 5", "5", "a\n")
        self.exits("Late.armed = True; exit(3)", 3)
        self.assertEqual(self.exec("Late.armed = True; 1 / 0").error["type"], "ZeroDivisionError")
        self.lives()

    def test_a_waiting_program(self):
        waits = self.exec("import asyncio\nlog = []\ntry:\n    await asyncio.sleep(3600)\nfinally:\n    log.append('cleaned')")
        self.assertEqual(waits["status"], "waiting")
        self.assertTrue(3000 < waits["timeout"] <= 3600, waits)
        outcome = self.guest.ask(op="interrupt")
        self.assertEqual((outcome["exit_code"], outcome.error["type"], outcome.error["kind"]), (130, "KeyboardInterrupt", "interrupted"))
        self.assertEqual(outcome.stderr, outcome.error["traceback"])
        self.gives("log", "['cleaned']")
        self.gives("await asyncio.sleep(0, 'on')", "'on'")

    def test_a_waiting_program_that_waits_a_little_to_clean_up(self):
        self.exec("import asyncio\ntry:\n    await asyncio.sleep(3600)\nfinally:\n    await asyncio.sleep(0.01); print('cleaned')")
        outcome = self.guest.ask(op="interrupt")
        self.assertEqual((outcome.error["kind"], outcome.stdout), ("interrupted", "cleaned\n"))

    def test_a_waiting_program_that_fails_or_exits_while_it_cleans_up(self):
        for ending in "1 / 0", "exit(3)", "raise KeyboardInterrupt", "return_value = 5":
            with self.subTest(ending):
                self.exec(f"import asyncio\ntry:\n    await asyncio.sleep(3600)\nexcept asyncio.CancelledError:\n    {ending}")
                outcome = self.guest.ask(op="interrupt")
                self.assertEqual((outcome["exit_code"], outcome.error["kind"]), (130, "interrupted"))
                self.lives()

    def test_with_nothing_that_waits(self):
        self.assertEqual(self.guest.ask(op="interrupt").error["kind"], "interrupted")
        self.lives()


class Await(Case):
    def test_at_the_top_level(self):
        self.gives("import asyncio\nx = await asyncio.sleep(0, 5)\nx + 1", "6")
        self.gives("await asyncio.sleep(0, 'value')", "'value'")
        self.gives("await asyncio.sleep(0)")
        self.gives("y = await asyncio.sleep(0.001, 7)")
        self.gives("x, y", "(5, 7)")

    def test_async_statements_at_the_top_level(self):
        self.gives("""
class Manager:
    async def __aenter__(self): return 1
    async def __aexit__(self, *a): print("left")
async def numbers():
    for n in range(3): yield n
async with Manager() as m: print("in", m)
async for n in numbers(): print(n)
[n async for n in numbers()]""", "[0, 1, 2]", "in 1\n0\n1\n2\nleft\n".replace("left\n", "", 1).replace("in 1\n", "in 1\nleft\n"))

    def test_the_time_to_wait_is_told(self):
        waits = self.exec("import asyncio\nprint('before')\nawait asyncio.gather(asyncio.sleep(3600), asyncio.sleep(0.01))\n'done'")
        self.assertEqual((waits["status"], waits.stdout), ("waiting", "before\n"))
        self.assertLessEqual(waits["timeout"], 0.01)

    def test_resuming_too_early_waits_on(self):
        self.exec("import asyncio\nawait asyncio.sleep(3600)")
        self.assertEqual(self.guest.ask(op="resume")["status"], "waiting")
        self.guest.ask(op="interrupt")

    def test_tracebacks_hold_no_frames_of_the_loop(self):
        error = self.fails("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1 / 0\nawait f()", "ZeroDivisionError", line=4)
        self.assertEqual(error["traceback"].count("File "), 2)
        error = self.fails("async def g():\n  async with asyncio.TaskGroup() as t:\n    t.create_task(f())\nawait g()", "ExceptionGroup", line=2)
        self.assertNotIn("taskgroups.py", error["traceback"])
        self.assertIn("ZeroDivisionError: division by zero", error["traceback"])

    def test_a_deadlock_is_an_error(self):
        error = self.fails("import asyncio\nawait asyncio.Event().wait()", "Deadlock")
        self.assertIn("can never happen", error["message"])
        self.assertNotIn("_paddock", error["traceback"])
        self.gives("await asyncio.sleep(0, 1)", "1")
        error = self.fails("asyncio.run(asyncio.Event().wait())", "Deadlock", line=1)
        self.gives("await asyncio.sleep(0, 2)", "2")

    def test_a_cancelled_timer_does_not_hide_a_deadlock(self):
        self.fails("import asyncio\nasyncio.get_running_loop().call_later(3600, print).cancel()\nawait asyncio.Event().wait()", "Deadlock")

    def test_tasks_that_are_left_go_on_with_the_next_await(self):
        self.gives("""
import asyncio
log = []
async def work():
    for n in range(3):
        log.append(n)
        await asyncio.sleep(0)
task = asyncio.create_task(work())
await asyncio.sleep(0)""")
        self.gives("log", "[0]")
        self.gives("await task; log", "[0, 1, 2]")

    def test_a_task_that_is_left_and_fails_says_so(self):
        self.gives("import asyncio\nasync def bad(): raise ValueError('left')\nt = asyncio.create_task(bad()); await asyncio.sleep(0)")
        outcome = self.exec("del t\nimport gc; gc.collect()\nawait asyncio.sleep(0)")
        self.assertEqual(outcome["exit_code"], 0)
        self.assertIn("Task exception was never retrieved", outcome.stderr)

    def test_async_generators_survive_between_cells(self):
        self.gives("async def count():\n    for n in range(3): yield n\na = count(); await anext(a)", "0")
        self.gives("await anext(a)", "1")

    def test_run_and_runner(self):
        self.gives("import asyncio\nasyncio.run(asyncio.sleep(0.001, 'ran'))", "'ran'")
        self.gives("await asyncio.sleep(0, 1)", "1")
        self.gives("with asyncio.Runner() as r: print(r.run(asyncio.sleep(0, 5)))", None, "5\n")
        self.fails("async def f():\n    asyncio.run(asyncio.sleep(0))\nawait f()", "RuntimeError", "asyncio.run() cannot be called from a running event loop", 2)

    def test_what_ended_a_run_does_not_end_the_next_one(self):
        for raised, code in ("raise KeyboardInterrupt", 130), ("raise SystemExit(3)", 3):
            with self.subTest(raised):
                outcome = self.exec(f"""
import asyncio
async def inner(n):
    if n == 0:
        {raised}
    await asyncio.sleep(9)
async def outer():
    await asyncio.gather(*(inner(n) for n in range(3)))
await asyncio.gather(outer(), inner(1))""")
                self.assertEqual((outcome["status"], outcome["exit_code"]), ("done", code))
                for _ in range(3):
                    self.gives("await asyncio.sleep(0); await asyncio.sleep(0.001, 1)", "1")

    def test_an_error_that_a_program_kept_and_raises_again_ends_it(self):
        self.exec("import asyncio\ntry:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt as e:\n    kept = e\n    raise")
        self.assertEqual(self.exec("await asyncio.sleep(0)\nraise kept")["exit_code"], 130)
        self.gives("await asyncio.sleep(0, 1)", "1")

    def test_timeouts(self):
        self.fails("import asyncio\nawait asyncio.wait_for(asyncio.Event().wait(), 0.001)", "TimeoutError", line=2)
        self.fails("async with asyncio.timeout(0.001): await asyncio.sleep(3600)", "TimeoutError", line=1)

    def test_cancelling_oneself_is_an_error_of_the_program(self):
        self.fails("import asyncio\nasyncio.current_task().cancel()\nawait asyncio.sleep(0)", "CancelledError")
        self.lives()

    def test_there_are_no_threads_behind_it(self):
        for code in "await asyncio.to_thread(print, 1)", "await asyncio.get_running_loop().run_in_executor(None, print)":
            with self.subTest(code):
                self.assertIn("no threads", self.fails("import asyncio\n" + code, "RuntimeError")["message"])

    def test_the_loop_is_one_for_all_cells(self):
        self.gives("import asyncio\nfirst = asyncio.get_running_loop(); await asyncio.sleep(0)")
        self.gives("await asyncio.sleep(0); asyncio.get_running_loop() is first", "True")
        self.gives("first.close()")
        self.gives("await asyncio.sleep(0); asyncio.get_running_loop() is first", "False")

    def test_context_variables_are_kept(self):
        self.gives("import asyncio, contextvars, decimal\nv = contextvars.ContextVar('v', default=0)\nv.set(1); None")
        self.gives("await asyncio.sleep(0); v.get()", "1")
        self.gives("await asyncio.sleep(0); v.set(2); decimal.getcontext().prec = 5")
        self.gives("v.get(), decimal.Decimal(1) / 3", "(2, Decimal('0.33333'))")
        self.gives("await asyncio.sleep(0); v.get(), decimal.Decimal(1) / 3", "(2, Decimal('0.33333'))")

    def test_a_task_factory_of_the_programs(self):
        self.gives("import asyncio\nasyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory); await asyncio.sleep(0)")
        self.gives("await asyncio.sleep(0.001, 3)", "3")


class Awaken(Case):
    """An interpreter that is a copy of an earlier one, or of another."""

    def awaken(self, seed="00" * 32):
        outcome = self.guest.ask(op="awaken", seed=seed)
        self.assertEqual(outcome, {"status": "ok"})
        return outcome

    def test_random_numbers_are_others(self):
        self.exec("""
import random, tempfile, uuid
next(tempfile._get_candidate_names()); random.gauss(); random.seed(5); random.gauss()
state, names, clock = random.getstate(), tempfile._name_sequence, (12345, 67890)
names._rng = random.Random(7)""")
        code = "random.random(), random.gauss(), random.getrandbits(48), next(tempfile._get_candidate_names()), uuid._node is clock[0], uuid._last_timestamp is clock[1]"
        earlier = "random.setstate(state); tempfile._name_sequence = names; uuid._node, uuid._last_timestamp = clock"
        self.exec(earlier)
        drawn = [self.exec(code)["result"]]
        for _ in range(2):
            self.exec(earlier)
            self.awaken()  # even with one seed
            drawn.append(self.exec(code)["result"])
        values = list(zip(*map(eval, drawn)))
        for each in values[:4]:
            self.assertEqual(len(set(each)), 3, drawn)
        self.assertEqual(values[4:], [(True, False, False)] * 2)

    def test_a_generator_of_the_program_keeps_its_numbers(self):
        self.exec("import random\nown = random.Random(7); again = random.Random(7)")
        self.awaken()
        self.gives("own.random() == again.random()", "True")

    def test_it_seeds_what_a_program_has_imported_again(self):
        self.exec("import sys, random\nfirst = random; del sys.modules['random']; import random\nfirst is random", "False")
        self.exec("first.seed(1); random.seed(1); del random.Random.__setstate__")
        self.awaken()
        self.gives("first.random() != random.random(), first.random() != __import__('random').Random(1).random()", "(True, True)")

    def test_environment_folder_and_variables_stay(self):
        self.exec("import os, sys\nos.environ['A'] = 'b'; os.mkdir('in'); os.chdir('in'); x = [1]; sys.argv = ['own']; sys.path.append('/own')")
        self.awaken()
        self.gives("os.environ['A'], os.path.basename(os.getcwd()), x, sys.argv == [''], sys.path[-1], __import__('asyncio').get_event_loop_policy() is not None",
                   "('b', 'in', [1], True, '/own', True)")

    def test_what_waits_is_given_up(self):
        """Nothing of it runs, now or later, whatever the program then waits for."""
        self.exec("""
import asyncio
log = []
async def work(name, event=None):
    try:
        await (event.wait() if event else asyncio.sleep(0.01))
        log.append(name + ' worked')
    finally:
        log.append(name + ' ended')
event = asyncio.Event()
sleeps, waits = asyncio.create_task(work('sleeps')), asyncio.create_task(work('waits', event))
gathers = asyncio.gather(work('one'), work('two', event))
loop = asyncio.get_running_loop()
await asyncio.sleep(0)
fresh = asyncio.create_task(work('fresh'))
loop.call_later(0.01, log.append, 'a timer')
loop.call_soon(log.append, 'soon')
ready = asyncio.create_task(asyncio.sleep(0)); ready.add_done_callback(lambda _: log.append('called back'))""")
        outcome = self.awaken()
        self.assertEqual((outcome.stdout, outcome.stderr), ("", ""))
        self.gives("event.set(); await asyncio.sleep(0.05); log", "[]")
        self.gives("[t.cancelled() for t in (sleeps, waits, fresh)], asyncio.all_tasks(loop)", "([True, True, True], set())")
        self.fails("await waits", "CancelledError")
        self.gives("sleeps.cancel(), waits.cancel()", "(False, False)")
        self.fails("await gathers", "Deadlock")
        self.gives("await asyncio.sleep(0.001, 'goes on'), asyncio.get_running_loop() is loop", "('goes on', True)")
        self.assertEqual(self.exec("import gc; del sleeps, waits, gathers, fresh, ready, event; gc.collect(); None").stderr, "")
        self.gives("log", "[]")

    def test_tasks_that_will_not_end_are_given_up(self):
        self.exec("""
import asyncio
log = []
event = asyncio.Event()
async def stubborn():
    while True:
        try:
            await event.wait()
            log.append('worked')
        except asyncio.CancelledError:
            log.append('cancelled')
async def busy():
    while True:
        try: await asyncio.sleep(0)
        except BaseException: pass
async def slow():
    try: await asyncio.sleep(3600)
    finally: asyncio.get_running_loop().call_later(0.01, log.append, 'a timer'); await asyncio.sleep(0.01); log.append('slow')
tasks = [asyncio.create_task(f()) for f in (stubborn, busy, slow)]
await asyncio.sleep(0)""")
        self.awaken()
        outcome = self.run_to_end("event.set(); await asyncio.sleep(0.05); log")
        self.assertEqual((outcome["result"], outcome.stdout), ("[]", ""))
        self.lives()

    def test_loops_of_the_program_are_given_up_too(self):
        self.exec("""
import asyncio
log = []
async def main():
    asyncio.get_running_loop().call_later(0.01, log.append, 'a timer')
    main.task = asyncio.create_task(asyncio.sleep(0.01))
runner = asyncio.Runner(); runner.run(main())""")
        self.awaken()
        self.gives("runner.run(asyncio.sleep(0.05)); log, main.task.cancelled(), runner.close()", "([], True, None)")

    def test_nothing_of_the_program_runs(self):
        """Whatever could: clean-up that takes for ever, the program's classes, what the collector finds."""
        self.exec("""
import asyncio, gc, random, uuid
log, event = [], asyncio.Event()
class Noisy:
    def __del__(self): log.append('deleted')
class Task(asyncio.Task):
    def done(self): log.append('asked'); return super().done()
    def cancel(self, msg=None): log.append('cancelled'); return super().cancel(msg)
    def get_coro(self): log.append('asked'); return super().get_coro()
async def endless():
    noisy = Noisy()
    try: await event.wait()
    finally:
        log.append('cleaned up')
        while True: pass
async def opened():
    async with asyncio.timeout(3600), asyncio.TaskGroup() as group: group.create_task(endless())
loop = asyncio.get_running_loop()
loop.set_task_factory(lambda loop, coro, **more: Task(coro, loop=loop, **more))
tasks = [loop.create_task(f()) for f in (endless, opened)]
loop.set_task_factory(None)
tasks[0].add_done_callback(log.append)
await asyncio.sleep(0.001)
uuid._node = Noisy(); random._inst.gauss_next = Noisy()
cycle = Noisy(); cycle.cycle = cycle; del cycle
gc.callbacks.append(lambda *a: log.append('collected')); gc.set_threshold(1); log.clear(); None""")
        self.awaken()
        self.gives("gc.callbacks.clear(); gc.set_threshold(700); set(log) & {'asked', 'cancelled', 'cleaned up'}", "set()")
        self.gives("gc.isenabled(), uuid._node, [asyncio.Task.done(t) for t in tasks]", "(True, None, [True, True])")
        self.gives("gc.collect(); log.clear(); del tasks; gc.collect(); event.set(); await asyncio.sleep(0.01); log", "[]")
        self.lives()

    def test_the_collector_stays_off_where_the_program_has_it_so(self):
        self.exec("import gc; gc.disable()")
        self.awaken()
        self.gives("gc.isenabled()", "False")

    def test_an_interrupt_in_between_keeps_it_from_nothing(self):
        self.exec("""
import _thread, asyncio, random, uuid
task = asyncio.create_task(asyncio.sleep(3600)); await asyncio.sleep(0)
class Loop(asyncio.EventLoop):
    def call_soon(self, *a, **k): _thread.interrupt_main(); return super().call_soon(*a, **k)
loop = asyncio.get_running_loop(); old = type(loop); loop.__class__ = Loop; asyncio.gather(task)
random.seed(1); first = random.random(); random.seed(1)""")
        self.awaken()
        self.exec("loop.__class__ = old")
        self.gives("uuid._node, random.random() != first, task.cancelled()", "(None, True, True)")

    def test_whatever_a_program_did_to_what_it_needs(self):
        for name, code in {
            "modules": "import random, uuid, asyncio, tempfile\nfor m in random, uuid, asyncio, asyncio.events, asyncio.tasks, asyncio.base_events, tempfile:\n    m.__dict__.clear()",
            "no modules": "import sys\nfor m in 'random', 'uuid', 'tempfile': sys.modules[m] = 5",
            "random": "import random\nrandom._inst = 5; random.Random.__setattr__ = random.Random.seed = None",
            "generator": "import random\nrandom.Random.gauss_next = property(lambda s: 1 / 0); random._inst.__class__ = type('C', (random.Random,), {'__getattribute__': None})",
            "os": "import os\nos.urandom = None",
            "builtins": "import builtins\nfor n in 'int', 'isinstance', 'issubclass', 'list', 'type', 'getattr': delattr(builtins, n)",
            "loop": "import asyncio\nl = asyncio.get_running_loop()\nl._scheduled = l._ready = None; await asyncio.sleep(0)",
            "class": "import asyncio\nl = asyncio.get_running_loop(); c = asyncio.create_task(asyncio.sleep(9)); type(l)._run_once = type(l)._run_forever_setup = None",
            "lists": "import asyncio\nl = asyncio.get_running_loop(); c = asyncio.create_task(asyncio.sleep(9))\ndel l._scheduled, l._ready, l._selector",
            "tasks": "import asyncio\nasyncio.tasks._scheduled_tasks.data = None",
            "callback": "import asyncio\nclass C:\n    def __getattribute__(self, n): raise SystemExit\n    def __call__(self): 1 / 0\nasyncio.get_running_loop().call_soon(C()); 1; await asyncio.sleep(0)\nasyncio.get_running_loop().call_soon(C())",
        }.items():
            with self.subTest(name):
                self.guest = self.start()
                self.exec("import random; random.seed(1); first = random.Random(1).random(); draw = random.random")
                self.run_to_end(code)
                outcome = self.awaken()
                self.assertEqual((outcome.stdout, outcome.stderr), ("", ""))
                self.gives("draw() != first", "True")


class Main(Case):
    def test_it_is_main(self):
        self.gives("import sys\n__name__, sys.modules['__main__'].__dict__ is globals()", "('__main__', True)")
        self.gives("class C: pass\nC", "<class '__main__.C'>")

    def test_pickle(self):
        self.gives("""
import pickle
class C:
    def __init__(self, x): self.x = x
def f(): return 1
saved = pickle.dumps([C(5), f])""")
        self.gives("o, g = pickle.loads(saved); o.x, g is f, type(o) is C", "(5, True, True)")

    def test_dataclasses_enums_and_typing(self):
        self.gives("""
from __future__ import annotations
import dataclasses, enum, typing
@dataclasses.dataclass(order=True, slots=True)
class P:
    x: int
    y: typing.ClassVar[int] = 3
    z: list[int] = dataclasses.field(default_factory=list)
class E(enum.Enum):
    A = enum.auto()
class N(typing.NamedTuple):
    a: int
    b: str = "b"
class T(typing.TypedDict):
    name: P
P(1), E.A, N(1)""", "(P(x=1, z=[]), <E.A: 1>, N(a=1, b='b'))")
        self.gives("typing.get_type_hints(T) == {'name': P}, P(1) < P(2), [f.name for f in dataclasses.fields(P)]", "(True, True, ['x', 'z'])")

    def test_sources(self):
        self.gives("def f(a,\n      b=1):\n    return a\n\ng = lambda x: x")
        self.gives("import inspect\ninspect.getsource(f)", repr("def f(a,\n      b=1):\n    return a\n"))
        self.gives("inspect.getsource(g)", repr("g = lambda x: x\n"))
        self.gives("inspect.getsource(f), inspect.getfile(f)", repr(("def f(a,\n      b=1):\n    return a\n", "<cell 1>")))

    def test_functions_of_two_cells_have_their_own_source(self):
        self.gives("def f(): return 1")
        self.gives("old = f\ndef f(): return 2")
        self.gives("import inspect; inspect.getsource(old), inspect.getsource(f)", repr(("def f(): return 1\n", "def f(): return 2\n")))

    def test_doctest(self):
        self.gives('import doctest\ndef f():\n    """\n    >>> f()\n    1\n    """\n    return 1\ndoctest.testmod()', "TestResults(failed=0, attempted=1)")

    def test_unittest(self):
        outcome = self.exec("import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(1, 1)\nunittest.main(argv=['x'], exit=False); None")
        self.assertIn("Ran 1 test", outcome.stderr)
        self.assertEqual(outcome["exit_code"], 0)


class Network(Case):
    """Sockets. The host is played here: it has one stream, of what self.pieces are."""

    CONNECT = "import socket, asyncio\ns = socket.create_connection(('198.18.0.1', 80))\n"

    def setUp(self):
        super().setUp()
        self.guest.host = self.host
        self.exec("import importlib, socket; importlib.reload(socket)")  # the guest's, in the place of this machine's
        self.pieces, self.asked, self.begun, self.behind = [b"one\n", b"", b"two\nlines\x00\xff\n", b"x" * 300_000], [], {}, {}

    def host(self, message):
        head, _, body = message.partition(b"\n")
        head = json.loads(head)
        if head["op"] == "call":
            return self.answer(body)
        if head["op"] == "begin":
            number = len(self.asked) + 1
            self.begun[number] = body
            self.asked.append(None)
            return b"%d" % number
        if head["op"] == "await":
            return json.dumps(self.replies()).encode()
        if head["op"] == "bytes":
            return self.behind.pop(head["reply"], b"")
        return self.guest.show(message)

    def answer(self, body):
        line, _, payload = body.partition(b"\n")
        said = json.loads(line)
        self.asked.append(said)
        if said["op"] == "net.open":
            return b'{"value":{"stream":7}}'
        if said["op"] == "net.write":
            return b'{"value":{"written":%d}}' % len(payload)
        if said["op"] == "net.read":
            whole = b"".join(self.pieces)
            if said["at"] > len(whole):
                return b'{"error":{"kind":"reset"}}'
            at, ends = said["at"], [sum(map(len, self.pieces[:n + 1])) for n in range(len(self.pieces))]
            return b'{"value":{}}\n' + whole[at:min([end for end in ends if end > at] + [len(whole)], default=0)][:said["max"]]
        return b'{"value":{}}'

    def replies(self):
        replies = []
        self.behind = {}
        for number, body in self.begun.items():
            line, found, data = self.answer(body).partition(b"\n")
            replies.append([number, json.loads(line)] + [len(data)] * bool(found))
            if found:
                self.behind[number] = data
        self.begun = {}
        return replies

    def run_to_end(self, code):
        outcome = self.exec(code)
        stdout, stderr = outcome.stdout, outcome.stderr
        while outcome["status"] == "waiting":
            outcome = self.guest.ask(op="resume", replies=self.replies())
            stdout, stderr = stdout + outcome.stdout, stderr + outcome.stderr
        outcome.stdout, outcome.stderr = stdout, stderr
        return outcome

    def test_what_is_read_is_the_bytes_behind_the_line(self):
        whole = b"".join(self.pieces)
        for code, want in (
                ("s.recv(2), s.recv(2, socket.MSG_PEEK), s.recv(100), s.recv(0), s.recv(100)", (whole[:2], whole[2:4], whole[2:4], b"", whole[4:16])),
                ("b = bytearray(5); s.recv_into(b), s.recv_into(b, 1), bytes(b)", (4, 1, b"tne\n\x00")),
                ("b = bytearray(3); s.recv_into(b, 0, socket.MSG_PEEK), s.recv_into(b), bytes(b)", (3, 3, b"one")),
                ("f = s.makefile('rb'); f.readline(), f.readline(), len(f.read()), f.read()", (b"one\n", b"two\n", 300_008, b"")),
                ("import hashlib\nh = hashlib.sha1()\nwhile d := s.recv(1 << 20): h.update(d)\nh.hexdigest()", __import__("hashlib").sha1(whole).hexdigest()),
        ):
            with self.subTest(code):
                self.gives(self.CONNECT + code, repr(want))

    def test_reads_ask_for_what_was_not_read(self):
        self.gives(self.CONNECT + "while s.recv(1 << 20): pass")
        reads = [(said["at"], said["max"]) for said in self.asked if said["op"] == "net.read"]
        self.assertEqual([at for at, _ in reads], [0, 4, 16, *range(16 + reads[0][1], 300_016, reads[0][1]), 300_016])

    def test_awaited_bytes_are_taken(self):
        whole = b"".join(self.pieces)
        self.gives("import asyncio\nr, w = await asyncio.open_connection('198.18.0.1', 80)\nw.write(b'x'); await w.drain()\nawait r.read() == " + f"b'one\\ntwo\\nlines\\x00\\xff\\n' + {whole[16:17]!r} * {len(whole) - 16}", "True")
        self.gives("import asyncio\nasync def f():\n    r, w = await asyncio.open_connection('198.18.0.1', 80)\n    n = len(await r.read()); w.close()\n    return n\nasyncio.run(f())", str(len(whole)))
        self.gives("import asyncio, socket\ns = socket.socket(); s.setblocking(False); l = asyncio.get_running_loop()\nawait l.sock_connect(s, ('198.18.0.1', 80))\nawait l.sock_recv(s, 9), await l.sock_recv(s, 9)", "(b'one\\n', b'two\\nlines')")
        self.assertEqual(self.behind, {})

    def test_bytes_that_got_lost_are_asked_for_again(self):
        lost = self.replies

        def replies():
            found = lost()
            if self.behind and not self.lost:
                self.behind.clear()
                self.lost = True
            return found

        self.replies, self.lost = replies, False
        self.gives("import asyncio\nr, w = await asyncio.open_connection('198.18.0.1', 80)\nlen(await r.read())", "300016")
        self.assertTrue(self.lost)

    def test_what_the_host_refuses_is_an_error(self):
        self.exec(self.CONNECT)
        self.pieces = []
        self.gives("s.recv(9), s.recv(9)", "(b'', b'')")
        self.pieces = [b"abc"]
        self.gives(self.CONNECT + "s.recv(9)", "b'abc'")
        self.pieces = []
        self.fails("s.recv(9)", "ConnectionResetError")


class Displays(Case):
    def shown(self, code):
        """What code shows, as (MIME type, data)."""
        self.guest.displays.clear()
        outcome = self.exec(code)
        self.assertEqual(outcome["exit_code"], 0, outcome)
        self.assertEqual({tuple(d) for d, _ in self.guest.displays} - {("op", "mime")}, set())
        return [(d["mime"], data) for d, data in self.guest.displays]

    def test_the_last_value(self):
        for method, value, mime, data in (
            ("_repr_png_", "b'\\x89PNG\\n'", "image/png", b"\x89PNG\n"),
            ("_repr_png_", "'aGVsbG8='", "image/png", b"hello"),
            ("_repr_jpeg_", "(b'jpeg', {'width': 3})", "image/jpeg", b"jpeg"),
            ("_repr_svg_", "'<svg>ü</svg>'", "image/svg+xml", "<svg>ü</svg>".encode()),
            ("_repr_html_", "'<b>\\ud800</b>'", "text/html", b"<b>?</b>"),
            ("_repr_markdown_", "'# x'", "text/markdown", b"# x"),
            ("_repr_png_", "bytearray(b'png')", "image/png", b"png"),
        ):
            with self.subTest(f"{method} {value}"):
                code = f"class C:\n    def {method}(self): return {value}\n    def __repr__(self): return 'text'\nC()"
                self.assertEqual(self.shown(code), [(mime, data)])

    def test_the_best_of_several_and_what_offers_nothing(self):
        both = "class C:\n    def _repr_html_(self): return '<p>'\n    def _repr_png_(self): return {}\n    def __repr__(self): return 'text'\nC()"
        self.assertEqual(self.shown(both.format("b'png'")), [("image/png", b"png")])
        self.assertEqual(self.shown(both.format("None")), [("text/html", b"<p>")])
        self.assertEqual(self.shown("C"), [])  # the class is not its instance

    def test_display(self):
        picture = "class P:\n    def _repr_png_(self): return b'png'\n"
        self.assertEqual(self.shown(picture + "display(P()); display(P(), P()); None"), [("image/png", b"png")] * 3)
        self.gives("display(1, 'a', [2])", None, "1\n'a'\n[2]\n")

    def test_the_host_refuses(self):
        self.guest.host = lambda message: b'{"error":"over the limit"}'
        outcome = self.exec("class P:\n    def _repr_png_(self): return b'png'\nP(); display(P()); 5")
        self.assertEqual((outcome["result"], outcome.stderr), ("5", "(a display is not shown: the displays of one call are over their limit)\n"))

    def test_one_that_is_too_large(self):
        self.assertEqual(self.shown("class P:\n    def _repr_png_(self): return bytes(33 << 20)\ndisplay(P())"), [])
        outcome = self.exec("display(P())")
        self.assertIn("over the limit", outcome.stderr)

    def test_several_forms_at_once(self):
        chart, text = "'application/vnd.plotly.v1+json': {'data': [1]}", "'text/plain': 'C'"
        for bundle, shown in (
            (f"{{{text}, {chart}, 'text/html': '<p>'}}", [("application/vnd.plotly.v1+json", b'{"data": [1]}')]),
            (f"({{{chart}, 'image/png': 'aGVsbG8='}}, {{}})", [("image/png", b"hello")]),
            ("{'application/vnd.vegalite.v5+json': '{}', 'text/html': '<p>'}", [("application/vnd.vegalite.v5+json", b"{}")]),
            (f"{{{text}, 'text/html': '<p>', 'image/svg+xml': '<svg>'}}", [("image/svg+xml", b"<svg>")]),
            (f"{{{text}}}", [("text/markdown", b"# x")]),
            ("{'application/vnd.x+json': None, 3: 4}", [("text/markdown", b"# x")]),
            ("None", [("text/markdown", b"# x")]),
        ):
            with self.subTest(bundle):
                self.assertEqual(self.shown(
                    f"class C:\n    def _repr_mimebundle_(self, include=None, exclude=None): return {bundle}\n"
                    "    def _repr_markdown_(self): return '# x'\n    def __repr__(self): return 'C'\nC()"), shown)

    def test_a_text_that_is_too_long_for_a_result(self):
        self.assertEqual(self.shown("'ü' * 20_000"), [("text/plain", "ü".encode() * 20_000)])
        self.assertEqual(self.exec("'ü' * 20_000")["result"], repr("ü" * 100) + "… (19900 more characters)")
        self.guest.displays.clear()
        outcome = self.exec("'x' * (33 << 20)")
        self.assertEqual((self.guest.displays, outcome["result"]), ([], repr("x" * 1000) + f"… ({(33 << 20) - 1000} more characters)"))

    def test_one_that_is_broken(self):
        for body in "1 / 0", "return 'a'", "return 5", "return 'no base64'", "raise SystemExit(3)":
            with self.subTest(body):
                outcome = self.exec(f"class P:\n    def _repr_png_(self): {body}\n    def __repr__(self): return 'text'\nx = 1\nP()")
                self.assertEqual(outcome["status"], "done")
                if body == "return 'a'":
                    self.assertEqual(outcome["result"], "text", outcome)
                    self.assertIn("P cannot be shown as image/png", outcome.stderr)
                if body == "1 / 0":
                    self.assertEqual(outcome.error["type"], "ZeroDivisionError")
                self.lives()

    def test_figures(self):
        self.exec("""
import sys, types
class Figure:
    def __init__(self, n): self.n = n
    def savefig(self, file, format): file.write(b"figure %d" % self.n)
sys.modules["matplotlib.pyplot"] = plt = types.ModuleType("matplotlib.pyplot")
plt.open, plt.figure = [], Figure
plt.get_fignums = lambda: plt.open[:]
plt.close = lambda what: plt.open.clear()
""")
        self.assertEqual(self.shown("plt.open += [1, 2]"), [("image/png", b"figure 1"), ("image/png", b"figure 2")])
        self.assertEqual(self.shown("plt.open"), [])


class Hostile(Case):
    """A program that changes the interpreter breaks itself, not the driver."""

    def test_its_own_modules_are_not_the_drivers(self):
        for name in "json", "ast", "traceback", "linecache", "asyncio", "reprlib", "types", "random":
            with open(f"{self.cwd}/{name}.py", "w") as f:
                f.write("raise RuntimeError('the wrong module')")
        self.guest = self.start()
        self.lives()
        self.fails("1 / 0", "ZeroDivisionError", line=1)

    def test_changed_libraries(self):
        for change in (
            "import json; json.dumps = json.loads = json.JSONEncoder = json.JSONDecoder = None",
            "import json; json.JSONEncoder.encode = json.JSONDecoder.decode = None",
            "import ast; ast.parse = ast.Expression = ast.Expr = ast.PyCF_ONLY_AST = None",
            "import traceback; traceback.TracebackException = traceback.StackSummary = None",
            "import linecache; linecache.clearcache()",
            "import linecache; linecache.cache = None",
            "import reprlib; reprlib.Repr = None",
            "import types; types.ModuleType = types.FunctionType = None",
            "import sys; sys.modules.clear()",
            "import sys; sys.modules = None",
            "import sys; del sys.modules['__main__'], sys.modules['json'], sys.modules['sys']",
            "import sys; sys.argv = None; sys.path = None; sys.path_hooks.clear()",
            "import sys; sys.excepthook = sys.displayhook = sys.unraisablehook = None",
            "import inspect; inspect.CO_COROUTINE = 0",
            "import gc; gc.disable(); gc.set_threshold(1)",
            "import os; os.environ = None; os.getcwd = None",
            "import random; random.seed = random.random = None",
        ):
            with self.subTest(change):
                self.guest = self.start()
                self.exec(change)
                self.lives()
                outcome = self.exec("x = 3\nx / 0")
                self.assertEqual((outcome.error["type"], outcome.error["line"]), ("ZeroDivisionError", 2))
                self.assertIn("x", [v["name"] for v in self.guest.ask(op="inspect")["variables"]])

    def test_changed_builtins(self):
        names = [n for n in __builtins__ if not n.startswith("__")]
        for how in "setattr(builtins, name, None)", "delattr(builtins, name)":
            with self.subTest(how):
                self.guest = self.start()
                self.gives(f"import builtins\nsaved = vars(builtins).copy()\nsetattr, delattr = setattr, delattr\nfor name in {names!r}: {how}")
                self.gives("x = 3\nx + 1", "4")
                self.fails("x = 3\nx / 0", "ZeroDivisionError", "division by zero", 2)
                self.exits("raise saved['SystemExit'](3)", 3)
                self.exits("raise saved['SystemExit']('bye')", 1, "bye\n")
                self.assertIn("x", [v["name"] for v in self.guest.ask(op="inspect")["variables"]])
                self.gives("vars = saved['vars']\nvars(builtins).update(saved)\nprint('back')", None, "back\n")

    def test_a_changed_print(self):
        self.gives("lines = []\nimport builtins\nbuiltins.print = lambda *a, **k: lines.append(a)\nprint('x')")
        self.gives("print = None\nlines", "[('x',)]")
        self.exits("exit('bye')", 1, "bye\n")

    def test_names_of_the_driver_are_free(self):
        self.gives("main = driver = handle = compile = exec = eval = 5; main + driver", "10")
        self.lives()

    def test_globals_are_cleared(self):
        self.exec("x = 1\nglobals().clear()")
        self.gives("'x' in globals(), __name__", "(False, '__main__')")
        self.gives("import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))) is C", "True")
        self.gives("import builtins; builtins.answer = 42")
        self.gives("answer", "42")

    def test_stdout(self):
        for change in (
            "sys.stdout.close()", "sys.stderr.close()", "sys.stdout.close(); sys.stderr.close()", "sys.stdout = None", "sys.stderr = None",
            "del sys.stdout", "del sys.stderr", "sys.stdout.detach()", "sys.stderr.detach()", "sys.stdout.buffer.close()", "sys.__stdout__.close()",
            "keep = sys.stdout.buffer; keep.detach()",
            "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8', line_buffering=True)",
            "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8', line_buffering=True)",
            "sys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())",
            "sys.stdout = io.StringIO(); sys.stdout.close()", "sys.stderr.close(); 1 / 0", "del sys.stderr; 1 / 0", "sys.stderr.detach(); exit('bye')",
            "sys.stdout.reconfigure(line_buffering=False, encoding='utf-8')",
            "sys.stdout = sys.__stdout__; sys.__stdout__ = None",
        ):
            with self.subTest(change):
                self.guest = self.start()
                self.exec("import sys, io, codecs\n" + change)
                self.lives()
                error = self.fails("1 / 0", "ZeroDivisionError", line=1)
                self.assertIn("ZeroDivisionError: division by zero", error["traceback"])
                self.lives()

    def test_closed_descriptors(self):
        for closing in "os.close(2)", "os.close(1)", "os.close(1); os.close(2)":
            with self.subTest(closing):
                self.guest = self.start()
                outcome = self.exec(f"import os\n{closing}\n1 / 0")
                self.assertEqual((outcome.error["type"], outcome.error["line"]), ("ZeroDivisionError", 3))
                self.assertEqual(self.exec("exit('bye')")["exit_code"], 1)
                self.assertEqual(self.exec("6 * 7")["result"], "42")

    def test_streams_of_the_programs_own(self):
        for body in (
            "write = lambda s, t: None", "def write(s, t): raise ValueError", "def __getattr__(s, n): return getattr(s.inner, n)",
            "def __getattr__(s, n): raise ValueError", "def flush(s): raise SystemExit(3)", "closed = property(lambda s: 1 / 0)",
        ):
            with self.subTest(body):
                self.guest = self.start()
                self.exec(f"import sys\nclass Stream:\n    {body}\nsys.stdout, kept = Stream(), sys.stdout")
                self.gives("6 * 7", "42")
                self.fails("1 / 0", "ZeroDivisionError")
                self.gives("sys.stdout = kept")
                self.lives()

    def test_captured_output_stays_captured(self):
        self.gives("import sys, io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as f: print('inside')\nf.getvalue()", r"'inside\n'")
        self.gives("sys.stdout = io.StringIO(); print('kept')")
        self.gives("sys.stdout.getvalue()", r"'kept\n'")

    def test_stdin(self):
        self.assertIn("hint", self.fails("input('name? ')", "EOFError"))
        self.gives("import sys, io; sys.stdin = io.StringIO('Ada\\n'); input('name? ')", "'Ada'", "name? ")
        self.gives("sys.stdin.close()")
        self.fails("input()", "ValueError")
        self.lives()

    def test_unterminated_output_is_there(self):
        self.gives("print('no newline', end='')", None, "no newline")
        self.gives("import sys; sys.stderr.write('e'); sys.stdout.write('o'); None", None, "o", "e")
        self.gives("print('ü語🎉')", None, "ü語🎉\n")

    def test_a_low_recursion_limit(self):
        self.exec("import sys; sys.setrecursionlimit(60)")
        outcome = self.exec("1 / 0")
        self.assertEqual(outcome["status"], "done")
        self.exec("sys.setrecursionlimit(1000)")
        self.lives()

    def test_tracing_that_is_left_on(self):
        self.exec("import sys\ndef trace(*a): raise ValueError('traced')\nsys.settrace(trace)")
        self.exec("x = 1")
        self.lives()

    def test_finalizers_that_fail(self):
        outcome = self.exec("class C:\n    def __del__(self): raise ValueError('late')\nC(); x = 1")
        self.assertEqual(outcome["exit_code"], 0)
        self.assertIn("ValueError: late", outcome.stderr)
        self.gives("5", "5")

    def test_requests_that_make_no_sense(self):
        for request in {"op": "nonsense"}, {}, {"op": "exec"}:
            with self.subTest(request):
                with self.assertRaisesRegex(AssertionError, "the driver did not answer"):
                    self.guest.ask(**request)
                self.lives()


class Inspection(Case):
    def variables(self):
        return {v["name"]: (v["type"], v["preview"]) for v in self.guest.ask(op="inspect")["variables"]}

    def test_variables(self):
        self.exec("""
import math
import os.path as p
from collections import Counter, OrderedDict
from json import dumps
_hidden = 1
number, text, data = 42, "abc", {"a": [1, 2]}
def function(a, b=1, *c, d, **e): return 1
class Class: pass
thing = Class()
nothing = None
long_text = "x" * 1000
counted = Counter("aab")
""")
        self.assertEqual(self.variables(), {
            "number": ("int", "42"), "text": ("str", "'abc'"), "data": ("dict", "{'a': [1, 2]}"), "nothing": ("NoneType", "None"),
            "function": ("function", "function(a, b)"), "Class": ("type", "<builtins.type object>"), "thing": ("Class", "<__main__.Class object>"),
            "long_text": ("str", "'" + "x" * 27 + "..." + "x" * 28 + "'"), "counted": ("Counter", "<collections.Counter object>"),
        })
        self.assertEqual(self.guest.ask(op="inspect")["imports"], ["collections", "json", "math", "posixpath"])

    def test_values_of_every_size(self):
        self.exec("""
integer, integers = 10 ** 1000, [10 ** 5000, 10 ** 4000]
numbers, pairs = list(range(1000)), {n: n for n in range(1000)}
some, blob, array = set(range(1000)), bytes(1000), bytearray(1000)
nested = [[[[1]]]]
itself = []
itself.append(itself)
""")
        found = self.variables()
        self.assertEqual(len(found), 9)
        for name, (_, preview) in found.items():
            self.assertLessEqual(len(preview), 120, name)
        self.assertEqual(found["integer"], ("int", "<int of 3322 bits>"))
        self.assertEqual(found["numbers"], ("list", "[0, 1, 2, 3, 4, 5, 6, 7, ...]"))
        self.assertEqual(found["nested"], ("list", "[[[...]]]"))

    def test_large_values_are_not_walked_through(self):
        """An inspection has a second: it neither sorts a table nor writes a file's content out."""
        self.exec("""
import tracemalloc
table, members, blob = dict.fromkeys(range(300_000)), set(range(300_000)), bytes(10_000_000)
tracemalloc.start()""")
        self.guest.ask(op="inspect")
        self.gives("tracemalloc.get_traced_memory()[1] < 1_000_000", "True")

    def test_no_code_of_the_programs_is_run(self):
        self.exec("""
ran = []
class Meta(type):
    def __getattribute__(cls, name): ran.append(name); return type.__getattribute__(cls, name)
    __name__ = property(lambda c: ran.append("name") or "Wrong")
    __eq__ = lambda c, other: ran.append("type eq") or c is other
    __hash__ = lambda c: ran.append("type hash") or 1
class Evil(metaclass=Meta):
    __hash__ = lambda s: ran.append("hash") or 1
    __eq__ = lambda s, o: ran.append("eq") or s is o
    __lt__ = lambda s, o: ran.append("lt") or True
    __repr__ = lambda s: ran.append("repr") or 5
    __len__ = lambda s: ran.append("len") or 5
    __class__ = property(lambda s: ran.append("class") or int)
    def __getattribute__(s, n): ran.append(n); raise ValueError
evil = Evil()
plain, inner, deep = [evil], [[evil]], {"k": {"k": [evil]}}
keys, pair = {evil: 1}, ([evil], {evil})
class L(list):
    __iter__ = __len__ = lambda s: ran.append("list") or 1
sub, subs = L([1]), [L([1])]
ran.clear()
""")
        found = self.variables()
        self.assertEqual(sorted(found), ["Evil", "L", "Meta", "deep", "evil", "inner", "keys", "pair", "plain", "ran", "sub", "subs"])
        self.gives("ran", "[]")

    def test_names_and_modules_that_are_odd(self):
        self.exec("""
import types, sys
nameless, odd = types.ModuleType("a"), types.ModuleType("b")
del nameless.__name__
odd.__name__ = 5
class Mod(types.ModuleType):
    def __getattribute__(self, name): raise ValueError
strange = Mod("m")
globals()[5] = globals()[None] = 1
class C: __module__ = 5
c = C()
class D: __module__ = property(lambda s: 1 / 0)
d = D()
x = 1
""")
        found = self.variables()
        self.assertEqual(found["x"], ("int", "1"))
        self.assertIn("c", found)

    def test_the_number_of_variables_is_bounded(self):
        self.exec("for n in range(1000): globals()[f'v{n}'] = n")
        self.assertEqual(len(self.guest.ask(op="inspect")["variables"]), _paddock_driver.VARIABLES)


if __name__ == "__main__":
    unittest.main(module=sys.modules[__name__])

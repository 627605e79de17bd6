package linux

import (
	"fmt"
	"testing"
)

func TestPythonDoesRealWork(t *testing.T) {
	withPackages(t)
	c := connect(t, "linux")
	runAll(t, c, "python", []program{
		{name: "numpy", code: "import numpy as np\na = np.arange(6).reshape(2, 3)\na @ a.T", result: "array([[ 5, 14],\n       [14, 50]])"},
		{name: "linear algebra", code: "float(np.linalg.inv(np.eye(3) * 2).trace())", result: "1.5"},
		{name: "a frame is shown as HTML and as text", code: "import pandas as pd\ndf = pd.DataFrame({'city': ['Bonn', 'Kiel'], 'n': [3, 4]})\ndf",
			result: "   city  n\n0  Bonn  3\n1  Kiel  4", blocks: "resource text/html"},
		{name: "a frame is made from a file", code: "df.to_csv('a.csv', index=False)\npd.read_csv('a.csv').groupby('city').n.sum().to_dict()",
			result: "{'Bonn': 3, 'Kiel': 4}", files: "a.csv"},
		{name: "a million rows are a preview", code: "big = pd.DataFrame({'x': np.arange(1_000_000)})\nbig", result: "~[1000000 rows x 1 columns]", blocks: "resource text/html"},
		{name: "an error inside of a library", code: "def pick(frame):\n    return frame['zip']\n\npick(df)", exit: 1,
			error: "KeyError: 'zip'", stderr: "~line 2, in pick\n    return frame['zip']\n"},
		{name: "figures are shown without a word and closed", code: "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.figure()\nplt.bar(['a'], [1])\nprint(plt.get_backend())",
			stdout: "agg\n", blocks: "image/png, image/png"},
		{name: "closed figures are not shown again", code: "plt.get_fignums()", result: "[]"},
		{name: "a figure as the last value", code: "fig, ax = plt.subplots()\nax.plot([1, 2])\nfig", result: "<Figure size 640x480 with 1 Axes>", blocks: "image/png"},
		{name: "plt.show", code: "plt.plot([3])\nplt.show()", blocks: "image/png"},
		{name: "a picture of PIL", code: "from PIL import Image\ndisplay(Image.new('RGB', (30, 20), 'red'))", blocks: "image/png"},
		{name: "a chart as what it is made from", code: chart, result: "Chart", blocks: "resource application/vnd.vegalite.v5+json"},
		{name: "marks stand below what they mean", code: "1 + [1, 2][5]", exit: 1, error: "IndexError", stderr: "~    1 + [1, 2][5]\n        ~~~~~~^^^\n"},
		{name: "a display that fails", code: "class Broken:\n    def _repr_html_(self):\n        raise ValueError('no page')\n\nBroken()", exit: 1, error: "ValueError: no page"},
		{name: "await at the top level", code: "import asyncio\nasync def twice(n):\n    await asyncio.sleep(0.01)\n    return 2 * n\nawait asyncio.gather(*[twice(n) for n in range(3)])",
			result: "[0, 2, 4]"},
		{name: "input", code: "input('name? ')", stdout: "name? ", exit: 1, error: "EOFError", hint: "no standard input"},
		{name: "threads", code: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n    print(sum(pool.map(len, ['a', 'bb', 'ccc'])))", stdout: "6\n"},
		{name: "processes", code: "import multiprocessing\ndef square(n):\n    return n * n\nwith multiprocessing.Pool(2) as pool:\n    print(pool.map(square, range(4)))", stdout: "[0, 1, 4, 9]\n"},
		{name: "programs", code: "import subprocess\nsubprocess.run('echo out; echo err >&2; exit 3', shell=True).returncode", stdout: "out\n", stderr: "err\n", result: "3"},
		{name: "no network", code: "import urllib.request\nurllib.request.urlopen('http://example.com', timeout=5)", exit: 1, error: "URLError", hint: "no network"},
		{name: "a server of its own", code: "import http.server, threading\ns = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\nthreading.Thread(target=s.serve_forever, daemon=True).start()\nprint(urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/a.csv').read(4))\ns.shutdown()",
			stdout: "b'city'\n", stderr: "~GET /a.csv"},
		{name: "a module that is not there", code: "import plotly", exit: 1, error: "ModuleNotFoundError", hint: "not installed in this image"},
		{name: "a module of the workspace", code: "open('mine.py', 'w').write('x = 5')\nimport mine\nmine.x", result: "5", files: "mine.py"},
		{name: "exit", code: "import sys\nsys.exit(3)", exit: 3},
		{name: "state is there after all of it", code: "len(big), df.n.max(), sys.argv", result: "(1000000, 4, [''])"},
	})
}

// chart is a module's class with the protocol of altair's and plotly's charts,
// which are not in the image.
const chart = `class Chart:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'application/vnd.vegalite.v5+json': {'mark': 'bar'}, 'text/plain': 'Chart'}
    def __repr__(self):
        return 'Chart'

Chart()`

func TestLargeValuesBecomeFiles(t *testing.T) {
	withPackages(t)
	c := connect(t, "linux")
	runAll(t, c, "python", []program{
		{name: "a text", code: "'ä' * 1_000_000", result: fmt.Sprintf("~ää'… (%d more characters)", 1_000_000-100), files: ".paddock/1-1.txt"},
		{name: "a text beyond all files", code: "'x' * 100_000_000", result: fmt.Sprintf("~xx'… (%d more characters)", 100_000_000-1000)},
		{name: "a picture of 30 MB", code: "import numpy as np\nfrom PIL import Image\nImage.fromarray(np.random.default_rng(1).integers(0, 255, (3200, 3200, 3), dtype='uint8'))",
			result: "~size=3200x3200", blocks: "image/png", files: ".paddock/3-1.png"},
		{name: "a picture beyond all files", code: "Image.fromarray(np.random.default_rng(1).integers(0, 255, (3600, 3600, 3), dtype='uint8'))",
			result: "~size=3600x3600", stderr: "~over the limit of 33554432 and is not shown; write it to a file"},
		{name: "output", code: "for n in range(20_000): print('line', n)", stdout: "~all of it is in .paddock/5-stdout.txt", files: ".paddock/5-stdout.txt"},
		{name: "a frame with all of its rows", code: "import pandas as pd\npd.options.display.max_rows = None\ndisplay(pd.DataFrame({'n': range(5000)}))", files: ".paddock/6-1.html"},
		{name: "what became files can be read", code: "import os\n[os.path.getsize('/workspace/.paddock/' + f) for f in ('1-1.txt', '5-stdout.txt')], Image.open('.paddock/3-1.png').size",
			result: "([2000000, 208890], (3200, 3200))"},
	})
}

// OpenBLAS waits for ever when it cannot reserve what it wants, and nothing stops it.
func TestNumpyAndMatplotlibWorkInLittleMemory(t *testing.T) {
	withPackages(t)
	c := connect(t, "linux")
	var made struct {
		ID string `json:"session_id"`
	}
	c.call(t, "create_session", map[string]any{"language": "python", "memory_mb": 256}, &made)
	for _, code := range []string{
		"import numpy as np\nimport matplotlib.pyplot as plt\nimport pandas as pd",
		"plt.plot(np.linalg.inv(np.eye(50) * 3).sum(axis=0))",
		"a = np.random.default_rng(1).random((400, 400))\n(a @ a).shape",
	} {
		if r := c.run(t, "python", code, "session_id", made.ID); !r.Success {
			t.Fatalf("%q: %+v", code, r.Execution)
		}
	}
	r := c.run(t, "python", "parts = []\nwhile True: parts.append(bytearray(1 << 20))", "session_id", made.ID)
	switch {
	case r.StoppedBy != "memory":
		t.Errorf(`what takes all memory: r.StoppedBy = %q, want "memory"`, r.StoppedBy)
	case r.State == "":
		t.Errorf("r.State is empty, want a text; what takes all memory: stopped by %q, state %q, %d MiB",
			r.StoppedBy, r.State, r.Usage.MemoryBytes>>20)
	case r.Usage.MemoryBytes > 320<<20:
		t.Errorf("r.Usage.MemoryBytes = %v, want at most %v; what takes all memory: stopped by %q, state %q, %d MiB",
			r.Usage.MemoryBytes, 320<<20, r.StoppedBy, r.State, r.Usage.MemoryBytes>>20)
	}
	if r := c.run(t, "python", "1 + 1", "session_id", made.ID); r.Result != "2" {
		t.Errorf("and then: %+v", r.Execution)
	}
}

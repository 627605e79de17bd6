"""Values as text, and things to look at."""
import base64
import io
import itertools
import json
import reprlib
import sys
import types

import _paddock

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

RESULT_LIMIT = 16 << 10
PREVIEW_LIMIT = 120
DISPLAY_LIMIT = 32 << 20
BEGINNING = 1000       # characters of a text that is too long for a result

FORMATS = (
    ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"),
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"),
)
PICTURES = ("image/png", "image/jpeg")
CHARTS = (  # the module that makes them, the method that gives what they are made from, its type
    ("plotly.", "to_json", "application/vnd.plotly.v1+json"),
    ("altair.", "to_json", "application/vnd.vegalite.v{}+json"),
)
VEGALITE = "/vega-lite/v"  # in the address of its schema, and its version after it
LARGE = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
PLAIN = (type(None), bool, int, float, complex) + LARGE

_call = _paddock.call
_b64decode, _NoBase64 = base64.b64decode, base64.binascii.Error
_dumps = json.dumps
_modules = sys.modules
_FunctionType = types.FunctionType
_islice = itertools.islice
_BytesIO = io.BytesIO

# A class's own names, whatever its metaclass says.
name_of, _qualname_of, module_of = (type.__dict__[name].__get__ for name in ("__name__", "__qualname__", "__module__"))


class _Bounded(reprlib.Repr):
    """Looks at no more of a value than it shows, and shows it in its own order."""

    def repr_dict(self, x, level):
        if level <= 0 and x:
            return "{...}"
        pieces = [f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}" for k, v in _islice(x.items(), self.maxdict)]
        return "{" + ", ".join(pieces + ["..."] * (len(x) > self.maxdict)) + "}"

    def repr_set(self, x, level):
        return self._repr_iterable(x, level, "{", "}", self.maxset) if x else "set()"

    def repr_frozenset(self, x, level):
        return self._repr_iterable(x, level, "frozenset({", "})", self.maxset) if x else "frozenset()"

    def repr_bytes(self, x, level):
        return repr(x) if len(x) <= self.maxstring else repr(x[:self.maxstring]) + "..."

    repr_bytearray = repr_bytes

    def repr_int(self, x, level):
        bits = x.bit_length()
        try:
            return repr(x) if bits < 4 * self.maxlong else f"<int of {bits} bits>"
        except ValueError:  # Python's own limit
            return f"<int of {bits} bits>"


class _Preview(_Bounded):
    """Runs no code of the program's."""

    def repr1(self, x, level):
        return super().repr1(x, level) if _plain(x) else _about(x)


def _limited(shown, level, items, pairs, text):
    shown.maxlevel, shown.maxdict = level, pairs  # older ones take no arguments
    shown.maxlist = shown.maxtuple = shown.maxset = items
    shown.maxstring = shown.maxother = shown.maxlong = text
    return shown


_short = _limited(_Bounded(), 4, 200, 200, RESULT_LIMIT // 2)
_tiny = _limited(_Preview(), 2, 8, 6, 60)


def result_of(value):
    """A value's repr, bounded, whatever the value does."""
    try:
        if isinstance(value, LARGE) and len(value) > 10_000 or isinstance(value, int) and value.bit_length() > 10_000:
            text = _short.repr(value)
        else:
            text = repr(value)
        text = str.__str__(text)  # it may be of a class of the program's
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        text = f"<repr failed: {name_of(type(error))}>"
    if len(text) > RESULT_LIMIT:
        text = f"{text[:RESULT_LIMIT]}… ({len(text) - RESULT_LIMIT} more characters)"
    return text


def text_of(value):
    """A text that is too long for a result goes whole, as a document, where it can; this
    gives what is said of it. None: value is no such text."""
    if type(value) is not str or len(value) <= RESULT_LIMIT:
        return None
    whole = len(value) <= DISPLAY_LIMIT
    if whole:
        send("text/plain", value)
    shown = BEGINNING // 10 if whole else BEGINNING
    return f"{value[:shown]!r}… ({len(value) - shown} more characters)"


def cut(text, limit):
    """The beginning of a text, of at most limit characters. It may be of a class of the program's."""
    return str.__getitem__(text, slice(limit - 1)) + "…" if str.__len__(text) > limit else text


def preview_of(value):
    """A few words about a value. No code of the program's is run for it."""
    try:
        return _tiny.repr(value)[:PREVIEW_LIMIT]
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:
        return "…"


def _plain(value):
    kind = type(value)
    return any(kind is k for k in PLAIN)  # "in" might ask the metaclass


def _about(value):
    kind = type(value)
    if kind is _FunctionType:
        code = value.__code__
        return f"{value.__name__}({', '.join(code.co_varnames[:code.co_argcount])})"
    module = module_of(kind)
    return f"<{module + '.' if type(module) is str else ''}{_qualname_of(kind)} object>"


def send(mime, data):
    if isinstance(data, str) and len(data) <= DISPLAY_LIMIT:
        data = data.encode("utf-8", "replace")
    if len(data) > DISPLAY_LIMIT:
        print(f"(a display of {len(data)} bytes is over the limit of {DISPLAY_LIMIT} and is not shown; write it to a file)", file=sys.stderr)
        return
    answer = _call(b'{"op":"display","mime":"' + mime.encode() + b'"}\n' + bytes(data))
    if b'"error"' in answer:
        print("(a display is not shown: the displays of one call are over their limit)", file=sys.stderr)


def version_of(chart):
    """The version of the language that a chart of altair's is written in."""
    version = chart.partition(VEGALITE)[2].partition(".")[0]
    return version if version.isdigit() and len(version) < 4 else "5"


def show(value):
    """Sends the best picture or document that value offers, and a chart as what it is made
    from; tells whether it offers one."""
    kind = type(value)
    module = module_of(kind)
    for prefix, method, mime in CHARTS:
        if type(module) is str and module.startswith(prefix) and hasattr(kind, method):
            made_from = getattr(value, method)()
            send(mime.format(version_of(made_from)) if "{" in mime else mime, made_from)
            return True
    method = getattr(kind, "_repr_mimebundle_", None)
    best = None if method is None else _bundled(value, method)
    if best is not None and _sent(kind, *best):
        return True
    for name, mime in FORMATS:
        method = getattr(kind, name, None)
        if method is None:
            continue
        data = method(value)
        if isinstance(data, tuple):
            data = data[0]
        if data and _sent(kind, mime, data):
            return True
    return False


def _sent(kind, mime, data):
    """Sends what a value offers; false where a picture's text is no base64, so that another
    form is tried. What the value's own method raises is the program's error."""
    try:
        data = _bytes_of(mime, data)
    except _NoBase64 as error:
        print(f"({name_of(kind)} cannot be shown as {mime}: {error})", file=sys.stderr)
        return False
    send(mime, data)
    return True


def _bytes_of(mime, data):
    if isinstance(data, str) and mime in PICTURES:
        return _b64decode(data)
    return data if isinstance(data, (str, bytes, bytearray)) else _dumps(data)


def _bundled(value, method):
    """The best of what an object offers in several forms at once: pictures, then a
    chart as what it is made from, then documents. None: nothing of these."""
    bundle = method(value)
    if isinstance(bundle, tuple):
        bundle = bundle[0]
    if not isinstance(bundle, dict):
        return None
    charts = [mime for mime in bundle if isinstance(mime, str) and mime.startswith("application/vnd.") and mime.endswith("json")]
    for mime in [*PICTURES, *charts, *(mime for _, mime in FORMATS)]:
        if bundle.get(mime):
            return mime, bundle[mime]
    return None


def display(*values):
    """Shows values: pictures and documents as such, everything else as text."""
    for value in values:
        if not show(value):
            print(result_of(value))


class Shows:
    """Has the show() of charts show them: of themselves they know notebooks and browsers.
    It stands before the other finders of modules."""

    def find_spec(self, name, path=None, target=None):
        made_by = "BaseFigure" if name == "plotly.basedatatypes" else "TopLevelMixin"
        if name != "plotly.basedatatypes" and not (name.startswith("altair.vegalite.v") and name.endswith(".api")):
            return None
        spec = next(filter(None, (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            kind = getattr(module, made_by, None)
            if kind is not None:
                kind.show = lambda chart, *args, **options: show(chart) and None

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Shows())


def show_figures():
    """Shows the figures that matplotlib holds open, and closes them."""
    pyplot = _modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    for number in pyplot.get_fignums():
        picture = _BytesIO()
        pyplot.figure(number).savefig(picture, format="png")
        send("image/png", picture.getvalue())
    pyplot.close("all")

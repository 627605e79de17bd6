"""Values as text, and things to look at."""
import base64
import reprlib
import sys
import types

import _paddock

RESULT_LIMIT = 16 << 10
PREVIEW_LIMIT = 120
DISPLAY_LIMIT = 8 << 20

FORMATS = (
    ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_svg_", "image/svg+xml"),
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"),
)
LARGE = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
PLAIN = (type(None), bool, int, float, complex) + LARGE

_call = _paddock.call
_b64decode = base64.b64decode

_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxtuple, _short.maxdict, _short.maxset = 4, 200, 200, 200, 200
_short.maxstring = _short.maxother = _short.maxlong = RESULT_LIMIT // 2

_tiny = reprlib.Repr()
_tiny.maxlevel, _tiny.maxlist, _tiny.maxtuple, _tiny.maxdict, _tiny.maxset = 2, 8, 8, 6, 8
_tiny.maxstring = _tiny.maxother = _tiny.maxlong = 60


def result_of(value):
    """A value's repr, bounded, whatever the value does."""
    try:
        if isinstance(value, LARGE) and len(value) > 10_000 or isinstance(value, int) and value.bit_length() > 10_000:
            text = _short.repr(value)
        else:
            text = repr(value)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        text = f"<repr failed: {type(error).__name__}>"
    if len(text) > RESULT_LIMIT:
        text = f"{text[:RESULT_LIMIT]}… ({len(text) - RESULT_LIMIT} more characters)"
    return text


def preview_of(value):
    """A few words about a value. No code of the program's is run for it."""
    if type(value) in PLAIN:
        if type(value) is int and value.bit_length() > 400:
            return f"<int of {value.bit_length()} bits>"
        if all(type(v) in PLAIN for v in _some(value)):
            return _tiny.repr(value)[:PREVIEW_LIMIT]
        return f"<{type(value).__name__} of {len(value)}>"
    if isinstance(value, types.FunctionType):
        code = value.__code__
        return f"{value.__name__}({', '.join(code.co_varnames[:code.co_argcount])})"[:PREVIEW_LIMIT]
    kind = type(value)
    return f"<{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')} object>"[:PREVIEW_LIMIT]


def _some(value):
    if type(value) is dict:
        for n, (k, v) in enumerate(value.items()):
            if n == 8:
                return
            yield k
            yield v
    elif type(value) in (list, tuple, set, frozenset):
        for n, v in enumerate(value):
            if n == 8:
                return
            yield v


def send(mime, data):
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    if len(data) > DISPLAY_LIMIT:
        print(f"(a display of {len(data)} bytes is over the limit of {DISPLAY_LIMIT} and is not shown)", file=sys.stderr)
        return
    answer = _call(b'{"op":"display","mime":"' + mime.encode() + b'"}\n' + bytes(data))
    if b'"error"' in answer:
        print("(a display is not shown: the displays of one call are over their limit)", file=sys.stderr)


def show(value):
    """Sends the best picture or document that value offers; tells whether it offers one."""
    kind = type(value)
    for name, mime in FORMATS:
        method = getattr(kind, name, None)
        if method is None:
            continue
        data = method(value)
        if isinstance(data, tuple):
            data = data[0]
        if isinstance(data, str) and mime in ("image/png", "image/jpeg"):
            data = _b64decode(data)
        if data:
            send(mime, data)
            return True
    return False


def display(*values):
    """Shows values: pictures and documents as such, everything else as text."""
    for value in values:
        if not show(value):
            print(result_of(value))


def show_figures():
    """Shows the figures that matplotlib holds open, and closes them."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    import io
    for number in pyplot.get_fignums():
        picture = io.BytesIO()
        pyplot.figure(number).savefig(picture, format="png")
        send("image/png", picture.getvalue())
    pyplot.close("all")

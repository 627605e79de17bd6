"""Pictures as the documents need them: what kind and how large one is, and the pixels
of a PNG. Where Pillow is installed, openpyxl and reportlab use that; where it is not,
they get this module for it, which has as much of Pillow's Image as they call."""
import io
import os
import struct
import zlib

VERSION = "paddock"
PIXELS = 50_000_000  # that a PNG may have where they are needed


class UnidentifiedImageError(OSError):
    pass


def open(source):
    """Reads a picture: a path, bytes, an open file or what this gave before."""
    if isinstance(source, Image):
        return source
    if isinstance(source, (bytes, bytearray)):
        data = bytes(source)
    elif hasattr(source, "read"):
        data = source.read()
    else:
        with io.open(os.fspath(source), "rb") as f:
            data = f.read()
    for read in _png, _jpeg, _gif:
        try:
            found = read(data)
        except (IndexError, struct.error):
            found = None
        if found:
            return found
    raise UnidentifiedImageError("this is no PNG, JPEG or GIF")


class Image:
    def __init__(self, format, mode, size, data=b"", dpi=None, header=()):
        self.format, self.mode, self.size, self.data, self.header = format, mode, size, data, header
        self.fp = io.BytesIO(data)
        self.info = {"dpi": dpi} if dpi else {}
        self.palette = None
        self._pixels = None

    width = property(lambda self: self.size[0])
    height = property(lambda self: self.size[1])

    def emu(self):
        """How large it is on paper, in EMU."""
        x, y = self.info.get("dpi") or (96, 96)
        return round(self.width * 914400 / x), round(self.height * 914400 / y)

    def close(self):
        pass

    def load(self):
        return self

    def tobytes(self):
        if self._pixels is None:
            if self.format != "PNG":
                raise NotImplementedError(f"the pixels of a {self.format} cannot be read here without Pillow; a PNG's can")
            self.mode, self._pixels = _decode(self)
        return self._pixels

    def convert(self, mode):
        pixels = self.tobytes()
        if mode == self.mode:
            return self
        count = self.width * self.height
        bands = _split(pixels, len(self.mode))
        if self.mode == "P":
            raise NotImplementedError("a palette is resolved when it is read")
        gray, alpha = self.mode[0] == "L", bands[-1] if self.mode[-1] == "A" else b"\xff" * count
        colors = [bands[0]] * 3 if gray else bands[:3]
        wanted = {"RGB": colors, "RGBA": [*colors, alpha], "LA": [colors[0], alpha], "L": [colors[0]]}.get(mode)
        if wanted is None or mode[0] == "L" and not gray:
            raise NotImplementedError(f"{self.mode} to {mode} needs Pillow")
        return _made(mode, self.size, _join(wanted))

    def split(self):
        return [_made("L", self.size, band) for band in _split(self.tobytes(), len(self.mode))]


def _made(mode, size, pixels):
    image = Image("PNG", mode, size)
    image._pixels = pixels
    return image


def _split(pixels, count):
    return [pixels[k::count] for k in range(count)]


def _join(bands):
    joined = bytearray(len(bands) * len(bands[0]))
    for k, band in enumerate(bands):
        joined[k::len(bands)] = band
    return bytes(joined)


def _png(data):
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    dpi, at, palette, alpha = None, 8, b"", b""
    while at + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + length]
        if kind == b"pHYs" and chunk[8:] == b"\x01":
            dpi = tuple(n * 0.0254 for n in struct.unpack(">II", chunk[:8]))
        elif kind == b"PLTE":
            palette = chunk
        elif kind == b"tRNS":
            alpha = chunk
        elif kind == b"IDAT":
            break
        at += 12 + length
    mode = {0: "L", 2: "RGB", 3: "RGBA" if alpha else "RGB", 4: "LA", 6: "RGBA"}.get(color)
    if mode is None or not width or not height:
        return None
    return Image("PNG", mode, (width, height), data, dpi if dpi and all(dpi) else None, (depth, color, interlaced, palette, alpha))


def _jpeg(data):
    if data[:3] != b"\xff\xd8\xff":
        return None
    at, dpi = 2, None
    while True:
        while data[at] == 0xff:
            at += 1
        kind = data[at]
        if 0xd0 <= kind <= 0xd9 or kind == 1:
            at += 1
            continue
        length, = struct.unpack(">H", data[at + 1:at + 3])
        if kind == 0xe0 and data[at + 3:at + 8] == b"JFIF\0":
            unit, x, y = struct.unpack(">BHH", data[at + 10:at + 15])
            if unit in (1, 2) and x and y:
                dpi = (x, y) if unit == 1 else (x * 2.54, y * 2.54)
        if 0xc0 <= kind <= 0xcf and kind not in (0xc4, 0xc8, 0xcc):
            height, width, bands = struct.unpack(">HHB", data[at + 4:at + 9])
            return Image("JPEG", {1: "L", 3: "RGB", 4: "CMYK"}.get(bands, "RGB"), (width, height), data, dpi) if width and height else None
        at += 1 + length


def _gif(data):
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    size = struct.unpack("<HH", data[6:10])
    return Image("GIF", "P", size, data) if all(size) else None


def _decode(image):
    """The pixels of a PNG, in 8 bits a band."""
    depth, color, interlaced, palette, alpha = image.header
    if interlaced:
        raise NotImplementedError("an interlaced PNG cannot be read here without Pillow; save it without")
    width, height = image.size
    if width * height > PIXELS:
        raise ValueError(f"the picture has more than {PIXELS:,} pixels")
    bands = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    line = (width * bands * depth + 7) // 8
    packed, at = [], 8
    while at + 12 <= len(image.data):
        length, kind = struct.unpack(">I4s", image.data[at:at + 8])
        if kind == b"IDAT":
            packed.append(image.data[at + 8:at + 8 + length])
        at += 12 + length
    try:
        raw = zlib.decompressobj().decompress(b"".join(packed), (line + 1) * height)
    except zlib.error as error:
        raise ValueError(f"the picture is damaged: {error}") from None
    if len(raw) < (line + 1) * height:
        raise ValueError("the picture is cut off")
    rows, above = [], bytes(line)
    for k in range(height):
        begin = k * (line + 1)
        above = _unfilter(raw[begin], bytearray(raw[begin + 1:begin + 1 + line]), above, max(1, bands * depth // 8))
        rows.append(above if depth == 8 else _eight(above, depth, width * bands, color != 3))
    pixels = b"".join(rows)
    if color != 3:
        return image.mode, pixels
    tables = [bytes(palette[k::3]).ljust(256, b"\0") for k in range(3)]
    if alpha:
        tables.append(bytes(alpha).ljust(256, b"\xff"))
    return image.mode, _join([pixels.translate(table) for table in tables])


def _unfilter(kind, row, above, step):
    if kind == 1:
        for k in range(step, len(row)):
            row[k] = row[k] + row[k - step] & 255
    elif kind == 2:
        return bytearray(a + b & 255 for a, b in zip(row, above))
    elif kind == 3:
        for k in range(len(row)):
            row[k] = row[k] + ((row[k - step] if k >= step else 0) + above[k] >> 1) & 255
    elif kind == 4:
        for k in range(len(row)):
            a, b, c = (row[k - step], above[k], above[k - step]) if k >= step else (0, above[k], 0)
            pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - c - c)
            row[k] = row[k] + (a if pa <= pb and pa <= pc else b if pb <= pc else c) & 255
    elif kind:
        raise ValueError("the picture is damaged")
    return row


def _eight(row, depth, count, scale):
    """A row of 1, 2, 4 or 16 bits a band in 8."""
    if depth == 16:
        return row[::2]
    most = (1 << depth) - 1
    values = (byte >> shift & most for byte in row for shift in range(8 - depth, -1, -depth))
    return bytes(v * 255 // most if scale else v for v, _ in zip(values, range(count)))


def lend():
    """Has what is imported meanwhile find this module as PIL.Image, where Pillow is not
    installed: with lend(): import reportlab.lib.utils."""
    return _Lent()


class _Lent:
    def __enter__(self):
        import importlib.util
        import sys
        self.names = {}
        if "PIL" in sys.modules or importlib.util.find_spec("PIL") is not None:
            return
        import types
        pillow = types.ModuleType("PIL")
        pillow.__path__ = []
        pillow.Image = sys.modules[__name__]
        self.names = {"PIL": pillow, "PIL.Image": pillow.Image}
        sys.modules.update(self.names)

    def __exit__(self, *_):
        import sys
        for name in self.names:
            sys.modules.pop(name, None)

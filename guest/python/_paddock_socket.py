"""Sockets for a guest that has none: streams of the host's.

A stream leads to a host that the session may reach, by TCP; what goes over it has to be
HTTP, for it ends at the session's door (guest/README.md, messages "net.…"). This module
puts what CPython's own module `socket` needs into `_socket` and `select`, and must be
imported before those are used.

Where a stream is belongs to the guest's memory: how many bytes it has sent and taken.
The host is told with every message, so that one whose answer got lost is made again, and
a guest that was brought back to an earlier state learns that its streams were reset.
"""
import _socket
import errno
import json
import select as _select

import _paddock

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_call, _scan, _dumps = _paddock.call, json.JSONDecoder().scan_once, json.JSONEncoder(separators=(",", ":")).encode
_gaierror = _socket.gaierror
_default_timeout = _socket.getdefaulttimeout
_packed, _unpacked = _socket.inet_pton, _socket.inet_ntop
_os_close = _socket.close
AF_UNSPEC, AF_INET, AF_INET6, SOCK_STREAM, IPPROTO_TCP = 0, _socket.AF_INET, _socket.AF_INET6, _socket.SOCK_STREAM, _socket.IPPROTO_TCP

FIRST = 1_000_000   # file descriptors from here on are streams
AT_ONCE = 512 << 10  # bytes that one message takes, or gives where there are so many
NOBODY = {"error": {"kind": "no_network", "message": "this session has no network"}}
NOTHING = memoryview(b"")

_names = {}     # made-up addresses: the names for which they stand
_open = {}      # file descriptors: what is connected, or will be
_last = FIRST


# ── messages to the host ────────────────────────────────────────────────────

def message(op, payload=b"", **fields):
    """The body of a call of the host's."""
    return _line(op, fields) + (b"\n" + payload if payload else b"")


def _line(op, fields):
    return _dumps({"op": op, **fields}).encode()


def ask(op, payload=b"", **fields):
    """Asks the host and waits; raises what an error stands for."""
    return value_of(said(_call(b'{"op":"call"}\n' + message(op, payload, **fields))))


def said(answer):
    """What the host says: a line of JSON, whose value gets the bytes that lie behind it."""
    if not answer:
        return NOBODY
    end = answer.find(b"\n")
    if end < 0:
        return _scan(answer.decode(), 0)[0]
    line = _scan(answer[:end].decode(), 0)[0]
    line["value"]["bytes"] = memoryview(answer)[end + 1:]
    return line


def value_of(answer):
    """What the host answers with; raises what an error stands for."""
    failed = answer.get("error")
    if failed:
        raise error_of(failed.get("kind"), failed.get("message") or "")
    return answer.get("value")


def error_of(kind, text):
    """The error that says to programs what the host says."""
    if kind == "timeout":
        return TimeoutError("timed out")
    if kind in ("certificate", "tls"):
        return _ssl_error(kind, text)
    if kind == "unknown":
        return _gaierror(_socket.EAI_NONAME, f"Name or service not known: {text}" if text else "Name or service not known")
    number, usual = _ERRORS.get(kind, (errno.EHOSTUNREACH, "No route to host"))
    return OSError(number, f"{usual}: {text}" if text else usual)


_ERRORS = {
    "denied": (errno.EACCES, "Permission denied"),
    "no_network": (errno.ENETUNREACH, "Network is unreachable"),
    "refused": (errno.ECONNREFUSED, "Connection refused"),
    "exhausted": (errno.ENOBUFS, "No buffer space available"),
    "reset": (errno.ECONNRESET, "Connection reset by peer"),
    "closed": (errno.EPIPE, "Broken pipe"),
    "invalid": (errno.EINVAL, "Invalid argument"),
}


def _ssl_error(kind, text):
    import ssl

    if kind == "certificate":
        error = ssl.SSLCertVerificationError(1, f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {text}")
        error.reason, error.verify_code, error.verify_message = "CERTIFICATE_VERIFY_FAILED", 1, text
    else:
        error = ssl.SSLError(1, f"[SSL: WRONG_VERSION_NUMBER] {text}")
        error.reason = "WRONG_VERSION_NUMBER"
    error.library = "SSL"
    return error


# ── streams ─────────────────────────────────────────────────────────────────

class Stream:
    """One connection: where it is, and what was taken from it ahead."""

    def __init__(self, number, host, port):
        self.number, self.host, self.port = number, host, port
        self.sent = self.taken = 0
        self.ahead = NOTHING
        self.ended = self.shut = False
        self.tls = False

    def read_message(self, timeout):
        return message("net.read", stream=self.number, at=self.taken, max=AT_ONCE, timeout=timeout)

    def arrived(self, value):
        """Takes what the host gave to a read."""
        piece = value["bytes"]
        self.taken += len(piece)
        self.put(piece)
        self.ended = not piece

    def put(self, piece):
        """Puts something behind what was taken ahead."""
        self.ahead = memoryview(bytes(self.ahead) + piece if self.ahead else piece)

    def drop(self, n):
        """Takes the first bytes off what was taken ahead."""
        self.ahead = self.ahead[n:] if n < len(self.ahead) else NOTHING

    def fill(self, timeout):
        """Waits until there is something to read, or the end."""
        if not self.ahead and not self.ended:
            answer = _call(b'{"op":"call"}\n' + self.read_message(timeout))
            try:
                self.arrived(value_of(said(answer)))
            except BrokenPipeError as error:
                raise ConnectionResetError(errno.ECONNRESET, error.strerror) from None

    def read_into(self, buffer, timeout):
        self.fill(timeout)
        n = min(len(buffer), len(self.ahead))
        buffer[:n] = self.ahead[:n]
        self.drop(n)
        return n

    def write_message(self, piece):
        return message("net.write", piece, stream=self.number, at=self.sent)

    def write(self, piece, timeout):
        """Sends the beginning of piece, and tells how much that is."""
        if self.shut:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        piece = bytes(piece[:AT_ONCE])
        n = ask("net.write", piece, stream=self.number, at=self.sent, timeout=timeout)["written"]
        self.sent += n
        return n

    def greet(self, host):
        """Has the host speak TLS to the other side."""
        ask("net.tls", stream=self.number, host=host or "")
        self.tls = True

    def end(self):
        self.shut = True
        ask("net.shut", stream=self.number)

    def close(self):
        try:
            ask("net.close", stream=self.number)
        except OSError:
            pass  # it is not there any more


# A program that has no part of its own in TLS, but bytes that it would send (wrap_bio),
# says in these bytes that TLS shall be spoken; what comes back says what came of it.
# They are what nothing that is allowed begins with.
GREETING = b"\x16paddock-tls "


def greeting(host):
    return GREETING + _line("greet", {"host": host or ""}) + b"\n"


def greeted(error=None):
    """The answer to a greeting: kind and text of an error, if there is one."""
    return GREETING + _dumps({"error": error}).encode() + b"\n"


def greeting_in(data):
    """What a greeting says, and how many bytes it has; (None, 0) for anything else or
    for one that is not whole."""
    if not data.startswith(GREETING):
        return None, 0
    at = data.find(b"\n")
    return (_scan(bytes(data[len(GREETING):at]).decode(), 0)[0], at + 1) if at > 0 else (None, 0)


def answer_to(greet, *args):
    """Does what a greeting wants, and gives the answer to it."""
    import ssl

    try:
        greet(*args)
    except ssl.SSLCertVerificationError as error:
        return greeted(["certificate", error.verify_message])
    except ssl.SSLError as error:
        return greeted(["tls", str(error)])
    except OSError as error:
        return greeted(["tls", error.strerror or str(error)])
    return greeted()


# ── sockets ─────────────────────────────────────────────────────────────────

def _no_servers(*_):
    raise OSError(errno.EOPNOTSUPP, "a program in this sandbox cannot be connected to: it has no ports")


class socket:
    """What CPython's socket.socket is made of here: TCP, to hosts that may be reached."""

    __slots__ = ("_family", "_type", "_proto", "_fd", "_timeout", "_options")
    family, type, proto = property(lambda self: self._family), property(lambda self: self._type), property(lambda self: self._proto)

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        global _last
        self._fd = -1
        self._family = AF_INET if family == -1 else int(family)
        self._type = SOCK_STREAM if type == -1 else int(type)
        self._proto = 0 if proto == -1 else int(proto)
        self._timeout, self._options = _default_timeout(), {}
        if fileno is not None:
            if not isinstance(fileno, int):
                raise TypeError("an integer is required")
            if fileno not in _open:
                raise OSError(errno.EBADF, "Bad file descriptor")
            self._fd = fileno
            return
        if self._type != SOCK_STREAM or self._family not in (AF_INET, AF_INET6):
            raise OSError(errno.EPROTONOSUPPORT, "there are only TCP connections to hosts that may be reached")
        _last += 1
        self._fd = _last
        _open[_last] = None

    def __del__(self):
        try:
            self.close()
        except BaseException:
            pass  # the interpreter ends, or the host has gone

    @property
    def timeout(self):
        return self._timeout

    @property
    def _stream(self):
        if self._fd == -1:
            raise OSError(errno.EBADF, "Bad file descriptor")
        stream = _open.get(self._fd)
        if stream is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return stream

    def fileno(self):
        return self._fd

    def detach(self):
        fd, self._fd = self._fd, -1
        return fd

    def close(self):
        fd = self.detach()
        if fd != -1:
            close(fd)

    def connect(self, address):
        if self._fd == -1:
            raise OSError(errno.EBADF, "Bad file descriptor")
        if _open.get(self._fd) is not None:
            raise OSError(errno.EISCONN, "Transport endpoint is already connected")
        host, port = address_of(address)
        value = ask("net.open", host=host, port=port, timeout=self._timeout or None)
        _open[self._fd] = Stream(value["stream"], host, port)

    def connect_ex(self, address):
        try:
            self.connect(address)
        except _gaierror:
            raise
        except OSError as error:
            return error.errno or errno.ETIMEDOUT
        return 0

    def send(self, data, flags=0):
        stream, view = self._stream, memoryview(data).cast("B")
        if not len(view):
            return 0
        if not stream.sent and not stream.tls:
            asked, n = greeting_in(bytes(view[:512]))
            if n:
                stream.put(answer_to(stream.greet, asked["host"]))
                return n
        try:
            return stream.write(view, self._timeout)
        except TimeoutError:
            self._would_block()
            raise

    def sendall(self, data, flags=0):
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self.send(view):]

    def sendto(self, data, *args):
        return self.send(data)

    def recv(self, n, flags=0):
        if n < 0:
            raise ValueError("negative buffersize in recv")
        stream = self._stream
        if n:
            self._fill(stream)
        data = bytes(stream.ahead[:n])
        if not flags & _socket.MSG_PEEK:
            stream.drop(len(data))
        return data

    def recv_into(self, buffer, nbytes=0, flags=0):
        stream, view = self._stream, memoryview(buffer).cast("B")
        if nbytes:
            view = view[:nbytes]
        if not len(view):
            return 0
        self._fill(stream)
        n = min(len(view), len(stream.ahead))
        view[:n] = stream.ahead[:n]
        if not flags & _socket.MSG_PEEK:
            stream.drop(n)
        return n

    def _fill(self, stream):
        try:
            stream.fill(self._timeout)
        except TimeoutError:
            self._would_block()
            raise

    def _would_block(self):
        if self._timeout == 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable") from None

    def recvfrom(self, n, flags=0):
        return self.recv(n, flags), self.getpeername()

    def recvfrom_into(self, buffer, nbytes=0, flags=0):
        return self.recv_into(buffer, nbytes, flags), self.getpeername()

    def shutdown(self, how):
        stream = self._stream
        if how in (_socket.SHUT_WR, _socket.SHUT_RDWR):
            stream.end()
        if how in (_socket.SHUT_RD, _socket.SHUT_RDWR):
            stream.ended = True
            stream.ahead = NOTHING

    def getpeername(self):
        return _sockaddr(self._stream.host, self._stream.port)

    def getsockname(self):
        return ("0.0.0.0", 0) if self._family == AF_INET else ("::", 0, 0, 0)

    def settimeout(self, timeout):
        if timeout is not None and timeout < 0:
            raise ValueError("Timeout value out of range")
        self._timeout = None if timeout is None else float(timeout)

    def gettimeout(self):
        return self._timeout

    def setblocking(self, flag):
        self._timeout = None if flag else 0.0

    def getblocking(self):
        return self._timeout != 0

    def setsockopt(self, level, name, value, length=None):
        self._options[level, name] = value  # nothing of it is this side's to do

    def getsockopt(self, level, name, length=None):
        if (level, name) == (_socket.SOL_SOCKET, _socket.SO_TYPE):
            return self._type
        value = self._options.get((level, name), 0)
        return value if length is None or isinstance(value, bytes) else int(value).to_bytes(4, "little")[:length]

    def bind(self, address):
        if tuple(address)[1:2] != (0,) or address[0] not in ("", "0.0.0.0"):
            _no_servers()

    listen = accept = _accept = _no_servers


def close(fd):
    """Closes a file descriptor, a stream's or another."""
    if fd < FIRST:
        return _os_close(fd)
    if fd not in _open:
        raise OSError(errno.EBADF, "Bad file descriptor")
    stream = _open.pop(fd)
    if stream is not None:
        stream.close()


def address_of(address):
    """The host, by its name where it has one, and the port of an address."""
    if not isinstance(address, (tuple, list)) or len(address) < 2 or not isinstance(address[1], int):
        raise TypeError("an address is a tuple of a host and a port")
    host, port = _text(address[0]), address[1]
    if not 0 <= port <= 65535:
        raise OverflowError("connect(): port must be 0-65535.")
    return _names.get(host, host), port


def _text(host):
    return host.decode("idna") if isinstance(host, (bytes, bytearray)) else str(host)


def _sockaddr(host, port):
    for address, name in _names.items():
        if name == host:
            host = address
    return (host, port, 0, 0) if ":" in host else (host, port)


# ── names ───────────────────────────────────────────────────────────────────

def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
    """Addresses that stand for hosts which may be reached: there is no DNS here."""
    port = _port(port)
    if type not in (0, SOCK_STREAM):
        raise _gaierror(_socket.EAI_SOCKTYPE, "ai_socktype not supported")
    found = []
    for address in _addresses(_text(host) if host is not None else "127.0.0.1", port, flags):
        kind = AF_INET6 if ":" in address else AF_INET
        if family in (AF_UNSPEC, kind):
            found.append((kind, SOCK_STREAM, IPPROTO_TCP, "", _sockaddr(address, port)))
    if not found:
        raise _gaierror(_socket.EAI_NONAME, "Name or service not known: it has no address of that family")
    return found


def _port(port):
    if port is None or port == b"" or port == "":
        return 0
    port = port.decode() if isinstance(port, bytes) else port
    if isinstance(port, str):
        return int(port) if port.isdecimal() else getservbyname(port)
    return port


def _addresses(host, port, flags=0):
    for family in (AF_INET, AF_INET6):
        try:
            return [_unpacked(family, _packed(family, host))]
        except (OSError, ValueError):
            pass
    if flags & _socket.AI_NUMERICHOST:
        raise _gaierror(_socket.EAI_NONAME, "Name or service not known")
    try:
        ascii_name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        raise _gaierror(_socket.EAI_NONAME, "Name or service not known: it is no name of a host") from None
    try:
        found = ask("net.resolve", host=ascii_name, port=port)["addresses"]
    except _gaierror:
        raise
    except OSError as error:
        number = _socket.EAI_AGAIN if error.errno == errno.ENETUNREACH else _socket.EAI_NONAME
        usual = "Temporary failure in name resolution" if number == _socket.EAI_AGAIN else "Name or service not known"
        raise _gaierror(number, f"{usual}: {(error.strerror or '').partition(': ')[2]}") from None
    for address in found:
        _names[address] = ascii_name
    return found


def gethostbyname(host):
    return getaddrinfo(host, 0, AF_INET)[0][4][0]


def gethostbyname_ex(host):
    return host, [], [gethostbyname(host)]


def gethostbyaddr(address):
    name = _names.get(address)
    if name is None:
        raise _socket.herror(1, "Unknown host")
    return name, [], [address]


def getnameinfo(address, flags):
    host, port = address[0], address[1]
    return (host if flags & _socket.NI_NUMERICHOST else _names.get(host, host)), str(port)


def gethostname():
    return "sandbox"


_SERVICES = {"http": 80, "https": 443, "http-alt": 8080}


def getservbyname(name, protocol="tcp"):
    if name not in _SERVICES:
        raise OSError("service/proto not found")
    return _SERVICES[name]


def getservbyport(port, protocol="tcp"):
    for name, number in _SERVICES.items():
        if number == port:
            return name
    raise OSError("port/proto not found")


def getprotobyname(name):
    if name != "tcp":
        raise OSError("protocol not found")
    return IPPROTO_TCP


# ── waiting for several ─────────────────────────────────────────────────────

def _fd(file):
    fd = file if isinstance(file, int) else file.fileno()
    if not isinstance(fd, int) or fd < 0:
        raise ValueError("file descriptor cannot be a negative integer (-1)")
    return fd


def readable(fds, timeout):
    """Those of some streams' file descriptors from which one reads without waiting."""
    ready, numbers = [], {}
    for fd in fds:
        stream = _open.get(fd)
        if stream is None or stream.ahead or stream.ended:
            ready.append(fd)
        else:
            numbers[stream.number] = fd
    if not numbers:
        return ready
    value = ask("net.poll", streams=list(numbers), timeout=0 if ready else timeout)
    return ready + [numbers[n] for n in value["readable"] if n in numbers]


_c_select, _c_poll = _select.select, _select.poll


def select(rlist, wlist, xlist, timeout=None):
    """select.select, of streams as well."""
    reads, writes = [(f, _fd(f)) for f in rlist], [(f, _fd(f)) for f in wlist]
    streams = [fd for _, fd in reads if fd >= FIRST]
    if not streams and not any(fd >= FIRST for _, fd in writes):
        return _c_select(rlist, wlist, xlist, timeout)
    if timeout is not None and timeout < 0:
        raise ValueError("timeout must be non-negative")
    can_write = [f for f, _ in writes]  # a stream takes what there is, and a file is there
    others = [f for f, fd in reads if fd < FIRST]
    found = set(readable(streams, 0 if can_write or others else timeout)) if streams else set()
    return [f for f, fd in reads if fd < FIRST or fd in found], can_write, []


class poll:
    """select.poll, of streams as well."""

    def __init__(self):
        self._masks = {}

    def register(self, fd, mask=_select.POLLIN | _select.POLLPRI | _select.POLLOUT):
        self._masks[_fd(fd)] = mask

    def modify(self, fd, mask):
        if _fd(fd) not in self._masks:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self._masks[_fd(fd)] = mask

    def unregister(self, fd):
        del self._masks[_fd(fd)]

    def poll(self, timeout=None):
        ours = {fd: mask for fd, mask in self._masks.items() if fd >= FIRST}
        if not ours:
            other = _c_poll()
            for fd, mask in self._masks.items():
                other.register(fd, mask)
            return other.poll(timeout)
        seconds = None if timeout is None or timeout < 0 else timeout / 1000
        ready = {fd: _select.POLLOUT for fd, mask in ours.items() if mask & _select.POLLOUT}
        ready |= {fd: mask & (_select.POLLIN | _select.POLLOUT) for fd, mask in self._masks.items() if fd < FIRST}
        ready |= {fd: _select.POLLNVAL for fd in ours if fd not in _open}
        reading = [fd for fd, mask in ours.items() if mask & _select.POLLIN and fd in _open]
        for fd in readable(reading, 0 if ready else seconds) if reading else ():
            ready[fd] = ready.get(fd, 0) | _select.POLLIN
        return list(ready.items())


def install():
    """Puts all of it into the modules that CPython's own ones are made of."""
    for name in "socket close getaddrinfo gethostbyname gethostbyname_ex gethostbyaddr getnameinfo gethostname getservbyname getservbyport getprotobyname".split():
        setattr(_socket, name, globals()[name])
    _socket.SocketType, _socket.has_ipv6 = socket, False
    for name, number in dict(SO_REUSEADDR=2, SO_ERROR=4, SO_SNDBUF=7, SO_RCVBUF=8, SO_KEEPALIVE=9, SO_LINGER=13).items():
        if not hasattr(_socket, name):
            setattr(_socket, name, number)
    _select.select, _select.poll = select, poll


install()

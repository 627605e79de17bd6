"""asyncio's connections, over the streams of _paddock_socket.

While a program waits here nothing of it is on the native stack: each transport has a
call of the host under way, whose answer comes back to the loop.
"""
import asyncio
import asyncio.futures
import asyncio.protocols
import asyncio.sslproto
import asyncio.transports
import asyncio.trsock
import errno
import socket

import _paddock_socket

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

_value_of = _paddock_socket.value_of
AT_ONCE = _paddock_socket.AT_ONCE
_NO_SERVERS = "a program in this sandbox cannot be connected to: it has no ports"


class Network:
    """What a loop can do with sockets; begin() calls the host and gives a future."""

    async def _asked(self, op, payload=b"", **fields):
        answer = await self._begin(_paddock_socket.message(op, payload, **fields))
        return _value_of(_paddock_socket.NOBODY if answer is None else answer)

    async def getaddrinfo(self, host, port, *, family=0, type=0, proto=0, flags=0):
        return socket.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(self, sockaddr, flags=0):
        return socket.getnameinfo(sockaddr, flags)

    async def sock_connect(self, sock, address):
        host, port = _paddock_socket.address_of(address)
        if sock.fileno() == -1:
            raise OSError(errno.EBADF, "Bad file descriptor")
        value = await self._asked("net.open", host=host, port=port)
        _paddock_socket._open[sock.fileno()] = _paddock_socket.Stream(value["stream"], host, port)

    async def sock_recv(self, sock, n):
        buffer = bytearray(n)
        return bytes(buffer[:await self.sock_recv_into(sock, buffer)])

    async def sock_recv_into(self, sock, buffer):
        stream = sock._stream
        while not stream.ahead and not stream.ended:
            answer = await self._begin(stream.read_message(None))
            if answer is None:
                raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            stream.arrived(_value_of(answer))
        return stream.read_into(memoryview(buffer), 0)

    async def sock_sendall(self, sock, data):
        stream, view = sock._stream, memoryview(data).cast("B")
        while len(view):
            answer = await self._begin(stream.write_message(bytes(view[:AT_ONCE])))
            n = _value_of(_paddock_socket.NOBODY if answer is None else answer)["written"]
            stream.sent += n
            view = view[n:]

    async def create_server(self, *args, **kwargs):
        raise OSError(errno.EOPNOTSUPP, _NO_SERVERS)

    async def create_datagram_endpoint(self, *args, **kwargs):
        raise OSError(errno.EPROTONOSUPPORT, "there are only TCP connections to hosts that may be reached")

    def _make_socket_transport(self, sock, protocol, waiter=None, *, extra=None, server=None):
        return Transport(self, sock, protocol, waiter, extra)

    def _make_ssl_transport(self, rawsock, protocol, sslcontext, waiter=None, *, server_side=False, server_hostname=None, extra=None, server=None,
                            ssl_handshake_timeout=None, ssl_shutdown_timeout=None):
        tls = asyncio.sslproto.SSLProtocol(
            self, protocol, sslcontext, waiter, server_side, server_hostname,
            ssl_handshake_timeout=ssl_handshake_timeout, ssl_shutdown_timeout=ssl_shutdown_timeout)
        Transport(self, rawsock, tls, None, extra)
        return tls._app_transport


class Transport(asyncio.transports._FlowControlMixin, asyncio.Transport):
    """One connection, as asyncio's protocols know it."""

    def __init__(self, loop, sock, protocol, waiter=None, extra=None):
        super().__init__(extra, loop)
        self._sock, self._stream = sock, sock._stream
        self._extra.update(socket=asyncio.trsock.TransportSocket(sock), sockname=sock.getsockname(), peername=sock.getpeername())
        self._out = []            # what is to be sent: bytes, or a greeting's name in a tuple
        self._reading = self._sending = None  # calls that are under way
        self._paused = self._closing = self._lost = self._eof = False
        self._unanswered = 0
        self.set_protocol(protocol)
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._read)
        if waiter is not None:
            loop.call_soon(asyncio.futures._set_result_unless_cancelled, waiter, None)

    # ── what a protocol asks ────────────────────────────────────────────

    def set_protocol(self, protocol):
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self):
        return self._protocol

    def is_closing(self):
        return self._closing

    def is_reading(self):
        return not self._closing and not self._paused

    def pause_reading(self):
        self._paused = True

    def resume_reading(self):
        if self._paused and not self._closing:
            self._paused = False
            self._loop.call_soon(self._read)

    def can_write_eof(self):
        return True

    def write_eof(self):
        if not self._closing and not self._eof:
            self._eof = True
            self._send()

    def get_write_buffer_size(self):
        return sum(len(piece) for piece in self._out if type(piece) is bytes)

    def write(self, data):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._lost or self._closing:
            return
        data = bytes(data)
        asked, n = _paddock_socket.greeting_in(data[:512]) if not self._stream.sent and not self._stream.tls else (None, 0)
        if n:
            self._out.append((asked["host"],))
            data = data[n:]
        if data:
            self._out.append(data)
        self._send()
        self._maybe_pause_protocol()

    def close(self):
        if self._closing:
            return
        self._closing = True
        if self._reading is not None:
            self._reading.cancel()
        if not self._out:
            self._loop.call_soon(self._lose, None)

    def abort(self):
        self._force_close(None)

    # ── what the host says ──────────────────────────────────────────────

    def _read(self):
        stream = self._stream
        if self._paused or self._closing or self._reading is not None:
            return
        if stream.ahead:
            self._deliver()
        elif stream.ended:
            if not self._protocol.eof_received():
                self.close()
        else:
            self._reading = self._loop._begin(stream.read_message(None))
            self._reading.add_done_callback(self._read_answered)

    def _deliver(self):
        stream = self._stream
        try:
            if self._buffered:
                buffer = self._protocol.get_buffer(len(stream.ahead))
                self._protocol.buffer_updated(stream.read_into(memoryview(buffer).cast("B"), 0))
            else:
                data = bytes(stream.ahead)
                stream.ahead = _paddock_socket.NOTHING
                self._protocol.data_received(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler({"message": "Fatal error: a protocol's handling of data failed", "exception": error, "transport": self, "protocol": self._protocol})
            self._force_close(error)
            return
        self._loop.call_soon(self._read)

    def _read_answered(self, future):
        self._reading = None
        if self._lost or future.cancelled():
            return
        try:
            if self._answered(future.result()):
                self._stream.arrived(_value_of(future.result()))
        except OSError as error:
            self._force_close(ConnectionResetError(errno.ECONNRESET, error.strerror) if isinstance(error, BrokenPipeError) else error)
            return
        self._read()

    def _answered(self, answer):
        """False: the run in which the host was asked is over; it is asked again, once."""
        if answer is not None:
            self._unanswered = 0
            return True
        self._unanswered += 1
        if self._unanswered > 2:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        return False

    def _send(self):
        if self._sending is not None or self._lost:
            return
        if not self._out:
            if self._eof and not self._stream.shut:
                self._stream.end()
            if self._closing:
                self._loop.call_soon(self._lose, None)
            return
        first, stream = self._out[0], self._stream
        if type(first) is tuple:
            body = _paddock_socket.message("net.tls", stream=stream.number, host=first[0])
        else:
            body = stream.write_message(first[:AT_ONCE])
        self._sending = self._loop._begin(body)
        self._sending.add_done_callback(self._sent)

    def _sent(self, future):
        self._sending = None
        if self._lost or future.cancelled():
            return
        first, stream = self._out[0], self._stream
        try:
            if self._answered(future.result()):
                if type(first) is tuple:
                    del self._out[0]
                    self._greeted(future.result())
                else:
                    n = _value_of(future.result())["written"]
                    stream.sent += n
                    if n == len(first):
                        del self._out[0]
                    else:
                        self._out[0] = first[n:]
        except OSError as error:
            self._force_close(error)
            return
        self._send()
        self._maybe_resume_protocol()

    def _greeted(self, answer):
        stream = self._stream
        stream.put(_paddock_socket.answer_to(_value_of, answer))
        stream.tls = True
        if self._reading is not None:  # nothing came before this, and nothing gets lost
            self._reading.cancel()
            self._reading = None
        self._loop.call_soon(self._read)

    # ── its end ─────────────────────────────────────────────────────────

    def _force_close(self, error):
        if self._lost:
            return
        self._out.clear()
        self._closing = True
        for call in self._reading, self._sending:
            if call is not None:
                call.cancel()
        self._loop.call_soon(self._lose, error)

    def _lose(self, error):
        if self._lost:
            return
        self._lost = True
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()

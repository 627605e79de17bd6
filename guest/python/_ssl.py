"""What CPython's module `ssl` is made of here: TLS is spoken by the host.

A socket that is wrapped says so to the host, which greets the other side, verifies its
certificate with its own, and speaks TLS to it; the program's side stays plain. So no
option of a program weakens what is verified: neither CERT_NONE nor check_hostname, and
certificates that it loads are not looked at. What the host alone knows (the cipher, the
certificate's bytes) is not made up.
"""
import errno
import os

import _paddock_socket

__builtins__ = __builtins__.copy()  # what the program makes of them is its own affair

OPENSSL_VERSION = "OpenSSL 3.0.0 (paddock: TLS is spoken by the host)"  # some libraries want 1.1.1 or later
OPENSSL_VERSION_INFO = _OPENSSL_API_VERSION = (3, 0, 0, 0, 0)
OPENSSL_VERSION_NUMBER = 0x30000000
_DEFAULT_CIPHERS = "DEFAULT"

HAS_SNI = HAS_ECDH = HAS_ALPN = HAS_TLSv1_2 = HAS_TLSv1_3 = True
HAS_NPN = HAS_SSLv2 = HAS_SSLv3 = HAS_TLSv1 = HAS_TLSv1_1 = HAS_PSK = HAS_TLS_UNIQUE = False
CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED = 0, 1, 2
ENCODING_PEM, ENCODING_DER = 1, 2
PROTOCOL_SSLv23 = PROTOCOL_TLS = 2
PROTOCOL_TLSv1, PROTOCOL_TLSv1_1, PROTOCOL_TLSv1_2, PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER = 3, 4, 5, 16, 17
PROTO_MINIMUM_SUPPORTED, PROTO_MAXIMUM_SUPPORTED = -2, -1
PROTO_SSLv3, PROTO_TLSv1, PROTO_TLSv1_1, PROTO_TLSv1_2, PROTO_TLSv1_3 = 768, 769, 770, 771, 772
VERIFY_DEFAULT, VERIFY_CRL_CHECK_LEAF, VERIFY_CRL_CHECK_CHAIN, VERIFY_X509_STRICT = 0, 4, 12, 32
VERIFY_ALLOW_PROXY_CERTS, VERIFY_X509_TRUSTED_FIRST, VERIFY_X509_PARTIAL_CHAIN = 64, 32768, 524288
HOSTFLAG_ALWAYS_CHECK_SUBJECT, HOSTFLAG_NO_WILDCARDS, HOSTFLAG_NO_PARTIAL_WILDCARDS = 1, 2, 4
HOSTFLAG_MULTI_LABEL_WILDCARDS, HOSTFLAG_SINGLE_LABEL_SUBDOMAINS, HOSTFLAG_NEVER_CHECK_SUBJECT = 8, 16, 32
OP_ALL, OP_NO_SSLv2, OP_NO_SSLv3, OP_NO_TLSv1 = 0x80000050, 0, 0x2000000, 0x4000000
OP_NO_TLSv1_1, OP_NO_TLSv1_2, OP_NO_TLSv1_3 = 0x10000000, 0x8000000, 0x20000000
OP_CIPHER_SERVER_PREFERENCE, OP_ENABLE_MIDDLEBOX_COMPAT, OP_IGNORE_UNEXPECTED_EOF = 0x400000, 0x100000, 128
OP_LEGACY_SERVER_CONNECT, OP_NO_COMPRESSION, OP_NO_RENEGOTIATION, OP_NO_TICKET = 4, 0x20000, 0x40000000, 0x4000
OP_SINGLE_DH_USE = OP_SINGLE_ECDH_USE = 0
SSL_ERROR_SSL, SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_WANT_X509_LOOKUP = 1, 2, 3, 4
SSL_ERROR_SYSCALL, SSL_ERROR_ZERO_RETURN, SSL_ERROR_WANT_CONNECT, SSL_ERROR_EOF, SSL_ERROR_INVALID_ERROR_CODE = 5, 6, 7, 8, 10
for _name, _number in dict(
    CLOSE_NOTIFY=0, UNEXPECTED_MESSAGE=10, BAD_RECORD_MAC=20, RECORD_OVERFLOW=22, DECOMPRESSION_FAILURE=30, HANDSHAKE_FAILURE=40,
    BAD_CERTIFICATE=42, UNSUPPORTED_CERTIFICATE=43, CERTIFICATE_REVOKED=44, CERTIFICATE_EXPIRED=45, CERTIFICATE_UNKNOWN=46,
    ILLEGAL_PARAMETER=47, UNKNOWN_CA=48, ACCESS_DENIED=49, DECODE_ERROR=50, DECRYPT_ERROR=51, PROTOCOL_VERSION=70,
    INSUFFICIENT_SECURITY=71, INTERNAL_ERROR=80, USER_CANCELLED=90, NO_RENEGOTIATION=100, UNSUPPORTED_EXTENSION=110,
    CERTIFICATE_UNOBTAINABLE=111, UNRECOGNIZED_NAME=112, BAD_CERTIFICATE_STATUS_RESPONSE=113, BAD_CERTIFICATE_HASH_VALUE=114,
    UNKNOWN_PSK_IDENTITY=115,
).items():
    globals()["ALERT_DESCRIPTION_" + _name] = _number


class SSLError(OSError):
    """An error occurred in the SSL implementation."""

    __module__ = "ssl"
    library = reason = None

    def __str__(self):
        return str(self.strerror) if self.strerror is not None else str(self.args)


class SSLZeroReturnError(SSLError):
    __module__ = "ssl"


class SSLWantReadError(SSLError):
    __module__ = "ssl"


class SSLWantWriteError(SSLError):
    __module__ = "ssl"


class SSLSyscallError(SSLError):
    __module__ = "ssl"


class SSLEOFError(SSLError):
    __module__ = "ssl"


class SSLCertVerificationError(SSLError, ValueError):
    __module__ = "ssl"
    verify_code, verify_message = 1, ""


class SSLSession:
    """There are none: the host has its own."""


class Certificate:
    """There are none here: the host looks at them."""


def RAND_status():
    return True


def RAND_add(data, entropy):
    pass


def RAND_bytes(n):
    return os.urandom(n)


def get_default_verify_paths():
    return "SSL_CERT_FILE", "/etc/ssl/cert.pem", "SSL_CERT_DIR", "/etc/ssl/certs"


_OBJECTS = {
    "1.3.6.1.5.5.7.3.1": (129, "serverAuth", "TLS Web Server Authentication"),
    "1.3.6.1.5.5.7.3.2": (130, "clientAuth", "TLS Web Client Authentication"),
}


def txt2obj(text, name=False):
    for oid, (nid, short, long) in _OBJECTS.items():
        if text == oid or name and text in (short, long):
            return nid, short, long, oid
    raise ValueError(f"unknown object '{text[:100]}'")


def nid2obj(number):
    for oid, (nid, short, long) in _OBJECTS.items():
        if nid == number:
            return nid, short, long, oid
    raise ValueError(f"unknown NID {number}")


class MemoryBIO:
    """A queue of bytes with an end."""

    def __init__(self):
        self._bytes, self._ended = bytearray(), False

    @property
    def pending(self):
        return len(self._bytes)

    @property
    def eof(self):
        return self._ended and not self._bytes

    def read(self, size=-1):
        n = len(self._bytes) if size is None or size < 0 else min(size, len(self._bytes))
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        return data

    def write(self, data):
        if self._ended:
            raise SSLError("cannot write() after write_eof()")
        view = memoryview(data).cast("B")
        self._bytes += view
        return len(view)

    def write_eof(self):
        self._ended = True


def _setting(name, check=None):
    """A property of a context that says nothing to the host."""
    def get(self):
        return self.__dict__["_" + name]

    def put(self, value):
        if check:
            check(self, value)
        self.__dict__["_" + name] = value

    return property(get, put)


def _check_mode(context, value):
    if value not in (CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED):
        raise ValueError("invalid value for verify_mode")
    if value == CERT_NONE and context.check_hostname:
        raise ValueError("Cannot set verify_mode to CERT_NONE when check_hostname is enabled.")


def _check_version(context, value):
    if not PROTO_MINIMUM_SUPPORTED <= value <= PROTO_TLSv1_3:
        raise ValueError(f"Unsupported TLS/SSL version {value:#x}")


class _SSLContext:
    """What a program wants of TLS: kept for it, and not told to the host."""

    def __new__(cls, protocol):
        if protocol not in (PROTOCOL_TLS, PROTOCOL_TLSv1, PROTOCOL_TLSv1_1, PROTOCOL_TLSv1_2, PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER):
            raise ValueError("invalid or unsupported protocol version")
        self = super().__new__(cls)
        client = protocol == PROTOCOL_TLS_CLIENT
        self.__dict__.update(
            _protocol=protocol, _check_hostname=client, _verify_mode=CERT_REQUIRED if client else CERT_NONE,
            _verify_flags=VERIFY_X509_TRUSTED_FIRST, _options=OP_ALL | OP_NO_SSLv3 | OP_NO_COMPRESSION,
            _minimum_version=PROTO_TLSv1_2, _maximum_version=PROTO_MAXIMUM_SUPPORTED, _post_handshake_auth=False,
            _keylog_filename=None, _sni_callback=None, __msg_callback=None, _num_tickets=2, _alpn=(),
            __host_flags=HOSTFLAG_NO_PARTIAL_WILDCARDS, _loaded=0)
        return self

    @property
    def protocol(self):
        return self.__dict__["_protocol"]

    @property
    def check_hostname(self):
        return self.__dict__["_check_hostname"]

    @check_hostname.setter
    def check_hostname(self, value):
        if value and self.verify_mode == CERT_NONE:
            self.__dict__["_verify_mode"] = CERT_REQUIRED
        self.__dict__["_check_hostname"] = bool(value)

    verify_mode = _setting("verify_mode", _check_mode)
    verify_flags, options, num_tickets = _setting("verify_flags"), _setting("options"), _setting("num_tickets")
    minimum_version, maximum_version = _setting("minimum_version", _check_version), _setting("maximum_version", _check_version)
    post_handshake_auth, sni_callback = _setting("post_handshake_auth"), _setting("sni_callback")
    _msg_callback, _host_flags = _setting("_msg_callback"), _setting("_host_flags")
    security_level = property(lambda self: 2)

    @property
    def keylog_filename(self):
        return self.__dict__["_keylog_filename"]

    @keylog_filename.setter
    def keylog_filename(self, path):
        if path is not None:
            raise ValueError("there are no keys in this sandbox: TLS is spoken outside of it")

    def set_ciphers(self, ciphers):
        if not isinstance(ciphers, str) or not ciphers:
            raise SSLError("No cipher can be selected.")

    def get_ciphers(self):
        return []

    def _set_alpn_protocols(self, encoded):
        names, at = [], 0
        while at < len(encoded):
            names.append(bytes(encoded[at + 1:at + 1 + encoded[at]]).decode("ascii"))
            at += 1 + encoded[at]
        self.__dict__["_alpn"] = tuple(names)

    def set_ecdh_curve(self, name):
        pass

    def load_dh_params(self, path):
        os.stat(path)

    def set_psk_client_callback(self, callback):
        raise NotImplementedError("TLS is spoken outside of this sandbox, with certificates")

    set_psk_server_callback = set_psk_client_callback

    def load_cert_chain(self, certfile, keyfile=None, password=None):
        raise SSLError(1, "a program's own certificate cannot be shown from this sandbox: TLS is spoken outside of it")

    def load_verify_locations(self, cafile=None, capath=None, cadata=None):
        if cafile is None and capath is None and cadata is None:
            raise TypeError("cafile, capath and cadata cannot be all omitted")
        for path in cafile, capath:
            if path is not None:
                os.stat(path)
        self.__dict__["_loaded"] += 1

    def set_default_verify_paths(self):
        self.__dict__["_loaded"] += 1

    def cert_store_stats(self):
        return {"x509": self.__dict__["_loaded"], "crl": 0, "x509_ca": self.__dict__["_loaded"]}

    def get_ca_certs(self, binary_form=False):
        return []

    def session_stats(self):
        return dict.fromkeys("number connect connect_good connect_renegotiate accept accept_good accept_renegotiate hits misses timeouts cache_full".split(), 0)

    def _wrap_socket(self, sock, server_side, server_hostname=None, *, owner=None, session=None):
        self._check(server_side, server_hostname)
        return _OverSocket(self, sock, server_hostname, owner)

    def _wrap_bio(self, incoming, outgoing, server_side, server_hostname=None, *, owner=None, session=None):
        self._check(server_side, server_hostname)
        return _OverBytes(self, incoming, outgoing, server_hostname, owner)

    def _check(self, server_side, server_hostname):
        if server_side or self.protocol == PROTOCOL_TLS_SERVER:
            raise SSLError(1, "a program in this sandbox cannot be connected to: it has no ports")
        if self.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")


class _Connection:
    """What a program asks of a connection over which the host speaks TLS."""

    session = None
    session_reused = False

    def __init__(self, context, server_hostname, owner):
        self.context, self.server_hostname, self.owner = context, server_hostname, owner
        self.done = False

    def getpeercert(self, binary_form=False):
        """The name that the host has verified: the certificate itself stays with it."""
        if not self.done:
            raise ValueError("handshake not done yet")
        name = self.server_hostname
        if binary_form or not name or self.context.verify_mode == CERT_NONE:
            return None if binary_form else {}
        kind = "IP Address" if ":" in name or name.replace(".", "").isdigit() else "DNS"
        return {"subject": ((("commonName", name),),), "subjectAltName": ((kind, name),)}

    def selected_alpn_protocol(self):
        return "http/1.1" if self.done and "http/1.1" in self.context.__dict__["_alpn"] else None

    def cipher(self):
        return None

    version = shared_ciphers = compression = verify_client_post_handshake = cipher

    def get_channel_binding(self, kind):
        return None

    def get_verified_chain(self):
        return []

    get_unverified_chain = get_verified_chain

    def pending(self):
        return 0


class _OverSocket(_Connection):
    def __init__(self, context, sock, server_hostname, owner):
        super().__init__(context, server_hostname, owner)
        self.sock = sock

    def do_handshake(self):
        self.sock._stream.greet(self.server_hostname)
        self.done = True

    def read(self, size=1024, buffer=None):
        if buffer is None:
            return _paddock_socket.socket.recv(self.sock, size)
        return self._timed(_paddock_socket.socket.recv_into, buffer, min(size, len(buffer)) if size else 0)

    def write(self, data):
        return self._timed(_paddock_socket.socket.send, data)

    def _timed(self, method, *args):
        try:
            return method(self.sock, *args)
        except BlockingIOError:
            raise SSLWantReadError(SSL_ERROR_WANT_READ, "The operation did not complete (read)") from None

    def pending(self):
        return len(self.sock._stream.ahead)

    def shutdown(self):
        return self.sock


class _OverBytes(_Connection):
    """The same where the program itself carries the bytes to a socket."""

    def __init__(self, context, incoming, outgoing, server_hostname, owner):
        super().__init__(context, server_hostname, owner)
        self.incoming, self.outgoing = incoming, outgoing
        self.asked, self.early = False, bytearray()

    def do_handshake(self):
        if self.done:
            return
        if not self.asked:
            self.asked = True
            self.outgoing.write(_paddock_socket.greeting(self.server_hostname))
        self.early += self.incoming.read()
        said, n = _paddock_socket.greeting_in(self.early)
        if not n:
            if self.incoming.eof:
                raise SSLEOFError(SSL_ERROR_EOF, "EOF occurred in violation of protocol")
            raise SSLWantReadError(SSL_ERROR_WANT_READ, "The operation did not complete (read)")
        del self.early[:n]
        if said["error"]:
            raise _paddock_socket.error_of(*said["error"])
        self.done = True

    def read(self, size=1024, buffer=None):
        if buffer is not None:
            size = min(size, len(buffer)) if size else len(buffer)
        data = bytes(self.early[:size])
        del self.early[:size]
        data = data or self.incoming.read(size)
        if not data and size:
            if self.incoming.eof:
                raise SSLZeroReturnError(SSL_ERROR_ZERO_RETURN, "TLS/SSL connection has been closed (EOF)")
            raise SSLWantReadError(SSL_ERROR_WANT_READ, "The operation did not complete (read)")
        if buffer is None:
            return data
        buffer[:len(data)] = data
        return len(data)

    def write(self, data):
        return self.outgoing.write(data)

    def pending(self):
        return len(self.early)

    def shutdown(self):
        return None


del _name, _number, errno

// Has fetch, http and https go through the sandbox's proxy (HTTP_PROXY), and trust the
// certificate that it has now (NODE_EXTRA_CA_CERTS): paddock loads it into every Node by
// NODE_OPTIONS. What says itself how it connects is left alone.
'use strict';

const address = process.env.HTTPS_PROXY || process.env.HTTP_PROXY;
if (address) try { route(new URL(address)); } catch (e) { process.emitWarning(`paddock: the network's proxy is not used: ${e.message}`); }

function route(proxy) {
  const fs = require('fs');
  const http = require('http');
  const https = require('https');
  const net = require('net');
  const tls = require('tls');
  // What it begins later finds the certificate, also where this one was begun too early.
  if (process.env.SSL_CERT_FILE) process.env.NODE_EXTRA_CA_CERTS ||= process.env.SSL_CERT_FILE;
  const aside = new Set((process.env.NO_PROXY || '').split(',').map((name) => name.trim()).filter(Boolean));

  // direct tells whether a host is the sandbox itself.
  const direct = (host) => !host || aside.has(host.replace(/^\[|\]$/g, ''));

  // roots is what is trusted: the file is read again when it has changed.
  let pem, changed;
  const roots = () => {
    try {
      const { mtimeMs } = fs.statSync(process.env.NODE_EXTRA_CA_CERTS);
      if (mtimeMs !== changed) {
        pem = fs.readFileSync(process.env.NODE_EXTRA_CA_CERTS);
        changed = mtimeMs;
      }
    } catch { /* what there was */ }
    return pem;
  };

  // tunnel connects to a host through the proxy.
  const tunnel = (host, port, done) => {
    const name = net.isIPv6(host) ? `[${host}]` : host;
    const socket = net.connect(proxy.port || 80, proxy.hostname);
    let head = Buffer.alloc(0);
    const end = (error) => {
      socket.removeListener('data', take).removeListener('error', end).removeListener('end', closed);
      if (error) socket.destroy();
      done(error, socket);
    };
    const closed = () => end(new Error(`the proxy closed the connection to ${name}:${port}`));
    const take = (data) => {
      head = Buffer.concat([head, data]);
      const at = head.indexOf('\r\n\r\n');
      if (at < 0) {
        if (head.length > 65536) end(new Error('the proxy says too much'));
        return;
      }
      const [line] = head.toString('latin1', 0, at).split('\r\n', 1);
      if (!/^HTTP\/1\.[01] 200\b/.test(line)) {
        const error = new Error(line.replace(/^HTTP\/1\.[01] /, ''));
        error.code = 'ERR_PROXY_TUNNEL';
        return end(error);
      }
      socket.pause();
      if (head.length > at + 4) socket.unshift(head.subarray(at + 4));
      end(null);
    };
    socket.on('data', take).on('error', end).on('end', closed);
    socket.on('connect', () => socket.write(`CONNECT ${name}:${port} HTTP/1.1\r\nHost: ${name}:${port}\r\n\r\n`));
  };

  // secure is a tunnel with TLS in it.
  const secure = (host, port, options, done) => tunnel(host, port, (error, socket) => {
    if (error) return done(error);
    const servername = options.servername ?? (net.isIP(host) ? '' : host);
    done(null, tls.connect({ ...options, path: undefined, socket, host, port, servername, ca: options.ca ?? roots() }));
  });

  for (const [module, port, connect] of [[http, 80, (host, port, options, done) => tunnel(host, port, done)], [https, 443, secure]]) {
    const usual = module.Agent.prototype.createConnection;
    module.Agent.prototype.createConnection = function createConnection(options, done) {
      const host = options && typeof options === 'object' ? options.host || options.hostname : undefined;
      if (typeof done !== 'function' || typeof host !== 'string' || options.socketPath || options.socket || direct(host)) {
        return Reflect.apply(usual, this, arguments);
      }
      connect(host, options.port || port, options, (error, socket) => {
        if (!error && this.keepAlive) socket.setKeepAlive(true, this.keepAliveMsecs);
        done(error, socket);
        if (!error && module === http) setImmediate(() => socket.resume()); // when somebody reads
      });
    };
  }

  // connector is how fetch connects.
  const connector = ({ hostname, port, protocol, servername }, done) => {
    const host = hostname.replace(/^\[|\]$/g, '');
    const encrypted = protocol === 'https:';
    const at = Number(port) || (encrypted ? 443 : 80);
    const settled = (socket, event) => {
      const failed = (error) => done(error);
      socket.once('error', failed).once(event, () => { socket.removeListener('error', failed); done(null, socket); });
    };
    if (direct(host)) return settled(encrypted ? tls.connect({ host, port: at, servername: net.isIP(host) ? '' : host }) : net.connect(at, host), encrypted ? 'secureConnect' : 'connect');
    if (!encrypted) return tunnel(host, at, done);
    secure(host, at, { servername: servername || undefined, ALPNProtocols: ['http/1.1'] }, (error, socket) => (error ? done(error) : settled(socket, 'secureConnect')));
  };

  // Node's fetch makes its dispatcher when it is first used, or has one already that
  // knows of proxies.
  const slot = Symbol.for('undici.globalDispatcher.1');
  const engage = () => {
    void globalThis.Headers;
    const usual = globalThis[slot];
    const own = usual ? Object.getOwnPropertySymbols(usual).map((key) => usual[key]) : [];
    const Agent = [usual, ...own].map((it) => it && it.constructor).find((it) => it && it.name === 'Agent' && it !== http.Agent);
    if (Agent) globalThis[slot] = new Agent({ connect: connector });
  };
  const fetch = globalThis.fetch;
  if (typeof fetch !== 'function') return;
  globalThis.fetch = function (input, init = undefined) {
    if (globalThis.fetch === first) globalThis.fetch = fetch;
    if (!engaged) {
      engaged = true;
      engage();
    }
    return fetch(input, init);
  };
  const first = globalThis.fetch;
  let engaged = false;
  Object.defineProperty(first, 'name', { value: 'fetch' });
}

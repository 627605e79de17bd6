// The one door to the host, and what is asked through it.
const { stringify, parse } = JSON;

export class HostError extends Error {}

export function makeHost(call) {
  // ask gives the answer's text, or throws an error with the host's code.
  const ask = (message, payload) => {
    const answer = payload === undefined ? call(stringify(message)) : call(stringify(message), payload);
    if (answer[0] === "=") return answer.slice(1);
    const error = new HostError(answer.slice(1));
    error.code = answer.slice(1);
    throw error;
  };
  return {
    ask,
    print: (fd, text) => { call(stringify({ op: "print", fd }), text); },
    exit: () => { ask({ op: "exit" }); },
    random: (bytes) => fromLatin1(ask({ op: "random", bytes })),
    now: () => Number(ask({ op: "now" })) / 1e6,
    stdin: (text) => ask({ op: "stdin", text }),
    display: (mime, data) => {
      const text = typeof data === "string";
      return parse(ask({ op: "display", mime, text }, text ? data : toLatin1(data)));
    },
  };
}

// Bytes cross the door as text of which each character is a byte.
export function toLatin1(bytes) {
  const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const pieces = [];
  for (let at = 0; at < view.length; at += 8192) pieces.push(String.fromCharCode.apply(null, view.subarray(at, at + 8192)));
  return pieces.join("");
}

export function fromLatin1(text) {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

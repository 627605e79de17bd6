// The one door to the host, and what is asked through it.
import { Buffer } from "buffer";
import { parse, stringify } from "./primordials.js";

export class HostError extends Error {}

// view is the bytes of a buffer or of a view of one.
export const view = (data) => data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

export function makeHost(call) {
  const send = (message, payload) => {
    const answer = payload === undefined ? call(stringify(message)) : call(stringify(message), payload);
    if (answer === "!interrupted") for (;;); // the engine asks the host in a loop, and throws what nothing catches
    return answer;
  };
  const fail = (answer) => {
    const error = new HostError(answer.slice(1));
    error.code = answer.slice(1);
    throw error;
  };
  // ask gives the answer's text, bytes an answer that is bytes; both throw an
  // error with the host's code. A payload is text or a Uint8Array.
  const ask = (message, payload) => {
    const answer = send(message, payload);
    return answer[0] === "=" ? answer.slice(1) : fail(answer);
  };
  const bytes = (message, payload) => {
    const answer = send({ ...message, raw: true }, payload);
    return typeof answer === "string" ? fail(answer) : answer;
  };
  return {
    ask, bytes,
    print: (fd, what) => { send({ op: "print", fd }, what); },
    exit: () => { ask({ op: "exit" }); },
    // compile evaluates source as a script of a file, and gives its value or throws.
    compile: (name, source) => call(stringify({ op: "compile", name }), source),
    random: (n) => bytes({ op: "random", bytes: n }),
    now: () => Number(ask({ op: "now" })) / 1e6,
    // promise gives [state, value] of a promise: 0 pending, 1 fulfilled, 2 rejected.
    promise: (p) => { const state = call(true, p); return [state, state > 0 ? call(false, p) : undefined]; },
    hash: (name, data, key) => bytes(key === undefined ? { op: "hash", name } : { op: "hash", name, key: Buffer.from(key).toString("base64") }, view(data)),
    encode: (text) => bytes({ op: "encode" }, text),
    decode: (data) => ask({ op: "decode" }, view(data)),
    begin: (call) => Number(ask({ op: "begin" }, call)),
    stdin: () => bytes({ op: "stdin" }),
    display: (mime, data) => parse(ask({ op: "display", mime }, typeof data === "object" && data !== null ? view(data) : `${data}`)),
  };
}

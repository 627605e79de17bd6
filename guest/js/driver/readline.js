// The readline module: lines of standard input, or of a stream.
import EventEmitter from "events";

class Interface extends EventEmitter {
  #lines;
  #closed = false;
  constructor(input) {
    super();
    this.#lines = linesOf(input);
    this.on("newListener", (name) => { if (name === "line") queueMicrotask(() => this.#flow()); });
  }
  async #flow() {
    for await (const line of this) this.emit("line", line);
    this.close();
  }
  async *[Symbol.asyncIterator]() {
    for (;;) {
      const { value, done } = await this.#lines.next();
      if (done || this.#closed) return;
      yield value;
    }
  }
  question(text, options, callback = options) {
    globalThis.process.stdout.write(text);
    const answer = this.#lines.next().then(({ value }) => value ?? "");
    if (typeof callback === "function") answer.then(callback);
    return answer;
  }
  setPrompt() {}
  prompt() {}
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.emit("close");
  }
}

async function* linesOf(input) {
  let rest = "";
  for await (const piece of input) {
    const lines = (rest + (typeof piece === "string" ? piece : new TextDecoder().decode(piece))).split(/\r?\n/);
    rest = lines.pop();
    yield* lines;
  }
  if (rest) yield rest;
}

export function makeReadline() {
  const createInterface = (options) => new Interface(options.input ?? options);
  return { createInterface, Interface, promises: { createInterface, Interface } };
}

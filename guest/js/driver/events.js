// Event, EventTarget, AbortController and AbortSignal.
export class EventOf {
  constructor(type, { cancelable = false } = {}) {
    Object.assign(this, { type: String(type), cancelable, defaultPrevented: false, target: null, timeStamp: Date.now() });
  }
  preventDefault() { if (this.cancelable) this.defaultPrevented = true; }
  stopImmediatePropagation() { this.stopped = true; }
  stopPropagation() {}
}
Object.defineProperty(EventOf, "name", { value: "Event" });

export class EventTargetOf {
  #listeners = new Map();
  addEventListener(type, listener, options = {}) {
    if (!listener) return;
    const list = this.#listeners.get(type) ?? [];
    if (!list.some((l) => l.listener === listener)) list.push({ listener, once: Boolean(options?.once) });
    this.#listeners.set(type, list);
  }
  removeEventListener(type, listener) {
    this.#listeners.set(type, (this.#listeners.get(type) ?? []).filter((l) => l.listener !== listener));
  }
  dispatchEvent(event) {
    event.target = this;
    for (const l of [...(this.#listeners.get(event.type) ?? [])]) {
      if (l.once) this.removeEventListener(event.type, l.listener);
      typeof l.listener === "function" ? l.listener.call(this, event) : l.listener.handleEvent(event);
      if (event.stopped) break;
    }
    return !event.defaultPrevented;
  }
}
Object.defineProperty(EventTargetOf, "name", { value: "EventTarget" });

const aborted = () => Object.assign(new Error("This operation was aborted"), { name: "AbortError", code: 20 });

export class AbortSignalOf extends EventTargetOf {
  aborted = false;
  reason = undefined;
  onabort = null;
  throwIfAborted() { if (this.aborted) throw this.reason; }
  static abort(reason) { const s = new AbortSignalOf(); end(s, reason); return s; }
  static timeout(ms) {
    const s = new AbortSignalOf();
    setTimeout(() => end(s, Object.assign(new Error("The operation was aborted due to timeout"), { name: "TimeoutError", code: 23 })), ms).unref();
    return s;
  }
  static any(signals) {
    const s = new AbortSignalOf();
    for (const other of signals) {
      if (other.aborted) { end(s, other.reason); break; }
      other.addEventListener("abort", () => end(s, other.reason), { once: true });
    }
    return s;
  }
}
Object.defineProperty(AbortSignalOf, "name", { value: "AbortSignal" });

function end(signal, reason) {
  if (signal.aborted) return;
  signal.aborted = true;
  signal.reason = reason ?? aborted();
  const event = new EventOf("abort");
  signal.onabort?.(event);
  signal.dispatchEvent(event);
}

export class AbortControllerOf {
  signal = new AbortSignalOf();
  abort(reason) { end(this.signal, reason); }
}
Object.defineProperty(AbortControllerOf, "name", { value: "AbortController" });

// Timers, fired by the host: it waits outside of the interpreter and calls
// again when the first is due.
const LIMIT = 100000;

export function makeTimers(now) {
  let last = 0;
  const timers = new Map();

  const add = (callback, delay, args, repeat) => {
    if (typeof callback !== "function") throw new TypeError("The callback of a timer must be a function");
    if (timers.size >= LIMIT) throw new RangeError(`more than ${LIMIT} timers are waiting`);
    delay = Math.min(Math.max(Number(delay) || 0, 0), 2147483647);
    const id = ++last;
    timers.set(id, { id, callback, args, due: now() + delay, repeat: repeat ? Math.max(delay, 1) : 0 });
    return new Timer(id);
  };

  class Timer {
    constructor(id) { this.id = id; }
    ref() { return this; }
    unref() { return this; }
    hasRef() { return true; }
    [Symbol.toPrimitive]() { return this.id; }
  }

  const remove = (timer) => { timers.delete(typeof timer === "object" && timer ? timer.id : Number(timer)); };

  const first = () => {
    let soonest;
    for (const t of timers.values()) if (!soonest || t.due < soonest.due) soonest = t;
    return soonest;
  };

  return {
    set: (callback, delay, ...args) => add(callback, delay, args, false),
    repeat: (callback, delay, ...args) => add(callback, delay, args, true),
    remove,
    clear: () => timers.clear(),
    // fire runs the timer that is due first; its promises come before the next one.
    fire() {
      const t = first();
      if (!t || t.due > now()) return false;
      if (t.repeat) t.due = now() + t.repeat;
      else timers.delete(t.id);
      t.callback(...t.args);
      return true;
    },
    next() {
      const t = first();
      return t && Math.max(t.due - now(), 0);
    },
  };
}

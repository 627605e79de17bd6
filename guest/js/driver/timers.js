// Timers, fired by the host: it waits outside of the interpreter and calls
// again when the first is due.
import { apply, safeMap } from "./primordials.js";

const LIMIT = 100000;

export function makeTimers(now) {
  let last = 0;
  const timers = safeMap();

  const add = (callback, delay, args, repeat) => {
    if (typeof callback !== "function") throw new TypeError("The callback of a timer must be a function");
    if (timers.size() >= LIMIT) throw new RangeError(`more than ${LIMIT} timers are waiting`);
    delay = Math.min(Math.max(Number(delay) || 0, 0), 2147483647);
    const id = ++last;
    timers.set(id, { id, callback, args, due: now() + delay, repeat: repeat ? Math.max(delay, 1) : 0, held: true });
    return new Timer(id);
  };

  class Timer {
    constructor(id) { this.id = id; }
    #hold(held) { const t = timers.get(this.id); if (t) t.held = held; return this; }
    ref() { return this.#hold(true); }
    unref() { return this.#hold(false); }
    hasRef() { return timers.get(this.id)?.held ?? false; }
    close() { timers.delete(this.id); return this; }
    [Symbol.toPrimitive]() { return this.id; }
  }

  const remove = (timer) => { timers.delete(typeof timer === "object" && timer ? timer.id : Number(timer)); };

  // first is the timer that is due first; none while none is left that keeps
  // the run, unless something else does.
  const first = (held) => {
    let soonest;
    const all = timers.values();
    for (let i = 0; i < all.length; i++) {
      held ||= all[i].held;
      if (!soonest || all[i].due < soonest.due) soonest = all[i];
    }
    return held ? soonest : undefined;
  };

  return {
    set: (callback, delay, ...args) => add(callback, delay, args, false),
    repeat: (callback, delay, ...args) => add(callback, delay, args, true),
    remove,
    clear: () => timers.clear(),
    // fire runs the timer that is due first; its promises come before the next one.
    fire(held = false) {
      const t = first(held);
      if (!t || t.due > now()) return false;
      if (t.repeat) t.due = now() + t.repeat;
      else timers.delete(t.id);
      apply(t.callback, undefined, t.args);
      return true;
    },
    next(held = false) {
      const t = first(held);
      return t && Math.max(t.due - now(), 0);
    },
  };
}

// In the place of the package abort-controller, which takes a browser's: the bundler
// has an alias for it (guest/build/javascript.sh).
export { AbortControllerOf as AbortController, AbortSignalOf as AbortSignal } from "./events.js";

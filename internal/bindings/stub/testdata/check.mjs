// Imports the index.js beside it with a servers module that only writes down, and
// prints what it wrote.
import { told } from "servers";
const made = await import("./index.js");
const names = Object.keys(made);
if (names.some((n) => typeof made[n] !== "function") || globalThis.pwned) process.exit(1);
console.log(JSON.stringify({ names, told }));

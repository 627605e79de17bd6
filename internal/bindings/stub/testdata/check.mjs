// Imports the index.js beside it with a servers module that only writes down, and
// prints what it wrote. What it exports by default is all of it, and nothing else.
import { told } from "servers";
const { default: all, ...made } = await import("./index.js");
const names = Object.keys(made);
if (Object.keys(all).sort().join() !== names.sort().join() || names.some((n) => all[n] !== made[n])) process.exit(2);
if (names.some((n) => typeof made[n] !== "function") || globalThis.pwned) process.exit(1);
console.log(JSON.stringify({ names, told }));

#!/usr/bin/env node
// Starts paddock: the binary of the package for this machine, with the same arguments,
// streams and signals, and ends as it does.
"use strict";
const { spawn } = require("node:child_process");

const name = `paddock-sandbox-${process.platform}-${process.arch}`;

function program() {
  try {
    return require.resolve(`${name}/bin/paddock${process.platform === "win32" ? ".exe" : ""}`);
  } catch {
    console.error(`paddock: error: the package ${name} is not installed`);
    console.error("paddock: hint: install paddock-sandbox without --omit=optional; where there is none for this machine, build paddock from its source");
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`paddock: error: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

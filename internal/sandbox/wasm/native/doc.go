// Package native runs guests that were translated ahead of time: WebAssembly
// to C by wabt's wasm2c, and that to machine code by clang. It is built into
// the native worker only (build tag native).
package native

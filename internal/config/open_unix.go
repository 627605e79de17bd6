//go:build unix

package config

import "syscall"

// nonblock has opening a named pipe not wait for who writes into it.
const nonblock = syscall.O_NONBLOCK

package wasi

import "syscall"

func times(s *syscall.Stat_t) (accessed, changed int64) { return s.Atim.Nano(), s.Ctim.Nano() }

package pkgproxy

import (
	"slices"
	"strings"
)

// guestModules are Node's modules that the JavaScript guest has itself
// (guest/js/driver/modules.js), and which no package takes the place of.
var guestModules = []string{
	"assert", "assert/strict", "buffer", "crypto", "diagnostics_channel", "events", "fs", "fs/promises", "module", "os", "path", "path/posix", "perf_hooks", "process",
	"readline", "readline/promises", "servers", "stream", "stream/promises", "stream/web", "string_decoder", "timers",
	"timers/promises", "url", "util", "zlib",
}

func guestHas(name string) bool {
	return slices.Contains(guestModules, strings.TrimPrefix(name, "node:"))
}

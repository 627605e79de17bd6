package envd

import (
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// metrics tells what the machine uses.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	m := map[string]any{"ts": time.Now().Unix(), "cpu_count": runtime.NumCPU()}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		unit := uint64(info.Unit)
		m["mem_total"], m["mem_used"] = uint64(info.Totalram)*unit, (uint64(info.Totalram)-uint64(info.Freeram))*unit
		m["mem_cache"] = uint64(info.Bufferram) * unit
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.config.Users[s.config.Default], &disk); err == nil {
		m["disk_total"], m["disk_used"] = disk.Blocks*uint64(disk.Bsize), (disk.Blocks-disk.Bfree)*uint64(disk.Bsize)
	}
	answerJSON(w, http.StatusOK, m)
}

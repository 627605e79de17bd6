package helper

import (
	"os"
	"strconv"
	"syscall"
)

// stepBack lets the server and its programs have the processors before a helper. On
// Linux a priority is a thread's, and new threads have that of who starts them.
func stepBack() {
	tasks, _ := os.ReadDir("/proc/self/task") // it works without, too
	for _, task := range tasks {
		if id, err := strconv.Atoi(task.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, 10)
		}
	}
}

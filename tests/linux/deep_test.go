package linux

import (
	"strings"
	"testing"
)

// Folders that a program makes with relative paths are as deep as it likes. What lies
// where nothing is kept is told, counts, and goes back and away without a trace.
func TestFilesThatLieTooDeepAreTold(t *testing.T) {
	c := connect(t, "linux")
	c.run(t, "bash", "echo kept > a")
	deep := strings.TrimSuffix(strings.Repeat("d/", 300), "/")
	r := c.run(t, "bash", "mkdir -p "+deep+"; head -c 1000000 /dev/zero > "+deep+"/f")
	if !r.Success || !strings.Contains(r.Notice, "Some files are not kept, in 1 places, the first is /workspace/d/d") {
		t.Errorf("it ended as %v, %v, and the notice is %q", r.Success, r.Error, r.Notice)
	}
	if r := c.run(t, "bash", "cat a"); r.Stdout != "kept\n" || strings.Contains(r.Notice, "not kept") {
		t.Errorf("then: %q, with the notice %q", r.Stdout, r.Notice)
	}
}

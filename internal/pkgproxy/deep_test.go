package pkgproxy_test

import (
	"strings"
	"testing"

	"paddock/internal/fault"
)

// Sources that are nested without end do not take the process down.
func TestDeepSourcesEnd(t *testing.T) {
	for _, text := range []string{strings.Repeat("[", 4<<20), strings.Repeat("!", 4<<20) + "1", strings.Repeat("a=>", 1<<20) + "1"} {
		r := newRegistry(t)
		r.Add(`{"name":"deep","version":"1.0.0"}`, file{Name: "package/index.js", Text: "export default " + text})
		if _, _, err := install(t, r, "deep"); err != nil && err.Kind != fault.Unsupported {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}

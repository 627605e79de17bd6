package cli

import (
	"os"
	"path/filepath"
	"testing"

	"paddock/internal/session"
)

func TestVolumes(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		text string
		want session.Volume // zero: it is refused
	}{
		{"data:/data", session.Volume{Host: data, Guest: "/data"}},
		{"./data:/opt/data/:ro", session.Volume{Host: data, Guest: "/opt/data", ReadOnly: true}},
		{data + ":/mnt", session.Volume{Host: data, Guest: "/mnt"}},
		{"data", session.Volume{}},
		{"data:relative", session.Volume{}},
		{":/data", session.Volume{}},
		{"none:/data", session.Volume{}},
		{"file:/data", session.Volume{}},
		{"data:/", session.Volume{}},
		{"data:/workspace/data", session.Volume{}},
		{"data:/opt/../proc", session.Volume{}},
	} {
		got, err := volumeOf(test.text)
		if refused := test.want == (session.Volume{}); refused != (err != nil) || !refused && got != test.want {
			t.Errorf("%q gives %+v, %v; want %+v", test.text, got, err, test.want)
		}
	}
}

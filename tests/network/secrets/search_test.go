package secrets

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"
)

// finder looks for a text in files, in its forms, also within what is compressed there.
type finder struct {
	forms [][]byte
	found []string // where it was, and how deep within what is compressed
	bytes int64    // looked through
}

// forms are how a text may be written within another one.
func forms(text string) (all [][]byte) {
	raw := []byte(text)
	all = append(all, raw, []byte(hex.EncodeToString(raw)), []byte(strings.ToUpper(hex.EncodeToString(raw))))
	for shift := range 3 { // what stands before it decides how it is cut; its ends are mixed with others
		for _, in := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			coded := in.EncodeToString(append(make([]byte, shift), raw...))
			all = append(all, []byte(coded[4:len(coded)-4]))
		}
	}
	wide, escaped := []byte{}, ""
	for _, unit := range utf16.Encode([]rune(text)) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	for _, b := range raw {
		escaped += "%" + strings.ToUpper(hex.EncodeToString([]byte{b}))
	}
	return append(all, wide, []byte(escaped))
}

// deepest is how many times something may be compressed within another; more than there
// is in archives of files that a program compressed.
const deepest = 4

// most bounds what something grows to when it is decompressed.
const most = 1 << 30

func (f *finder) look(where string, data []byte, depth int) {
	f.bytes += int64(len(data))
	for _, form := range f.forms {
		if bytes.Contains(data, form) {
			f.found = append(f.found, where)
			break
		}
	}
	if depth == deepest {
		return
	}
	for magic, open := range map[string]func(io.Reader) (io.Reader, error){
		"\x28\xb5\x2f\xfd": func(r io.Reader) (io.Reader, error) {
			return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most))
		},
		"\x1f\x8b\x08": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	} {
		for at := 0; ; {
			next := bytes.Index(data[at:], []byte(magic))
			if next < 0 {
				break
			}
			at += next
			if r, err := open(bytes.NewReader(data[at:])); err == nil {
				// What is damaged, or of another format, gives as much as there is of it.
				inner, _ := io.ReadAll(io.LimitReader(r, most))
				if d, ok := r.(*zstd.Decoder); ok {
					d.Close()
				}
				if len(inner) > 0 {
					f.look(where+">", inner, depth+1)
				}
			}
			at += len(magic)
		}
	}
}

// folder looks through all files of a folder that were changed since.
func (f *finder) folder(t *testing.T, dir string, since time.Time) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if info, err := d.Info(); err != nil || info.ModTime().Before(since) {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		data, err := os.ReadFile(path)
		f.look(name, []byte(name), deepest)
		f.look(name, data, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheSearchFindsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	packed, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(packed.EncodeAll([]byte("some "+core), []byte("before")))
	z.Close()
	for name, data := range map[string]string{
		"raw": "a" + core, "base64": base64.StdEncoding.EncodeToString([]byte("user:" + core + "!")), "url": base64.URLEncoding.EncodeToString([]byte("ab" + core)),
		"hex": hex.EncodeToString([]byte(core)), "deep": "x" + zipped.String(), "not": core[1:],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := finder{forms: forms(core)}
	f.folder(t, dir, time.Time{})
	if got := strings.Join(f.found, " "); got != "base64 deep> deep>> hex raw url" {
		t.Errorf("it found %s", got)
	}
}

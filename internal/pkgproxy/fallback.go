package pkgproxy

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
)

// fallbacks are packages whose wheels are compiled, and whose sources work without what is
// compiled, as they import it only where it is there: in which folder of a source archive
// their modules lie. Of these archives the index shows a wheel with the Python alone, which
// fits everywhere; pip takes it where no compiled one fits. Nothing of an archive is run.
var fallbacks = map[string]struct {
	folder  string
	modules []string
}{
	"markupsafe": {"src", []string{"markupsafe"}},
	"msgpack":    {"", []string{"msgpack"}},
	"pyyaml":     {"lib", []string{"yaml", "_yaml"}},
	"rapidfuzz":  {"src", []string{"rapidfuzz"}},
}

// maxFallback bounds the files of such a wheel together, in bytes; PyYAML's are 250 KB.
const maxFallback = 8 << 20

// fallbackWheel names the wheel that is made of a project's source archive; "": none is.
func fallbackWheel(project, file, version string) string {
	if _, ok := fallbacks[project]; !ok || !strings.HasSuffix(file, ".tar.gz") {
		return ""
	}
	return project + "-" + strings.ReplaceAll(version, "-", "_") + "-py3-none-any.whl"
}

// fallback is the wheel of a source archive.
func fallback(project, version string, archive io.Reader) ([]byte, error) {
	source := fallbacks[project]
	unpacked, err := gzip.NewReader(archive)
	if err != nil {
		return nil, errArchive(project, err)
	}
	defer unpacked.Close()
	files := map[string][]byte{}
	info := project + "-" + strings.ReplaceAll(version, "-", "_") + ".dist-info/"
	left := int64(maxFallback)
	for in := tar.NewReader(io.LimitReader(unpacked, 64*maxFallback)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errArchive(project, err)
		}
		_, inside, _ := strings.Cut(h.Name, "/")
		name := ""
		switch rest, ok := strings.CutPrefix(inside, strings.TrimLeft(source.folder+"/", "/")); {
		case h.Typeflag != tar.TypeReg || path.Clean("/"+inside) != "/"+inside:
		case inside == "PKG-INFO":
			name = info + "METADATA"
		case ok && (path.Ext(rest) == ".py" || path.Base(rest) == "py.typed"):
			if top, _, deeper := strings.Cut(rest, "/"); deeper && slices.Contains(source.modules, top) {
				name = rest
			}
		}
		if name == "" {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(in, left+1))
		if err != nil {
			return nil, errArchive(project, err)
		}
		if left -= int64(len(data)); left < 0 {
			return nil, fault.New(fault.Exhausted, "the source of %s is larger than %d bytes", project, maxFallback)
		}
		files[name] = data
	}
	if files[info+"METADATA"] == nil || len(files) < 2 {
		return nil, errArchive(project, errors.New("it has no PKG-INFO, or no modules"))
	}
	files[info+"WHEEL"] = []byte("Wheel-Version: 1.0\nGenerator: paddock\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	return wheelWith(files, info)
}

// wheelWith packs files into a wheel, the same bytes for the same files.
func wheelWith(files map[string][]byte, info string) ([]byte, error) {
	var record bytes.Buffer
	names := make([]string, 0, len(files)+1)
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sum := sha256.Sum256(files[name])
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[name]))
	}
	fmt.Fprintf(&record, "%sRECORD,,\n", info)
	files[info+"RECORD"] = record.Bytes()
	var packed bytes.Buffer
	out := zip.NewWriter(&packed)
	for _, name := range append(names, info+"RECORD") {
		w, err := out.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err == nil {
			_, err = w.Write(files[name])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

func errArchive(project string, cause error) error {
	return fault.New(fault.Unavailable, "the source archive of %s cannot be read", project).WithCause(cause)
}

// serveFallback gives out the wheel of a source archive.
func (p *Packages) serveFallback(w http.ResponseWriter, r *http.Request, found *shownProject, f projectFile) {
	file, err := found.index.open(r.Context(), f)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	defer file.Close()
	wheel, err := fallback(found.name, f.version, file)
	if err == nil { // its digest is that of all of it
		_, err = io.Copy(io.Discard, file)
	}
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(wheel))
}

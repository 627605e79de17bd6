package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// maxRanges is how many parts of a file one request may ask for; beyond that
// it gets all of it, as RFC 9110 (14.2) allows.
const maxRanges = 16

// entry is a file as clients read it.
type entry struct {
	Path     string    `json:"path"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	ETag     string    `json:"etag"`
}

func entryOf(f workspace.File) entry {
	return entry{Path: f.Path, Size: f.Size, Modified: f.Modified.UTC(), ETag: etag(f)}
}

// list answers with the files that a glob chooses, workspace.MaxFiles at most.
func (t target) list(w http.ResponseWriter, r *http.Request, tree *workspace.Tree) error {
	found, more, err := tree.List(r.Context(), r.URL.Query().Get("glob"))
	if err != nil {
		return err
	}
	all := struct {
		Files []entry `json:"files"`
		More  bool    `json:"more"`
	}{Files: make([]entry, 0, len(found)), More: more}
	for _, f := range found {
		all.Files = append(all.Files, entryOf(f))
	}
	answer(w, r, http.StatusOK, all)
	return nil
}

func (t target) file(w http.ResponseWriter, r *http.Request, tree *workspace.Tree) error {
	switch r.Method {
	case http.MethodPut:
		return t.put(w, r, tree)
	case http.MethodDelete:
		c := conditionsOf(r)
		if err := tree.RemoveFile(t.path, func(f workspace.File) error { return c.check(&f) }); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	f, about, err := tree.OpenFile(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	return send(w, r, f, about)
}

// send answers with a file, or parts of it.
func send(w http.ResponseWriter, r *http.Request, f io.ReaderAt, about workspace.File) error {
	if err := (conditions{match: conditionsOf(r).match}).check(&about); err != nil {
		return err
	}
	if strings.Count(strings.Join(r.Header.Values("Range"), ","), ",") >= maxRanges {
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	describe(w.Header(), about)
	ranged := &ranges{ResponseWriter: w}
	http.ServeContent(ranged, r, "", about.Modified, io.NewSectionReader(f, 0, about.Size))
	if ranged.refused {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", about.Size))
		return errRange
	}
	return nil
}

var errRange = refusal{fault.New(fault.Invalid, "the file has nothing in this range").WithHint("ask for its size with HEAD"), http.StatusRequestedRangeNotSatisfiable}

// ranges keeps the refusal of a range back, for the error to be JSON as others
// are.
type ranges struct {
	http.ResponseWriter
	refused bool
}

func (w *ranges) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *ranges) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// put receives a file.
func (t target) put(w http.ResponseWriter, r *http.Request, tree *workspace.Tree) error {
	if err := checkUpload(r); err != nil {
		return err
	}
	f, created, err := tree.Receive(t.path, body{r.Context(), r.Body}, r.ContentLength, conditionsOf(r).check)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("ETag", etag(f))
	answer(w, r, status, entryOf(f))
	return nil
}

// checkUpload refuses what would be put in place as something else than it is.
func checkUpload(r *http.Request) error {
	if r.Header.Get("Content-Range") != "" {
		return fault.New(fault.Invalid, "a part of a file cannot be uploaded").WithHint("send the whole file, without Content-Range")
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return refusal{fault.New(fault.Invalid, "the content is encoded").WithHint("send it without Content-Encoding"), http.StatusUnsupportedMediaType}
	}
	return nil
}

// body reads a request's body for as long as the request lasts.
type body struct {
	ctx context.Context
	io.Reader
}

func (b body) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, broken{context.Cause(b.ctx)}
	}
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = broken{explain(err)}
	}
	return n, err
}

// explain makes a fault of why a body could not be read, unless it is one.
func explain(err error) error {
	var known *fault.Error
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &large):
		return fault.New(fault.Exhausted, "the request is larger than %d bytes", large.Limit).WithHint("send less at once").WithCause(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Unavailable, "the request's body came too slowly").WithCause(err)
	}
	return fault.New(fault.Invalid, "the request's body did not come whole").WithHint("send it again").WithCause(err)
}

// broken says that a request's body did not come to its end.
type broken struct{ error }

// Unwrap leads to why.
func (b broken) Unwrap() error { return b.error }

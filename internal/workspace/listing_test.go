package workspace

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// sample is a listing with one of everything.
func sample() *Listing {
	ref := blob.Ref{Digest: blob.Digest{1, 2, 3}, Size: 5, Stored: 13}
	s := stamp{size: 5, modified: 1_700_000_000_123_456_789, meta: 1_700_000_000_200_000_000, inode: 1 << 40}
	return &Listing{boot: "this boot", entries: []entry{
		{name: "a\xff\n", end: 1, mode: 0o644, stamp: s, ref: ref},
		{name: "d", end: 5, kind: isFolder, mode: 0o755, stamp: stamp{modified: -5}},
		{name: "e", end: 4, kind: isFolder, stamp: stamp{modified: 7}},
		{name: "closed", end: 4, mode: 0, stamp: s, unknown: true},
		{name: "f", end: 5, mode: 0o7, stamp: stamp{}, ref: blob.Ref{}, racy: true},
		{name: "d-2", end: 6, kind: isFolder, unknown: true},
		{name: "l", end: 7, kind: isLink, stamp: s, target: "../../outside"},
	}}
}

func TestAListingIsEncodedTheSameWayEachTime(t *testing.T) {
	l := sample()
	data, err := l.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	back := &Listing{}
	if err := back.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	switch again, err := back.MarshalBinary(); {
	case err != nil:
		t.Errorf("it came back as: %v", err)
	case !bytes.Equal(again, data):
		t.Errorf("it came back as: again = %q, want %q: %+v", again, data, back)
	case !back.Same(l):
		t.Errorf("it came back as: back.Same(l) = false, want true: %+v", back)
	}
	var refs []blob.Ref
	for r := range back.Refs() {
		refs = append(refs, r)
	}
	if len(refs) != 2 {
		t.Fatalf("len(refs): got %d, want 2: %v", len(refs), refs)
	}
	if refs[0] != l.entries[0].ref {
		t.Errorf("refs[0]: got %v, want %v", refs[0], l.entries[0].ref)
	}
	// A listing that is on a disk has to be readable for ever.
	const want = "70647472656531097468697320626f6f74040361ff0a00a40305aab4aed8c7bfce972fd6d3ff488080808080200102030000" +
		"000000000000000000000000000000000000000000000000000000050d016401ed038988aea1c8bfce972f02016501001801" +
		"06636c6f7365640800059cb4aed8c7bfce972fd6d3ff488080808080200166040700ff87aea1c8bfce972f00000000000000" +
		"000000000000000000000000000000000000000000000000000000000003642d3209000000016c0205aab4aed8c7bfce972f" +
		"d6d3ff488080808080200d2e2e2f2e2e2f6f757473696465"
	if got := hex.EncodeToString(data); got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
	for _, empty := range []*Listing{nil, {}} {
		data, err := empty.MarshalBinary()
		if err != nil {
			t.Errorf("an empty listing: %v", err)
			continue
		}
		switch err := back.UnmarshalBinary(data); {
		case err != nil:
			t.Errorf("an empty listing: UnmarshalBinary(%x): %v", data, err)
		case len(back.entries) != 0:
			t.Errorf("an empty listing: back.entries = %v, want none: %x", back.entries, data)
		case back.files() != 0:
			t.Errorf("an empty listing: back.files() = %v, want 0: %x", back.files(), data)
		}
	}
}

func TestOnlyWhatIsAListingIsTaken(t *testing.T) {
	change := func(do func(*Listing)) []byte {
		l := sample()
		do(l)
		data, err := l.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	whole := change(func(*Listing) {})
	for name, data := range map[string][]byte{
		"nothing":             nil,
		"something else":      []byte("PK\x03\x04"),
		"a newer one":         append([]byte("pdtree2"), whole[7:]...),
		"bytes after it":      append(bytes.Clone(whole), 0),
		"the folder above":    change(func(l *Listing) { l.entries[0].name = ".." }),
		"the folder itself":   change(func(l *Listing) { l.entries[0].name = "." }),
		"a path":              change(func(l *Listing) { l.entries[0].name = "a/b" }),
		"an absolute path":    change(func(l *Listing) { l.entries[0].name = "/etc" }),
		"a NUL":               change(func(l *Listing) { l.entries[0].name = "a\x00" }),
		"no name":             change(func(l *Listing) { l.entries[0].name = "" }),
		"a name of ours":      change(func(l *Listing) { l.entries[0].name = ".paddock-write-X" }),
		"a long name":         change(func(l *Listing) { l.entries[0].name = strings.Repeat("a", 256) }),
		"a name twice":        change(func(l *Listing) { l.entries[0].name = "d" }),
		"names out of order":  change(func(l *Listing) { l.entries[0].name = "z" }),
		"another kind":        change(func(l *Listing) { l.entries[6].kind = 3 }),
		"setuid":              change(func(l *Listing) { l.entries[0].mode = 0o4755 }),
		"a negative size":     change(func(l *Listing) { l.entries[0].ref.Size = -1 }),
		"a link to nowhere":   change(func(l *Listing) { l.entries[6].target = "" }),
		"a link with a NUL":   change(func(l *Listing) { l.entries[6].target = "a\x00b" }),
		"a long link":         change(func(l *Listing) { l.entries[6].target = strings.Repeat("a", maxPath+1) }),
		"folders without end": append([]byte(listingMagic+"\x00"), bytes.Repeat([]byte("\x01\x01d\x01\x00\x00"), maxDepth+2)...),
		"more names than fit": []byte(listingMagic + "\x00\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01a"),
	} {
		t.Run(name, func(t *testing.T) {
			l := &Listing{}
			wantFault(t, l.UnmarshalBinary(data), fault.Invalid)
			if len(l.entries) != 0 {
				t.Errorf("it was taken as %+v", l)
			}
		})
	}
	for k := range whole {
		if err := new(Listing).UnmarshalBinary(whole[:k]); err == nil {
			t.Errorf("it was taken without its last %d bytes", len(whole)-k)
		}
	}
}

func FuzzListing(f *testing.F) {
	data, err := sample().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(listingMagic + "\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &Listing{}
		if l.UnmarshalBinary(data) != nil {
			return
		}
		last := ""
		l.top().visit("", func(p string, e *entry) bool {
			switch {
			case e.end < 1:
				t.Errorf("%q: e.end = %v, want at least 1: %+v", p, e.end, e)
			case e.end > len(l.entries):
				t.Errorf("%q: e.end = %v, want at most %v: %+v", p, e.end, len(l.entries), e)
			case strings.Count(p, "/") > maxDepth:
				t.Errorf("%q: count of / in p = %v, want at most %v: %+v", p, strings.Count(p, "/"), maxDepth, e)
			case !goodName(e.name):
				t.Errorf("%q: goodName(e.name) = false, want true: %+v", p, e)
			case "/"+p == last:
				t.Errorf(`%q: "/" + p = %q, want other than %q`, p, "/"+p, last)
			}
			last = "/" + p
			return true
		})
		first, err := l.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		back := &Listing{}
		switch err := back.UnmarshalBinary(first); {
		case err != nil:
			t.Errorf("%x came back as: %v", data, err)
		case !back.Same(l):
			t.Errorf("%x came back as: back.Same(l) = false, want true: %+v", data, back)
		case len(back.Changes(l)) != 0:
			t.Errorf("%x came back as: back.Changes(l) = %v, want none: %+v",
				data, back.Changes(l), back)
		}
		if second, err := back.MarshalBinary(); err != nil {
			t.Errorf("got error %v, want none: %s", err, first)
		} else if !bytes.Equal(first, second) {
			t.Errorf("first: got %q, want %q", first, second)
		}
	})
}

// files is the number of regular files.
func (l *Listing) files() (n int) {
	for k := range l.top().all {
		if l.entries[k].kind == isFile {
			n++
		}
	}
	return n
}

// bytes is the sum of the files' sizes.
func (l *Listing) bytes() (n int64) {
	for r := range l.Refs() {
		n += r.Size
	}
	return n
}

// unknown are the paths of files whose content is not in the listing, as they
// could not be read, and of folders of which that is so of what is in them:
// they cannot be brought back. It gives MaxFiles at most.
func (l *Listing) unknown() (paths []string) {
	l.top().visit("", func(p string, e *entry) bool {
		if e.unknown {
			paths = append(paths, p)
		}
		return len(paths) < MaxFiles
	})
	return paths
}

// visit calls do for every entry with its path, until it gives false.
func (b branch) visit(dir string, do func(p string, e *entry) bool) bool {
	for e, below := b.first(); e != nil; e, below = b.first() {
		b.skip()
		p := join(dir, e.name)
		if !do(p, e) || !below.visit(p, do) {
			return false
		}
	}
	return true
}

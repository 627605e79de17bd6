package workspace

import (
	"testing"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

func TestAListingCountsAsItsTreeDoes(t *testing.T) {
	g := newTestTree(t, Options{DiskBytes: 1 << 30})
	g.plant("d/e/empty", "")
	g.plant("d/small", "x")
	g.plant("big", string(make([]byte, 3*blockBytes+1)))
	if err := g.root().Symlink("nowhere", "l"); err != nil {
		t.Fatal(err)
	}
	list, _ := g.capture(nil)
	want, err := g.DiskBytes()
	switch got := list.DiskBytes(); {
	case err != nil:
		t.Error(err)
	case got != want:
		t.Errorf("got = %v, want %v", got, want)
	case got != 5*blockBytes+3*blockBytes+1:
		t.Errorf("got = %v, want %v: %d", got, 5*blockBytes+3*blockBytes+1, want)
	}
	if got := (*Listing)(nil).DiskBytes(); got != 0 {
		t.Errorf("an empty one takes %d", got)
	}
}

func TestAListingOfTooMuchIsNotReadOn(t *testing.T) {
	many := &Listing{}
	for k := range 26 * 26 {
		many.entries = append(many.entries, entry{name: string([]byte{'a' + byte(k/26), 'a' + byte(k%26)}), end: k + 1, kind: isFolder})
	}
	huge := &Listing{entries: []entry{
		{name: "a", end: 1, ref: blob.Ref{Size: maxSize}},
		{name: "b", end: 2, ref: blob.Ref{Size: maxSize}},
	}}
	for name, l := range map[string]*Listing{"many folders": many, "files whose sizes overflow": huge} {
		data, err := l.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Listing).UnmarshalBinary(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := ReadListing(data, 26*26*blockBytes-1); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	data, err := many.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if l, err := ReadListing(data, 26*26*blockBytes); err != nil {
		t.Errorf("what may be: got error %v, want none", err)
	} else if !l.Same(many) {
		t.Error("what may be: l.Same(many): got false, want true")
	}
	d := decoder{rest: string(data[len(listingMagic)+1:]), most: 10}
	if d.folder(0); len(d.entries) != 10 {
		t.Errorf("len(d.entries): got %d, want 10: %v", len(d.entries), d.entries)
	} else if d.err == nil {
		t.Error("d.err: got no error, want one")
	}
	if _, err := ReadListing([]byte("nonsense"), 1<<30); fault.KindOf(err) != fault.Invalid {
		t.Errorf("what is none gives %v", err)
	}
}

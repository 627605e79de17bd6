package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/cluster/clustertest"
	"paddock/internal/fault"
)

// pack is one with a content of so many bytes, which no other pack has.
func pack(n uint64, size int) Pack {
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(content)
	return Pack{Manifest: fmt.Appendf(nil, "manifest %d", n), Contents: []Content{{blob.Digest(sha256.Sum256(content)), content}}}
}

func openObjects(t *testing.T, servers *clustertest.Servers) *Objects {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := OpenObjects(ctx, servers.Connect(), servers.Len())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func saver(t *testing.T, c *Claim, o *Objects) *Saver {
	t.Helper()
	s, err := NewSaver(c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func create(t *testing.T, c *Claims, k Key) *Claim {
	t.Helper()
	claim, err := c.Create(t.Context(), k, nil)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestWhatWasSavedIsTheNextHolders saves small packs and large ones, and more than a head
// holds, and reads them where the session is taken over.
func TestWhatWasSavedIsTheNextHolders(t *testing.T) {
	servers := clustertest.Start(t, 3)
	a, b := node(t, servers, "a"), node(t, servers, "b")
	first := saver(t, create(t, a, ann("s")), openObjects(t, servers))
	want := map[At]Pack{}
	var order []At
	for i, size := range []int{100, 600 << 10, 200 << 10, 1000, tailMax + 1, 100 << 10, 100 << 10, 100 << 10, 100 << 10, 7} {
		p := pack(uint64(i), size)
		at, err := first.Save(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		want[at], order = p, append(order, at)
	}
	a.members.Close()
	second := saver(t, eventually(t, b, ann("s")), openObjects(t, servers))
	if got := second.Packs(); !reflect.DeepEqual(got, order) {
		t.Fatalf("the next holder finds %v, want %v", got, order)
	}
	for at, p := range want {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got, err := second.Load(ctx, at)
		cancel()
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("the pack %v is not what was saved (%v)", at, err)
		}
	}
	if at, err := first.Save(t.Context(), pack(90, 600<<10)); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the former holder saves %v: got %v", at, err)
	}
	at, err := second.Save(t.Context(), pack(91, 10), order[0], order[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	third := saver(t, eventually(t, b, ann("s")), openObjects(t, servers))
	if got, want := third.Packs(), append(order[2:len(order):len(order)], at); !reflect.DeepEqual(got, want) {
		t.Errorf("after two were dropped there are %v, want %v", got, want)
	}
	if p, err := third.Load(t.Context(), at); err != nil || string(p.Manifest) != "manifest 91" {
		t.Errorf("the last pack is %q (%v)", p.Manifest, err)
	}
}

// TestSmallPacksNeedNoObjects saves while nothing can be stored: until a tail is full that
// does not matter, and then the session stays what it is.
func TestSmallPacksNeedNoObjects(t *testing.T) {
	servers := clustertest.Start(t, 1)
	a := node(t, servers, "a")
	nc := servers.Connect()
	objects, err := OpenObjects(t.Context(), nc, 1)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	claim := create(t, a, ann("s"))
	s := saver(t, claim, objects)
	var kept []At
	for n := range uint64(100) {
		at, err := s.Save(t.Context(), pack(n, 60<<10))
		if err != nil {
			if fault.KindOf(err) != fault.Unavailable {
				t.Errorf("with a full tail: got %v, want unavailable", err)
			}
			break
		}
		kept = append(kept, at)
	}
	if len(kept) != 4 {
		t.Errorf("%d packs of 60 KiB were kept, want the 4 of a tail", len(kept))
	}
	if _, err := s.Save(t.Context(), pack(100, tailMax)); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a pack that is no tail's: got %v, want unavailable", err)
	}
	if got := s.Packs(); !reflect.DeepEqual(got, kept) {
		t.Errorf("after what failed there are %v, want %v", got, kept)
	}
	s.Close()
	if err := s.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := saver(t, eventually(t, a, ann("s")), openObjects(t, servers))
	if at, err := next.Save(t.Context(), pack(101, 60<<10)); err != nil || at.Place == kept[0].Place {
		t.Fatalf("with objects again: %v, %v", at, err)
	}
	for i, at := range kept {
		p, err := next.Load(t.Context(), at)
		if err != nil || !reflect.DeepEqual(p, pack(uint64(i), 60<<10)) {
			t.Errorf("the pack %v is not what was saved (%v)", at, err)
		}
	}
}

func TestADamagedPackIsRefused(t *testing.T) {
	at, k := At{7, 1}, ann("s")
	data, err := encodePack(k, at, pack(1, 20))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := decodePack(k, at, data); err != nil || !reflect.DeepEqual(p, pack(1, 20)) {
		t.Fatalf("a whole one: %v, %v", p, err)
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if p, err := decodePack(k, at, bad); err == nil {
			t.Errorf("with byte %d changed it is %v", i, p)
		}
		if p, err := decodePack(k, at, data[:i]); err == nil {
			t.Errorf("with %d bytes it is %v", i, p)
		}
	}
	if _, err := decodePack(k, At{7, 2}, data); err == nil {
		t.Error("another number is not noticed")
	}
	if _, err := decodePack(ann("t"), at, data); err == nil {
		t.Error("another session's is not noticed")
	}
}

//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

const page = hostarch.PageSize

// memoryFile makes one as gVisor does, of so many bytes that are not there yet.
func memoryFile(t *testing.T, size int64) *pgalloc.MemoryFile {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "memory"), pgalloc.MemoryFileOpts{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Destroy)
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return f
}

// shown is what each page of an address space shows.
type shown struct {
	platform.AddressSpace
	pages map[hostarch.Addr]string
	calls []string
}

func content(f memmap.File, offset uint64, at hostarch.AccessType) string {
	return fmt.Sprintf("%p %x %v", f, offset, at)
}

func (s *shown) MapFile(addr hostarch.Addr, f memmap.File, fr memmap.FileRange, at hostarch.AccessType, precommit bool) error {
	s.calls = append(s.calls, fmt.Sprintf("map %x-%x", uint64(addr), uint64(addr)+fr.Length()))
	for o := fr.Start; o < fr.End; o += page {
		s.pages[addr+hostarch.Addr(o-fr.Start)] = content(f, o, at)
	}
	return nil
}

func (s *shown) Unmap(addr hostarch.Addr, length uint64) {
	s.calls = append(s.calls, "unmap")
	for a := range s.pages {
		if a >= addr && a < addr+hostarch.Addr(length) {
			delete(s.pages, a)
		}
	}
}

func TestOnlyWhatIsMissingIsMapped(t *testing.T) {
	f, g := memoryFile(t, 0), memoryFile(t, 0)
	under := &shown{pages: map[hostarch.Addr]string{}}
	s := &space{AddressSpace: under}
	rw, r := hostarch.ReadWrite, hostarch.Read
	for _, step := range []struct {
		name       string
		file       *pgalloc.MemoryFile
		start, end hostarch.Addr
		offset     uint64
		access     hostarch.AccessType
		want       []string
	}{
		{"the first time all", f, 0x1000, 0x3000, 0x9000, rw, []string{"map 1000-3000"}},
		{"what comes behind", f, 0x1000, 0x5000, 0x9000, rw, []string{"map 3000-5000"}},
		{"what comes before", f, 0x0, 0x5000, 0x8000, rw, []string{"map 0-1000"}},
		{"nothing is missing: all, for somebody saw a fault", f, 0x0, 0x5000, 0x8000, rw, []string{"map 0-5000"}},
		{"other rights", f, 0x1000, 0x3000, 0x9000, r, []string{"map 1000-3000"}},
		{"rights as before, and only there", f, 0x0, 0x5000, 0x8000, rw, []string{"map 1000-3000"}},
		{"another place of the file", f, 0x2000, 0x3000, 0x2000, rw, []string{"map 2000-3000"}},
		{"another file at the same place", g, 0x2000, 0x3000, 0x2000, rw, []string{"map 2000-3000"}},
		{"what is around it", f, 0x0, 0x6000, 0x8000, rw, []string{"map 2000-3000", "map 5000-6000"}},
		{"unmapped", nil, 0x2000, 0x4000, 0, r, []string{"unmap"}},
		{"the hole", f, 0x0, 0x6000, 0x8000, rw, []string{"map 2000-4000"}},
	} {
		under.calls = nil
		if step.file == nil {
			s.Unmap(step.start, uint64(step.end-step.start))
		} else if err := s.MapFile(step.start, step.file, memmap.FileRange{Start: step.offset, End: step.offset + uint64(step.end-step.start)}, step.access, false); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(under.calls, step.want) {
			t.Errorf("%s: %q, not %q", step.name, under.calls, step.want)
		}
	}
}

// Whatever was asked for before: after a call every page of the range shows what was
// asked for, and no page shows what it did not show without us.
func TestEachPageShowsWhatWasAskedFor(t *testing.T) {
	files := []memmap.File{memoryFile(t, 0), memoryFile(t, 0), struct{ memmap.File }{}}
	rights := []hostarch.AccessType{hostarch.Read, hostarch.ReadWrite, hostarch.ReadExecute}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		plain, under := &shown{pages: map[hostarch.Addr]string{}}, &shown{pages: map[hostarch.Addr]string{}}
		s := &space{AddressSpace: under}
		for step := range 300 {
			addr, n := hostarch.Addr(r.IntN(40)*page), uint64(1+r.IntN(12))*page
			if r.IntN(4) == 0 {
				plain.Unmap(addr, n)
				s.Unmap(addr, n)
			} else {
				f, at := files[r.IntN(len(files))], rights[r.IntN(len(rights))]
				offset := uint64(addr) + uint64(r.IntN(3)*page) // often what is there already
				fr := memmap.FileRange{Start: offset, End: offset + n}
				_, pre := plain.MapFile(addr, f, fr, at, false), r.IntN(8) == 0
				if err := s.MapFile(addr, f, fr, at, pre); err != nil {
					t.Fatal(err)
				}
			}
			for a := range hostarch.Addr(60) {
				if got, want := under.pages[a*page], plain.pages[a*page]; got != want {
					t.Fatalf("seed %d, step %d: page %d shows %q, not %q", seed, step, a, got, want)
				}
			}
			if !slices.IsSortedFunc(s.mapped, func(p, q piece) int { return int(p.end) - int(q.start) }) {
				t.Fatalf("seed %d, step %d: the pieces overlap: %v", seed, step, s.mapped)
			}
		}
	}
}

func TestWhatIsRememberedHasABound(t *testing.T) {
	f := memoryFile(t, 0)
	s := &space{AddressSpace: &shown{pages: map[hostarch.Addr]string{}}}
	for i := range uint64(3 * maxPieces) {
		if err := s.MapFile(hostarch.Addr(2*i*page), f, memmap.FileRange{Start: 0, End: page}, hostarch.Read, false); err != nil {
			t.Fatal(err)
		}
		if len(s.mapped) > maxPieces {
			t.Fatalf("%d pieces are remembered", len(s.mapped))
		}
	}
}

//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"reflect"
	gosync "sync"

	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	calls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/sync"
)

// DropStaleEpollInterests has the sets of epoll(7) of a restored box tell of what is in
// them only. A sentry calls it before its box begins.
//
// gVisor saves an interest that was removed from its set as well, where another one
// of the set still points to it, as those do that were found not to be ready together;
// and it takes every interest that it loads for ready. Such a set tells for ever that a
// file that was closed has hung up, under a descriptor's number that may be another
// file's by now: Node took it for the end of its next connection.
func DropStaleEpollInterests() {
	if !setsAreKnown() {
		return
	}
	var once gosync.Once
	for _, table := range []*kernel.SyscallTable{calls.AMD64, calls.ARM64} {
		for number, call := range table.Table {
			switch call.Name {
			case "epoll_wait", "epoll_pwait", "epoll_pwait2":
				wait := call.Fn
				call.Fn = func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
					once.Do(func() { dropStaleInterests(t) }) // whoever waited when the box was saved begins again
					return wait(t, number, args)
				}
				table.Table[number] = call
			}
		}
		table.Init()
	}
}

// dropStaleInterests looks at all sets that programs of the task's box have open.
func dropStaleInterests(t *kernel.Task) {
	seen := map[*kernel.FDTable]bool{}
	for _, other := range t.Kernel().TaskSet().Root.Tasks() {
		var files []*vfs.FileDescription
		other.WithMuLocked(func(other *kernel.Task) {
			table := other.FDTable()
			if table == nil || seen[table] { // it has ended, or is a thread of one
				return
			}
			seen[table] = true
			for _, fd := range table.GetFDs(t) {
				if file, _ := table.Get(fd); file != nil {
					files = append(files, file)
				}
			}
		})
		for _, file := range files {
			if set, ok := file.Impl().(*vfs.EpollInstance); ok {
				forget(set)
			}
			file.DecRef(t)
		}
	}
}

// forget has a set wait for nothing of what is ready in it and was removed: it takes
// that from what is ready itself, when it looks.
func forget(ep *vfs.EpollInstance) {
	set := reflect.ValueOf(ep).Elem()
	for _, name := range []string{"interestMu", "readyMu"} {
		mu := (*sync.Mutex)(set.FieldByName(name).Addr().UnsafePointer())
		mu.Lock()
		defer mu.Unlock()
	}
	interests := set.FieldByName("interest")
	for at := set.FieldByName("ready").FieldByName("head"); !at.IsNil(); at = at.Elem().FieldByName("next") {
		if in := interests.MapIndex(at.Elem().FieldByName("key")); !in.IsValid() || in.Pointer() != at.Pointer() {
			*(*uint32)(at.Elem().FieldByName("mask").Addr().UnsafePointer()) = 0
		}
	}
}

// setsAreKnown reports whether gVisor's sets are what forget takes them for. If they are
// not, it is left alone, and TestTheSetsOfEpollAreKnown fails.
func setsAreKnown() bool {
	set := reflect.TypeFor[vfs.EpollInstance]()
	for _, name := range []string{"interestMu", "readyMu"} {
		mu, ok := set.FieldByName(name)
		if !ok || mu.Type.Size() != reflect.TypeFor[sync.Mutex]().Size() {
			return false
		}
	}
	interests, ok := set.FieldByName("interest")
	if !ok || interests.Type.Kind() != reflect.Map || interests.Type.Elem().Kind() != reflect.Pointer {
		return false
	}
	ready, ok := set.FieldByName("ready")
	if !ok || ready.Type.Kind() != reflect.Struct {
		return false
	}
	interest := interests.Type.Elem()
	head, ok := ready.Type.FieldByName("head")
	if !ok || head.Type != interest {
		return false
	}
	next, ok := interest.Elem().FieldByName("next")
	if !ok || next.Type != interest {
		return false
	}
	key, ok := interest.Elem().FieldByName("key")
	if !ok || key.Type != interests.Type.Key() {
		return false
	}
	mask, ok := interest.Elem().FieldByName("mask")
	return ok && mask.Type.Kind() == reflect.Uint32
}

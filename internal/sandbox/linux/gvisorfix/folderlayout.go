//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"fmt"
	"reflect"
	gosync "sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/gofer"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/sync"
)

// layout is where gVisor's gofer client has what a comparison needs.
type layout struct {
	filesystem reflect.Type // a pointer
	fs         struct{ vfs, interop, clock, root, renameMu, inodeMu, inodes uintptr }
	dentry     struct{ inode, childrenMu, children, negative, dirents, set uintptr }
	node       struct {
		key, metadataMu, mode, atimeDirty, mtimeDirty, dataMu, haveTarget, target, impl, controlFD uintptr
	}
	inodesType, childrenType, direntsType, setType reflect.Type
	directType                                     unsafe.Pointer // the type word of an impl that is a *directfsInode
}

// inoKey is gVisor's name of a file of the host.
type inoKey struct {
	ino                uint64
	devMinor, devMajor uint32
}

// goferLayout finds the fields, or says which of them is not what it is taken for.
var goferLayout = gosync.OnceValues(findLayout)

func findLayout() (*layout, error) {
	var l layout
	f := fields{}
	fs, dentry, inode, direct := f.named("filesystem"), f.named("dentry"), f.named("inode"), f.named("directfsInode")
	if f.err != nil {
		return nil, f.err
	}
	l.filesystem = reflect.PointerTo(fs)
	dentryPtr, inodePtr := reflect.PointerTo(dentry), reflect.PointerTo(inode)
	l.fs.vfs = f.offset(fs, "vfsfs", reflect.TypeFor[vfs.Filesystem]())
	if opts, ok := fs.FieldByName("opts"); ok && opts.Type.Kind() == reflect.Struct {
		l.fs.interop = opts.Offset + f.offset(opts.Type, "interop", reflect.TypeFor[gofer.InteropMode]())
	} else {
		f.fail(fs, "opts")
	}
	l.fs.clock = f.offset(fs, "clock", reflect.TypeFor[ktime.Clock]())
	l.fs.root = f.offset(fs, "root", dentryPtr)
	l.fs.renameMu = f.offset(fs, "renameMu", reflect.TypeFor[sync.RWMutex]())
	l.fs.inodeMu = f.offset(fs, "inodeMu", reflect.TypeFor[sync.Mutex]())
	l.fs.inodes, l.inodesType = f.mapOf(fs, "inodeByKey", f.key(inode), inodePtr)

	l.dentry.inode = f.offset(dentry, "inode", inodePtr)
	l.dentry.childrenMu = f.offset(dentry, "childrenMu", reflect.TypeFor[sync.Mutex]())
	l.dentry.children, l.childrenType = f.mapOf(dentry, "children", reflect.TypeFor[string](), dentryPtr)
	l.dentry.negative = f.offset(dentry, "negativeChildren", reflect.TypeFor[int]())
	l.direntsType, l.setType = reflect.TypeFor[[]vfs.Dirent](), reflect.TypeFor[map[string]struct{}]()
	l.dentry.dirents = f.offset(dentry, "dirents", l.direntsType)
	l.dentry.set = f.offset(dentry, "childrenSet", l.setType)

	number, mu := reflect.TypeFor[atomicbitops.Uint32](), reflect.TypeFor[sync.Mutex]()
	l.node.key = f.offset(inode, "inoKey", f.key(inode))
	l.node.metadataMu = f.offset(inode, "metadataMu", mu)
	l.node.mode = f.offset(inode, "mode", number)
	l.node.atimeDirty = f.offset(inode, "atimeDirty", number)
	l.node.mtimeDirty = f.offset(inode, "mtimeDirty", number)
	l.node.dataMu = f.offset(inode, "dataMu", reflect.TypeFor[sync.RWMutex]())
	l.node.haveTarget = f.offset(inode, "haveTarget", reflect.TypeFor[bool]())
	l.node.target = f.offset(inode, "target", reflect.TypeFor[string]())
	l.node.impl = f.offset(inode, "impl", reflect.TypeFor[any]())
	if f.offset(direct, "inode", inode) != 0 { // one pointer is both
		f.fail(direct, "inode")
	}
	l.node.controlFD = f.offset(direct, "controlFD", reflect.TypeFor[int]())
	impl := reflect.Zero(reflect.PointerTo(direct)).Interface()
	l.directType = *(*unsafe.Pointer)(unsafe.Pointer(&impl))
	return &l, f.err
}

// fields looks for fields, and keeps the first error.
type fields struct{ err error }

// types are all types that gVisor can save, by name.
//
//go:linkname types gvisor.dev/gvisor/pkg/state.globalTypeDatabase
var types map[string]reflect.Type

func (f *fields) named(name string) reflect.Type {
	t := types["pkg/sentry/fsimpl/gofer."+name]
	if f.err == nil && (t == nil || t.Kind() != reflect.Struct) {
		f.err = fmt.Errorf("gVisor's gofer client has no struct %s", name)
	}
	return t
}

func (f *fields) fail(of reflect.Type, name string) {
	if f.err == nil {
		f.err = fmt.Errorf("gVisor's %s has no field %s as it was known", of, name)
	}
}

func (f *fields) offset(of reflect.Type, name string, want reflect.Type) uintptr {
	field, ok := of.FieldByName(name)
	if !ok || field.Type != want || len(field.Index) != 1 {
		f.fail(of, name)
	}
	return field.Offset
}

func (f *fields) mapOf(of reflect.Type, name string, key, elem reflect.Type) (uintptr, reflect.Type) {
	want := reflect.MapOf(key, elem)
	return f.offset(of, name, want), want
}

// key is the type of an inode's key, if that looks as inoKey does.
func (f *fields) key(inode reflect.Type) reflect.Type {
	field, ok := inode.FieldByName("inoKey")
	if ours := reflect.TypeFor[inoKey](); ok && field.Type.Kind() == reflect.Struct && field.Type.NumField() == ours.NumField() {
		for n := range ours.NumField() {
			a, b := field.Type.Field(n), ours.Field(n)
			ok = ok && a.Name == b.Name && a.Type == b.Type && a.Offset == b.Offset
		}
		if ok {
			return field.Type
		}
	}
	f.fail(inode, "inoKey")
	return reflect.TypeFor[inoKey]()
}

// What follows gives the fields of a gofer.filesystem.

func (l *layout) vfs(fs unsafe.Pointer) *vfs.Filesystem {
	return (*vfs.Filesystem)(unsafe.Add(fs, l.fs.vfs))
}
func (l *layout) root(fs unsafe.Pointer) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Add(fs, l.fs.root))
}
func (l *layout) renameMu(fs unsafe.Pointer) *sync.RWMutex {
	return (*sync.RWMutex)(unsafe.Add(fs, l.fs.renameMu))
}
func (l *layout) inodeMu(fs unsafe.Pointer) *sync.Mutex {
	return (*sync.Mutex)(unsafe.Add(fs, l.fs.inodeMu))
}
func (l *layout) inodes(fs unsafe.Pointer) reflect.Value {
	return reflect.NewAt(l.inodesType, unsafe.Add(fs, l.fs.inodes)).Elem()
}

// inode is that of a gofer.dentry.
func (l *layout) inode(d unsafe.Pointer) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Add(d, l.dentry.inode))
}

// takeNames appends the names of a folder that are known to be there, and forgets those
// that are known not to be, and the listing.
func (l *layout) takeNames(d unsafe.Pointer, names []name) []name {
	mu := (*sync.Mutex)(unsafe.Add(d, l.dentry.childrenMu))
	mu.Lock()
	defer mu.Unlock()
	children := reflect.NewAt(l.childrenType, unsafe.Add(d, l.dentry.children)).Elem()
	for at := children.MapRange(); at.Next(); {
		if child := at.Value().UnsafePointer(); child != nil {
			names = append(names, name{at.Key().String(), child})
		} else {
			children.SetMapIndex(at.Key(), reflect.Value{})
		}
	}
	*(*int)(unsafe.Add(d, l.dentry.negative)) = 0
	reflect.NewAt(l.direntsType, unsafe.Add(d, l.dentry.dirents)).Elem().SetZero()
	reflect.NewAt(l.setType, unsafe.Add(d, l.dentry.set)).Elem().SetZero()
	return names
}

// What follows gives the fields of a gofer.inode.

func (l *layout) metadataMu(i unsafe.Pointer) *sync.Mutex {
	return (*sync.Mutex)(unsafe.Add(i, l.node.metadataMu))
}
func (l *layout) atimeDirty(i unsafe.Pointer) *atomicbitops.Uint32 {
	return (*atomicbitops.Uint32)(unsafe.Add(i, l.node.atimeDirty))
}
func (l *layout) mtimeDirty(i unsafe.Pointer) *atomicbitops.Uint32 {
	return (*atomicbitops.Uint32)(unsafe.Add(i, l.node.mtimeDirty))
}

// direct reports whether the sentry has the file open on the host: then it is a
// directfsInode as well.
func (l *layout) direct(i unsafe.Pointer) bool {
	return *(*unsafe.Pointer)(unsafe.Add(i, l.node.impl)) == l.directType
}
func (l *layout) controlFD(i unsafe.Pointer) int {
	return *(*int)(unsafe.Add(i, l.node.controlFD))
}

// is reports whether an inode is what the host speaks of.
func (l *layout) is(i unsafe.Pointer, stat *unix.Stat_t) bool {
	key := inoKey{ino: stat.Ino, devMinor: unix.Minor(stat.Dev), devMajor: unix.Major(stat.Dev)}
	return *(*inoKey)(unsafe.Add(i, l.node.key)) == key && l.isType(i, stat)
}

func (l *layout) isType(i unsafe.Pointer, stat *unix.Stat_t) bool {
	mode := (*atomicbitops.Uint32)(unsafe.Add(i, l.node.mode))
	return mode.Load()&unix.S_IFMT == stat.Mode&unix.S_IFMT
}

// forgetTarget forgets where a symbolic link leads to.
func (l *layout) forgetTarget(i unsafe.Pointer) {
	mu := (*sync.RWMutex)(unsafe.Add(i, l.node.dataMu))
	mu.Lock()
	defer mu.Unlock()
	*(*bool)(unsafe.Add(i, l.node.haveTarget)) = false
	*(*string)(unsafe.Add(i, l.node.target)) = ""
}

package worker

import (
	"encoding/json"
	"strconv"
	"strings"

	"paddock/internal/sandbox/wasm/wasi"
)

// scriptFiles are a guest's files as JavaScript's fs module uses them.
type scriptFiles struct{ *wasi.System }

// serve answers one call of the fs module, on the same files and by the same rules as
// WASI's calls. Its errors are the fs module's names of them.
func (f scriptFiles) serve(m hostMessage, payload string) (string, error) {
	switch m.Call {
	case "read":
		b, err := f.ReadFile(m.Path)
		return string(b), err
	case "write":
		return "", f.WriteFile(m.Path, []byte(payload), wasi.WriteMode{Append: m.Append, Exclusive: m.Create})
	case "stat":
		info, err := f.Stat(m.Path, m.Follow)
		return encode(info), err
	case "readdir":
		entries, err := f.ReadDir(m.Path)
		return encode(entries), err
	case "mkdir":
		return "", f.Mkdir(m.Path)
	case "unlink":
		return "", f.Unlink(m.Path)
	case "rmdir":
		return "", f.Rmdir(m.Path)
	case "rename":
		return "", f.Rename(m.Path, m.To)
	case "symlink":
		return "", f.Symlink(m.To, m.Path)
	case "readlink":
		return f.Readlink(m.Path)
	case "truncate":
		return "", f.Truncate(m.Path, m.Size)
	case "utimes":
		return "", f.SetTimes(m.Path, int64(m.Atime*1e6), int64(m.Mtime*1e6))
	}
	return f.descriptor(m, payload)
}

// maxPiece bounds one read from a descriptor.
const maxPiece = 16 << 20

// descriptor answers the calls of the fs module on open files.
func (f scriptFiles) descriptor(m hostMessage, payload string) (string, error) {
	offset := int64(-1)
	if m.Offset != nil && *m.Offset >= 0 {
		offset = *m.Offset
	}
	switch m.Call {
	case "open":
		has := func(flag string) bool { return strings.Contains(m.Flags, flag) }
		fd, err := f.OpenFile(m.Path, wasi.OpenMode{
			Read: has("r"), Write: has("w"), Append: has("a"), Create: has("c"), Exclusive: has("x"), Truncate: has("t"),
		})
		return strconv.FormatUint(uint64(fd), 10), err
	case "close":
		return "", f.CloseFD(m.FD)
	case "fread":
		b, err := f.ReadFD(m.FD, int(min(max(m.Size, 0), maxPiece)), offset)
		return string(b), err
	case "fwrite":
		n, err := f.WriteFD(m.FD, []byte(payload), offset)
		return strconv.Itoa(n), err
	case "fsize":
		n, err := f.SizeFD(m.FD)
		return strconv.FormatInt(n, 10), err
	case "ftruncate":
		return "", f.TruncateFD(m.FD, m.Size)
	}
	return "", wasi.ErrUnknown
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

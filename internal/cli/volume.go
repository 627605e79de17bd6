package cli

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/session"
)

// taken are the folders of a machine whose place no volume can take.
var taken = []string{"/", "/workspace", "/tmp", "/proc", "/sys", "/dev", "/servers", "/skills"}

// volumesOf are the folders of this machine that HOST:GUEST[:ro] texts give to a program.
func volumesOf(texts []string) (all []session.Volume, err error) {
	for _, text := range texts {
		v, err := volumeOf(text)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func volumeOf(text string) (v session.Volume, err error) {
	rest, readOnly := strings.CutSuffix(text, ":ro")
	cut := strings.LastIndex(rest, ":") // HOST may begin with a drive
	if cut <= 0 || !path.IsAbs(rest[cut+1:]) {
		return v, usage("%.200q is not a volume", text).WithHint("give HOST:GUEST or HOST:GUEST:ro, with an absolute GUEST, such as ./data:/data:ro")
	}
	v = session.Volume{Guest: path.Clean(rest[cut+1:]), ReadOnly: readOnly}
	top, _, _ := strings.Cut(v.Guest[1:], "/")
	if slices.Contains(taken, "/"+top) {
		return v, usage("a volume cannot be at %s", v.Guest).WithHint("name a folder of its own, such as /data")
	}
	if v.Host, err = filepath.Abs(rest[:cut]); err == nil {
		v.Host, err = filepath.EvalSymlinks(v.Host)
	}
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(v.Host); err == nil && info.IsDir() {
			return v, nil
		}
	}
	return v, usage("%.200q is not a folder of this machine", rest[:cut]).WithHint("make it, or name another one")
}

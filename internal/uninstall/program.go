package uninstall

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// program is the item of the binary: what has installed it has to remove it.
func program(path, goos string) Item {
	i := Item{What: "the program", Path: path, Action: ByHand, remove: func() error { return gone(os.Remove(path)) }}
	if info, err := os.Stat(path); err == nil {
		i.Bytes = info.Size()
	}
	dir := filepath.Dir(path)
	parts := strings.Split(filepath.ToSlash(path), "/")
	switch {
	case slices.Contains(parts, "_npx"):
		i.Hint = "npx keeps it in npm's cache: npm cache npx rm"
	case slices.Contains(parts, "node_modules"):
		i.Hint = "npm uninstall --global paddock-sandbox"
	case isWheel(dir):
		i.Hint = wheelHint(dir, parts)
	case isDebian(path):
		i.Hint = "apt-get remove paddock"
	case isFile(filepath.Join(dir, "..", "manifest.json")) && filepath.Base(dir) == "server":
		i.Hint = "remove the extension in the client's settings"
	case goos == "windows":
		i.Hint = "Windows does not remove a program that runs: delete the file"
	default:
		i.Action = Remove
	}
	return i
}

// isWheel reports whether pip, or what works as pip does, has put a program into dir.
func isWheel(dir string) bool {
	for _, pattern := range []string{"../lib/python*/site-packages", "../lib/python*/dist-packages", "../local/lib/python*/dist-packages", "../Lib/site-packages"} {
		if found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern), "paddock_sandbox-*.dist-info")); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

func wheelHint(dir string, parts []string) string {
	switch {
	case slices.Contains(parts, "uv") && slices.Contains(parts, "tools"):
		return "uv tool uninstall paddock-sandbox"
	case slices.Contains(parts, "uv"):
		return "uvx keeps it in uv's cache: uv cache clean paddock-sandbox"
	case slices.Contains(parts, "pipx"):
		return "pipx uninstall paddock-sandbox"
	}
	return filepath.Join(dir, "python3") + " -m pip uninstall paddock-sandbox"
}

// isDebian reports whether dpkg has installed the program.
func isDebian(path string) bool {
	list, err := os.ReadFile("/var/lib/dpkg/info/paddock.list")
	return err == nil && slices.Contains(strings.Split(string(list), "\n"), path)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

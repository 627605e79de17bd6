//go:build linux && (amd64 || arm64)

package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// What of the machine's own userland a box sees: programs and libraries, and of
// /etc what they need to be found and to check certificates. Nothing of users,
// secrets, state or configuration.
var (
	hostFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
	hostEtc     = []string{
		"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl", "/etc/pki",
		"/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies", "/etc/mime.types", "/etc/localtime",
		"/etc/timezone", "/etc/magic", "/etc/magic.mime", "/etc/protocols", "/etc/services", "/etc/fonts", "/etc/matplotlibrc",
		"/etc/os-release", "/etc/debian_version", "/etc/java", "/etc/perl", "/etc/terminfo",
	}
)

// secretEtc are what the folders above may hold that no program inside needs.
var secretEtc = []string{"/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/private"}

// Files of a box that are not the machine's.
const (
	passwdEntry = "sandbox:x:1000:1000:sandbox:/tmp:/bin/sh"
	groupEntry  = "sandbox:x:1000:"

	passwd = "root:x:0:0:root:/root:/usr/sbin/nologin\n" + passwdEntry + "\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
	group  = "root:x:0:\n" + groupEntry + "\nnogroup:x:65534:\n"
	hosts  = "127.0.0.1 localhost " + hostName + "\n::1 localhost\n"
	nss    = "passwd: files\ngroup: files\nhosts: files\n"
)

// hostRootfs is this machine's own userland. A user of another name than the usual one may
// write beside what is the host's.
func hostRootfs(user string) (rootfs, error) {
	dirs := os.FileMode(0o555)
	if user != "" {
		dirs = 0o777
	}
	steps := []step{{Path: rootPath, Dir: dirs}}
	at := func(p string) string { return filepath.Join(rootPath, p) }
	for _, dir := range []string{"/etc", "/proc", "/sys", "/dev", "/run", "/home", "/mnt", "/opt", "/root", "/srv", "/var"} {
		mode := os.FileMode(0o555)
		if dir != "/proc" && dir != "/sys" && dir != "/dev" && dir != "/etc" {
			mode = dirs
		}
		steps = append(steps, step{Path: at(dir), Dir: mode})
	}
	steps = append(steps, step{Path: at("/tmp"), Dir: 0o777 | os.ModeSticky}, step{Path: at("/var/tmp"), Dir: 0o777 | os.ModeSticky})
	for _, p := range append(append([]string{}, hostFolders...), hostEtc...) {
		s, err := showHost(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return rootfs{}, fmt.Errorf("looking at the host's %s: %w", p, err)
		}
		s.Path = at(p)
		steps = append(steps, s)
	}
	for _, p := range secretEtc {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			steps = append(steps, step{Path: at(p), Hide: true})
		}
	}
	for p, text := range map[string]string{
		"/etc/passwd": withUser(passwd, user), "/etc/group": withGroup(group, user), "/etc/hosts": hosts, "/etc/nsswitch.conf": nss, "/etc/hostname": hostName + "\n", "/etc/resolv.conf": "",
	} {
		steps = append(steps, step{Path: at(p), Text: text})
	}
	return rootfs{steps: steps, name: HostImage}, nil
}

// showHost shows a path of the host as it is: a link as a link, if it leads to
// where the box has something, too.
func showHost(p string) (step, error) {
	info, err := os.Lstat(p)
	if err != nil {
		return step{}, err
	}
	if info.Mode()&fs.ModeSymlink == 0 {
		return step{Bind: p, ReadOnly: true}, nil
	}
	target, err := os.Readlink(p)
	if err != nil {
		return step{}, err
	}
	return step{Link: target}, nil
}

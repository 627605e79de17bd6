//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

// attempt is one program that tries something, and what it has to print.
type attempt struct{ runtime, code, want string }

// tools are what attempts in Python use: refused(f) says how f is refused, call
// makes a system call by its number on x86-64, or says that it is another machine.
const tools = `
import ctypes, errno, os, platform, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def refused(f):
    try: r = f()
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
    except BaseException as e: return type(e).__name__
    return 'done ' + repr(r)
def call(n, *args):
    if platform.machine() != 'x86_64': raise OSError(errno.ENOSYS, '')
    ctypes.set_errno(0)
    r = libc.syscall(n, *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if r < 0: raise OSError(ctypes.get_errno(), '')
    return r
def none(*fs):
    for n, f in enumerate(fs):
        r = refused(f)
        if r.startswith('done'): print(n, r)
`

// attempts are what SECURITY.md names, by the number there; each is in a box of its
// own, with /mine and the read-only /look.
var attempts = map[string][]attempt{
	"20 paths": {
		{"python", "none(*[lambda p=p: open(p).read() for p in ('/mine/../../etc/shadow', '/etc/shadow', '//etc//shadow', '/proc/self/root/etc/shadow', '/proc/1/root/../../etc/shadow', '/proc/self/cwd/../../../etc/shadow', '/look/../../secret', 'SECRET')])", ""},
	},
	"21 links out": {
		{"bash", "cd /mine; ln -s SECRET l; ln -s / up; cat l; cat up/SECRET up/../SECRET; ln -s ../../../../SECRET d; cat d; echo x > l; ls up/home up/root", "up/home:\n\nup/root:\n"},
	},
	"22 hard links and renames": {
		{"bash", "ln /etc/passwd /mine/p; ln /look/in /mine/in; mv /mine /w2; mv /look /mine/l; mv /usr/bin/env /mine/e; rm -f /mine/e; cd /mine; mkdir -p a/b; cd a/b; mv /mine/a /mine/a/b/c; ls /mine", "a\nl\n"},
	},
	"24 special files": {
		{"bash", "mknod /mine/d c 1 3; mknod /mine/b b 8 0; mknod /dev/shm/m c 1 1; unshare -Ur mknod /mine/u c 1 3; ls /mine", ""},
		{"python", "os.mkfifo('/mine/fifo'); s = socket.socket(socket.AF_UNIX); s.bind('/mine/sock')", ""},
	},
	"25 the host through /proc, /sys and /dev": {
		{"python", "none(*[lambda p=p: open(p, 'rb').read(1) for p in ('/dev/mem', '/dev/kvm', '/dev/kmsg', '/dev/vda', '/dev/sda', '/dev/fuse', '/dev/net/tun', '/proc/kcore', '/proc/kmsg', '/proc/kallsyms', '/proc/1/mem', '/proc/1/fd/3', '/sys/kernel/security/lsm', '/proc/sys/kernel/core_pattern')])", ""},
		{"python", "none(*[lambda p=p: open(p, 'w').write('1') for p in ('/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/vm/drop_caches', '/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs')])", ""},
		{"bash", "all=$(cat /proc/*/environ /proc/*/cmdline /proc/mounts /proc/self/mountinfo /proc/self/cgroup /proc/net/* /proc/cpuinfo /proc/version 2> /dev/null | tr '\\0' '\\n'); for s in MARKER HOST STATE; do [[ $all == *$s* ]] && echo $s; done", ""},
		{"bash", "ls /proc | grep -c '^[0-9]*$' | { read n; (( n < 10 )) && echo few; }; cat /proc/sys/kernel/hostname", "few\npaddock\n"},
	},
	"26 names of the host": {
		{"bash", "hostname; id -un; env | grep -F -e MARKER -e 'HOST'; cat /etc/hosts /etc/resolv.conf /etc/passwd | grep -F HOST; date +%Z; cat /proc/version | cut -c1-19", "paddock\nsandbox\nUTC\nLinux version 4.4.0\n"},
	},
	"28 others' files, images and caches": {
		{"bash", "echo x > /usr/bin/planted; echo x >> /usr/bin/env; echo x > /look/planted; echo x >> /look/in; rm /look/in; touch /look/in; chmod 777 /look /look/in; mkdir /usr/d; ln -s x /look/l; cat /look/in; find / -path /proc -prune -o -path '/usr/[^bd]*' -prune -o -name 'planted' -print 2> /dev/null", "in look\n"},
		{"python", "none(lambda: os.utime('/look/in'), lambda: os.chown('/look/in', 1000, 1000), lambda: os.truncate('/look/in', 0), lambda: os.setxattr('/look/in', 'user.x', b'x'), lambda: os.open('/look/in', os.O_RDWR), lambda: os.rename('/look/in', '/look/o'))", ""},
		{"bash", "find / \\( -path /proc -o -path /sys \\) -prune -o -name '*MARKER*' -print 2> /dev/null; ls -d /tmp/paddock* SECRET STATE 2> /dev/null", ""},
	},
	"31 the network": {
		{"python", "none(*[lambda a=a: socket.create_connection(a, 2) for a in (('1.1.1.1', 53), ('127.0.0.1', 22), ('127.0.0.1', PORT), ('169.254.169.254', 80), ('::1', PORT), ('10.0.0.1', 80))], lambda: socket.getaddrinfo('example.com', 80))", ""},
		{"python", "none(lambda: socket.socket(2, socket.SOCK_RAW, 1), lambda: socket.socket(17, socket.SOCK_RAW, 3), lambda: socket.socket(40, 1), lambda: socket.socket(38, 5), lambda: socket.socket(29, 3, 1), lambda: socket.socket(31, 3), lambda: socket.socket(2, 2).sendto(b'x', ('8.8.8.8', 53)), lambda: socket.socket(10, 2).sendto(b'x', ('2001:4860:4860::8888', 53)), lambda: socket.socket(1, 1).connect('ABSTRACT'), lambda: socket.socket(1, 1).connect('SOCKET'))", ""},
		{"bash", "unshare -Urn ip link add v0 type veth; ip link add d0 type dummy; ip addr add 10.9.9.9/24 dev lo; ls /sys/class/net", ""},
	},
	"50 Python from the inside": {
		{"python", "import gc\ngc.get_objects(); ().__class__.__base__.__subclasses__(); sys.modules.clear()", ""},
	},
	"56 system calls": {
		// ptrace, process_vm_writev, pidfd_getfd of the first process.
		{"python", "v = (ctypes.c_long * 2)(0, 8)\nnone(lambda: call(101, 16, 1, 0, 0), lambda: call(101, 0x4206, 1, 0, 0), lambda: call(311, 1, v, 1, v, 1, 0), lambda: call(310, 1, v, 1, v, 1, 0), lambda: call(438, call(434, 1, 0), 3, 0))", ""},
		// io_uring_setup, bpf, perf_event_open, kexec_load, userfaultfd, keyctl, add_key, init_module, fanotify_init, open_by_handle_at.
		{"python", "b = ctypes.create_string_buffer(256)\nnone(lambda: call(425, 8, b), lambda: call(321, 0, b, 64), lambda: call(298, b, 0, -1, -1, 0), lambda: call(246, 0, 0, 0, 0), lambda: call(323, 0), lambda: call(248, b'user', b'k', b'v', 1, -2), lambda: call(175, b, 10, b''), lambda: call(313, 0, b'', 0), lambda: call(300, 0, 0), lambda: call(304, -100, b, 0))", ""},
		// mount, umount, pivot_root, swapon, reboot, settimeofday, clock_settime, adjtimex, sethostname, ioperm, iopl, setns, mknod, chroot, acct, quotactl.
		{"python", "b = ctypes.create_string_buffer(256)\nnone(lambda: call(165, b'none', b'/mine', b'tmpfs', 0, 0), lambda: call(166, b'/look', 2), lambda: call(155, b'/', b'/'), lambda: call(167, b'/mine/x', 0), lambda: call(169, 0xfee1dead, 672274793, 0x1234567, 0), lambda: call(164, b, 0), lambda: call(227, 0, b), lambda: call(170, b'x', 1), lambda: call(173, 0, 1, 1), lambda: call(172, 3), lambda: call(308, os.open('/proc/1/ns/user', 0), 0), lambda: call(161, b'/mine'), lambda: call(163, b'/mine/a'), lambda: call(430, b'proc', 0), lambda: call(428, -100, b'/', 1))", ""},
		{"python", "none(lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0), lambda: os.chown('/mine', 0, 0), lambda: __import__('resource').setrlimit(7, (1 << 20, 1 << 20)), lambda: __import__('resource').setrlimit(6, (1 << 20, 1 << 20)))", ""},
	},
	"56 set-user-id programs": {
		{"bash", "su -c id < /dev/null; newgrp root < /dev/null; mount -t tmpfs none /mine; cp /usr/bin/id /mine/id; chmod 6755 /mine/id; /mine/id -u; grep -h -e ^Cap /proc/self/status | tr -d '\\t'", "1000\nCapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\n"},
	},
	// Rights in a user namespace of the box's are gVisor's own, and none of the host's.
	"56 user namespaces": {
		{"bash", "unshare -Urm bash -c 'mount -o remount,rw,bind /look; mount -o remount,rw /look; echo x > /look/planted; mknod /mine/d b 8 0; mount -t proc proc /look; mount -t tmpfs none /mine && echo x > /mine/covered; mount --move /mine /look; cat /etc/shadow; echo x > /usr/bin/planted; hostname evil; chroot /mine' > /dev/null; ls /mine /look; hostname; echo on", "/look:\nin\n\n/mine:\npaddock\non\n"},
		{"python", "call(272, 0x10000000)\nnone(lambda: call(101, 16, 1, 0, 0), lambda: open('/proc/1/mem', 'r+b').read(1), lambda: open('/look/planted', 'w'), lambda: socket.socket(17, 3, 3), lambda: os.chown('/mine', 0, 0), lambda: call(227, 0, ctypes.create_string_buffer(16)))", ""},
	},
	// A file system that a program of the box's serves, and does not: what looks into it
	// waits for ever, and nobody else does.
	"56 FUSE": {
		{"python", `import time
r, w = os.pipe()
if os.fork() == 0:
    uid, gid = os.getuid(), os.getgid()
    call(272, 0x10020000)
    for ids, n in ('uid', uid), ('gid', gid): open(f'/proc/self/{ids}_map', 'w').write(f'0 {n} 1')
    f = os.open('/dev/fuse', os.O_RDWR)
    for at in b'/mnt', b'/mine', b'/tmp', b'/proc': call(165, b'fuse', at, b'fuse', 0, f'fd={f},rootmode=40000,user_id=0,group_id=0'.encode())
    if os.fork() == 0: os.listdir('/mine')
    os.write(w, b'mounted')
    time.sleep(1000)
os.close(w)
print(os.read(r, 100), os.listdir('/mine'), len(os.listdir('/mnt')))`, "b'mounted' [] 0\n"},
		{"bash", "ls /mine; echo on", "on\n"},
	},
	"56 descriptors": {
		// What another process sends over a socket is what it has, and nobody has the server's.
		{"python", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)\nsocket.send_fds(a, [b'x'], [0, 1, 2])\nprint(len(socket.recv_fds(b, 1, 3)[1]))", "3\n"},
		{"python", "found = [os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + f)]\nprint([f for f in found if f.startswith('host:')])", "[]\n"},
	},
	"57 pickle": {
		{"python", "import pickle\nclass E:\n    def __reduce__(self): return (eval, ('open(\"/mine/ran\", \"w\").write(\"only here\")',))\npickle.loads(pickle.dumps(E())); print(open('/mine/ran').read())", "only here\n"},
	},
}

// The host's secrets, as attempts name them.
func secrets(t *testing.T) *strings.Replacer {
	t.Helper()
	const marker = "xMARKERx7f3a"
	t.Setenv("PADDOCK_TEST_SECRET", marker)
	dir := t.TempDir()
	secret := filepath.Join(dir, marker)
	if err := os.WriteFile(secret, []byte(marker), 0o644); err != nil {
		t.Fatal(err)
	}
	for p := dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	listener := listen(t, "tcp", "127.0.0.1:0")
	_, port, _ := strings.Cut(listener, ":")
	abstract := "@paddock-test-" + marker
	listen(t, "unix", abstract)
	socket := filepath.Join(dir, "s")
	listen(t, "unix", socket)
	host, err := os.Hostname()
	if err != nil || len(host) < 3 || host == "paddock" {
		host = "xNOHOSTx"
	}
	return strings.NewReplacer("SECRET", secret, "MARKER", marker, "STATE", dir, "PORT", port, "ABSTRACT", `\0`+abstract[1:], "SOCKET", socket, "HOST", " "+host)
}

func TestAttacksFromTheInside(t *testing.T) {
	b := newBackend(t)
	var runtimes []string
	for _, r := range b.Probe(t.Context()).Runtimes {
		runtimes = append(runtimes, r.Name)
	}
	sandboxtest.Require(t, "linux-python", slices.Contains(runtimes, "python") && slices.Contains(runtimes, "bash"), "this machine has no Python or no bash")
	fill := secrets(t)
	witness := start(t, b, sandbox.Spec{Owner: "witness", Runtime: "bash"})
	runs(t, witness, "before=1")
	for name, all := range attempts {
		t.Run(name, func(t *testing.T) {
			work, look := folderFor(t, "work"), folderFor(t, "look")
			if err := os.WriteFile(filepath.Join(look, "in"), []byte("in look\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(look, 0o777); err != nil { // what keeps it is the mount
				t.Fatal(err)
			}
			in := map[string]*instance{}
			for _, a := range all {
				if in[a.runtime] == nil {
					in[a.runtime] = start(t, b, sandbox.Spec{Owner: "eve", Runtime: a.runtime, Box: name, Dir: "/mine", Mounts: []sandbox.Mount{
						{Guest: "/mine", Host: work, DiskBytes: 16 << 20}, {Guest: "/look", Host: look, ReadOnly: true},
					}})
				}
				code := fill.Replace(a.code)
				if a.runtime == "python" {
					code = tools + code
				}
				attack(t, in[a.runtime], code, a.want)
			}
			if exit := runs(t, witness, "(( before == 1 ))"); exit.Code != 0 {
				t.Errorf("the other box's program ended as %+v", exit)
			}
			if text, err := os.ReadFile(filepath.Join(look, "in")); err != nil || string(text) != "in look\n" {
				t.Errorf("the file that is only to be read has %q, %v", text, err)
			}
			if entries, err := os.ReadDir(look); err != nil || len(entries) != 1 {
				t.Errorf("%v is in the folder that is only to be read, %v", entries, err)
			}
		})
	}
}

// attack runs a program and compares what it prints.
func attack(t *testing.T, in *instance, code, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	exit, err := in.Run(ctx, sandbox.Command{Code: code, Stdout: &out, Stderr: &errs})
	if err != nil || exit.Cause != sandbox.Exited {
		t.Errorf("%s\nended as %+v, %v", code, exit, err)
	}
	if out.String() != want {
		t.Errorf("%s\nprinted %q, and %.1500s; %+v", strings.TrimPrefix(code, tools), out.String(), errs.String(), exit.Error)
	}
}

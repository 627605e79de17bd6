package install

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/session"
)

func TestWhatIsToBeInstalled(t *testing.T) {
	for _, test := range []struct {
		name, text, language string
		kind, lines, files   string
		upgrade              bool
		failure              fault.Kind
	}{
		{"a requirement", " attrs >= 23 ", "", pkgproxy.PyPI, "attrs >= 23", "", false, ""},
		{"several, with comments", "attrs\n# more\n\nhttpx[http2]>=0.27,<1 # new", "python", pkgproxy.PyPI, "attrs|httpx[http2]>=0.27,<1 # new", "", false, ""},
		{"a file", "-r requirements.txt", "python", pkgproxy.PyPI, "", "requirements.txt", false, ""},
		{"files, in other words", "--requirement=a.txt\n--requirement b.txt", "bash", pkgproxy.PyPI, "", "a.txt|b.txt", false, ""},
		{"an upgrade", "--upgrade attrs", "", pkgproxy.PyPI, "attrs", "", true, ""},
		{"an upgrade of a file", "-U -r a.txt", "", pkgproxy.PyPI, "", "a.txt", true, ""},
		{"an upgrade of what the next lines say", "-U\nattrs", "", pkgproxy.PyPI, "attrs", "", true, ""},
		{"npm's", "zod@^3 ajv\n@a/b", "typescript", pkgproxy.NPM, "zod@^3|ajv|@a/b", "", false, ""},
		{"npm's in a session of Python's", "npm:zod", "python", pkgproxy.NPM, "zod", "", false, ""},
		{"Python's in a session of JavaScript's", "pypi:attrs", "javascript", pkgproxy.PyPI, "attrs", "", false, ""},
		{"both", "attrs\nnpm:zod", "python", "", "", "", false, fault.Invalid},
		{"nothing", " \n# nothing\n", "python", "", "", "", false, fault.Invalid},
		{"an option", "--index-url http://127.0.0.1/ attrs", "python", "", "", "", false, fault.Denied},
		{"a URL", "attrs @ http://127.0.0.1/a.whl", "python", "", "", "", false, fault.Denied},
		{"an option that begins as one of ours", "--upgrade-strategy=eager attrs", "python", "", "", "", false, fault.Denied},
		{"a repository", "owner/repo", "javascript", "", "", "", false, fault.Denied},
	} {
		w, err := readWishes(test.text, test.language)
		if fault.KindOf(err) != test.failure && (err != nil || test.failure != "") {
			t.Errorf("%s: %v", test.name, err)
		}
		if err == nil && (w.kind != test.kind || strings.Join(w.lines, "|") != test.lines || strings.Join(w.files, "|") != test.files || w.upgrade != test.upgrade) {
			t.Errorf("%s: %+v", test.name, w)
		}
	}
}

func TestWhatNPMSays(t *testing.T) {
	for _, test := range []struct {
		printed string
		kind    fault.Kind
		word    string
	}{
		{"npm error code E404\nnpm error 404 Not Found - GET http://packages/npm/x - no index has it\nnpm error A complete log of this run", fault.NotFound, "no index has it"},
		{"npm ERR! code ETARGET\nnpm ERR! notarget No matching version found for x@9.", fault.NotFound, "x@9"},
		{"npm error code E403", fault.Denied, ""},
		{"npm error code ENOSPC", fault.Exhausted, "disk"},
		{"", fault.Unavailable, "ended with an error"},
	} {
		err := explainNPM(test.printed)
		switch {
		case fault.KindOf(err) != test.kind:
			t.Errorf("%q: error %v, want kind %v", test.printed, err, test.kind)
		case !strings.Contains(err.Error(), test.word):
			t.Errorf("%q: err = %q, want %q in it", test.printed, err.Error(), test.word)
		case strings.Contains(err.Error(), "complete log"):
			t.Errorf(`%q: err = %q, want no "complete log" in it`, test.printed, err.Error())
		}
	}
}

func TestFilesOfPackagesAreKnown(t *testing.T) {
	for name, want := range map[string]bool{
		".paddock/python/lib/python3.13/site-packages/a.py": true, ".paddock/node_modules/zod/index.js": true, "node_modules/a/b.js": true,
		".local/lib/python3.12/site-packages/a.py": true, ".paddock/3-stdout.txt": false, "a.py": false, "my_node_modules/a.js": false, ".paddock/pythonic": false,
	} {
		if Folder(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

func TestWithoutAFrontNothingIsInstalled(t *testing.T) {
	for _, i := range []*Installer{nil, New(Config{})} {
		if i.Serves() {
			t.Error("it installs something")
		}
	}
	var none *pkgproxy.Packages
	for _, kind := range []string{pkgproxy.PyPI, pkgproxy.NPM} {
		if err := none.Serves(kind); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("got %v, want one of kind %v", err, fault.Unsupported)
		} else if !strings.Contains(fault.Of(err).Hint, "packages."+kind+".index") {
			t.Errorf("fault.Of(err).Hint: got %q, want %q in it", fault.Of(err).Hint, "packages."+kind+".index")
		}
	}
}

func TestASessionHasOneInstallationAtATime(t *testing.T) {
	i := New(Config{})
	var all sync.WaitGroup
	var order []int
	for k := range 20 {
		all.Go(func() {
			release, err := i.alone(t.Context(), held{session.Local, "s"})
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			order = append(order, k) // the race detector looks
		})
	}
	all.Wait()
	slices.Sort(order)
	if len(slices.Compact(order)) != 20 {
		t.Errorf("len(slices.Compact(order)): got %d, want 20: %v",
			len(slices.Compact(order)), slices.Compact(order))
	}
	if len(i.busy) != 0 {
		t.Errorf("i.busy: got %v, want none", i.busy)
	}
}

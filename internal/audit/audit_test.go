package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/telemetry"
)

// writerEnv makes the test binary a process that writes records into a folder.
const writerEnv = "AUDIT_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		l := audit.New(audit.Config{Dir: dir, Transport: "cli"})
		for i := range 200 {
			if err := l.Write(context.Background(), audit.Record{Action: audit.FileWrite, Target: strings.Repeat("x", i)}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func newLog(t *testing.T, c audit.Config) (*audit.Log, string) {
	t.Helper()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "audit")
	}
	l := audit.New(c)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, c.Dir
}

func write(t *testing.T, l *audit.Log, ctx context.Context, all ...audit.Record) {
	t.Helper()
	for _, r := range all {
		if err := l.Write(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, dir string, f audit.Filter) []audit.Record {
	t.Helper()
	var all []audit.Record
	for r, err := range audit.Read(dir, f) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func verify(t *testing.T, dir string) audit.Report {
	t.Helper()
	r, err := audit.Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// today is the one file that there is.
func today(t *testing.T, dir string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatalf("the files: got error %v, want none", err)
	}
	if len(all) != 1 {
		t.Fatalf("the files: len(all): got %d, want 1: %v", len(all), all)
	}
	return all[0]
}

func TestARecordSaysWhoRanWhat(t *testing.T) {
	ctx := auth.With(telemetry.WithClient(telemetry.WithRequestID(t.Context(), "r-1"), "inspector"), &auth.Principal{ID: "token:1"})
	ctx = telemetry.FromMeta(ctx, map[string]any{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	code := "print('a secret')"
	for _, include := range []bool{false, true} {
		l, dir := newLog(t, audit.Config{Transport: "http", IncludeCode: include, Sync: true})
		write(t, l, ctx, audit.Record{Action: audit.Execute, Phase: audit.Begin, Session: "s-1", Execution: "x-1", Code: code})
		all := read(t, dir, audit.Filter{})
		if len(all) != 1 {
			t.Fatalf("the records are %v", all)
		}
		r := all[0]
		switch {
		case r.Principal != "token:1":
			t.Errorf(`the record: r.Principal = %q, want "token:1"`, r.Principal)
		case r.Client != "inspector":
			t.Errorf(`the record: r.Client = %q, want "inspector"`, r.Client)
		case r.RequestID != "r-1":
			t.Errorf(`the record: r.RequestID = %q, want "r-1"`, r.RequestID)
		case r.TraceID != "0af7651916cd43dd8448eb211c80319c":
			t.Errorf(`the record: r.TraceID = %q, want "0af7651916cd43dd8448eb211c80319c"`, r.TraceID)
		case r.Transport != "http":
			t.Errorf(`the record: r.Transport = %q, want "http"`, r.Transport)
		case r.CodeSHA256 != "710fd7157367ff489c2397af78d1f351a1e4ba172b82cebc2e515a1468b52c15":
			t.Errorf("the record: r.CodeSHA256 = %q, want %q",
				r.CodeSHA256, "710fd7157367ff489c2397af78d1f351a1e4ba172b82cebc2e515a1468b52c15")
		case r.CodeBytes != len(code):
			t.Errorf("the record: r.CodeBytes = %v, want %v: %+v", r.CodeBytes, len(code), r)
		}
		text, err := os.ReadFile(today(t, dir))
		if err != nil {
			t.Fatalf("with include_code: got error %v, want none: %s", err, text)
		}
		if bytes.Contains(text, []byte("a secret")) != include {
			t.Errorf(`with include_code: bytes.Contains(text, []byte("a secret")): got %v, want %v`,
				bytes.Contains(text, []byte("a secret")), include)
		}
		info, err := os.Stat(today(t, dir))
		if err != nil {
			t.Fatalf("the file: got error %v, want none", err)
		}
		if info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
			t.Errorf("the file's mode: got %v, want 0600", info.Mode())
		}
	}
}

func TestNoValueForgesARecord(t *testing.T) {
	l, dir := newLog(t, audit.Config{})
	forged := "x\"}\n{\"time\":\"2026-01-01T00:00:00Z\",\"action\":\"execute\"}\n\x1b[2J\u009b\u202e\u2028"
	write(t, l, telemetry.WithClient(t.Context(), forged), audit.Record{Action: audit.FileWrite, Target: forged, Session: forged})
	text, err := os.ReadFile(today(t, dir))
	switch {
	case err != nil:
		t.Errorf("the file: %v", err)
	case bytes.Count(text, []byte("\n")) != 1:
		t.Errorf(`the file: bytes.Count(text, []byte("\n")) = %v, want 1: %q`,
			bytes.Count(text, []byte("\n")), text)
	case bytes.ContainsAny(text, "\x1b\u009b\u202e\u2028"):
		t.Errorf(`the file: bytes.ContainsAny(text, "\x1b\u009b\u202e\u2028") = true, want false: %q`,
			text)
	}
	if all := read(t, dir, audit.Filter{}); len(all) != 1 {
		t.Errorf("the records: len(all): got %d, want 1: %v", len(all), all)
	} else if all[0].Target != forged {
		t.Errorf("the records: all[0].Target: got %v, want %v", all[0].Target, forged)
	}
}

func TestRecordsAreChosen(t *testing.T) {
	l, dir := newLog(t, audit.Config{})
	write(t, l, t.Context(), audit.Record{Action: audit.Reset, Session: "a", Principal: "p"}, audit.Record{Action: audit.Reset, Session: "b", Principal: "p"}, audit.Record{Action: audit.Reset, Session: "a", Principal: "q"})
	for _, test := range []struct {
		filter audit.Filter
		want   int
	}{
		{audit.Filter{}, 3}, {audit.Filter{Session: "a"}, 2}, {audit.Filter{Principal: "p"}, 2}, {audit.Filter{Session: "a", Principal: "q"}, 1},
		{audit.Filter{Since: time.Now().Add(time.Hour)}, 0}, {audit.Filter{Since: time.Now().Add(-time.Hour)}, 3},
	} {
		if got := len(read(t, dir, test.filter)); got != test.want {
			t.Errorf("%+v chooses %d, want %d", test.filter, got, test.want)
		}
	}
	if all := read(t, filepath.Join(dir, "none"), audit.Filter{}); len(all) != 0 {
		t.Errorf("without a folder there are %v", all)
	}
}

func TestWhatWasChangedShows(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(lines []string) []string
		want   string // in the problem; empty: there is none
		torn   int
	}{
		{"nothing", func(l []string) []string { return l }, "", 0},
		{"a field", func(l []string) []string { l[1] = strings.Replace(l[1], `"target":"1"`, `"target":"7"`, 1); return l }, "its digest is another", 0},
		{"a field of the last", func(l []string) []string { l[4] = strings.Replace(l[4], `"target":"4"`, `"target":"7"`, 1); return l }, "its digest is another", 0},
		{"a record taken out", func(l []string) []string { return append(l[:2:2], l[3:]...) }, "1 are missing", 0},
		{"the first taken out", func(l []string) []string { return append(l[:0:0], "{}", l[1], l[2]) }, "not a record", 0},
		{"two changed places", func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }, "missing", 0},
		{"one twice", func(l []string) []string { return append(l, l[4]) }, "does not follow", 0},
		{"one put in", func(l []string) []string {
			return append(l, `{"time":"2026-01-01T00:00:00Z","id":"b-1","digest":"00"}`)
		}, "its digest is another", 0},
		{"what is not a record", func(l []string) []string { return append(l, "hello") }, "not a record", 0},
		{"an end that was cut off", func(l []string) []string { l[4] = l[4][:40]; return l }, "", 1},
		{"an end of which little is left", func(l []string) []string { l[4] = l[4][:3]; return l }, "", 1},
		{"an empty line between", func(l []string) []string { l[2] = "\n" + l[2]; return l }, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, dir := newLog(t, audit.Config{})
			for i := range 5 {
				write(t, l, t.Context(), audit.Record{Action: audit.FileWrite, Target: fmt.Sprint(i)})
			}
			path := today(t, dir)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := test.change(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := verify(t, dir)
			switch problems := fmt.Sprint(r.Problems); {
			case test.want == "" && len(r.Problems) > 0:
				t.Errorf("the problems: got %s, want none", problems)
			case test.want != "" && len(r.Problems) == 0:
				t.Errorf("the problems: got none, want %q", test.want)
			case !strings.Contains(problems, test.want):
				t.Errorf("the problems: got %s, want %q in them", problems, test.want)
			}
			if len(r.Torn) != test.torn {
				t.Errorf("torn are %v", r.Torn)
			}
		})
	}
}

func TestWhoeverWritesAfterACrashBeginsALineOfTheirOwn(t *testing.T) {
	l, dir := newLog(t, audit.Config{})
	write(t, l, t.Context(), audit.Record{Action: audit.Execute, Phase: audit.Begin, Execution: "x-1"})
	f, err := os.OpenFile(today(t, dir), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"time":"2026-01-0`)
	f.Close()
	next, _ := newLog(t, audit.Config{Dir: dir})
	write(t, next, t.Context(), audit.Record{Action: audit.Reset})
	write(t, l, t.Context(), audit.Record{Action: audit.Reset})
	r := verify(t, dir)
	switch {
	case r.Records != 3:
		t.Errorf("the report: r.Records = %v, want 3: %+v", r.Records, r)
	case len(r.Problems) != 0:
		t.Errorf("the report: r.Problems = %v, want none: %+v", r.Problems, r)
	case len(r.Torn) != 1:
		t.Errorf("the report: len(r.Torn) = %d, want 1: %+v", len(r.Torn), r.Torn)
	case r.Torn[0].Line != 2:
		t.Errorf("the report: r.Torn[0].Line = %v, want 2: %+v", r.Torn[0].Line, r)
	case len(r.Heads) != 2:
		t.Errorf("the report: len(r.Heads) = %d, want 2: %+v", len(r.Heads), r.Heads)
	}
	if len(r.Unfinished) != 1 {
		t.Fatalf("unfinished: len(r.Unfinished): got %d, want 1: %v", len(r.Unfinished), r.Unfinished)
	}
	if r.Unfinished[0] != "x-1" {
		t.Errorf("unfinished: r.Unfinished[0]: got %q, want %q", r.Unfinished[0], "x-1")
	}
	write(t, l, t.Context(), audit.Record{Action: audit.Execute, Phase: audit.End, Execution: "x-1"})
	if r := verify(t, dir); len(r.Unfinished) != 0 {
		t.Errorf("unfinished are %v", r.Unfinished)
	}
}

func TestProcessesShareAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all []*exec.Cmd
	for range 3 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), writerEnv+"="+dir, "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	switch r := verify(t, dir); {
	case r.Records != 600:
		t.Errorf("the report: r.Records = %v, want 600: %+v", r.Records, r)
	case len(r.Problems) != 0:
		t.Errorf("the report: r.Problems = %v, want none: %+v", r.Problems, r)
	case len(r.Torn) != 0:
		t.Errorf("the report: r.Torn = %v, want none: %+v", r.Torn, r)
	case len(r.Heads) != 3:
		t.Errorf("the report: len(r.Heads) = %d, want 3: %+v", len(r.Heads), r.Heads)
	}
}

// full makes the file of today one whose disk is full.
func full(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	dir := t.TempDir()
	for _, day := range []time.Time{time.Now().UTC(), time.Now().UTC().Add(24 * time.Hour)} {
		if err := os.Symlink("/dev/full", filepath.Join(dir, day.Format(time.DateOnly)+".jsonl")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAFullDisk(t *testing.T) {
	failures := 0
	c := audit.Config{Dir: full(t), Failed: func(context.Context) { failures++ }}
	required := audit.New(c)
	err := required.Write(t.Context(), audit.Record{Action: audit.Execute})
	switch f := fault.Of(err); {
	case f == nil:
		t.Errorf("where records are required: no fault, want one: %v", err)
	case f.Kind != fault.Unavailable:
		t.Errorf("where records are required: f.Kind = %v, want %v: %v", f.Kind, fault.Unavailable, err)
	case !strings.Contains(f.Message, "disk is full"):
		t.Errorf(`where records are required: f.Message = %q, want "disk is full" in it`, f.Message)
	case f.Hint == "":
		t.Errorf("where records are required: f.Hint is empty, want a text: %v", err)
	case !errors.Is(err, syscall.ENOSPC):
		t.Errorf("where records are required: error %v, want %v", err, syscall.ENOSPC)
	}
	c.Mode = audit.BestEffort
	if err := audit.New(c).Write(t.Context(), audit.Record{Action: audit.Execute}); err != nil {
		t.Errorf("where they are not it says %v", err)
	}
	if failures != 2 {
		t.Errorf("%d failures were counted", failures)
	}
	c.Mode = audit.Off
	off := audit.New(c)
	if err := errors.Join(off.Write(t.Context(), audit.Record{}), off.Close()); err != nil {
		t.Errorf("off: got error %v, want none", err)
	} else if off != nil {
		t.Errorf("off: got %+v, want nil", off)
	}
}

func TestAFolderThatCannotBeMadeIsAFault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := audit.New(audit.Config{Dir: filepath.Join(file, "audit")})
	if err := l.Write(t.Context(), audit.Record{Action: audit.Execute}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v, want one of kind %v", err, fault.Unavailable)
	} else if strings.Contains(err.Error(), file) {
		t.Errorf("got error %v, want no %q in it", err, file)
	}
}

func TestWhetherItCanBeWrittenIsKnownAhead(t *testing.T) {
	l, dir := newLog(t, audit.Config{})
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	if n, err := count(dir); err != nil {
		t.Error(err)
	} else if n != 0 {
		t.Errorf("count(dir): got %v, want 0", n)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := audit.New(audit.Config{Dir: filepath.Join(file, "audit")}).Check(); err == nil {
		t.Error("a folder that cannot be made is none")
	}
	if err := audit.New(audit.Config{Mode: audit.Off}).Check(); err != nil {
		t.Error(err)
	}
}

// count tells how many records a folder holds.
func count(dir string) (n int, err error) {
	for _, err := range audit.Read(dir, audit.Filter{}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func TestDaysGoOnAndOldOnesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	synctest.Test(t, func(t *testing.T) {
		l := audit.New(audit.Config{Dir: dir, KeepDays: 2})
		for range 5 {
			write(t, l, t.Context(), audit.Record{Action: audit.Reset}, audit.Record{Action: audit.Reset})
			time.Sleep(24 * time.Hour)
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if err := l.Write(t.Context(), audit.Record{}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("a closed log says %v", err)
		}
	})
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatalf("the files: got error %v, want none", err)
	}
	if len(files) != 3 {
		t.Fatalf("the files: len(files): got %d, want 3: %v", len(files), files)
	}
	r := verify(t, dir)
	if r.Records != 6 {
		t.Errorf("the report: r.Records: got %v, want 6", r.Records)
	}
	if len(r.Problems) != 0 {
		t.Errorf("the report: r.Problems: got %v, want none", r.Problems)
	}
	if err := os.Remove(files[1]); err != nil {
		t.Fatal(err)
	}
	if r := verify(t, dir); len(r.Problems) != 1 {
		t.Errorf("without a day the problems: len(r.Problems): got %d, want 1: %v", len(r.Problems), r.Problems)
	} else if !strings.Contains(r.Problems[0].What, "2 are missing") {
		t.Errorf("without a day the problems: r.Problems[0].What: got %q, want %q in it",
			r.Problems[0].What, "2 are missing")
	}
}

func TestAFileThatIsTakenAwayShows(t *testing.T) {
	if os.PathSeparator != '/' {
		t.Skip("an open file cannot be taken away here")
	}
	l, dir := newLog(t, audit.Config{})
	write(t, l, t.Context(), audit.Record{Action: audit.Reset}, audit.Record{Action: audit.Reset})
	next, _ := newLog(t, audit.Config{Dir: dir})
	write(t, next, t.Context(), audit.Record{Action: audit.Reset})
	if err := os.Remove(today(t, dir)); err != nil {
		t.Fatal(err)
	}
	write(t, l, t.Context(), audit.Record{Action: audit.Reset})
	if all := read(t, dir, audit.Filter{}); len(all) != 1 {
		t.Errorf("the records: len(all): got %d, want 1: %v", len(all), all)
	} else if !strings.HasSuffix(all[0].ID, "-3") {
		t.Errorf("the records: all[0].ID: got %q, want it to end with %q", all[0].ID, "-3")
	}
}

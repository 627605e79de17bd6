package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one place where the log is not as it was written.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line"`
	What string `json:"what"`
}

// Head is where a writer's chain ends. Kept elsewhere it shows later whether
// anything up to there was changed.
type Head struct {
	Writer string `json:"writer"`
	Number uint64 `json:"number"`
	Digest string `json:"digest"`
}

// Report is what Verify found.
type Report struct {
	Records int `json:"records"`
	// Problems are records that were changed, taken out, moved or put in.
	Problems []Problem `json:"problems"`
	// Torn are lines that a crash or a full disk cut short.
	Torn []Problem `json:"torn"`
	// Unfinished are executions that began and whose end is not recorded: they
	// run now, or their process crashed.
	Unfinished []string `json:"unfinished"`
	Heads      []Head   `json:"heads"`
}

var (
	errTorn    = errors.New("a record that was cut short")
	errAltered = errors.New("the record was changed: its digest is another")
	errForeign = errors.New("this is not a record")
)

// beginning is how every record begins.
const beginning = `{"time":`

// open reads a line, and checks its digest. What a changed record says comes
// with errAltered.
func open(text []byte) (Record, string, error) {
	var r Record
	at := bytes.LastIndex(text, []byte(digestKey))
	if at < 0 || !bytes.HasSuffix(text, []byte(`"}`)) {
		if n := min(len(text), len(beginning)); string(text[:n]) == beginning[:n] {
			return r, "", errTorn
		}
		return r, "", errForeign
	}
	digest := string(text[at+len(digestKey) : len(text)-2])
	sum := sha256.New()
	sum.Write(text[:at])
	sum.Write([]byte("}"))
	if err := json.Unmarshal(text, &r); err != nil {
		return r, "", errForeign
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return r, digest, errAltered
	}
	return r, digest, nil
}

// verifier goes through the log.
type verifier struct {
	report Report
	first  string // the oldest file
	heads  map[string]Head
	begun  map[string]bool
}

// Verify checks every chain in the folder. Its error says that the log could
// not be read, not that it was changed.
func Verify(dir string) (Report, error) {
	v := verifier{
		report: Report{Problems: []Problem{}, Torn: []Problem{}, Unfinished: []string{}, Heads: []Head{}},
		heads:  map[string]Head{}, begun: map[string]bool{},
	}
	for l, err := range lines(dir, time.Time{}) {
		if err != nil {
			return v.report, err
		}
		if v.first == "" {
			v.first = l.File
		}
		v.line(l)
	}
	v.report.Unfinished = slices.AppendSeq(v.report.Unfinished, maps.Keys(v.begun))
	slices.Sort(v.report.Unfinished)
	for _, writer := range slices.Sorted(maps.Keys(v.heads)) {
		v.report.Heads = append(v.report.Heads, v.heads[writer])
	}
	return v.report, nil
}

func (v *verifier) line(l Line) {
	r, digest, err := open(l.Text)
	if err == nil {
		err = v.follow(l, r, digest)
	} else if errors.Is(err, errAltered) {
		_ = v.follow(l, r, digest) // what it says now is the chain for those after it
	}
	switch {
	case err == nil:
	case errors.Is(err, errTorn):
		v.report.Torn = append(v.report.Torn, Problem{l.File, l.Number, err.Error()})
	default:
		v.report.Problems = append(v.report.Problems, Problem{l.File, l.Number, err.Error()})
	}
}

// follow checks that a record is the one that comes next in its chain. After a
// gap the chain goes on from there, so that each is told once.
func (v *verifier) follow(l Line, r Record, digest string) error {
	writer, number, err := splitID(r.ID)
	if err != nil {
		return err
	}
	v.report.Records++
	if r.Action == Execute && r.Phase == Begin {
		v.begun[r.Execution] = true
	} else if r.Action == Execute {
		delete(v.begun, r.Execution)
	}
	before, known := v.heads[writer]
	v.heads[writer] = Head{Writer: writer, Number: number, Digest: digest}
	switch {
	case r.Time.UTC().Format(dayFormat)+ending != l.File:
		return fmt.Errorf("the record %s belongs to another day", r.ID)
	case known && number == before.Number+1 && r.Prev == before.Digest:
		return nil
	case known && number > before.Number+1:
		return fmt.Errorf("before the record %s %d are missing", r.ID, number-before.Number-1)
	case known:
		return fmt.Errorf("the record %s does not follow the one before it", r.ID)
	case number == 1 && r.Prev == "":
		return nil
	case l.File == v.first && number > 1: // what was before it was kept no longer
		return nil
	}
	return fmt.Errorf("before the record %s %d are missing", r.ID, number-1)
}

func splitID(id string) (writer string, number uint64, err error) {
	writer, digits, ok := strings.Cut(id, "-")
	number, err = strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || number == 0 {
		return "", 0, errForeign
	}
	return writer, number, nil
}

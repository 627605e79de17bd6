package redact

// Detector notices a word in texts, in all the forms that a [Redactor] knows. It does not
// change, and is for any number of goroutines.
type Detector struct{ automaton *automaton }

// NewDetector makes a Detector of a word.
func NewDetector(word string) *Detector {
	var patterns []pattern
	for _, form := range forms([]byte(word)) {
		patterns = append(patterns, pattern{text: form})
	}
	return &Detector{newAutomaton(patterns)}
}

// In tells whether a text has the word.
func (d *Detector) In(text string) bool {
	w := d.Watch()
	return w.Saw([]byte(text)) || w.End()
}

// Watch begins a text that is read in parts.
func (d *Detector) Watch() *Watch { return &Watch{newScan(d.automaton)} }

// Watch begins a text that is read in parts, and only looked at.
func (r *Redactor) Watch() *Watch { return &Watch{newScan(r.automaton)} }

// Watch reads a text. It is for one goroutine.
type Watch struct{ scan *scan }

// Saw reads the next part of the text, and tells whether the word was in it so far.
func (w *Watch) Saw(part []byte) bool {
	w.scan.read(part)
	return len(w.scan.spans) > 0
}

// End says that the text has ended, or that another begins, and tells whether the word
// was in it.
func (w *Watch) End() bool {
	w.scan.end()
	return len(w.scan.spans) > 0
}

// Begun is how many bytes at the end of what was read may be the beginning of the word.
func (w *Watch) Begun() int {
	return int(w.scan.pos - w.scan.hold())
}

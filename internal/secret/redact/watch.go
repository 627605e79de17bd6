package redact

// Detector notices a word in texts, in more forms than a [Redactor] knows: also in base32
// and UTF-16, and in letters of either case. It does not change, and is for any number of
// goroutines.
type Detector struct{ automaton *automaton }

// NewDetector makes a Detector of a word.
func NewDetector(word string) *Detector {
	var patterns []pattern
	for _, form := range moreForms([]byte(word)) {
		patterns = append(patterns, pattern{text: form})
	}
	return &Detector{newAutomaton(patterns, true)}
}

// In tells whether a text has the word.
func (d *Detector) In(text string) bool {
	w := d.Watch()
	return w.Saw([]byte(text)) || w.End()
}

// Watch begins a text that is read in parts.
func (d *Detector) Watch() *Watch { return &Watch{newScan(d.automaton)} }

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

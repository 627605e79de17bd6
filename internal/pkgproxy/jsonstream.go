package pkgproxy

import (
	"encoding/json"
	"errors"
	"io"

	"paddock/internal/fault"
)

// jsonStream reads JSON of any size value by value, and holds no more than one of them.
type jsonStream struct {
	dec *json.Decoder
	in  *window
	max int64
	n   int // values so far
}

// maxValues bounds how many values an answer has, and how many signs where it is HTML: it
// costs a microsecond for each, however small they are.
const maxValues = 1_000_000

// maxDepth bounds how deep values lie in each other that nobody reads.
const maxDepth = 200

var errJSON = errors.New("pkgproxy: an answer that is not the JSON that it should be")

// window lets a reader read so far and no further.
type window struct {
	io.Reader
	read, end int64
}

// Read implements [io.Reader].
func (w *window) Read(b []byte) (int, error) {
	if w.read >= w.end {
		return 0, errPageSize(w.end)
	}
	n, err := w.Reader.Read(b[:min(int64(len(b)), w.end-w.read)])
	w.read += int64(n)
	return n, err
}

// newJSONStream reads values of at most that many bytes each.
func newJSONStream(from io.Reader, most int64) *jsonStream {
	in := &window{Reader: from, end: most}
	s := &jsonStream{dec: json.NewDecoder(in), in: in, max: most}
	s.dec.UseNumber()
	return s
}

// token reads the next one.
func (s *jsonStream) token() (json.Token, error) {
	if err := s.next(); err != nil {
		return nil, err
	}
	t, err := s.dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return t, err
}

// value reads the next value into something.
func (s *jsonStream) value(into any) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.dec.Decode(into)
}

// next lets one more value be read.
func (s *jsonStream) next() error {
	if s.n++; s.n > maxValues {
		return errManyValues
	}
	s.in.end = s.dec.InputOffset() + s.max
	return nil
}

var errManyValues = fault.New(fault.Exhausted, "what the index of packages answers has more than %d parts", maxValues).
	WithHint("the operator can look at what its index says of the package")

// object reads an object, and hands over each of its names; field reads the value.
func (s *jsonStream) object(field func(name string) error) error {
	if t, err := s.token(); err != nil || t != json.Delim('{') {
		return errors.Join(errJSON, err)
	}
	for s.more() {
		t, err := s.token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return errJSON
		}
		if err := field(name); err != nil {
			return err
		}
	}
	_, err := s.token()
	return err
}

// more tells whether there is another value. It may have to read for that.
func (s *jsonStream) more() bool {
	s.in.end = s.dec.InputOffset() + s.max
	return s.dec.More()
}

// list reads a list; element reads one value of it. Of what is not a list nothing is read.
func (s *jsonStream) list(element func() error) error {
	t, err := s.token()
	if err != nil || t == nil {
		return err
	}
	if t != json.Delim('[') {
		return errJSON
	}
	for s.more() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = s.token()
	return err
}

// texts reads an object's texts, most at most; what else is in it is passed over, and so
// is another value than an object.
func (s *jsonStream) texts(most int, take func(name, text string)) error {
	t, err := s.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return s.rest(t)
	}
	for s.more() {
		name, err := s.token()
		if err != nil {
			return err
		}
		value, err := s.token()
		if err != nil {
			return err
		}
		if text, ok := value.(string); ok && most > 0 {
			most--
			take(name.(string), text)
		} else if err := s.rest(value); err != nil {
			return err
		}
	}
	_, err = s.token()
	return err
}

// skip passes over a value.
func (s *jsonStream) skip() error {
	t, err := s.token()
	if err != nil {
		return err
	}
	return s.rest(t)
}

// rest passes over what is left of a value that begins with a token.
func (s *jsonStream) rest(t json.Token) error {
	depth := 0
	for {
		switch t {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > maxDepth {
				return errJSON
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		var err error
		if t, err = s.token(); err != nil {
			return err
		}
	}
}

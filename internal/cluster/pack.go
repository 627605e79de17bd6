package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// At says which pack of a session it is: the place of the claim that wrote it, and which
// of that it is. No two packs of one session have the same.
type At struct {
	Place  uint64 `json:"place"`
	Number uint64 `json:"number"`
}

// name is that of the pack's object.
func (a At) name(k Key) string {
	of := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf("%s/%s/%d/%d", of([]byte(k.Owner)), of([]byte(k.Session)), a.Place, a.Number)
}

// Content is one content as a blob's file has it.
type Content struct {
	Digest blob.Digest
	Data   []byte
}

// Pack is what one checkpoint adds: its manifest, and the contents that no earlier pack has.
type Pack struct {
	Manifest []byte
	Contents []Content
}

// packMagic begins a pack; its digit is the format's version. The SHA-256 of the rest
// follows in hexadecimal, and a line feed; then a line with an index, and what that lists.
const packMagic = "paddock pack 1 "

// packIndex is JSON, and says whose pack it is.
type packIndex struct {
	Owner    string `json:"owner"`
	Session  string `json:"session"`
	At       At     `json:"at"`
	Manifest int    `json:"manifest"` // its bytes
	Contents []struct {
		Digest blob.Digest `json:"digest"`
		Bytes  int         `json:"bytes"`
	} `json:"contents,omitempty"`
}

func encodePack(k Key, at At, p Pack) ([]byte, error) {
	x := packIndex{Owner: k.Owner, Session: k.Session, At: at, Manifest: len(p.Manifest)}
	for _, c := range p.Contents {
		x.Contents = append(x.Contents, struct {
			Digest blob.Digest `json:"digest"`
			Bytes  int         `json:"bytes"`
		}{c.Digest, len(c.Data)})
	}
	index, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("encoding a pack: %w", err)
	}
	body := bytes.NewBuffer(append(index, '\n'))
	body.Write(p.Manifest)
	for _, c := range p.Contents {
		body.Write(c.Data)
	}
	sum := sha256.Sum256(body.Bytes())
	return append([]byte(packMagic+hex.EncodeToString(sum[:])+"\n"), body.Bytes()...), nil
}

// decodePack reads a pack and checks that it is whole, and the one that was asked for.
// What it gives lies in data.
func decodePack(k Key, at At, data []byte) (p Pack, err error) {
	defer func() {
		if err != nil {
			err = fault.New(fault.Internal, "a part of the stored state is damaged").
				WithHint("go back to an earlier checkpoint").WithCause(fmt.Errorf("reading the pack %s: %w", at.name(k), err))
		}
	}()
	rest, ok := bytes.CutPrefix(data, []byte(packMagic))
	if !ok {
		return p, errors.New("it is not a pack that this paddock knows")
	}
	sum, body, ok := bytes.Cut(rest, []byte("\n"))
	if own := sha256.Sum256(body); !ok || string(sum) != hex.EncodeToString(own[:]) {
		return p, errors.New("its checksum does not fit")
	}
	index, body, _ := bytes.Cut(body, []byte("\n"))
	var x packIndex
	if err := json.Unmarshal(index, &x); err != nil {
		return p, err
	}
	if x.Owner != k.Owner || x.Session != k.Session || x.At != at {
		return p, errors.New("it is another pack")
	}
	take := func(n int) (part []byte, err error) {
		if n < 0 || n > len(body) {
			return nil, errors.New("it is too short")
		}
		part, body = body[:n:n], body[n:]
		return part, nil
	}
	if p.Manifest, err = take(x.Manifest); err != nil {
		return Pack{}, err
	}
	for _, c := range x.Contents {
		part, err := take(c.Bytes)
		if err != nil {
			return Pack{}, err
		}
		p.Contents = append(p.Contents, Content{c.Digest, part})
	}
	if len(body) > 0 {
		return Pack{}, errors.New("it is too long")
	}
	return p, nil
}

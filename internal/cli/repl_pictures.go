package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"os"
	"strings"

	"paddock/internal/sandbox"
)

// pictures shows what programs display: in the terminal where that can, else as a file.
type pictures struct{ dir string }

// show shows one. What is neither a picture nor a text is written to a file.
func (p *pictures) show(w io.Writer, d sandbox.Display) error {
	switch protocol := pictureProtocol(os.Getenv); {
	case d.MIME == "text/plain":
		_, err := fmt.Fprintln(w, plainLines(string(d.Data)))
		return err
	case protocol == "kitty" && d.MIME == "image/png":
		return showInKitty(w, d.Data)
	case protocol == "iterm" && strings.HasPrefix(d.MIME, "image/"):
		_, err := fmt.Fprintf(w, "\x1b]1337;File=inline=1;size=%d:%s\a\n", len(d.Data), base64.StdEncoding.EncodeToString(d.Data))
		return err
	}
	return p.write(w, d)
}

// pictureProtocol is how the terminal takes pictures, as its variables tell; empty: it does not.
func pictureProtocol(getenv func(string) string) string {
	program := getenv("TERM_PROGRAM")
	switch {
	case getenv("KITTY_WINDOW_ID") != "", getenv("TERM") == "xterm-kitty", program == "ghostty":
		return "kitty"
	case program == "iTerm.app", program == "WezTerm":
		return "iterm"
	}
	return ""
}

// kittyPiece is how much of a picture one escape sequence of kitty's has, in base64.
const kittyPiece = 4096

func showInKitty(w io.Writer, data []byte) error {
	text := base64.StdEncoding.EncodeToString(data)
	head := "a=T,f=100,"
	for {
		piece := text[:min(kittyPiece, len(text))]
		text = text[len(piece):]
		more := 0
		if text != "" {
			more = 1
		}
		if _, err := fmt.Fprintf(w, "\x1b_G%sm=%d;%s\x1b\\", head, more, piece); err != nil {
			return err
		}
		if head = ""; text == "" {
			_, err := fmt.Fprintln(w)
			return err
		}
	}
}

// write puts one into a file of the system's folder for them, and names it.
func (p *pictures) write(w io.Writer, d sandbox.Display) error {
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "paddock-repl-")
		if err != nil {
			return fmt.Errorf("making a folder for what was displayed: %w", err)
		}
		p.dir = dir
	}
	ending := ".bin"
	if all, err := mime.ExtensionsByType(d.MIME); err == nil && len(all) > 0 {
		ending = all[0]
	}
	if d.MIME == "image/png" {
		ending = ".png"
	}
	f, err := os.CreateTemp(p.dir, "display-*"+ending)
	if err != nil {
		return fmt.Errorf("writing what was displayed: %w", err)
	}
	_, err = f.Write(d.Data)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("writing what was displayed: %w", err)
	}
	_, err = fmt.Fprintf(w, "displayed %s: %s\n", plain(d.MIME), f.Name())
	return err
}

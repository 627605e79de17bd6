package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"mime"
	"os"
	"strings"

	"paddock/internal/sandbox"
)

// show shows what a program displayed: a text as it is, a picture in a terminal that can,
// and everything else in a file that is named.
func (cl *cli) show(d sandbox.Display) {
	kind, _, err := mime.ParseMediaType(d.MIME)
	if err != nil {
		kind = d.MIME
	}
	if kind == "text/plain" || kind == "text/markdown" {
		fmt.Fprint(cl.stdout, lines(string(d.Data)))
		return
	}
	if kind == "image/png" && person(cl.stdout) {
		if picture := inTerminal(d.Data); picture != nil {
			_, _ = cl.stdout.Write(append(picture, '\n')) // the run has ended, and who reads has seen the rest
			return
		}
	}
	file, err := os.CreateTemp("", "paddock-*"+endingOf(kind))
	if err == nil {
		_, err = file.Write(d.Data)
		if closed := file.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		cl.say("warning", fmt.Sprintf("the program displayed something that cannot be shown (%s): %v", plain(kind), err))
		return
	}
	cl.say("notice", fmt.Sprintf("the program displayed something that is not shown here (%s): %s", plain(kind), file.Name()))
}

// endings are those of files that programs display.
var endings = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"text/html": ".html", "application/json": ".json", "application/pdf": ".pdf",
}

func endingOf(kind string) string {
	if e := endings[kind]; e != "" {
		return e
	}
	return ".bin"
}

// inTerminal is a picture in the protocol of the terminal; nil: it has none that is known.
func inTerminal(png []byte) []byte {
	program := os.Getenv("TERM_PROGRAM")
	switch {
	case os.Getenv("TMUX") != "": // it keeps the protocols from the terminal
		return nil
	case os.Getenv("KITTY_WINDOW_ID") != "", strings.Contains(os.Getenv("TERM"), "kitty"), program == "ghostty":
		return kitty(png)
	case program == "iTerm.app", program == "WezTerm", program == "vscode":
		return iterm(png)
	}
	return nil
}

// kitty is a picture in kitty's protocol: base64 in parts of at most 4096 characters.
func kitty(png []byte) []byte {
	const most = 4096
	text := base64.StdEncoding.EncodeToString(png)
	var b bytes.Buffer
	for first := true; first || text != ""; first = false {
		part := text[:min(len(text), most)]
		text = text[len(part):]
		more := 0
		if text != "" {
			more = 1
		}
		head := fmt.Sprintf("m=%d", more)
		if first {
			head = "a=T,f=100," + head
		}
		fmt.Fprintf(&b, "\x1b_G%s;%s\x1b\\", head, part)
	}
	return b.Bytes()
}

// iterm is a picture in iTerm2's protocol.
func iterm(png []byte) []byte {
	return fmt.Appendf(nil, "\x1b]1337;File=inline=1;size=%d:%s\a", len(png), base64.StdEncoding.EncodeToString(png))
}

package mcpserver

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"paddock/internal/session"
)

// served is what a model calls the address of a server in its session: where it asks for
// a link to that, it wants one to a preview.
var served = regexp.MustCompile(`^(?:http://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0):([0-9]{1,5})(/[^#]*)?$`)

// previewed reads such an address.
func previewed(address string) (port uint16, path string, ok bool) {
	m := served.FindStringSubmatch(address)
	if m == nil {
		return 0, "", false
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil || n == 0 {
		return 0, "", false
	}
	return uint16(n), m[2], true
}

// previewAt gives the address at which a browser opens what a program serves.
func previewAt(ctx context.Context, c *call, in readInput, port uint16, path string) (readOutput, answer, error) {
	var url string
	out := readOutput{Path: in.path}
	err := c.inSession(ctx, in.session, session.Settings{}, func(id session.ID) error {
		made, expires, err := c.server.config.Preview(ctx, c.bound.Owner, id, port, path)
		url, out.Expires = made, timestamp(expires)
		return err
	})
	if err != nil {
		return readOutput{}, answer{}, err
	}
	out.SessionID, out.PreviewURL, out.Notice = c.session, url, c.notice
	return out, answer{texts: []string{fmt.Sprintf("Whoever has this URL can open what listens at port %d, until %s: %s", port, out.Expires, url)}}, nil
}

package approvals

import (
	"net/http"

	"paddock/internal/web"
)

// Paths are the paths that a Handler answers.
func Paths() []web.Path {
	get, post := []string{http.MethodGet}, []string{http.MethodPost}
	return []web.Path{
		{Pattern: Path, Methods: get, Access: web.Approve, Doc: "Lists the calls of tools that wait for a person; `?state=all` lists decided ones too."},
		{Pattern: Path + "/{id}", Methods: get, Access: web.Approve, Doc: "Shows one of them."},
		{Pattern: Path + "/{id}/grant", Methods: post, Access: web.Approve, Doc: "Lets the call through: `{\"reason\": …}`, or no body."},
		{Pattern: Path + "/{id}/deny", Methods: post, Access: web.Approve, Doc: "Refuses the call."},
	}
}

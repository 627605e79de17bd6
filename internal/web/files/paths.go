package files

import (
	"net/http"

	"paddock/internal/web"
)

// Paths are the paths that a Handler answers.
func Paths() []web.Path {
	get, put := http.MethodGet, http.MethodPut
	one := sessionsPath + "{id}/"
	return []web.Path{
		{Pattern: one + "files/", Methods: []string{get}, Access: web.FilesSet, Doc: "Lists the files; `?glob=` narrows the list."},
		{Pattern: one + "files/{path…}", Methods: []string{get, put, http.MethodDelete}, Access: web.FilesSet, Doc: "Reads, writes or removes one file."},
		{Pattern: one + "archive", Methods: []string{get, put}, Access: web.FilesSet, Doc: "All files as `?format=tar.gz` (the default) or `zip`."},
		{Pattern: one + "links", Methods: []string{http.MethodPost}, Access: web.FilesSet, Doc: "Makes a link that works once: `{\"path\": …, \"method\": \"GET\" or \"PUT\", \"ttl_seconds\": …}`."},
		{Pattern: linksPath + "{token}", Methods: []string{get, put}, Access: web.ByLink, Doc: "Reads or writes the file of a link."},
	}
}

package secret

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"paddock/internal/secret/redact"
)

// Hiding makes a Redactor that puts "(hidden)" in the place of these texts; nil: there are
// none.
func Hiding(texts []string) *redact.Redactor {
	var all []redact.Text
	for _, text := range texts {
		all = append(all, redact.Text{Value: []byte(text), Instead: hidden})
	}
	return redact.New(all)
}

// InVariables are the credentials in a program's variables: values of those whose names
// tell of one; of those that were kept apart (in the vault, or in paddock's environment)
// values that look like one; and in any of them a password in a URL, and what stands in
// JSON or in a list under a name that tells of one. Values of less than 8 bytes, paths,
// URLs, words that switch something, and variables such as PATH, HOME and LANG are left
// alone. Of a text of many lines each long one counts by itself, too.
func InVariables(all map[string]string, kept func(name string) bool) []string {
	var f finder
	for name, value := range all {
		f.variable(name, value, kept(name))
	}
	slices.Sort(f.found)
	return f.found
}

// InURL are the credentials in a URL: the password before its host, or the name where
// there is no password, and the parameters whose names tell of one.
func InURL(text string) []string {
	var f finder
	f.url(text)
	return f.found
}

// Ordinary tells whether a variable is one that every program has, and no credential.
func Ordinary(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(ordinary, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")
}

var (
	ordinary = []string{
		"PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD", "USER", "USERNAME", "LOGNAME", "HOSTNAME", "SHELL", "TERM", "TZ",
		"DISPLAY", "EDITOR", "PAGER", "NODE_ENV", "NODE_PATH", "PYTHONPATH", "GOPATH", "LD_LIBRARY_PATH",
		"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
	}
	// tellers are words of a name that tell of a credential, and longTellers those that
	// also do within a word.
	tellers = []string{
		"auth", "authorization", "bearer", "cred", "creds", "jwt", "key", "keys", "oauth", "pass", "pat", "psk", "pw", "pwd", "session", "sig",
	}
	longTellers = []string{"apikey", "accesskey", "authkey", "privatekey", "cookie", "credential", "passphrase", "passwd", "password", "secret", "signature", "token"}
	// aspects are last words of a name that tell of something about a credential.
	aspects = []string{
		"alg", "algorithm", "audience", "count", "dir", "directory", "domain", "enabled", "endpoint", "expires", "expiry", "file", "folder", "format", "host",
		"issuer", "length", "limit", "max", "method", "min", "mode", "name", "path", "port", "prefix", "provider", "realm", "region", "required", "scope",
		"scopes", "size", "sock", "socket", "timeout", "tokenizer", "tokenizers", "ttl", "type", "uri", "url", "user", "username", "version",
	}
	// switches are words of 8 bytes and more that say how something is done.
	switches = []string{
		"access_token", "anonymous", "api_token", "authorization", "authorization_code", "automatic", "client_credentials", "credentials", "device_code",
		"disabled", "external", "interactive", "internal", "keychain", "optional", "password", "private_key", "refresh_token", "required", "undefined",
		"username",
	}
)

// tells tells whether a name is one of a credential.
func tells(name string) bool {
	all := wordsOf(name)
	if len(all) == 0 || slices.Contains(aspects, all[len(all)-1]) {
		return false
	}
	return slices.ContainsFunc(all, func(word string) bool {
		return slices.Contains(tellers, strings.TrimRight(word, "0123456789")) ||
			!strings.HasPrefix(word, "tokeniz") && slices.ContainsFunc(longTellers, func(long string) bool { return strings.Contains(word, long) })
	})
}

// wordsOf are the words of a name, in small letters: API_KEY, api-key and apiKey have two.
func wordsOf(name string) []string {
	var b strings.Builder
	var before rune
	for _, c := range name {
		if unicode.IsUpper(c) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(c))
		before = c
	}
	return strings.FieldsFunc(b.String(), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
}

// finder collects credentials.
type finder struct{ found []string }

func (f *finder) add(texts ...string) {
	for _, text := range texts {
		if len(text) >= minValue && len(text) <= maxValue && !slices.Contains(f.found, text) {
			f.found = append(f.found, text)
		}
	}
}

func (f *finder) variable(name, value string, kept bool) {
	value = strings.TrimSpace(value)
	telling := tells(name)
	if Ordinary(name) || f.url(value) || isPath(value) || slices.Contains(switches, strings.ToLower(value)) {
		return
	}
	secretive := telling || kept && isRandom(value)
	if secretive {
		f.add(value)
	}
	if strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") {
		var data any
		if json.Unmarshal([]byte(value), &data) == nil {
			f.leaves(name, data)
			return
		}
	}
	f.lines(value, secretive)
	f.named(value)
	if !secretive || strings.Contains(value, "\n") {
		return
	}
	if telling {
		f.add(credentials("Key", value)...)
	} else { // nothing is known of its parts but how they look
		f.add(credentials("X", value)...)
	}
}

// leaves takes the texts of a JSON value, which stands under a name.
func (f *finder) leaves(name string, data any) {
	switch d := data.(type) {
	case string:
		f.variable(name, d, false)
	case []any:
		for _, one := range d {
			f.leaves(name, one)
		}
	case map[string]any:
		for key, one := range d {
			f.leaves(key, one)
		}
	}
}

// longLine is from which length on a line of a text, such as a key's, is told from others'.
const longLine = 16

func (f *finder) lines(value string, secretive bool) {
	for line := range strings.SplitSeq(value, "\n") {
		if line = strings.TrimSpace(line); secretive && line != value && len(line) >= longLine && !strings.Contains(line, "-----") {
			f.add(line)
		}
		key, rest, found := strings.Cut(line, ":") // as a header is written
		if rest = strings.TrimSpace(rest); found && !strings.ContainsAny(key, " \t=/") && tells(key) && !isPlain(rest) {
			f.add(credentials("Authorization", rest)...)
		}
	}
}

// named takes the parts of a list that have names which tell of credentials.
func (f *finder) named(value string) {
	for _, separators := range []string{";,&\r\n", ";,& \t\r\n"} { // a password may have a blank, and a blank may part
		for item := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
			key, rest, found := strings.Cut(item, "=")
			if rest = strings.Trim(strings.TrimSpace(rest), `"'`); found && !strings.Contains(strings.TrimSpace(key), " ") && tells(key) && !isPlain(rest) {
				f.add(rest)
			}
		}
	}
}

var urlStart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.:-]*://`)

// url takes those of a URL; false: it is none.
func (f *finder) url(text string) bool {
	scheme := urlStart.FindString(text)
	if scheme == "" || strings.ContainsAny(text, " \t\r\n") {
		return false
	}
	rest := text[len(scheme):]
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		f.escaped(password)
		if len(password) < minValue && noWord(user) { // a token may stand in the place of the name
			f.escaped(user)
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	query, _, _ = strings.Cut(query, "#")
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		key, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain
		}
		if tells(key) && !isPlain(value) {
			f.escaped(value)
		}
	}
	return true
}

// escaped takes a part of a URL, as it stands and as it is meant.
func (f *finder) escaped(part string) {
	f.add(part)
	for _, unescape := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
		if plain, err := unescape(part); err == nil {
			f.add(plain)
		}
	}
}

// isPlain tells of what has a name that tells of a credential that it is none.
func isPlain(text string) bool {
	return urlStart.MatchString(text) || isPath(text) || slices.Contains(switches, strings.ToLower(text))
}

var drive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)

// isPath tells whether a text is a path. What base64 gives may begin with a slash, too, and
// has no dot, and no second folder of the usual ones' names.
func isPath(text string) bool {
	if strings.HasPrefix(text, "~/") || strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") || drive.MatchString(text) {
		return true
	}
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "+=\n") {
		return false
	}
	first, _, nested := strings.Cut(text[1:], "/")
	return nested && slices.Contains(roots, first) || strings.ContainsRune(text[strings.LastIndexByte(text, '/'):], '.')
}

var roots = []string{
	"Applications", "Library", "System", "Users", "Volumes", "bin", "data", "dev", "etc", "home", "lib", "media", "mnt", "nix", "opt", "private", "proc", "root", "run",
	"sbin", "srv", "sys", "tmp", "usr", "var", "workspace",
}

// leastRandom is from how many bytes on a value may look like a credential.
const leastRandom = 16

// isRandom tells whether a value looks like a credential, whatever its name: it is long,
// and has letters, digits and no blanks, or is a key of several lines.
func isRandom(value string) bool {
	if strings.Contains(value, "-----BEGIN ") {
		return true
	}
	return len(value) >= leastRandom && !strings.ContainsFunc(value, unicode.IsSpace) &&
		strings.ContainsFunc(value, unicode.IsDigit) && strings.ContainsFunc(value, unicode.IsLetter)
}

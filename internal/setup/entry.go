package setup

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
)

// Server is what the client is to start or to connect to.
type Server struct {
	// Name is what the client calls it.
	Name string
	// Command and Args start it; unused when there is a URL.
	Command string
	Args    []string
	// URL is where it listens; empty: the client starts it.
	URL string
	// Token is sent to the URL; empty: TokenEnv.
	Token string
	// TokenEnv is the variable that the client takes the token from; empty: none.
	TokenEnv string
}

// member is one key of an entry. Its value is a string, a []string, an int64, a bool
// or a map of strings.
type member struct {
	key   string
	value any
}

// entry is a server as a client's file has it.
type entry struct {
	members []member
	// defaults are members that are set only where the user said nothing.
	defaults []member
}

// Some members are for a server that is started, others for one that is
// connected to; clients refuse an entry that has both.
var (
	ofCommands = []string{"command", "cmd", "args", "cwd", "env", "environment", "envs", "envFile", "env_vars"}
	ofURLs     = []string{"url", "uri", "serverUrl", "httpUrl", "headers", "http_headers", "env_http_headers", "bearer_token_env_var", "env_keys"}
)

// dropped are the members that an entry which is there already must not keep:
// those of the other kind, and those of its own that would contradict e.
func (e *entry) dropped() []string {
	keys := []string{"type", "url", "uri", "serverUrl", "httpUrl", "headers", "http_headers", "bearer_token_env_var", "env_keys"}
	_, command := e.get("command")
	if _, cmd := e.get("cmd"); command || cmd {
		keys = append(keys, ofURLs...)
	} else {
		keys = append(keys, ofCommands...)
	}
	return slices.DeleteFunc(keys, func(k string) bool { _, has := e.get(k); return has })
}

func (e *entry) get(key string) (any, bool) {
	for _, m := range e.members {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

// onlyDiffers tells whether two files, as data, are the same but for the one
// entry, and whether that is e in the second; nil: whether it is gone.
func onlyDiffers(before, after map[string]any, table, name string, e *entry) bool {
	was, _ := cut(before, table, name)
	is, now := cut(after, table, name)
	if !reflect.DeepEqual(was, is) {
		return false
	}
	if e == nil {
		return now == nil
	}
	set, ok := now.(map[string]any)
	if !ok {
		return false
	}
	for _, m := range e.members {
		if !contains(set[m.key], m.value) {
			return false
		}
	}
	for _, k := range e.dropped() {
		if _, has := set[k]; has {
			return false
		}
	}
	return true
}

// cut takes an entry out of a file's data, and the table when nothing else is
// in it. The data is not changed.
func cut(data map[string]any, table, name string) (rest map[string]any, taken any) {
	rest = map[string]any{}
	for k, v := range data {
		rest[k] = v
	}
	servers, ok := data[table].(map[string]any)
	if !ok {
		return rest, nil
	}
	others := map[string]any{}
	for k, v := range servers {
		if k == name {
			taken = v
			continue
		}
		others[k] = v
	}
	rest[table] = others
	if len(others) == 0 {
		delete(rest, table)
	}
	return rest, taken
}

// contains tells whether data says what value does; of a map, whether it has
// at least those keys.
func contains(data, value any) bool {
	want, ok := value.(map[string]string)
	if !ok {
		a, errA := json.Marshal(data)
		b, errB := json.Marshal(value)
		return errA == nil && errB == nil && bytes.Equal(a, b)
	}
	have, ok := data.(map[string]any)
	for k, v := range want {
		ok = ok && have[k] == v
	}
	return ok
}

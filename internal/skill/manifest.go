package skill

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"paddock/internal/egress"
)

// manifestKey is what our own fields in metadata begin with.
const manifestKey = "paddock"

// maxDeclared bounds each list of a manifest.
const maxDeclared = 100

// Manifest is what a skill says that its code uses; the zero Manifest uses nothing
// but its own files. It is a request: what of it is granted is not decided here.
type Manifest struct {
	// AllowedTools is the field of that name, entry by entry. What clients call
	// their own tools (Bash(git:*), Read) means nothing to paddock.
	AllowedTools []string `json:"allowed_tools,omitempty"`
	// Tools are tools of bound servers, as server/tool; either may be *, or end
	// in it. mcp__server__tool in AllowedTools is one as well.
	Tools []string `json:"tools,omitempty"`
	// Hosts are rules of package egress, also for single requests, with the rights of a
	// model.
	Hosts []string `json:"hosts,omitempty"`
	// Secrets are names of secrets, of A-Z, 0-9 and _.
	Secrets []string `json:"secrets,omitempty"`
}

// Network is the policy of what the skill asks for.
func (m Manifest) Network() (egress.Policy, error) { return egress.Parse(m.Hosts, modelRights) }

// UsesTool tells whether a tool of a server is among what the skill declares.
func (m Manifest) UsesTool(server, tool string) bool {
	for _, pattern := range m.Tools {
		s, t, _ := strings.Cut(pattern, "/")
		if starMatch(s, server) && starMatch(t, tool) {
			return true
		}
	}
	return false
}

func starMatch(pattern, name string) bool {
	if head, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, head)
	}
	return pattern == name
}

// modelRights are those of who wrote a skill.
var modelRights = egress.Rights{Requests: true}

func (m *Manifest) sort() {
	for _, list := range []*[]string{&m.Tools, &m.Hosts, &m.Secrets} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

var (
	toolPattern = regexp.MustCompile(`^[A-Za-z0-9_-]*(\*|[A-Za-z0-9_-])/[A-Za-z0-9_.-]*(\*|[A-Za-z0-9_.-])$`)
	secretName  = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)
	mcpTool     = regexp.MustCompile(`^mcp__([A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*)__([A-Za-z0-9_.-]+|\*)$`)
)

// declare reads one of our own fields.
func (p *matterParser) declare(field string, value *yaml.Node) {
	list, ok := p.list(manifestKey+"."+field, value)
	if !ok {
		return
	}
	m := &p.of.Manifest
	switch field {
	case "tools":
		for _, text := range list {
			if !toolPattern.MatchString(text) {
				p.mistake(value, "write server/tool; each may end in *", "%.100q names no tool", text)
			}
		}
		m.Tools = append(m.Tools, list...)
	case "hosts":
		list = egress.Split(strings.Join(list, ",")) // a method and its host are one again
		if _, err := egress.Parse(list, modelRights); err != nil {
			p.mistakes = append(p.mistakes, err)
		}
		m.Hosts = append(m.Hosts, list...)
	case "secrets":
		for _, text := range list {
			if !secretName.MatchString(text) {
				p.mistake(value, "write a name such as GITHUB_TOKEN", "%.100q names no secret", text)
			}
		}
		m.Secrets = append(m.Secrets, list...)
	case "tags":
		p.of.Metadata[manifestKey+".tags"] = strings.Join(list, " ")
	default:
		p.mistake(value, "there are tools, hosts, secrets and tags", "paddock knows no field %.50q", manifestKey+"."+field)
	}
}

// allowedTools reads the format's own field: a text with blanks between, or a list.
func (p *matterParser) allowedTools(value *yaml.Node) {
	list, ok := p.list("allowed-tools", value)
	if !ok {
		return
	}
	p.of.Manifest.AllowedTools = list
	for _, text := range list {
		if parts := mcpTool.FindStringSubmatch(text); parts != nil {
			p.of.Manifest.Tools = append(p.of.Manifest.Tools, parts[1]+"/"+parts[2])
		}
	}
}

// list reads texts that stand in a list, or in one text with blanks between.
func (p *matterParser) list(field string, value *yaml.Node) (list []string, ok bool) {
	switch value.Kind {
	case yaml.ScalarNode:
		if value.Tag == "!!null" {
			return nil, true
		}
		var commas bool
		list, commas = words(value.Value)
		if commas {
			p.warn(value, "%s has commas, where the format has blanks", field)
		}
	case yaml.SequenceNode:
		for _, item := range value.Content {
			if item.Kind != yaml.ScalarNode || strings.TrimSpace(item.Value) == "" {
				p.mistake(item, "write texts", "%s holds what is not text", field)
				return nil, false
			}
			list = append(list, strings.TrimSpace(item.Value))
		}
	default:
		p.mistake(value, "write a text with blanks between, or a list", "%s is not a list", field)
		return nil, false
	}
	if len(list) > maxDeclared {
		p.mistake(value, "declare fewer, or use *", "%s has more than %d entries", field, maxDeclared)
		return nil, false
	}
	return list, true
}

// words takes a text apart at blanks and commas that are not within parentheses.
func words(text string) (list []string, commas bool) {
	depth, begin := 0, 0
	add := func(end int) {
		if word := strings.TrimSpace(text[begin:end]); word != "" {
			list = append(list, word)
		}
		begin = end + 1
	}
	for k, c := range []byte(text) {
		switch {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth == 0 && (c == ' ' || c == '\t' || c == '\n' || c == ','):
			commas = commas || c == ','
			add(k)
		}
	}
	add(len(text))
	return list, commas
}

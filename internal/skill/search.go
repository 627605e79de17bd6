package skill

import (
	"context"
	"strings"

	"paddock/internal/bindings"
	"paddock/internal/bindings/catalog"
)

// Tags are the words under which its author wants a skill to be found.
func (m FrontMatter) Tags() []string { return strings.Fields(m.Metadata[manifestKey+".tags"]) }

// Search gives an owner's skills that fit the words, the best first, and no more than
// most; without words all of them, by name. What a skill says of itself weighs as
// what a server says of its tools does: see package catalog.
func (s *Store) Search(ctx context.Context, owner, words string, most int) ([]Record, error) {
	all, err := s.List(owner)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(words) == "" {
		return all[:min(len(all), most)], nil
	}
	tools := make([]bindings.Tool, 0, len(all))
	byName := map[string]Record{}
	for _, r := range all {
		tools = append(tools, bindings.Tool{Name: r.Name, Title: strings.Join(r.Tags(), " "), Description: r.Description})
		byName[r.Name] = r
	}
	c, err := catalog.New()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Update(MountFolder, tools); err != nil {
		return nil, err
	}
	hits, err := c.Search(ctx, catalog.Query{Text: words, Limit: most, Level: catalog.Names})
	if err != nil {
		return nil, err
	}
	found := []Record{}
	for _, h := range hits {
		found = append(found, byName[h.Tool])
	}
	return found, nil
}

package cli

import (
	"context"
	"strconv"
	"strings"

	"paddock/internal/session"
	"paddock/internal/web/preview"
)

// withLabel puts a preview's id into the address that stands for all.
func withLabel(url, id string) string { return strings.Replace(url, "*", id, 1) }

func (p *program) listPreviews(o *parts, i session.Info, ask previewAsk) error {
	all, err := o.previews.store.List(i.Owner, i.ID)
	if err != nil {
		return err
	}
	return p.printPreviews("previews", all, ask.asJSON)
}

func (p *program) revokePreviews(ctx context.Context, o *parts, i session.Info, ask previewAsk) error {
	revoked, err := o.previews.store.Revoke(i.Owner, i.ID, func(one preview.Preview) bool { return ask.port == 0 || one.Port == ask.port })
	for _, one := range revoked {
		o.previewed(ctx, preview.Event{Action: preview.Revoked, Preview: one})
	}
	if err != nil {
		return err
	}
	return p.printPreviews("revoked", revoked, ask.asJSON)
}

func (p *program) printPreviews(name string, all []preview.Preview, asJSON bool) error {
	rows, list := [][]string{{"PREVIEW", "PORT", "EXPIRES"}}, []preview.Shown{}
	for _, one := range all {
		list = append(list, preview.Show(one))
		rows = append(rows, []string{one.ID, strconv.Itoa(int(one.Port)), moment(one.Expires)})
	}
	if asJSON {
		return p.printJSON(map[string]any{name: list})
	}
	return p.printTable(rows)
}

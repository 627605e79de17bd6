package install

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/workspace"
)

// maxRecord bounds packages.ModulesRecord, in bytes.
const maxRecord = 1 << 20

// modules installs npm packages in a WebAssembly session.
func (p place) modules(ctx context.Context, w wishes) (Result, error) {
	tree, done, err := p.config.Sessions.Files(p.info.Owner, p.info.ID)
	if err != nil {
		return Result{}, err
	}
	defer done()
	record, err := tree.ReadAll(pkgproxy.ModulesRecord, maxRecord)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Result{}, fmt.Errorf("looking at what is installed: %w", err)
	}
	made, err := p.config.Packages.JavaScript(ctx, pkgproxy.ScriptInstall{Owner: string(p.info.Owner), Wanted: w.lines, Record: record.Data, Upgrade: w.upgrade})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Result{}, err
	}
	if made.Already {
		return Result{Already: true, Notes: made.Notes}, nil
	}
	if err := putModules(ctx, tree, made.Files); err != nil {
		return Result{}, fmt.Errorf("putting the packages into the session: %w", err)
	}
	res := Result{Notes: made.Notes}
	var replaced bool
	if res.Installed, replaced = added(record.Data, made); replaced {
		res.Notes = append(res.Notes, "what was imported before stays as it was in this interpreter, until reset_workspace")
	}
	return res, nil
}

// added are the packages that were not there before, and whether one of them was there in
// another version.
func added(record []byte, made *pkgproxy.Scripts) (all []pkgproxy.Installed, replaced bool) {
	before := map[string]string{}
	for _, one := range pkgproxy.InstalledModules(record) {
		before[one.Name] = one.Version
	}
	for _, one := range made.Installed {
		if was := before[one.Name]; was != one.Version {
			all, replaced = append(all, one), replaced || was != ""
		}
	}
	return all, replaced
}

// putModules makes the folder of modules what files say, in one change.
func putModules(ctx context.Context, tree *workspace.Tree, files map[string][]byte) error {
	stage, err := tree.Stage()
	if err != nil {
		return err
	}
	defer stage.Close()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, err := stage.Add(name, bytes.NewReader(files[name]), 0); err != nil {
			return err
		}
	}
	_, err = tree.Walk(ctx, pkgproxy.Modules+"/**", func(f workspace.File) error {
		if _, wanted := files[f.Path]; wanted {
			return nil
		}
		return stage.Remove(f.Path) // a chunk, or of what is not wanted any more
	})
	if err != nil {
		return err
	}
	return stage.Commit(ctx.Err)
}

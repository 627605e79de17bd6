package model

import (
	"bytes"
	"fmt"
	"strings"

	"paddock/internal/session"
)

// step is one call of the use that is made of a session. It gives the error, and
// unkept where it was answered with a notice that it could not be kept.
type step struct {
	name string
	do   func(*faultySession) (unkept bool, err error)
	// after is what the session holds then; nil: what it held before.
	after func(*faultySession) moment
	// then lets the model follow what was kept; nil: nothing was.
	then func(*faultySession)
}

// runs is a program that ends well.
func runs(code, language string, after func(moment)) step {
	do := func(r *faultySession) (bool, error) {
		res, err := r.m.Execute(r.t.Context(), alice, r.id, session.Request{Code: code, Language: language})
		if err != nil {
			return false, err
		}
		if res.Exit.Error != nil {
			r.fail("%s: %+v", code, res.Exit.Error)
		}
		return strings.Contains(res.Notice, "could not be kept"), nil
	}
	at := func(r *faultySession) moment {
		m := r.now.clone()
		if m.vars[language] == nil {
			m.vars[language] = map[string]int64{}
		}
		after(m)
		return m
	}
	return step{"run " + code, do, at, func(r *faultySession) { r.twin.commit("execute", "", r.now) }}
}

func counts(n int64) step {
	return runs(fmt.Sprintf("p = %d\nwrite('f', 'file %d')\nwrite('/tmp/t', '%d')", n, n, n), "python", func(m moment) {
		m.vars["python"]["p"] = n
		m.files["workspace/f"], m.files["tmp/t"] = fmt.Sprint("file ", n), fmt.Sprint(n)
	})
}

func putsFile(name, text string) step {
	return step{"write " + name, func(r *faultySession) (bool, error) {
		tree, done, err := r.m.Files(alice, r.id)
		if err != nil {
			return false, err
		}
		defer done()
		_, err = tree.Write(name, []byte(text))
		return false, err
	}, func(r *faultySession) moment {
		m := r.now.clone()
		m.files["workspace/"+name] = text
		return m
	}, func(r *faultySession) {
		at := r.now
		if r.loose { // only the file is of now
			at = r.twin.now().clone()
			at.files["workspace/"+name] = text
		}
		r.twin.commit("files", "", at)
	}}
}

var undoes = step{"undo", func(r *faultySession) (bool, error) {
	_, err := r.m.Undo(r.t.Context(), alice, r.id)
	return false, err
}, func(r *faultySession) moment {
	if r.loose {
		return r.twin.now() // what is not kept is undone first
	}
	if to, ok := r.twin.undone(); ok {
		return to.at
	}
	return r.now
}, func(r *faultySession) {
	r.kept()
	if to, ok := r.twin.undone(); ok {
		r.twin.back(to)
	}
}}

// kept lets the model follow where what could not be kept is kept after all.
func (r *faultySession) kept() {
	if r.loose {
		r.twin.commit("checkpoint", "", r.was)
	}
}

var labels = step{"label", func(r *faultySession) (bool, error) {
	_, err := r.m.Checkpoint(r.t.Context(), alice, r.id, "here")
	return false, err
}, func(r *faultySession) moment { return r.now }, func(r *faultySession) { r.twin.commit("checkpoint", "here", r.now) }}

var restores = step{"restore", func(r *faultySession) (bool, error) {
	_, err := r.m.Restore(r.t.Context(), alice, r.id, "here")
	return false, err
}, func(r *faultySession) moment {
	to, ok := r.twin.find("here")
	if !ok {
		return r.now // it was not made, and is not found
	}
	return to.at
}, func(r *faultySession) {
	r.kept()
	if to, ok := r.twin.find("here"); ok {
		r.twin.back(to)
	}
}}

var resets = step{"reset", func(r *faultySession) (bool, error) {
	_, err := r.m.Reset(r.t.Context(), alice, r.id)
	return false, err
}, func(*faultySession) moment { return nothing() }, func(r *faultySession) { r.twin.commit("reset", "", nothing()) }}

// aside is a step that leaves the session as it is.
func aside(name string, do func(*faultySession) error) step {
	return step{name: name, do: func(r *faultySession) (bool, error) { return false, do(r) }}
}

var sleeps = aside("sleep", func(r *faultySession) error { return r.m.Sleep(alice, r.id) })

var forks = aside("fork", func(r *faultySession) error {
	made, err := r.m.Fork(r.t.Context(), alice, r.id, "", 2)
	if err == nil {
		r.copy = made[1].ID
		r.made += 2
	}
	return err
})

var exports = aside("export", func(r *faultySession) error {
	r.saved.Reset()
	return r.m.Export(r.t.Context(), alice, r.id, &r.saved)
})

var imports = aside("import", func(r *faultySession) error {
	if r.saved.Len() == 0 {
		return nil
	}
	_, _, err := r.m.Import(r.t.Context(), alice, "", bytes.NewReader(r.saved.Bytes()))
	if err == nil {
		r.made++
	}
	return err
})

var destroys = aside("destroy", func(r *faultySession) error {
	if r.copy == "" {
		return nil
	}
	err := r.m.Destroy(r.t.Context(), alice, r.copy)
	if err == nil {
		r.made--
	} else {
		r.doubtful++
	}
	return err
})

var collects = aside("collect", func(r *faultySession) error { _, err := r.m.Collect(r.t.Context()); return err })

// use is what is done with a session, with a fault somewhere.
var use = []step{
	counts(1), runs("j = 1", "javascript", func(m moment) { m.vars["javascript"]["j"] = 1 }), labels,
	putsFile("d/g", strings.Repeat("text ", 3)), counts(2), undoes, sleeps, counts(3), forks, exports, restores, counts(4), collects,
	imports, resets, undoes, destroys, putsFile("f", "again"), collects, counts(5), counts(6), undoes,
}

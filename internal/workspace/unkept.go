package workspace

// Unkept is what a listing names and does not hold: files that could not be read, and
// folders that lie too deep or could not be read, with all that is in them.
type Unkept struct {
	Count int
	First string // the path of the first, as much of it as is worth telling; "": there is none
}

// Unkept tells of these in a listing. Going to it, here or elsewhere, leaves them as
// they are, or makes a folder of them that is empty.
func (l *Listing) Unkept() (u Unkept) {
	for k := range l.top().all {
		if !l.entries[k].unknown {
			continue
		}
		if u.Count++; u.Count == 1 {
			u.First = l.pathOf(k)
		}
	}
	return u
}

// firstBytes is how much of a path is told.
const firstBytes = 60

// pathOf gives the path of an entry, as much of it as is told.
func (l *Listing) pathOf(k int) (p string) {
	for at := 0; at <= k && len(p) <= firstBytes; {
		switch e := &l.entries[at]; {
		case at == k:
			return cutPath(join(p, e.name))
		case e.end > k: // it is below
			p = join(p, e.name)
			at++
		default:
			at = e.end
		}
	}
	return cutPath(p)
}

func cutPath(p string) string {
	if len(p) > firstBytes {
		return p[:firstBytes] + "…"
	}
	return p
}

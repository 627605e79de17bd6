//go:build linux && (amd64 || arm64)

package gvisorfix

import "testing"

func TestTheGofersFieldsAreKnown(t *testing.T) {
	if err := FoldersCanBeCached(); err != nil {
		t.Errorf("no folder is cached: %v", err)
	}
}

func TestAFieldThatIsNotAsItWasIsAnError(t *testing.T) {
	for _, name := range []string{"filesystem", "dentry", "inode", "directfsInode"} {
		full := "pkg/sentry/fsimpl/gofer." + name
		was := types[full]
		types[full] = types["pkg/sentry/fsimpl/gofer.dentryListElem"]
		if _, err := findLayout(); err == nil {
			t.Errorf("a %s with other fields is taken for one", name)
		}
		delete(types, full)
		if _, err := findLayout(); err == nil {
			t.Errorf("without a %s there is no error", name)
		}
		types[full] = was
	}
}

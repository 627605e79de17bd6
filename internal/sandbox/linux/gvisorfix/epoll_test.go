//go:build linux && (amd64 || arm64)

package gvisorfix

import "testing"

func TestTheSetsOfEpollAreKnown(t *testing.T) {
	if !setsAreKnown() {
		t.Error("gVisor keeps its sets of epoll in another way than forget knows: DropStaleEpollInterests does nothing")
	}
}

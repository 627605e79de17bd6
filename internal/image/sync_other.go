//go:build !linux

package image

import (
	"errors"
	"os"
)

func syncAll(string) error { return errors.ErrUnsupported }

func link(_, _ *os.File, _ string) error { return errors.ErrUnsupported }

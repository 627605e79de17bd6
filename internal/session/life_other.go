//go:build !unix

package session

import (
	"errors"
	"os"
)

const lives = false

func lockFileOf(*os.File) error { return errors.ErrUnsupported }

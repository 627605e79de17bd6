//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func nativeRequested([]string) bool  { return false }
func nativeMain(args []string) error { return errors.ErrUnsupported }

const nativeUser = 0

func native(string, string, []string, ...string) (string, error) { return "", errors.ErrUnsupported }

func nativeCommand(string, string, []string, ...string) *exec.Cmd { return exec.Command("") }

//go:build !linux || !(amd64 || arm64)

package nativeworker

import "embed"

var dist embed.FS // the native engine does not know this system

const folder = "dist"

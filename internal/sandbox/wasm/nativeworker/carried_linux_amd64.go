package nativeworker

import "embed"

// dist is filled by make; without it there is no native engine.
//
//go:embed all:dist/linux-amd64
var dist embed.FS

const folder = "dist/linux-amd64"

package nativeworker

import "embed"

// dist is filled by make; without it there is no native engine.
//
//go:embed all:dist/linux-arm64
var dist embed.FS

const folder = "dist/linux-arm64"

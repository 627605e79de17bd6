// Package picture makes pictures smaller that programs have shown.
//
// A picture of a few bytes can take a decoder minutes and gigabytes, so it is read in a
// helper's process (package helper).
package picture

import (
	"bytes"
	"context"
	"image"
	_ "image/gif"  // so that image.Decode knows it
	_ "image/jpeg" // likewise
	"image/png"
	"io"
	"time"

	"golang.org/x/image/draw"

	"paddock/internal/fault"
	"paddock/internal/helper"
)

const (
	// side is how many pixels a preview has on its longer side at most.
	side = 768
	// maxPixels is how many a picture may have: each may take fifteen bytes meanwhile.
	maxPixels = 12_000_000
	// maxInput and maxBytes bound a picture and its preview.
	maxInput = 64 << 20
	maxBytes = 3_700_000 // 5 MB as base64
)

// Preview is the job that makes a preview.
var Preview = helper.Job{
	Name: "picture", Doing: "reading the picture", Run: preview,
	// 180 MB for the pixels, the input, and Go's own share.
	Memory: 512 << 20, MaxOutput: maxBytes,
	// A picture of so many pixels takes a tenth of it.
	Time: 3 * time.Second,
}

// Smaller makes a picture (PNG, JPEG or GIF) fit into a square of 768 pixels, as a PNG
// of at most 3.7 MB. A picture that cannot be read, or that has more than 12 million
// pixels, is a fault.
func Smaller(ctx context.Context, r *helper.Runner, owner string, data []byte) ([]byte, error) {
	if err := readable(data); err != nil {
		return nil, err
	}
	return r.Run(ctx, Preview, helper.Call{Owner: owner, In: bytes.NewReader(data)})
}

// readable looks at what a picture says of itself, so that no process is started for
// one that is not read in the end.
func readable(data []byte) error {
	if len(data) > maxInput {
		return fault.New(fault.Invalid, "a picture of %d MiB is larger than %d", len(data)>>20, maxInput>>20)
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return fault.New(fault.Invalid, "the picture is damaged, or of another format than PNG, JPEG and GIF").WithCause(err)
	}
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return fault.New(fault.Invalid, "a picture of %d x %d pixels has more than %d", c.Width, c.Height, maxPixels)
	}
	return nil
}

// preview is the job.
func preview(_ context.Context, in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return err
	}
	if err := readable(data); err != nil {
		return err
	}
	whole, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return fault.New(fault.Invalid, "the picture is damaged").WithCause(err)
	}
	w, h := whole.Bounds().Dx(), whole.Bounds().Dy()
	if long := max(w, h); long > side {
		w, h = max(1, w*side/long), max(1, h*side/long)
	}
	to := image.NewNRGBA(image.Rect(0, 0, w, h))
	draw.ApproxBiLinear.Scale(to, to.Bounds(), whole, whole.Bounds(), draw.Src, nil)
	return png.Encode(out, to)
}

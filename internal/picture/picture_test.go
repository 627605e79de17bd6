package picture_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/picture"
)

func TestMain(m *testing.M) {
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, picture.Preview))
	}
	os.Exit(m.Run())
}

func runner(t *testing.T) *helper.Runner {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return helper.NewRunner(program)
}

// manyScans is a JPEG of 12 million pixels that are to be gone through n times, for
// 24 bytes each time.
func manyScans(n int) []byte {
	var b bytes.Buffer
	b.WriteString("\xff\xd8\xff\xc2\x00\x0b\x08\x0b\xb8\x0f\xa0\x01\x01\x11\x00\xff\xdb\x00\x43\x00" + strings.Repeat("\x01", 64))
	// One code, of one bit: so many thousand blocks are as they were.
	b.WriteString("\xff\xc4\x00\x14\x10\x01" + strings.Repeat("\x00", 15) + "\xe0")
	run, bits := "", ""
	for range 7 { // 7 runs of 30,000 blocks
		bits += fmt.Sprintf("0%014b", 30_000-1<<14)
	}
	for bits += "1111111"; len(bits) >= 8; bits = bits[8:] {
		v, _ := strconv.ParseUint(bits[:8], 2, 8)
		run += string([]byte{byte(v)})
	}
	for range n {
		b.WriteString("\xff\xda\x00\x08\x01\x01\x00\x01\x3f\x00" + run)
	}
	b.WriteString("\xff\xd9")
	return b.Bytes()
}

func TestAPictureThatTakesLongToReadHasNoPreview(t *testing.T) {
	r := runner(t)
	if _, err := picture.Smaller(t.Context(), nil, "ann", manyScans(2)); err != nil {
		t.Errorf("one that takes its time: %v", err)
	}
	if _, err := picture.Smaller(t.Context(), r, "ann", manyScans(100_000)); fault.KindOf(err) != fault.Exhausted { // half an hour
		t.Errorf("one that takes half an hour: %v", err)
	}
}

func TestAPictureIsMadeSmallerElsewhere(t *testing.T) {
	r := runner(t)
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewNRGBA(image.Rect(0, 0, 4000, 3000))); err != nil {
		t.Fatal(err)
	}
	small, err := picture.Smaller(t.Context(), r, "ann", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	c, err := png.DecodeConfig(bytes.NewReader(small))
	if err != nil || c.Width != 768 || c.Height != 576 {
		t.Errorf("it is %d x %d, %v", c.Width, c.Height, err)
	}
}

func TestWhatIsNoPictureStartsNoProcess(t *testing.T) {
	r := helper.NewRunner("there is no such program")
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 4000, 3001))); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"nothing": nil, "a text": []byte("GIF89a"), "too many pixels": b.Bytes(), "too many bytes": make([]byte, 64<<20+1)} {
		if _, err := picture.Smaller(t.Context(), r, "ann", data); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

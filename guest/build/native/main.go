// Native takes the guests' modules to C and back out of wabt's hands.
//
//	native -strip IN OUT                   takes a module's memory out, for wasm2c
//	native -out DIR [-units N] NAME.c...   each with its NAME.h beside it
//	native -out DIR -any NAME.c...         for modules that are no guests
//
// The second turns what wasm2c made of the guests into C that a compiler can
// take in parallel, with the doors to the host around it.
//
// For each guest it writes NAME.h, NAME_common.h and NAME_0.c to NAME_N.c, and
// for all of them guests.c: the exports, the imports and their signatures.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"paddock/guest/build/instrument"
)

func main() {
	out := flag.String("out", "", "where the C goes")
	units := flag.Int("units", 16, "how many files each guest becomes")
	loose := flag.Bool("any", false, "modules that are no guests")
	strip := flag.String("strip", "", "the module whose memory is taken out")
	flag.Parse()
	if *strip != "" {
		if err := stripTo(*strip, flag.Arg(0)); err != nil {
			fmt.Fprintf(os.Stderr, "paddock: error: taking the memory out of %s: %v\n", *strip, err)
			os.Exit(1)
		}
		return
	}
	kind := guestModule
	if *loose {
		kind, *units = anyModule, 0
	}
	if err := run(*out, *units, kind, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "paddock: error: translating the guests: %v\n", err)
		os.Exit(1)
	}
}

func stripTo(in, out string) error {
	module, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	r, err := instrument.Strip(module)
	if err != nil {
		return err
	}
	return os.WriteFile(out, r.Module, 0o644)
}

// kind is what is expected of the modules.
type kind int

const (
	guestModule kind = iota
	anyModule
)

func run(out string, units int, kind kind, sources []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var guests []*module
	for _, path := range sources {
		name := strings.TrimSuffix(filepath.Base(path), ".c")
		code, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header, err := os.ReadFile(strings.TrimSuffix(path, ".c") + ".h")
		if err != nil {
			return err
		}
		files, err := split(name, string(code), units)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name+".h"] = string(header)
		m, err := parse(name, string(header), string(code))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := m.become(kind); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		guests = append(guests, m)
		for file, text := range files {
			if err := write(filepath.Join(out, file), text); err != nil {
				return err
			}
		}
	}
	text, err := doors(guests, kind)
	if err != nil {
		return err
	}
	return write(filepath.Join(out, "guests.c"), text)
}

// write leaves a file alone that is what it should be.
func write(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, []byte(text)) {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

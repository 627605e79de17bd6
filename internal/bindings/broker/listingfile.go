package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// What is on the disk is bounded as what servers send is: whoever can write there could
// have run one. It decides nothing but what is shown.
const (
	maxListed     = 5000
	maxListedName = 1 << 10
	maxListing    = 64 << 20 // bytes of a file: a server's 32 MiB in base64, and some room
	maxListings   = 1000     // files
	maxWhy        = 500      // bytes of why there is no listing
	maxFuture     = time.Hour
)

// storedListing is a cacheEntry on the disk.
type storedListing struct {
	Version int          `json:"version"`
	Key     string       `json:"key"` // digest of the server's key
	Until   time.Time    `json:"until"`
	Fails   int          `json:"fails,omitempty"`
	Rests   time.Time    `json:"rests,omitzero"`
	Slow    time.Time    `json:"slow,omitzero"`
	Why     string       `json:"why,omitempty"` // it could not be listed
	Listed  bool         `json:"listed"`
	Tools   []storedTool `json:"tools,omitempty"`
}

// storedTool is a tool on the disk; its schemas are bytes, which come back as they were.
type storedTool struct {
	Name        string               `json:"name"`
	Title       string               `json:"title,omitempty"`
	Description string               `json:"description,omitempty"`
	Input       []byte               `json:"input,omitempty"`
	Output      []byte               `json:"output,omitempty"`
	Annotations bindings.Annotations `json:"annotations,omitzero"`
}

const listingVersion = 1

// loadLocked reads what the disk has of a server, where it was not read yet or another
// process has written there since. What is wrong there is as if there were nothing.
func (p *cacheEntry) loadLocked() {
	now := time.Now()
	if p.file == "" || p.loaded && now.Before(p.until) {
		return
	}
	info, err := os.Stat(p.file)
	if err != nil || p.loaded && info.ModTime().Equal(p.written) {
		p.loaded = true
		return
	}
	p.loaded, p.written = true, info.ModTime()
	text, err := readBounded(p.file, maxListing)
	if err != nil {
		return
	}
	var s storedListing
	if json.Unmarshal(text, &s) != nil || s.Version != listingVersion || s.Key != nameOf(p.key) {
		return
	}
	p.until = earlier(s.Until, now.Add(maxFuture))
	if tools, ok := s.read(); ok && s.Listed {
		p.storeLocked(newListing(tools), p.until, info.ModTime())
	}
	p.retryAt, p.slow = earlier(s.Rests, now.Add(maxBackoff)), earlier(s.Slow, now.Add(slowFor))
	p.fails = min(max(s.Fails, 0), 100)
	if s.Why != "" && p.err == nil && p.listing == nil {
		p.err = fault.New(fault.Unavailable, "%s", textsafe.Line(s.Why, maxWhy))
	}
}

// read gives the tools, if they are such as a server may have.
func (s storedListing) read() ([]bindings.Tool, bool) {
	if len(s.Tools) > maxListed {
		return nil, false
	}
	names := map[string]bool{}
	var tools []bindings.Tool
	for _, t := range s.Tools {
		if t.Name == "" || len(t.Name) > maxListedName || names[t.Name] {
			return nil, false
		}
		if t.Input != nil && !json.Valid(t.Input) || t.Output != nil && !json.Valid(t.Output) {
			return nil, false
		}
		names[t.Name] = true
		tools = append(tools, bindings.Tool{Name: t.Name, Title: t.Title, Description: t.Description, Input: t.Input, Output: t.Output, Annotations: t.Annotations})
	}
	return tools, true
}

// saveLocked writes what is known of a server. Without it the next process asks again.
func (p *cacheEntry) saveLocked(log *slog.Logger) {
	if p.file == "" {
		return
	}
	s := storedListing{Version: listingVersion, Key: nameOf(p.key), Until: p.until, Fails: p.fails, Rests: p.retryAt, Slow: p.slow, Listed: p.listing != nil}
	if p.listing != nil {
		for _, t := range p.listing.tools {
			s.Tools = append(s.Tools, storedTool{t.Name, t.Title, t.Description, t.Input, t.Output, t.Annotations})
		}
	}
	if p.err != nil {
		s.Why = textsafe.Line(failed(p.err).Error.Message, maxWhy)
	}
	text, err := json.Marshal(s)
	if err == nil && len(text) > maxListing {
		return
	}
	if err == nil {
		err = replace(p.file, text)
	}
	if err == nil {
		if info, err := os.Stat(p.file); err == nil {
			p.written = info.ModTime() // which is no news
		}
		err = prune(filepath.Dir(p.file), maxListings)
	}
	if err != nil {
		log.Warn("the tools of a server cannot be kept on the disk", "cause", err)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// readBounded reads a file that has no more than limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("a file is larger than %d bytes", limit)
	}
	return text, err
}

// replace writes a file: whoever reads it finds what was there or all that is new.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return blob.WriteFile(blob.OS, path, text)
}

// prune removes the files of a folder that were written first, where there are more
// than most of them. What was left half-written counts as one.
func prune(folder string, most int) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if len(entries) <= most {
		return nil
	}
	type file struct {
		name string
		at   time.Time
	}
	var files []file
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, file{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.at.Compare(b.at) })
	for _, f := range files[:max(0, len(files)-most+most/10)] {
		if err := os.Remove(filepath.Join(folder, f.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// shrinkLocked drops the entries that were used the longest ago, until there are so many.
func (c *listingCache) shrinkLocked(most int) {
	for _, p := range c.oldestLocked() {
		if len(c.entries) <= most {
			return
		}
		p.mu.Lock()
		if p.running == nil {
			delete(c.entries, p.key)
		}
		p.mu.Unlock()
	}
}

func (c *listingCache) oldestLocked() []*cacheEntry {
	type at struct {
		p    *cacheEntry
		used time.Time
	}
	var all []at
	for _, p := range c.entries {
		p.mu.Lock()
		all = append(all, at{p, p.used})
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b at) int { return a.used.Compare(b.used) })
	var entries []*cacheEntry
	for _, a := range all {
		entries = append(entries, a.p)
	}
	return entries
}

// trim drops listings from memory where they are too large together; the disk has them, or
// their servers.
func (c *listingCache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	size, oldest := 0, c.oldestLocked()
	for _, p := range oldest {
		p.mu.Lock()
		if p.listing != nil {
			size += p.listing.size
		}
		p.mu.Unlock()
	}
	for _, p := range oldest {
		if size <= maxCached {
			return
		}
		p.mu.Lock()
		if p.listing != nil && p.running == nil {
			size -= p.listing.size
			p.listing, p.loaded, p.until = nil, false, time.Time{}
		}
		p.mu.Unlock()
	}
}

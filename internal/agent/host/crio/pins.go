package crio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/refit-dev/refit/internal/fsutil"
)

// ownMark begins a line of our file that names a pin of ours; the list itself
// holds those of others too.
const ownMark = "# own: "

// pins is what the configuration says of pinned images.
type pins struct {
	// own are ours; others are what would be pinned without our file, from names
	// the file that says so.
	own, others []string
	from        string
	// path and text of our file; text is empty if there is none.
	path string
	text []byte
	// hides is a foreign file that is read after ours and replaces its list.
	hides string
}

// configFiles returns the main configuration file and the directory of drop-ins, from the process's
// flags.
func (c *Client) configFiles() (main, dir string) {
	main, dir = c.places.join("/etc/crio/crio.conf"), c.places.join("/etc/crio/crio.conf.d")
	pid, err := c.process()
	if err != nil || pid == 0 {
		return main, dir
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return main, dir
	}
	argv := strings.Split(string(line), "\x00")
	return flag(argv, main, "--config", "-c"), flag(argv, dir, "--config-dir", "-d")
}

// flag is the value of a flag among arguments, or otherwise.
func flag(argv []string, otherwise string, names ...string) string {
	for i, a := range argv {
		for _, n := range names {
			if v, ok := strings.CutPrefix(a, n+"="); ok {
				return v
			}
			if a == n && i+1 < len(argv) {
				return argv[i+1]
			}
		}
	}
	return otherwise
}

// readPins reads the files as the runtime does: the main one, then the drop-ins
// in the order of their names; a list in a later one replaces an earlier one.
func readPins(main, dir string) (pins, error) {
	p := pins{path: filepath.Join(dir, pinsFile)}
	if err := p.readDropIn(main); err != nil {
		return p, err
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return p.readDropIn(path)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("configuration of the container runtime: %w", err)
	}
	return p, nil
}

func (p *pins) readDropIn(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if path == p.path {
		p.text, p.own = text, ownLines(text)
		return nil
	}
	var c struct {
		CRIO struct {
			Image struct {
				Pinned *[]string `toml:"pinned_images"`
			} `toml:"image"`
		} `toml:"crio"`
	}
	if _, err := toml.Decode(string(text), &c); err != nil {
		return fmt.Errorf("%s cannot be read, and the container runtime refuses it too: %w", path, err)
	}
	if c.CRIO.Image.Pinned == nil {
		return nil
	}
	p.others, p.from = *c.CRIO.Image.Pinned, path
	if path > p.path {
		p.hides = path
	}
	return nil
}

func ownLines(text []byte) (names []string) {
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), ownMark); ok {
			names = append(names, name)
		}
	}
	return names
}

// render is our file, nil if there is no pin of ours.
func (p *pins) render() []byte {
	if len(p.own) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("# Written by refit, which pins images that this node needs without a registry.\n" +
		"# Changes are overwritten. This file is read last, and its list replaces all others:\n" +
		"# so what other files pin is repeated here.\n")
	for _, n := range p.own {
		b.WriteString(ownMark + n + "\n")
	}
	b.WriteString("[crio.image]\npinned_images = [\n")
	all := slices.Concat(p.others, p.own)
	for i, n := range all {
		if n == "" || slices.Contains(all[:i], n) {
			continue
		}
		b.WriteString("  " + strconv.Quote(n) + ",\n")
	}
	b.WriteString("]\n")
	return b.Bytes()
}

// setPins changes refit's pins and merges the current pins of other files. It signals the runtime
// only if the file changes.
func (c *Client) setPins(change func(own []string) []string) error {
	main, dir := c.configFiles()
	p, err := readPins(main, dir)
	if err != nil {
		return err
	}
	p.own = change(p.own)
	slices.Sort(p.own)
	p.own = slices.Compact(p.own)
	if p.hides != "" && len(p.own) > 0 {
		return fmt.Errorf("%s is read after %s and replaces its list of pinned images: give it a name that sorts before", p.hides, p.path)
	}
	text := p.render()
	if bytes.Equal(text, p.text) {
		return nil
	}
	if text == nil {
		err = os.Remove(p.path)
	} else if err = os.MkdirAll(dir, 0o755); err == nil {
		err = fsutil.WriteFile(p.path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("list of pinned images: %w", err)
	}
	return c.reload()
}

// OwnPins are the names in our list.
func (c *Client) OwnPins(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	main, dir := c.configFiles()
	p, err := readPins(main, dir)
	return p.own, err
}

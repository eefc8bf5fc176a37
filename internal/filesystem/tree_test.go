package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"
	"testing"
)

// endlessDirectory is a directory with many directories of the same kind.
type endlessDirectory struct {
	id      uint64
	entry   string
	entered *uint64
}

func (d endlessDirectory) stat() fileInfo { return fileInfo{id: d.id, mode: fs.ModeDir | 0o755} }

func (d endlessDirectory) contents() (contents, error) { return nil, fs.ErrInvalid }

func (d endlessDirectory) entries() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for i := int64(0); ; i++ {
			load := func() (node, error) {
				*d.entered++
				return endlessDirectory{*d.entered, d.entry, d.entered}, nil
			}
			if !yield(entry{name: fmt.Sprintf(d.entry, i), position: i, load: load}, nil) {
				return
			}
		}
	}
}

func TestTreeLimits(t *testing.T) {
	t.Parallel()
	root := endlessDirectory{0, "%d", new(uint64)}
	tree := newTree(medium{kind: "test"}, root, caseSensitive)
	if _, err := tree.ReadDir("."); err == nil || !strings.Contains(err.Error(), "more than 65536 entries") {
		t.Errorf("endless directory: %v", err)
	}
	if _, err := tree.ReadDir("x"); err == nil || !strings.Contains(err.Error(), "more than 65536 entries") {
		t.Errorf("lookup in an endless directory: %v", err)
	}
	if _, err := tree.Stat(strings.Repeat("0/", maxDepth-1) + "0"); err != nil {
		t.Errorf("path of %d elements: %v", maxDepth, err)
	}
	if _, err := tree.Stat(strings.Repeat("0/", maxDepth) + "0"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("path of %d elements: %v", maxDepth+1, err)
	}
	for i := range maxDirectories {
		tree.places[1<<32+uint64(i)] = place{}
	}
	if _, err := tree.Stat("0"); err == nil || !strings.Contains(err.Error(), "more than 65536 directories") {
		t.Errorf("too many directories: %v", err)
	}
}

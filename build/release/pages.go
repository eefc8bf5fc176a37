package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/refit-dev/refit/internal/cli"
)

// pages are the manual pages and the completions of refit, the same for every platform.
func (r *release) pages([]platform) ([]packed, error) {
	root := cli.New("refit")
	root.DisableAutoGenTag = true // it would have the date of packing
	out, err := r.manual(root)
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		file  string
		write func(io.Writer) error
	}{
		{"refit.bash", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"_refit", root.GenZshCompletion},
		{"refit.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"refit.ps1", root.GenPowerShellCompletionWithDesc},
	} {
		var b bytes.Buffer
		if err := s.write(&b); err != nil {
			return nil, fmt.Errorf("completion %s: %w", s.file, err)
		}
		out = append(out, packed{name: "completions/" + s.file, text: b.Bytes(), mode: 0o644})
	}
	return out, nil
}

// manual writes one page for each command, sorted by name.
func (r *release) manual(root *cobra.Command) ([]packed, error) {
	dir, err := os.MkdirTemp("", "refit-man-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	header := &doc.GenManHeader{Section: "1", Source: "refit " + r.version, Manual: "refit", Date: &r.date}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return nil, fmt.Errorf("manual pages: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []packed
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(text), dir) {
			return nil, fmt.Errorf("manual page %s names a directory of this machine", filepath.Base(name))
		}
		out = append(out, packed{name: "man/" + filepath.Base(name), text: text, mode: 0o644})
	}
	return out, nil
}

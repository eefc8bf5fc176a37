package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"
)

// versionFile makes a directory one of the documentation: {"version": "1.2.3"}.
const versionFile = "version.json"

// versionsPage is in each version, and links to the others.
const versionsPage = "versions.html"

// versionsText is the page before its list is made.
const versionsText = `# Other versions

These pages are for refit %s.

` + versionsBegin + versionsEnd + `

The list has the versions whose directories are next to the one of these pages.
`

const versionsBegin, versionsEnd = `<ul id="versions">`, `</ul>`

var versionsList = regexp.MustCompile(`(?s)` + versionsBegin + `.*?` + versionsEnd)

// builtVersion is a directory of the documentation.
type builtVersion struct{ dir, version string }

// versionsCommand lists the versions alone, for pages that were unpacked.
func versionsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "versions DIR", Short: "List the versions of the documentation in a directory, in each of them",
		Long: `Each directory below DIR that has the documentation of a version gets a list of all of them.
Run it after a version was added or removed by hand.`,
		Args: cobra.ExactArgs(1), SilenceUsage: true,
		RunE: func(c *cobra.Command, args []string) error {
			found, err := listVersions(args[0])
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("%s has no directory with %s: name the directory above those of the versions", args[0], versionFile)
			}
			for _, v := range found {
				fmt.Fprintln(c.OutOrStdout(), v.version, filepath.Join(args[0], v.dir))
			}
			return nil
		},
	}
}

// listVersions writes the list of versions into each version below a directory, the newest first.
func listVersions(parent string) ([]builtVersion, error) {
	found, err := findVersions(parent)
	if err != nil {
		return nil, err
	}
	for _, v := range found {
		page := filepath.Join(parent, v.dir, versionsPage)
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, fmt.Errorf("documentation of version %s: %w", v.version, err)
		}
		if !versionsList.Match(text) {
			return nil, fmt.Errorf("%s has no list of versions: build version %s again", page, v.version)
		}
		list := versionLinks(found, v)
		text = versionsList.ReplaceAllLiteral(text, []byte(list))
		if err := os.WriteFile(page, text, 0o644); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func findVersions(parent string) ([]builtVersion, error) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil, err
	}
	var found []builtVersion
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		file := filepath.Join(parent, e.Name(), versionFile)
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var v struct {
			Version string `json:"version"`
		}
		if err := json.Unmarshal(text, &v); err != nil {
			return nil, fmt.Errorf("%s: %w: build that version again, or remove its directory", file, err)
		}
		if v.Version == "" {
			return nil, fmt.Errorf("%s names no version: build that version again, or remove its directory", file)
		}
		found = append(found, builtVersion{e.Name(), v.Version})
	}
	slices.SortFunc(found, newerFirst)
	return found, nil
}

// newerFirst sorts by version. What is no semantic version comes last.
func newerFirst(a, b builtVersion) int {
	x, errX := version.ParseSemantic(a.version)
	y, errY := version.ParseSemantic(b.version)
	switch {
	case errX != nil && errY != nil, errX == nil && errY == nil && x.EqualTo(y):
		return strings.Compare(a.dir, b.dir)
	case errX != nil:
		return 1
	case errY != nil, y.LessThan(x):
		return -1
	}
	return 1
}

// versionLinks is the list that own has: links to the start pages.
func versionLinks(all []builtVersion, own builtVersion) string {
	var b strings.Builder
	b.WriteString(versionsBegin + "\n")
	for _, v := range all {
		to, note := "../"+url.PathEscape(v.dir)+"/index.html", ""
		if v == own {
			to, note = "index.html", " (these pages)"
		}
		fmt.Fprintf(&b, "<li><a href=\"%s\">refit %s</a>%s</li>\n", to, html.EscapeString(v.version), note)
	}
	b.WriteString(versionsEnd)
	return b.String()
}

package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// distributionPlace is a path or a unit of a node of any row of the table, in a string.
var distributionPlace = regexp.MustCompile(`/etc/kubernetes|/var/lib/kubelet|\badmin\.conf\b|\bkubelet\.service\b|/var/lib/etcd|/etc/cni\b|/opt/cni\b` +
	`|/var/lib/containerd|/run/containerd\b|/run/crio\b|/(?:etc|var/lib)/rancher|/(?:etc|var/lib|run)/k0s|/run/k3s|\bk3s(?:-agent)?\.service\b` +
	`|\brke2-(?:server|agent)\b|\bk0s(?:controller|worker)\b|/bin/(?:k3s|rke2|k0s)\b|/opt/nodeadm|/etc/eks`)

// literalPlaces are the files that name such places themselves, with the number of strings and
// the reason. All others ask package distribution. The list shrinks, it never grows.
var literalPlaces = map[string]struct {
	strings int
	reason  string
}{}

// Places of a node come from the table of distributions: a path in the code is one that another
// distribution has elsewhere.
func TestPlacesComeFromTheTable(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for _, p := range packages(t) {
		in := strings.TrimPrefix(p.ImportPath, module)
		if !under(in, "internal") && !under(in, "cmd") || under(in, "internal/lab") || in == "cmd/refit-lab" || in == "internal/distribution" {
			continue
		}
		for _, f := range p.GoFiles {
			if n := placesIn(t, filepath.Join(p.Dir, f)); n > 0 {
				found[in+"/"+f] = n
			}
		}
	}
	for file, n := range found {
		if n > literalPlaces[file].strings {
			t.Errorf("%s has %d places of distributions in strings, %d are allowed: ask package distribution", file, n, literalPlaces[file].strings)
		}
	}
	for file, allowed := range literalPlaces {
		if found[file] < allowed.strings || allowed.reason == "" {
			t.Errorf("%s has %d places of distributions in strings: write that number into literalPlaces, which had %d, with a reason", file, found[file], allowed.strings)
		}
	}
}

// The rule finds what the rows have, not what only sounds like it.
func TestPlaceRule(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"/var/lib/etcd": true, "see /etc/cni/net.d": true, "/var/lib/containerd/io": true, "k3s.service": true, "rke2-agent": true,
		"/etc/rancher/k3s/config.yaml": true, "/run/k0s/containerd.sock": true, "k3s": false, "/etc/containerd/config.toml": false, "rke2-images": false, "super-administrator.conf": false} {
		if distributionPlace.MatchString(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}

func placesIn(t *testing.T, file string) (n int) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		if l, ok := node.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil && distributionPlace.MatchString(text) {
				n++
			}
		}
		return true
	})
	return n
}

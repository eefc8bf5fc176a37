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

// kubeadmPlace is a path or a unit of kubeadm's nodes in a string.
var kubeadmPlace = regexp.MustCompile(`/etc/kubernetes|/var/lib/kubelet|\badmin\.conf\b|\bkubelet\.service\b|/run/containerd\b|/run/crio\b|/opt/cni/bin`)

// literalPlaces are the files that name such places themselves, with the number of strings.
// All others ask package distribution. The list shrinks, it never grows.
var literalPlaces = map[string]int{
	"internal/agent/host/kube/kubecert.go":             3, // names of kubeadm's certificates
	"internal/agent/host/kube/certificates.go":         1, // the same
	"internal/agent/updaters/kubelet/kubeletconfig.go": 1, // refit's own directory
	"internal/bootimage/ignition/check.go":             1, // units of boot images
	"internal/bootimage/ignition/pivot.go":             1, // the same
	"internal/cli/inputs/cluster.go":                   1, // messages
	"internal/cli/installcmd/uninstall.go":             1, // the same
	"internal/imagetag/lint/parse.go":                  1, // kubeadm's directory in a user's files
	"internal/model/config.go":                         6, // protected directories and units of a NodeConfig
	"internal/model/secret.go":                         1, // files with secrets
	"internal/model/staticpod.go":                      1, // where static pods are updated
	"internal/pipeline/updateplan/configured.go":       1, // a message
}

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
		if n > literalPlaces[file] {
			t.Errorf("%s has %d places of kubeadm in strings, %d are allowed: ask package distribution", file, n, literalPlaces[file])
		}
	}
	for file, n := range literalPlaces {
		if found[file] < n {
			t.Errorf("%s has %d places of kubeadm in strings: write that number into literalPlaces, which had %d", file, found[file], n)
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
			if text, err := strconv.Unquote(l.Value); err == nil && kubeadmPlace.MatchString(text) {
				n++
			}
		}
		return true
	})
	return n
}

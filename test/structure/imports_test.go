package structure

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/refit-dev/refit/"

type pkg struct {
	ImportPath   string
	Imports      []string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

// layer returns the layer of one of our packages (ARCHITECTURE.md), or -1.
func layer(path string) int {
	p := strings.TrimPrefix(path, module)
	switch {
	case p == "api/v1alpha1":
		return 0
	case p == "internal/model", p == "internal/text", p == "internal/areas", under(p, "internal/failpoint"), p == "internal/imagetag", p == "internal/componentversion", p == "internal/distribution", p == "internal/imageproof":
		return 1
	case p == "internal/pipeline/rollout/forecast", p == "internal/explain", isStage(p):
		return 2
	case under(p, "internal/agent/host"), under(p, "internal/fsutil"), under(p, "internal/oci"), under(p, "internal/registry"), p == "internal/outbound", p == "internal/peerapi", p == "internal/filesystem", p == "docs":
		return 3
	case under(p, "internal/pipeline"), slices.Contains(makers, p), under(p, "internal/convert"), p == "internal/clusterfacts",
		under(p, "internal/agent/updaters"), p == "internal/agent/bundlestore", p == "internal/agent/imagekeeper":
		return 4
	case under(p, "internal/controller"), under(p, "internal/agent"), under(p, "internal/render"),
		under(p, "internal/cli"), under(p, "internal/lab"), p == "config":
		return 5
	case under(p, "cmd"), under(p, "build"):
		return 6
	}
	return -1
}

func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// pureTrees hold packages that decide: the tree's root, and one level below it.
var pureTrees = []string{"pipeline", "imagetag", "bootimage", "osimage"}

// makers write what the pure part of their tree decided.
var makers = []string{"internal/osimage/contents", "internal/osimage/imagebuild"}

func isStage(p string) bool {
	if slices.Contains(makers, p) {
		return false
	}
	parts := strings.Split(p, "/")
	return len(parts) >= 2 && len(parts) <= 3 && parts[0] == "internal" && slices.Contains(pureTrees, parts[1])
}

// stageOf is the stage folder a package of layer 2 or 4 belongs to.
func stageOf(p string) string {
	parts := strings.Split(strings.TrimPrefix(p, module), "/")
	if len(parts) < 3 {
		return ""
	}
	return strings.Join(parts[:3], "/")
}

// allowed reports why from may not import to, or "".
func allowed(from, to string) string {
	lf, lt := layer(from), layer(to)
	f, t := strings.TrimPrefix(from, module), strings.TrimPrefix(to, module)
	switch {
	case under(f, "internal/agent") && under(t, "internal/controller"), under(t, "internal/agent") && (under(f, "internal/controller") || under(f, "internal/cli")):
		return "agent and controller are two houses: what both need stands outside them"
	case f == "internal/filesystem":
		return "file systems are a leaf: they import the standard library only"
	case lf < 0:
		return "package has no layer: add it to ARCHITECTURE.md and to this test"
	case lt < 0:
		return "imports a package without a layer"
	case lf == 0 && lt >= 0:
		return "api imports only apimachinery"
	case lf == 1 && lt == 0:
		return "values do not know the API"
	case lf == 2 && lt == 0:
		return "pure stages do not know the API: take values of internal/model"
	case f == "internal/peerapi" && t == "internal/pipeline/transfer":
		return ""
	case lf == 3 && lt == 2:
		return "an edge does not know the stages"
	case lt > lf:
		return "imports go down only"
	case lf == 2 && lt == 2 && t != "internal/pipeline/bundle" && !under(f, t):
		return "a pure stage imports no other stage"
	case under(f, "internal/convert") && under(t, "internal/convert"):
		return ""
	case lf == 4 && lt == 4 && stageOf(f) != stageOf(t) && !under(t, "internal/pipeline/bundle"):
		return "a half imports no other stage's half"
	case lf == 5 && lt == 5:
		return wiring(f, t)
	}
	return ""
}

// wiring packages import each other only along these edges.
var wiringEdges = map[string][]string{
	"internal/controller": {"config"},
	"internal/cli":        {"internal/render", "config"},
	"internal/lab":        {"internal/controller", "internal/agent", "internal/cli/console", "config"},
}

func wiring(f, t string) string {
	for from, tos := range wiringEdges {
		if !under(f, from) {
			continue
		}
		if under(t, from) {
			return ""
		}
		for _, to := range tos {
			if under(t, to) {
				return ""
			}
		}
	}
	if top(f) == top(t) {
		return ""
	}
	return "wiring packages do not import each other but along the edges in this test"
}

func top(p string) string {
	parts := strings.Split(p, "/")
	if len(parts) < 2 {
		return p
	}
	return strings.Join(parts[:2], "/")
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Dir,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for dec.More() {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages found: the test reads the wrong directory", len(all))
	}
	return all
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if under(strings.TrimPrefix(p.ImportPath, module), "test") || under(strings.TrimPrefix(p.ImportPath, module), "bench") {
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			if why := allowed(p.ImportPath, imp); why != "" {
				t.Errorf("%s -> %s: %s", strings.TrimPrefix(p.ImportPath, module), strings.TrimPrefix(imp, module), why)
			}
		}
	}
}

func TestImportsRuleRefuses(t *testing.T) {
	t.Parallel()
	for name, edge := range map[string][2]string{
		"a stage that imports the API":           {"internal/pipeline/gate", "api/v1alpha1"},
		"a host edge that imports a stage":       {"internal/agent/host/containerd", "internal/pipeline/pin"},
		"a half that imports another stage's":    {"internal/agent/bundlestore", "internal/agent/imagekeeper"},
		"the controller that imports the agent":  {"internal/controller", "internal/agent"},
		"a stage that imports another stage":     {"internal/pipeline/gate", "internal/pipeline/updateplan"},
		"an edge that imports the wiring":        {"internal/fsutil", "internal/agent"},
		"a leaf that imports an edge":            {"internal/filesystem", "internal/fsutil"},
		"a package without a layer":              {"internal/misc", "internal/model"},
		"values that import the API":             {"internal/model", "api/v1alpha1"},
		"the agent that imports the controller":  {"internal/agent", "internal/controller"},
		"the CLI that imports the node's agent":  {"internal/cli", "internal/agent"},
		"a main that no package may import":      {"internal/cli", "cmd/refit"},
		"the API that imports plain values":      {"api/v1alpha1", "internal/model"},
		"an updater that imports the media half": {"internal/agent/updaters/kubeadm", "internal/agent/bundlestore"},
	} {
		if why := allowed(module+edge[0], module+edge[1]); why == "" {
			t.Errorf("%s: %s -> %s is let through", name, edge[0], edge[1])
		}
	}
}

// The rooms that the architecture page names are there, also those below another
// (agent/authority is internal/agent/authority).
func TestArchitectureNamesRooms(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile("`([a-z][a-z0-9]*(?:/[a-zA-Z0-9_.{},]+)+)`").FindAllStringSubmatch(string(page), -1) {
		for _, path := range alternatives(m[1]) {
			found++
			_, here := os.Stat("../../" + path)
			_, inside := os.Stat("../../internal/" + path)
			if here != nil && inside != nil {
				t.Errorf("ARCHITECTURE.md names %s, which does not exist", path)
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d paths found: the test looks for the wrong ones", found)
	}
}

// alternatives are the paths that a/{b,c} stands for.
func alternatives(path string) []string {
	before, rest, ok := strings.Cut(path, "{")
	if !ok {
		return []string{path}
	}
	inner, after, _ := strings.Cut(rest, "}")
	var out []string
	for _, one := range strings.Split(inner, ",") {
		out = append(out, before+one+after)
	}
	return out
}

// A package of this module has one name everywhere: only the API's is given in the import.
func TestNoAliases(t *testing.T) {
	t.Parallel()
	alias := regexp.MustCompile(`(?m)^\s*(?:import )?([a-zA-Z0-9]+) "` + regexp.QuoteMeta(module) + `([^"]+)"`)
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range alias.FindAllStringSubmatch(string(text), -1) {
				if m[1] != "v1alpha1" && m[1] != "import" {
					t.Errorf("%s imports %s as %s: use its name, or give it a better one", f, m[2], m[1])
				}
			}
		}
	}
}

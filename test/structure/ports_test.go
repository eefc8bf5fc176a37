package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/model"
)

const portsPage = "../../docs/reference/ports.md"

var ownPorts = map[string]int{"peers": model.PortPeers, "health": model.PortHealth, "metrics": model.PortMetrics, "Cluster API": model.PortClusterAPI, "joins": model.PortJoins, "status page": model.PortStatus, "page of a node": model.PortNodeStatus}

// No port of refit's is one that another component of the page uses, and the page
// names refit's own.
func TestPorts(t *testing.T) {
	text, err := os.ReadFile(portsPage)
	if err != nil {
		t.Fatal(err)
	}
	own, others, found := strings.Cut(string(text), "## What others use")
	if !found {
		t.Fatalf("%s has no table of what others use", portsPage)
	}
	for what, p := range ownPorts {
		if !strings.Contains(own, "| "+strconv.Itoa(p)+"/tcp |") {
			t.Errorf("%s does not name the port of %s, %d", portsPage, what, p)
		}
	}
	if n := strings.Count(own, "/tcp | "); n != len(ownPorts) {
		t.Errorf("%s names %d ports of refit's own, want %d", portsPage, n, len(ownPorts))
	}
	rows := 0
	for _, line := range strings.Split(others, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(strings.TrimSpace(cells[2]), "ports") || strings.Contains(cells[2], "---") {
			continue
		}
		rows++
		if strings.TrimSpace(cells[3]) == "" {
			t.Errorf("%s has no source", cells[1])
		}
		for _, r := range strings.Split(cells[2], ",") {
			from, to := portRange(t, r)
			for what, p := range ownPorts {
				if p >= from && p <= to {
					t.Errorf("the port of %s, %d, is one of %s", what, p, cells[1])
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d components are compared", rows)
	}
}

func portRange(t *testing.T, text string) (from, to int) {
	t.Helper()
	m := regexp.MustCompile(`^\s*(\d+)(?:-(\d+))?\s*$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q is no port", text)
	}
	from, _ = strconv.Atoi(m[1])
	if to = from; m[2] != "" {
		to, _ = strconv.Atoi(m[2])
	}
	return from, to
}

// Manifests and documents use the ports of the program.
func TestPortsOfManifests(t *testing.T) {
	for file, want := range map[string]int{
		"../../config/controller/deployment.yaml":        model.PortHealth,
		"../../config/cluster-api/management.yaml":       model.PortClusterAPI,
		"../../config/cluster-api/controller-patch.yaml": model.PortClusterAPI,
		"../../docs/reference/peer-api.md":               model.PortPeers,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), strconv.Itoa(want)) {
			t.Errorf("%s does not have port %d", file, want)
		}
		if regexp.MustCompile(`\b794[6-9]\b`).Match(text) {
			t.Errorf("%s has a port that MetalLB and Docker Swarm use, or one next to it", file)
		}
	}
}

// Packages are tested side by side, so no two of them listen on the same fixed port. 187xx are the
// program's own, which tests name without listening there.
func TestPortsOfTests(t *testing.T) {
	t.Parallel()
	fixed := regexp.MustCompile(`127\.0\.0\.1:(17\d{3}|18[0-6]\d\d)"|(?:newTestNode|registryNode)\(t, "[^"]*", (\d{5})\b`)
	users := map[string]string{}
	for _, p := range packages(t) {
		for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range fixed.FindAllSubmatch(text, -1) {
				port := string(m[1]) + string(m[2])
				if other, used := users[port]; used && other != p.ImportPath {
					t.Errorf("tests of %s and of %s use port %s", other, p.ImportPath, port)
				}
				users[port] = p.ImportPath
			}
		}
	}
	if len(users) < 20 {
		t.Errorf("%d ports found", len(users))
	}
}

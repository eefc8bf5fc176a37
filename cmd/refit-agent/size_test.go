package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxSize of the released agent in bytes. Every node has it, and a bundle carries it.
const maxSize = 25_000_000

// unwanted is code that makes the agent larger by megabytes, by a function in it.
var unwanted = map[string]string{
	"text/template.(*state).evalField": "it finds methods by name, so the linker keeps every exported method of every type",
	"github.com/gogo/protobuf/proto.":  "typeurl brings it, which containerd's general client and errgrpc import: call containerd's services (see host/containerd/api.go)",
	"k8s.io/api/core/v1.addKnownTypes": "with one type of core/v1 all of them are linked: read the members that you need (see convert.ConfigMap)",
}

// makeVariable reads a variable of the Makefile.
func makeVariable(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, name+" := "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("the Makefile does not set %s", name)
	return ""
}

// buildAgent builds the agent as `make build` does, with more tags, and returns the program.
func buildAgent(t *testing.T, tags ...string) []byte {
	t.Helper()
	program := filepath.Join(t.TempDir(), "refit-agent")
	tags = append(tags, makeVariable(t, "TAGS"))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", strings.Join(tags, ","), "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReleasedAgentIsSmall(t *testing.T) {
	b := buildAgent(t)
	t.Logf("%d bytes", len(b))
	if len(b) > maxSize {
		t.Errorf("%d bytes, at most %d: bench/results/size.json has what it was made of, and `make bench` measures it again", len(b), maxSize)
	}
	for code, why := range unwanted {
		if bytes.Contains(b, []byte(code)) {
			t.Errorf("the program contains %s: %s. `go list -deps` and `go build -ldflags=-dumpdep` show who asks for it", code, why)
		}
	}
}

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFirstSteps types the commands of docs/tutorial/first-steps.md, as they stand there,
// into a shell; the question of refit apply is answered on a terminal.
func TestFirstSteps(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a whole update by hand takes long: make e2e")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: the nodes are namespaces, mounts and loop devices")
	}
	root, err := filepath.Abs("../..")
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(root, "bin"), filepath.Join(dir, "bin")))
	if out, err := exec.Command(filepath.Join(root, "bin/refit-lab"), "status").CombinedOutput(); err == nil {
		t.Fatalf("a lab of the default name runs already, and these steps would take it down:\n%s", out)
	}
	down := func() {
		if out, err := exec.Command(filepath.Join(root, "bin/refit-lab"), "down").CombinedOutput(); err != nil {
			t.Errorf("lab down: %v: %s", err, out)
		}
	}
	t.Cleanup(down)
	sh := exec.CommandContext(t.Context(), "bash", "-c", byHand(t, filepath.Join(root, "docs/tutorial/first-steps.md"), root))
	sh.Dir = dir
	var out bytes.Buffer
	sh.Stdout = io.MultiWriter(&out, newLog(t))
	sh.Stderr = sh.Stdout
	if err := sh.Run(); err != nil {
		t.Fatalf("the steps ended with %v", err)
	}
	for _, said := range []string{"waits for approval", "Start this update? [y/N]", "3 of 3 nodes are at 1.36.3"} {
		if !strings.Contains(out.String(), said) {
			t.Errorf("the steps never said %q", said)
		}
	}
}

// byHand makes one shell script of a page's commands from "Do it by hand" on. A
// status that is not all well answers with its documented exit code 3.
func byHand(t *testing.T, page, root string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	_, steps, ok := strings.Cut(string(text), "## Do it by hand")
	if !ok {
		t.Fatal("the page has no part Do it by hand")
	}
	script := "set -u\n"
	inside, n := false, 0
	for line := range strings.SplitSeq(steps, "\n") {
		if strings.HasPrefix(line, "```") {
			inside = !inside
			continue
		}
		line, _, _ = strings.Cut(line, "  #")
		if line = strings.TrimSpace(line); !inside || line == "" {
			continue
		}
		n++
		run := line
		switch {
		case strings.HasPrefix(line, "make "):
			run = "make -C " + root + strings.TrimPrefix(line, "make")
		case line == "bin/refit apply":
			run = `script -qec "bin/refit apply" /dev/null <<< y`
		}
		allowed := "0"
		if line == "bin/refit status" {
			allowed = "0|3"
		}
		script += fmt.Sprintf("echo '$ %s'\n%s\ncode=$?; case $code in %s) ;; *) echo \"exit code $code\"; exit 1;; esac\n", strings.ReplaceAll(line, "'", `'\''`), run, allowed)
	}
	if n < 15 {
		t.Fatalf("only %d commands found on the page", n)
	}
	return script
}

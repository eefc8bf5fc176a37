package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// arm64Binaries is the variable with the directory of the programs that a release packs.
const arm64Binaries = "REFIT_RELEASE_BINARIES"

// TestArm64Runs starts the arm64 programs of a release, each with two commands, under an emulator.
// make release sets the variable and installs the emulator.
func TestArm64Runs(t *testing.T) {
	dir := os.Getenv(arm64Binaries)
	if dir == "" {
		t.Skipf("%s is not set: make release builds the programs and runs this test", arm64Binaries)
	}
	emulator, err := exec.LookPath("qemu-aarch64-static")
	if err != nil && testing.Short() {
		t.Skip("no emulator: make release-deps installs qemu-user-static")
	}
	if err != nil {
		t.Fatalf("%v: make release-deps installs qemu-user-static", err)
	}
	run := func(program string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, emulator, append([]string{filepath.Join(dir, "linux-arm64", program)}, args...)...)
		c.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	for program, want := range map[string]string{"refit": "refit ", "refit-agent": "."} {
		if out := run(program, "version"); !strings.Contains(out, want) {
			t.Errorf("%s version: no %q in %q", program, want, out)
		}
	}
	if out := run("refit-providers", "check", "--help"); !strings.Contains(out, "--upload") {
		t.Errorf("refit-providers check --help: %s", out)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	run("refit", "keys", "generate", "--out", keys)
	if data, err := os.ReadFile(filepath.Join(keys, "refit.key")); err != nil || !strings.Contains(string(data), "PRIVATE KEY") {
		t.Errorf("a key that the arm64 program made: %v %q", err, data)
	}
	root := t.TempDir()
	for name, text := range map[string]string{"etc/kubernetes/kubelet.conf": "", "etc/kubernetes/pki/ca.crt": "", "var/lib/kubelet/kubeadm-flags.env": "", "var/lib/kubelet/config.yaml": "", "usr/bin/kubelet": "x"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out := run("refit-agent", "detect", "--root", root); !strings.Contains(out, "kubeadm") {
		t.Errorf("refit-agent detect: %s", out)
	}
}

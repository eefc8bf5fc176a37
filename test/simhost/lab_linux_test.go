package simhost

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/lab"
)

// A node of a lab, whose pid 1 is a real systemd, boots what libostree has deployed. The
// node is switched, systemd's own shutdown finalizes the staged deployment, and /etc is
// merged. A power cut loses a deployment that was only staged.
func TestLabNodeBootsItsDeployment(t *testing.T) {
	Needs(t)
	if testing.Short() {
		t.Skip("a lab takes a while: left out by -short")
	}
	if err := lab.Preflight(); err != nil {
		t.Skip("this machine cannot run a lab: ", err)
	}
	program, err := lookalike()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	stock := Layout(t, Image(t, Node(t, "1", program)), filepath.Join(dir, "stock"))
	next := Layout(t, Image(t, Node(t, "2", program).With(Files{simhostKargs: "kargs = [\"second=2\"]\n", "etc/brought": "two"})), filepath.Join(dir, "next"))
	state, err := os.MkdirTemp("/var/tmp", "refit-lab-os-") // overlays need another file system than /tmp's
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("os-%d", os.Getpid())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := lab.DownIn(ctx, name, state); err != nil {
			t.Error("lab down:", err)
		}
		if err := os.RemoveAll(state); err != nil {
			t.Error(err)
		}
	})
	l, err := lab.Up(t.Context(), lab.Options{Name: name, StateDir: state, Nodes: 2, Bare: true, OSImage: filepath.Join(dir, "stock"), Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	const node = "n2"
	run := func(argv ...string) string {
		t.Helper()
		out, err := l.Output(t.Context(), node, argv...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	is := func(version, digest string, kargs ...string) {
		t.Helper()
		if got := run("cat", "/usr/share/version"); got != version {
			t.Fatalf("version %s runs, not %s; the boot before said:\n%s", got, version, run("sh", "-c", "ostree admin status; journalctl -b -1 -n 60 --no-pager -o short-monotonic -u ostree-finalize-staged.service -t systemd"))
		}
		if got := run("bootc", "status", "--json"); !strings.Contains(got, `"booted":{`) || !strings.Contains(got, digest) {
			t.Fatalf("bootc says %s, wanted %s", got, digest)
		}
		if line := run("cat", "/proc/cmdline"); !strings.Contains(line, "root=LABEL=lab") || strings.Contains(line, "second=2") != (len(kargs) > 0) {
			t.Fatalf("the kernel's arguments are %s", line)
		}
		if got := run("systemctl", "is-active", "containerd"); got != "active" {
			t.Fatalf("containerd is %s", got)
		}
	}
	if out, err := l.Output(t.Context(), "n1", "test", "-e", "/run/ostree-booted"); err == nil {
		t.Fatal("the control plane's OS is no image:", out)
	}
	is("1", stock)
	if out, err := l.Output(t.Context(), node, "ls", "/etc/selinux/config"); err == nil {
		t.Fatal("the node has the machine's policy of SELinux:", out)
	}

	// Into the node, as a bundle would bring it.
	var tar bytes.Buffer
	pack(t, filepath.Join(dir, "next"), &tar)
	if err := l.Exec(t.Context(), node, &tar, nil, os.Stderr, "sh", "-c", "mkdir -p /var/lib/next && tar -x -C /var/lib/next"); err != nil {
		t.Fatal(err)
	}
	run("sh", "-c", "echo mine > /etc/mine")
	stage := func() { run("env", "-u", "container", "bootc", "switch", "--transport", "oci", "/var/lib/next") }
	stage()
	if err := l.Crash(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	is("1", stock)
	stage()
	run("sh", "-c", "echo late > /etc/late")
	boots := run("cat", "/proc/sys/kernel/random/boot_id")
	if err := l.Reboot(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if run("cat", "/proc/sys/kernel/random/boot_id") == boots {
		t.Fatal("it is the same boot")
	}
	is("2", next, "second=2")
	for path, want := range map[string]string{"mine": "mine", "late": "late", "brought": "two", "hostname": node} {
		if got := run("cat", "/etc/"+path); got != want {
			t.Errorf("/etc/%s is %q, not %q", path, got, want)
		}
	}
	run("env", "-u", "container", "bootc", "rollback")
	if err := l.Reboot(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	is("1", stock)
}

// pack writes a folder as a tar.
func pack(t *testing.T, dir string, to *bytes.Buffer) {
	t.Helper()
	w := tar.NewWriter(to)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

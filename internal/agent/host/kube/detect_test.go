package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/distribution"
)

const k3sUnit = "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--token' \\\n\t'SECRET-TOKEN'\n"

// k3sNode makes a server of k3s whose data directory a drop-in moves.
func k3sNode(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	put(t, root, "/etc/systemd/system/k3s.service", []byte(k3sUnit))
	put(t, root, "/etc/systemd/system/k3s.service.d/10-data.conf", []byte("[Service]\nExecStart=\nExecStart=/usr/local/bin/k3s server --token=SECRET-TOKEN --data-dir /mnt/k3s\n"))
	put(t, root, "/etc/rancher/k3s/config.yaml", []byte("token: SECRET-TOKEN\ndata-dir: /not/this\n"))
	put(t, root, "/mnt/k3s/agent/kubelet.kubeconfig", []byte("SECRET-TOKEN"))
	put(t, root, "/usr/local/bin/k3s", []byte("not run"))
	return root
}

func TestDetect(t *testing.T) {
	t.Parallel()
	root := k3sNode(t)
	before := tree(t, root)
	d, err := Detect(root)
	if err != nil {
		t.Fatal(err)
	}
	if d.Distribution != distribution.K3s || d.Role != distribution.RoleServer || d.Unit != "k3s.service" || d.Program != "/usr/local/bin/k3s" || d.Root != root {
		t.Errorf("%+v", d)
	}
	if diff := cmp.Diff([]DetectedDifference{{"data directory", "/var/lib/rancher/k3s", "/mnt/k3s"}}, d.Differences); diff != "" {
		t.Error(diff)
	}
	for _, want := range []DetectedPlace{{"node's identity", "/mnt/k3s/agent/kubelet.kubeconfig", true}, {"CRI socket", "/run/k3s/containerd/containerd.sock", false}} {
		if !slices.Contains(d.Places, want) {
			t.Errorf("no place %+v: %+v", want, d.Places)
		}
	}
	b, err := json.Marshal(d)
	if err != nil || strings.Contains(string(b), "SECRET") {
		t.Errorf("%v, the answer has a secret: %s", err, b)
	}
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("the machine was changed: %s", diff)
	}
	d.AskVersion(t.Context())
	if d.Version != "" || d.VersionProblem == "" {
		t.Errorf("a program of another machine was run: %+v", d)
	}
}

func TestDefaultPlacesAreThoseOfTheDistribution(t *testing.T) {
	t.Parallel()
	kubeadm, none, k3s := t.TempDir(), t.TempDir(), k3sNode(t)
	put(t, kubeadm, "/var/lib/kubelet/kubeadm-flags.env", []byte(`KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/other.sock"`))
	for root, want := range map[string][2]string{
		kubeadm: {kubeadm + "/etc/kubernetes/kubelet.conf", "/run/other.sock"},
		none:    {none + "/etc/kubernetes/kubelet.conf", ContainerdSocket},
		k3s:     {k3s + "/mnt/k3s/agent/kubelet.kubeconfig", "/run/k3s/containerd/containerd.sock"},
	} {
		if identity, socket := DefaultPlaces(root); identity != want[0] || socket != want[1] {
			t.Errorf("%s, %s, want %v", identity, socket, want)
		}
	}
}

// tree has the names, modes, sizes and times of all files.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err == nil {
			out[p] = fmt.Sprint(st.Mode(), st.Size(), st.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDetectRefuses(t *testing.T) {
	t.Parallel()
	two := k3sNode(t)
	put(t, two, "/var/lib/kubelet/kubeadm-flags.env", []byte("x"))
	d, err := Detect(two)
	var a *distribution.AmbiguousError
	if !errors.As(err, &a) || d.Distribution != "Ambiguous" || !strings.Contains(d.Message, "k3s") || !strings.Contains(d.Message, "kubeadm") ||
		!slices.Contains(d.Seen, "/var/lib/kubelet/kubeadm-flags.env") || !slices.Contains(d.Seen, "/etc/systemd/system/k3s.service") {
		t.Errorf("%+v, %v", d, err)
	}
	none := t.TempDir()
	put(t, none, "/var/lib/kubelet/config.json", []byte("x"))
	d, err = Detect(none)
	var u *distribution.UnknownError
	if !errors.As(err, &u) || d.Distribution != "Unknown" || !slices.Equal(d.Seen, []string{"/var/lib/kubelet"}) {
		t.Errorf("%+v, %v", d, err)
	}
	d.AskVersion(t.Context())
	if d.Version != "" || d.VersionProblem != "" {
		t.Errorf("%+v", d)
	}
	if d, err := Detect(filepath.Join(none, "missing")); err == nil || d.Distribution != "Unknown" {
		t.Errorf("a root that is not there: %+v, %v", d, err)
	}
}

// Links of a root that is not the machine's own stay in it, as do links that loop, pipes and
// large files: they neither mislead nor hold up.
func TestDetectReadsHostileRoots(t *testing.T) {
	t.Parallel()
	link := func(root, from, to string) {
		t.Helper()
		at := filepath.Join(root, from)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	put(t, outside, "/k3s.service", []byte("ExecStart=/outside/k3s\n"))
	for name, c := range map[string]struct {
		make    func(root string)
		row     string
		program string
	}{
		"an absolute link in the root": {func(root string) {
			put(t, root, "/usr/lib/systemd/system/k3s.service", []byte("ExecStart=/opt/bin/k3s agent\n"))
			link(root, "/etc/systemd/system/k3s.service", "/usr/lib/systemd/system/k3s.service")
		}, distribution.K3s, "/opt/bin/k3s"},
		"merged directories": {func(root string) {
			put(t, root, "/usr/lib/systemd/system/rke2-agent.service", []byte("ExecStart=/usr/bin/rke2 agent\n"))
			link(root, "/lib", "usr/lib")
		}, distribution.RKE2, "/usr/bin/rke2"},
		"a link out of the root": {func(root string) {
			link(root, "/etc/systemd/system/k3s.service", filepath.Join(outside, "k3s.service"))
			link(root, "/etc/systemd/system/rke2-server.service", "../../../../../../../../.."+filepath.Join(outside, "k3s.service"))
		}, "Unknown", ""},
		"links that loop": {func(root string) {
			link(root, "/etc/systemd/system", "/etc/systemd/other")
			link(root, "/etc/systemd/other", "/etc/systemd/system")
		}, "Unknown", ""},
		"a pipe and a directory for a unit": {func(root string) {
			put(t, root, "/etc/systemd/system/x", nil)
			if err := syscall.Mkfifo(filepath.Join(root, "/etc/systemd/system/k0sworker.service"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(root, "/etc/systemd/system/k0sworker.service.d/a.conf"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, distribution.K0s, ""},
		"a unit of noise": {func(root string) {
			put(t, root, "/etc/systemd/system/k0sworker.service", []byte(strings.Repeat("ExecStart=\x00\\\n\"", 1<<17)+"\nExecStart=/usr/local/bin/k0s worker"))
		}, distribution.K0s, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			c.make(root)
			start := time.Now()
			d, err := Detect(root)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %s", took)
			}
			if d.Distribution != c.row || d.Program != c.program || (err == nil) != (c.row != "Unknown") {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

func TestAskVersion(t *testing.T) {
	t.Setenv("REFIT_SECRET", "SECRET")
	script := func(name, text string) string {
		return write(t, filepath.Join(t.TempDir(), name), "#!/bin/sh\n"+text)
	}
	for name, c := range map[string]struct {
		program, version, problem string
	}{
		"a version":             {script("k3s", "[ \"$*\" = --version ] && echo 'k3s version v1.36.3+k3s1 (0a1b2c3d)'\necho 'go version go1.26.1'"), "v1.36.3+k3s1", ""},
		"no environment":        {script("k3s", "[ -z \"$REFIT_SECRET$HOME\" ] || exit 3; echo v1.36.3+k3s1"), "v1.36.3+k3s1", ""},
		"no version":            {script("k3s", "echo hello"), "", "its output has none"},
		"an error":              {script("k3s", "echo v1.36.3+k3s1; exit 1"), "", "exit status 1"},
		"no such program":       {"/not/there/k3s", "", "no such file"},
		"no program":            {"", "", "no unit names the program"},
		"a program of another":  {script("reboot", "echo v1.36.3+k3s1"), "", "is not a program of k3s"},
		"a program that hangs":  {script("k3s", "echo v1.36.3+k3s1; sleep 60"), "", "no answer"},
		"a flood":               {script("k3s", "while :; do echo vvvvvvvvvvvvvvvvvvvvvvvvvv; done"), "", "no answer"},
		"a child with the pipe": {script("k3s", "sleep 60 &\nexit 0"), "", "version of"},
	} {
		limit := time.Minute
		if c.problem == "no answer" {
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		d := &Detection{Root: "/", Distribution: distribution.K3s, Program: c.program}
		start := time.Now()
		d.AskVersion(ctx)
		cancel()
		if d.Version != c.version || (c.problem == "") != (d.VersionProblem == "") || !strings.Contains(d.VersionProblem, c.problem) {
			t.Errorf("%s: %q, %q", name, d.Version, d.VersionProblem)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

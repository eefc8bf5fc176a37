package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func root(t *testing.T) Places {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: refit-agent install refuses other users")
	}
	return Places{Root: t.TempDir()}
}

func discard(t *testing.T) func(string, ...any) { return func(f string, a ...any) { t.Logf(f, a...) } }

func TestInstall(t *testing.T) {
	t.Run("twice is once, and what an administrator wrote stays", func(t *testing.T) {
		p := root(t)
		medium := filepath.Join(t.TempDir(), "medium")
		if err := os.WriteFile(medium, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(p.config()), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p.config(), []byte("address: 10.1.1.1\nmedia: [/gone]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		o := Options{Places: p, NoStart: true, Printf: discard(t), Config: agentconfig.Config{Node: "n1", Media: []string{medium}}}
		r, err := Install(t.Context(), o)
		if err != nil || len(r.Changed) != 7 {
			t.Fatalf("%+v, %v", r, err)
		}
		got, err := agentconfig.ReadFile(p.config())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(agentconfig.Config{Node: "n1", Address: "10.1.1.1", Media: []string{medium}}, got); d != "" {
			t.Fatal(d)
		}
		if r, err = Install(t.Context(), o); err != nil || len(r.Changed) != 0 {
			t.Fatalf("the second time %v was changed, %v", r.Changed, err)
		}
		unit, err := os.ReadFile(p.agentUnit())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Before=kubelet.service", "After=network-online.target local-fs.target containerd.service", "KillMode=process", "Restart=always"} {
			if !strings.Contains(string(unit), want) {
				t.Errorf("the unit misses %s", want)
			}
		}
		check, err := os.ReadFile(p.preflightUnit())
		if err != nil {
			t.Fatal(err)
		}
		asks, err := os.ReadFile(p.kubeletDropin())
		if err != nil {
			t.Fatal(err)
		}
		// No unit waits for ever, and a runtime that is restarted stops neither.
		for _, want := range []string{"Type=oneshot", "RemainAfterExit=yes", "Restart=on-failure", "Before=kubelet.service", "TimeoutStartSec=2700"} {
			if !strings.Contains(string(check), want) {
				t.Errorf("the check's unit misses %s", want)
			}
		}
		for _, want := range []string{"ExecStartPre=-/bin/sh", "Restart=always", "After=refit-preflight.service", "StartLimitIntervalSec=0", "TimeoutStartSec=2700"} {
			if !strings.Contains(string(asks), want) {
				t.Errorf("the kubelet's drop-in misses %s", want)
			}
		}
		restores, err := os.ReadFile(p.importUnit())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Type=oneshot", "TimeoutStartSec=900", "Before=k3s.service k3s-agent.service rke2-server.service rke2-agent.service k0scontroller.service k0sworker.service\n"} {
			if !strings.Contains(string(restores), want) {
				t.Errorf("the unit that restores images misses %s", want)
			}
		}
		for _, text := range [][]byte{check, asks, restores} {
			if strings.Contains(string(text), "infinity") {
				t.Errorf("a unit may wait for ever:\n%s", text)
			}
			if strings.Contains(string(text), "Requires=") || strings.Contains(string(text), "RequiredBy=") || strings.Contains(string(text), "BindsTo=") {
				t.Errorf("a unit is required, and systemd never tries again what required one that failed:\n%s", text)
			}
		}
		if strings.Contains(string(unit), "Requires=") || strings.Contains(string(unit), "RequiredBy=") {
			t.Error("the unit ties the kubelet to the agent")
		}
	})
	t.Run("another bundle than the named one: nothing is installed", func(t *testing.T) {
		p := root(t)
		medium := filepath.Join(t.TempDir(), "medium")
		if err := os.WriteFile(medium, bundletest.Bytes(t, bundletest.Tiny()), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), From: medium, Digest: "sha256:other"})
		var wrong *WrongBundleError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "sha256:other") || !strings.Contains(err.Error(), wrong.Found) {
			t.Fatalf("got %v", err)
		}
		if _, err := os.Stat(p.Binary()); err == nil {
			t.Fatal("the binary was installed all the same")
		}
	})
	t.Run("a medium without a bundle is refused", func(t *testing.T) {
		p := root(t)
		medium := filepath.Join(t.TempDir(), "medium")
		if err := os.WriteFile(medium, []byte("holiday pictures"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), From: medium}); !errors.Is(err, bundle.ErrNotBundle) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestUninstallRemovesOnlyItsOwn(t *testing.T) {
	p := root(t)
	if _, err := Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t)}); err != nil {
		t.Fatal(err)
	}
	console := p.at(statusreport.IssueFile)
	if err := fsutil.WriteFile(console, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(filepath.Dir(p.config()), "notes")
	state := filepath.Join(t.TempDir(), "state")
	for _, f := range []string{foreign, filepath.Join(state, "key.pem")} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The units were never started; without their files nothing is stopped either.
	for _, f := range []string{p.agentUnit(), p.preflightUnit(), p.importUnit()} {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	o := Removal{Places: p, Config: agentconfig.Config{StateDir: state}, Printf: discard(t)}
	for range 2 {
		if err := Uninstall(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	shared := filepath.Join(t.TempDir(), "data")
	theirs, ours := filepath.Join(shared, "theirs"), filepath.Join(shared, "blobs", "sha256", "x")
	for _, f := range []string{theirs, ours} {
		if err := fsutil.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Config.StateDir = shared
	if err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{p.Binary(): false, p.kubeletDropin(): false, p.config(): false, console: false, state: false, foreign: true, theirs: true, ours: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: there: %v, want %v", path, err == nil, want)
		}
	}
}

// An older agent is installed over the configuration of a newer one, and one that repairs a
// node over a damaged file.
func TestInstallOverAConfigurationThatIsNotUnderstoodWhole(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		want string
	}{
		"of a newer version":      {"quota: {a: 7}\naddress: 10.1.1.1\nnode: old\n", "address: 10.1.1.1\nnode: n1\nquota:\n  a: 7\n"},
		"a field of another type": {"address: 10.1.1.1\nmedia: 7\n", "address: 10.1.1.1\nmedia: 7\nnode: n1\n"},
		"zero-filled":             {strings.Repeat("\x00", 64), "node: n1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := root(t)
			if err := os.MkdirAll(filepath.Dir(p.config()), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p.config(), []byte(x.text), 0o644); err != nil {
				t.Fatal(err)
			}
			o := Options{Places: p, NoStart: true, Printf: discard(t), Config: agentconfig.Config{Node: "n1"}}
			if _, err := Install(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(p.config())
			if err != nil {
				t.Fatal(err)
			}
			if _, fields, _ := strings.Cut(string(got), "\n"); fields != x.want {
				t.Errorf("the file is\n%swant\n%s", fields, x.want)
			}
			if r, err := Install(t.Context(), o); err != nil || len(r.Changed) != 0 {
				t.Errorf("the second time %v was changed, %v", r.Changed, err)
			}
		})
	}
}

// The bundle is a file on an ordinary stick; the digest chooses one of several, and the agent's
// configuration gets the stick.
func TestInstallFromAnOrdinaryMedium(t *testing.T) {
	mkfs, err := exec.LookPath("mke2fs")
	if err != nil {
		mkfs = "/usr/sbin/mke2fs"
	}
	if _, err := os.Stat(mkfs); err != nil {
		t.Skip("mke2fs is not installed: make deps")
	}
	dir, medium := t.TempDir(), filepath.Join(t.TempDir(), "stick")
	other := bundletest.Tiny()
	other.Version = "2.0.0"
	for name, spec := range map[string]bundletest.Spec{"one": bundletest.Tiny(), "two": other} {
		if err := os.WriteFile(filepath.Join(dir, name), bundletest.Bytes(t, spec), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(mkfs, "-t", "ext4", "-q", "-F", "-d", dir, medium, "8M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := bundlereader.OpenPath(medium + "#two")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	digest := f.Header().Digest
	got, err := openBundle(medium, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if got.Header().Digest != digest || got.Header().Metadata.Version != "2.0.0" {
		t.Errorf("bundle %s %s", got.Header().Digest, got.Header().Metadata.Version)
	}
	var several *bundlereader.SeveralError
	for _, d := range []string{"", "sha256:other"} {
		if _, err := openBundle(medium, d); !errors.As(err, &several) || len(several.Found) != 2 {
			t.Errorf("digest %q: %v", d, err)
		}
	}
	p := root(t)
	_, err = Install(t.Context(), Options{Places: p, NoStart: true, Printf: discard(t), From: medium + "#one", Digest: digest})
	var wrong *WrongBundleError
	if !errors.As(err, &wrong) {
		t.Errorf("a file with another bundle: %v", err)
	}
}

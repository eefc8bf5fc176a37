package simhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"

	"github.com/refit-dev/refit/internal/oci"
)

// space is a mount namespace in which systemd-sysext may lay what it likes over /usr:
// this machine's /usr is not touched. Its root is shared again, because the tool hands
// its mounts over by propagation; /run, /etc/extensions and /var/lib are its own.
type space struct {
	t   *testing.T
	pid int
	dir string
}

const spaceStart = `set -e
mount --make-rshared /
mount -t tmpfs tmpfs /run
mount --bind "$1" /var/lib
exec cat
`

func newSpace(t *testing.T) *space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: extensions are mounted")
	}
	if _, err := exec.LookPath("systemd-sysext"); err != nil {
		t.Skip("needs systemd-sysext: make deps installs systemd")
	}
	if b, err := os.ReadFile("/usr/lib/os-release"); err != nil || len(b) == 0 {
		t.Skip("this machine does not say which OS it is")
	}
	s := &space{t: t, dir: t.TempDir()}
	c := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", spaceStart, "space", s.dir)
	var said strings.Builder
	c.Stderr = &said
	if _, err := c.StdinPipe(); err != nil { // it ends with us
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("no namespace: %s", said.String())
		default:
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil {
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "cat" {
				s.pid = pid
				return s
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no namespace within a minute")
		}
	}
}

// Run runs a program in the namespace. systemctl is played: this machine's systemd is
// not asked.
func (s *space) Run(ctx context.Context, stdin io.Reader, argv ...string) ([]byte, error) {
	if argv[0] == "systemctl" || argv[0] == "bootc" {
		if argv[0] == "bootc" {
			return nil, exec.ErrNotFound
		}
		return nil, nil
	}
	c := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(s.pid), "-m", "-r", "--", "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}, argv...)...)
	c.Stdin = stdin
	return osdriver.Output(c)
}

func (s *space) host() osdriver.Host {
	return osdriver.Host{Runner: s, Root: fmt.Sprintf("/proc/%d/root", s.pid)}
}

// driver finds the driver as an agent does.
func (s *space) driver() osdriver.Driver {
	s.t.Helper()
	d, err := osdriver.Detect(s.t.Context(), s.host(), osdriver.Openers{Extension: s.open})
	if err != nil || d.Name() != osdriver.Sysext {
		s.t.Fatal(d, err)
	}
	return d
}

func (s *space) open(ctx context.Context, src osdriver.Source) (io.ReadCloser, error) {
	root, err := oci.OpenSingle(src.Location)
	if err != nil {
		return nil, err
	}
	return flatten.Tree(ctx, root, Platform, flatten.Extension)
}

// target is an extension image with one file whose content is the version.
func (s *space) target(name, version, release string) osdriver.Target {
	s.t.Helper()
	img := Image(s.t, Files{"usr/lib/extension-release.d/extension-release." + name: release, "usr/share/refit-test/" + name: version, "etc/not-laid-over": "x"})
	dir := filepath.Join(s.t.TempDir(), "image")
	digest := Layout(s.t, img, dir)
	return osdriver.Target{Image: "registry.example/" + name + "@" + digest, Digest: digest, Source: osdriver.Source{Transport: osdriver.Layout, Location: dir}}
}

func (s *space) sees(path, want string) {
	s.t.Helper()
	out, err := s.Run(s.t.Context(), nil, "sh", "-c", "cat "+path+" 2>/dev/null || echo nothing")
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		s.t.Fatalf("%s is %q, not %q (%v)", path, got, want, err)
	}
}

func (s *space) enter(t osdriver.Target) error {
	s.t.Helper()
	if err := s.driver().Stage(s.t.Context(), t); err != nil {
		return err
	}
	how, err := s.driver().Activate(s.t.Context(), osdriver.Target{})
	if err == nil && how != osdriver.Live {
		s.t.Fatalf("it comes into use by %s", how)
	}
	return err
}

func (s *space) status() osdriver.Status {
	s.t.Helper()
	st, err := s.driver().Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

const anyOS = "ID=_any\n"

// Merge, refresh to another version, and back, twice, down to nothing.
func TestSysext(t *testing.T) {
	s := newSpace(t)
	one, two := s.target("tool", "one", anyOS), s.target("tool", "two", anyOS)
	const file = "/usr/share/refit-test/tool"
	s.sees(file, "nothing")
	for _, step := range []struct {
		target osdriver.Target
		want   string
	}{{one, "one"}, {two, "two"}, {two, "two"}} {
		if err := s.enter(step.target); err != nil {
			t.Fatal(err)
		}
		s.sees(file, step.want)
		if st := s.status(); !step.target.IsImageOf(st.Booted) || !st.NextIsBooted() {
			t.Fatalf("%+v", st)
		}
	}
	for _, want := range []string{"one", "two"} { // there and back
		if err := s.driver().Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.driver().Activate(t.Context(), osdriver.Target{}); err != nil {
			t.Fatal(err)
		}
		s.sees(file, want)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("this machine's /usr was changed")
	}
}

// The first version is undone: nothing of ours is over /usr.
func TestSysextBackToNothing(t *testing.T) {
	s := newSpace(t)
	if err := s.enter(s.target("tool", "one", anyOS)); err != nil {
		t.Fatal(err)
	}
	if err := s.driver().Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.driver().Activate(t.Context(), osdriver.Target{}); err != nil {
		t.Fatal(err)
	}
	s.sees("/usr/share/refit-test/tool", "nothing")
	if st := s.status(); st.Booted.Digest != "" {
		t.Fatalf("%+v", st)
	}
}

// systemd-sysext passes over an extension for another OS in silence: it is refused
// before anything is changed (2.15).
func TestSysextOfAnotherOS(t *testing.T) {
	s := newSpace(t)
	if err := s.enter(s.target("tool", "one", anyOS)); err != nil {
		t.Fatal(err)
	}
	err := s.enter(s.target("tool", "two", "ID=another-os\nVERSION_ID=1\n"))
	if !errors.Is(err, osdriver.ErrUnsupported) {
		t.Fatal(err)
	}
	s.sees("/usr/share/refit-test/tool", "one")
	b, err := os.ReadFile("/usr/lib/os-release")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.enter(s.target("tool", "three", string(b))); err != nil { // for this very OS
		t.Fatal(err)
	}
	s.sees("/usr/share/refit-test/tool", "three")
}

// What others merged is reported and stays merged.
func TestSysextOfOthers(t *testing.T) {
	s := newSpace(t)
	if _, err := s.Run(t.Context(), nil, "sh", "-c", "mkdir -p /run/extensions/other/usr/lib/extension-release.d; echo ID=_any > /run/extensions/other/usr/lib/extension-release.d/extension-release.other; systemd-sysext refresh"); err != nil {
		t.Fatal(err)
	}
	if err := s.enter(s.target("tool", "one", anyOS)); err != nil {
		t.Fatal(err)
	}
	st := s.status()
	if len(st.Drift) != 1 || st.Drift[0].Kind != osdriver.DriftForeign {
		t.Fatalf("%+v", st.Drift)
	}
	s.sees("/usr/lib/extension-release.d/extension-release.other", "ID=_any")
}

// The answer of systemd-sysext status, as 252 writes it.
func TestMerged(t *testing.T) {
	for text, want := range map[string]string{
		`[{"hierarchy":"/opt","extensions":"none","since":null},{"hierarchy":"/usr","extensions":["a","b"],"since":1}]`: "a b",
		`[{"hierarchy":"/opt","extensions":["a"],"since":1},{"hierarchy":"/usr","extensions":"none","since":null}]`:     "",
		`[]`: "",
	} {
		got, err := osdriver.MergedExtensions([]byte(text))
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, bad := range []string{`{}`, `[{"hierarchy":"/usr","extensions":5}]`, `[{"hierarchy":"/usr","extensions":"some"}]`} {
		if _, err := osdriver.MergedExtensions([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

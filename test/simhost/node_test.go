package simhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/osdriver/flatten"
	"github.com/refit-dev/refit/internal/agent/install"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/osdeploy"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/oci"
)

// lookalike is built once for all tests.
var lookalike = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "refit-bootc-")
	if err != nil {
		return "", err
	}
	return Lookalike(dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := lookalike(); err == nil {
		os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// node is a simulated host with the agent's half: the updater, and what it keeps.
type node struct {
	*Host
	t testing.TB
	// config is its desired state.
	config map[string]string
	state  string
	runs   int
	// registry has the images instead, if it is set.
	registry *httptest.Server
	// sick are the versions with which the kubelet does not answer.
	sick map[string]bool
	// ready is how long a configuration gives the node to be Ready, in seconds.
	ready int32
	// late is how long the machine has been waited for: every look is some seconds
	// after the one before.
	late time.Duration
	// agent is the program that is kept over images without it; empty: none is.
	agent string
}

// between is the time between two looks.
const between = 11 * time.Second

// kinds of hosts that have real deployments.
var kinds = map[string]func(t testing.TB) map[string]string{
	osdriver.OSTree: func(testing.TB) map[string]string { return nil },
	osdriver.Bootc: func(t testing.TB) map[string]string {
		program, err := lookalike()
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{"bootc": program}
	},
}

// onBoth runs a test on a host of every kind.
func onBoth(t *testing.T, do func(t *testing.T, n *node)) {
	Needs(t)
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			do(t, newNode(t, kind))
		})
	}
}

// newNode installs version 1 and boots it.
func newNode(t testing.TB, kind string) *node { t.Helper(); return newNodeOf(t, kind, nil) }

// newNodeOf is newNode, with more files in the first image.
func newNodeOf(t testing.TB, kind string, more Files) *node {
	t.Helper()
	Needs(t)
	base := filepath.Join(t.TempDir(), "base")
	Layout(t, Image(t, Base("1").With(more).With(Files{simhostKargs: "kargs = [\"first=1\"]\n"})), base)
	h := New(t, base, []string{"root=/dev/sim", "local=1", "first=1"}, kinds[kind](t))
	n := &node{Host: h, t: t, config: map[string]string{}, state: t.TempDir()}
	h.Boot()
	return n
}

const simhostKargs = osdriver.KargsDir + "/10-image.toml"

// put lays an image into the node's own store and returns its name by digest.
func (n *node) put(img v1.Image) string {
	n.t.Helper()
	d, err := img.Digest()
	if err != nil {
		n.t.Fatal(err)
	}
	dir := filepath.Join(n.Stateroot(), "var", n.inside(d.String()))
	if _, err := os.Stat(dir); err != nil {
		Layout(n.t, img, dir)
	}
	return "registry.example/os@" + d.String()
}

func (n *node) inside(digest string) string {
	return filepath.Join("lib/images", strings.TrimPrefix(digest, "sha256:"))
}

// hostOf is the node as the updater knows it.
type hostOf struct{ *node }

func (h hostOf) Config(name string) (string, bool) { text, ok := h.config[name]; return text, ok }
func (h hostOf) Boot() (string, error)             { return fmt.Sprint("boot-", h.Boots), nil }

func (h hostOf) Reboot(ctx context.Context, _ bool) error {
	_, err := h.Run(ctx, nil, "systemctl", "reboot")
	return err
}

func (h hostOf) Driver(ctx context.Context) (osdriver.Driver, error) {
	return osdriver.Detect(ctx, h.Host.Host(), osdriver.Openers{Whole: h.open})
}

func (h hostOf) Image(_ context.Context, image string) (osdriver.Source, []string, error) {
	_, digest, _ := strings.Cut(image, "@")
	if h.registry != nil {
		return osdriver.Source{Transport: osdriver.Registry, Location: image}, nil, nil
	}
	dir := filepath.Join(h.Stateroot(), "var", h.inside(digest))
	if _, err := os.Stat(dir); err != nil {
		return osdriver.Source{}, nil, fmt.Errorf("image %s is not on this node", image)
	}
	return osdriver.Source{Transport: osdriver.Layout, Location: "/var/" + h.inside(digest)}, nil, nil
}

func (h hostOf) Fetch(ctx context.Context, image string) (osdriver.Source, []string, error) {
	return h.Image(ctx, image)
}
func (h hostOf) Forget() error { return nil }

func (h hostOf) KubeletHealthy(ctx context.Context) error {
	version, err := h.Run(ctx, nil, "cat", "/usr/share/version")
	if err == nil && h.sick[strings.TrimSpace(string(version))] {
		err = errors.New("kubelet's health: connection refused")
	}
	return err
}
func (h hostOf) Ready(context.Context) (string, bool) { return "", false }
func (h hostOf) KubeletState(context.Context) string  { return "kubelet.service is failed" }

// open is what the agent does for a host that knows no images.
func (h hostOf) open(ctx context.Context, s osdriver.Source) (io.ReadCloser, error) {
	var root oci.Root
	if s.Transport == osdriver.Registry {
		r, err := oci.NewRegistries()
		if err == nil {
			root, err = r.Open(ctx, s.Location)
		}
		if err != nil {
			return nil, err
		}
	} else {
		var err error
		if root, err = oci.OpenSingle(h.Root() + s.Location); err != nil {
			return nil, err
		}
	}
	return flatten.Tree(ctx, root, Platform, flatten.Whole)
}

// step is a run that boots the node into an image with kernel arguments.
func (n *node) step(image string, kargs ...string) updaters.Task {
	n.t.Helper()
	c := model.NodeConfig{Version: model.ConfigVersion, OS: &model.ConfigOS{Image: image, KernelArguments: kargs, ReadySeconds: n.ready}}
	b, err := json.Marshal(c)
	if err != nil {
		n.t.Fatal(err)
	}
	name := v1alpha1.ContentName(v1alpha1.ContentConfig, string(b))
	n.config[name] = string(b)
	n.runs++
	dir := filepath.Join(n.state, fmt.Sprint("run-", n.runs))
	t := updaters.Task{UID: dir, Attempt: 1, Started: time.Now(), Dir: dir, Rollback: filepath.Join(dir, "rollback"),
		Step: v1alpha1.UpdateStep{ID: "os-image", Updater: "os-image", Verb: "apply", Params: map[string]string{model.ParamConfig: name}}}
	if err := os.MkdirAll(t.Rollback, 0o700); err != nil {
		n.t.Fatal(err)
	}
	return t
}

// updater is that of an agent that was just started.
func (n *node) updater() *osdeploy.Updater {
	u := osdeploy.New(hostOf{n}, filepath.Join(n.state, "os.json")).WithClock(func() time.Time { return time.Now().Add(n.late) })
	if n.agent != "" {
		u.WithAgent(install.Carrier{Root: n.Root(), Program: n.agent, Runner: n.Host})
	}
	return u
}

type call func(*osdeploy.Updater, context.Context, updaters.Task) (updaters.Result, error)

// drive calls until the end, or until the machine was asked to restart: then it does
// so by restart.
func (n *node) drive(task updaters.Task, do call, restart func()) updaters.Result {
	n.t.Helper()
	u := n.updater()
	for range 100 {
		r, err := do(u, n.t.Context(), task)
		n.late += between
		switch {
		case err == nil && (r.Done || r.Failed):
			return r
		case err != nil:
			n.t.Log(err)
		}
		if n.Asked() {
			restart()
			u = n.updater()
		}
	}
	n.t.Fatal("no end after 100 calls")
	return updaters.Result{}
}

func (n *node) there(task updaters.Task) updaters.Result {
	n.t.Helper()
	return n.drive(task, (*osdeploy.Updater).Update, n.Reboot)
}

func (n *node) back(task updaters.Task) updaters.Result {
	n.t.Helper()
	return n.drive(task, (*osdeploy.Updater).Undo, n.Reboot)
}

// status is what the driver says.
func (n *node) status() osdriver.Status {
	n.t.Helper()
	d, err := hostOf{n}.Driver(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	s, err := d.Status(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// isOn fails unless this version runs with these arguments next to the machine's own.
func (n *node) isOn(version string, kargs ...string) {
	n.t.Helper()
	if got := n.Must("cat", "/usr/share/version"); got != version {
		n.t.Fatalf("version %s runs, not %s", got, version)
	}
	line := " " + n.Must("cat", "/proc/cmdline") + " "
	for _, a := range append([]string{"root=/dev/sim", "local=1"}, kargs...) {
		if strings.Count(line, " "+a+" ") != 1 {
			n.t.Fatalf("the kernel's arguments are%s, and %s should be there once", line, a)
		}
	}
}

func (n *node) without(kargs ...string) {
	n.t.Helper()
	line := " " + n.Must("cat", "/proc/cmdline") + " "
	for _, a := range kargs {
		if strings.Contains(line, " "+a+" ") {
			n.t.Fatalf("the kernel's arguments are%s, with %s", line, a)
		}
	}
}

func done(t testing.TB, r updaters.Result) {
	t.Helper()
	if !r.Done {
		t.Fatalf("ended with %+v", r)
	}
}

func failed(t testing.TB, r updaters.Result, reason string) {
	t.Helper()
	if !r.Failed || r.Reason != reason {
		t.Fatalf("ended with %+v, not %s", r, reason)
	}
}

// version makes an image; it brings kernel arguments as the append builder does.
func version(t testing.TB, v string, files Files, kargs ...string) v1.Image {
	t.Helper()
	text := "kargs = ["
	for _, a := range kargs {
		text += fmt.Sprintf("%q, ", a)
	}
	return Image(t, Base(v), files.With(Files{simhostKargs: text + "]\n"}))
}

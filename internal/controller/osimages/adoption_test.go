//go:build linux

package osimages

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/files"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/updateplan"
)

// machine is one that did what it was given at its first boot: its disk, and its units.
type machine struct {
	t     *testing.T
	root  string
	units map[string]systemd.Unit
}

func (m *machine) Config(string) (string, bool) { return "", false }
func (m *machine) FindPayload(string, string) (updaters.Payload, error) {
	return updaters.Payload{}, updaters.ErrNoPayload
}
func (m *machine) Unit(_ context.Context, name string) (systemd.Unit, error) {
	if u, ok := m.units[name]; ok {
		return u, nil
	}
	return systemd.Unit{Active: "inactive"}, nil
}

var errTouched = errors.New("the machine matches its configuration, and a unit was changed")

func (m *machine) SetUnit(context.Context, string, string) error   { return errTouched }
func (m *machine) ReloadUnits(context.Context) error               { return errTouched }
func (m *machine) RefreshUnit(context.Context, string, bool) error { return errTouched }
func (m *machine) StartUnit(context.Context, string) error         { return errTouched }

func (m *machine) write(path string, data []byte, mode os.FileMode) {
	m.t.Helper()
	at := filepath.Join(m.root, path)
	m.must(os.MkdirAll(filepath.Dir(at), 0o755))
	m.must(os.RemoveAll(at))
	m.must(os.WriteFile(at, data, mode))
	m.must(os.Chmod(at, mode))
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// boots writes the file system of an image from its registry.
func (m *machine) boots(image string) {
	m.t.Helper()
	ref, err := name.NewDigest(image, name.Insecure)
	m.must(err)
	img, err := remote.Image(ref)
	m.must(err)
	in := mutate.Extract(img)
	defer in.Close()
	for x := tar.NewReader(in); ; {
		h, err := x.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		m.must(err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(x)
		m.must(err)
		m.write(h.Name, data, os.FileMode(h.Mode))
	}
}

// ignites does what Ignition does with the words that day1 writes.
func (m *machine) ignites(text []byte) {
	m.t.Helper()
	var doc struct {
		Storage struct {
			Files []struct {
				Path     string
				Mode     uint32
				User     *struct{ ID *int }
				Contents struct{ Source string }
			}
		}
		Systemd struct {
			Units []struct {
				Name     string
				Enabled  *bool
				Mask     bool
				Contents *string
			}
		}
	}
	m.must(json.Unmarshal(text, &doc))
	for _, f := range doc.Storage.Files {
		_, b64, _ := strings.Cut(f.Contents.Source, ";base64,")
		data, err := base64.StdEncoding.DecodeString(b64)
		m.must(err)
		m.write(f.Path, data, os.FileMode(f.Mode))
		if f.User != nil && f.User.ID != nil {
			m.must(os.Chown(filepath.Join(m.root, f.Path), *f.User.ID, 0))
		}
	}
	for _, u := range doc.Systemd.Units {
		switch {
		case u.Mask:
			m.units[u.Name] = systemd.Unit{File: "masked", Active: "inactive"}
		case u.Enabled != nil && *u.Enabled:
			m.units[u.Name] = systemd.Unit{File: "enabled", Active: "active"}
		default:
			m.units[u.Name] = systemd.Unit{File: "disabled", Active: "inactive"}
		}
	}
}

// sees is what the agent of the machine reports, by its own code.
func (m *machine) sees(c *model.NodeConfig) map[string]string {
	m.t.Helper()
	out := files.New(m, m.root, filepath.Join(m.t.TempDir(), "files.json")).Fields(m.t.Context(), c)
	first, err := os.ReadFile(filepath.Join(m.root, "etc/refit/first-image"))
	m.must(err)
	out[model.FieldOSImage] = digestOf(strings.TrimSpace(string(first)))
	toml, err := os.ReadFile(filepath.Join(m.root, osdriver.KargsDir, "10-refit.toml"))
	m.must(err)
	args, err := osdriver.ParseKargs(toml, "x86_64")
	m.must(err)
	out[model.FieldKernelArguments] = (&model.ConfigOS{KernelArguments: args}).ArgumentsValue()
	out["os/driver"] = "bootc"
	return out
}

// A machine whose Ignition file has the configuration of its pool and the image digest joins
// without a change. No image is built, no step is planned, and the configuration keeps its
// hash. The test runs the production functions: the first boot, the image in the registry,
// the facts of the agent, and the planner.
func TestAdoptedWithoutARebuild(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files of root are written: run as root")
	}
	w := newSite(t)
	number := int32(0o600)
	text := "x=1\n"
	w.create(w.osImage(), pool(), config(func(s *v1alpha1.NodeConfigSpec) {
		s.Files = []v1alpha1.NodeFile{inline("/etc/motd", "hello\n"), inline("/usr/lib/own.conf", "usr\n"), {Path: "/var/lib/app/conf", Mode: &number, Owner: "1000", Contents: &v1alpha1.FileContents{Inline: &text}}, {Path: "/etc/old", Absent: true}}
		s.Units = []v1alpha1.NodeUnit{{Name: "own.service", State: "enabled", Contents: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}, {Name: "cups.service", State: "masked"}, {Name: "cron.service", State: "disabled"}}
		s.SSHAuthorizedKeys = []v1alpha1.UserKeys{{User: "root", Keys: []string{"ssh-ed25519 AAAA me"}}}
	}))
	built := w.pool(w.reconcileAndBuild())
	hash, c, verdicts, err := nodeconfigs.ForNewNode(t.Context(), w.admin, "edge")
	w.must(err)
	if len(verdicts) > 0 || c.OS == nil || c.OS.Image != built.Image || hash != v1alpha1.ContentName(v1alpha1.ContentConfig, string(c.JSON())) {
		t.Fatal(hash, verdicts, c.OS)
	}
	served, left, err := ignition.FromNodeConfig(c)
	w.must(err)
	if len(left) > 0 {
		t.Error("left to the agent:", left)
	}
	m := &machine{t: t, root: t.TempDir(), units: map[string]systemd.Unit{}}
	m.boots(built.Image)
	m.ignites(served)
	fields := m.sees(&c)
	node := updateplan.Node{Name: "n1", Pools: []string{"edge"}, Kubelet: "v1.35.4", Platform: "linux/amd64", Current: maps.Clone(fields), Desired: c.Fields(), Config: &c, ConfigName: hash}
	in := updateplan.Input{Nodes: []updateplan.Node{node}, Pools: []updateplan.Pool{{Name: "edge"}}}
	if out := updateplan.Make(in); !out.NothingToDo() || len(out.Blockers) > 0 {
		t.Errorf("it is not adopted as it is: %+v %+v", out.Plan.Nodes, out.Blockers)
	}
	// It joins: nothing is built, and its configuration has the same name.
	w.reportFields("n1", fields)
	if p := w.pool(w.reconcileAndBuild()); p.State != "Use" || p.Image != built.Image || len(w.allBuilds()) != 1 {
		t.Errorf("%+v, %d builds", p, len(w.allBuilds()))
	}
	if again, _, _, err := nodeconfigs.ForNewNode(t.Context(), w.admin, "edge"); err != nil || again != hash {
		t.Error("the configuration of a node that has joined is another:", again, hash, err)
	}
	// A machine that differs in anything is not taken for one that does not.
	for _, path := range []string{"etc/motd", "usr/lib/own.conf", "usr/lib/systemd/system/own.service", "var/lib/app/conf", "root/.ssh/authorized_keys", "etc/refit/first-image"} {
		t.Run("another "+path, func(t *testing.T) {
			before, err := os.ReadFile(filepath.Join(m.root, path))
			m.must(err)
			st, err := os.Stat(filepath.Join(m.root, path))
			m.must(err)
			other := "other"
			if strings.HasSuffix(path, "first-image") {
				other = fmt.Sprintf("r.example/os@sha256:%064d", 0)
			}
			m.must(os.WriteFile(filepath.Join(m.root, path), []byte(other), st.Mode()))
			n := node
			n.Current = m.sees(&c)
			if out := updateplan.Make(updateplan.Input{Nodes: []updateplan.Node{n}, Pools: in.Pools}); out.NothingToDo() && len(out.Blockers) == 0 {
				t.Error("the planner misses the difference")
			}
			m.must(os.WriteFile(filepath.Join(m.root, path), before, st.Mode()))
		})
	}
}

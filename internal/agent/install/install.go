package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/imagekeeper"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// Unit is the agent's service, Preflight the check before the kubelet starts. Import restores images
// where a distribution starts the kubelet. BootCheck is the check of a boot into a new OS image.
const (
	Unit      = "refit-agent.service"
	Preflight = "refit-preflight.service"
	Import    = "refit-import.service"
	BootCheck = "refit-boot-check.service"
)

// enabled are the units that start with the machine.
func enabled() []string { return []string{Import, Preflight, Unit} }

// Places that Install writes to; the zero value is a node's own root.
type Places struct{ Root string }

func (p Places) at(path string) string { return filepath.Join("/", p.Root, path) }

// usualBinary is where the agent is put on most hosts. Its SELinux label counts elsewhere too.
const usualBinary = "/usr/local/bin/refit-agent"

// Binary is where the agent is put. On hosts with bootc /usr/local may be a part of the image, and
// read-only: then the program is in /var, which every image leaves as it is.
func (p Places) Binary() string {
	if usual := p.at(usualBinary); !isReadOnly(filepath.Dir(usual)) {
		return usual
	}
	return p.at(carriedBinary)
}

// isReadOnly reports whether the file system of a directory, or of the one above that exists, cannot
// be written by anyone.
func isReadOnly(dir string) bool {
	for {
		err := syscall.Access(dir, 2)
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			return errors.Is(err, syscall.EROFS)
		}
		dir = filepath.Dir(dir)
	}
}

func (p Places) agentUnit() string     { return p.at("/etc/systemd/system/" + Unit) }
func (p Places) preflightUnit() string { return p.at("/etc/systemd/system/" + Preflight) }
func (p Places) importUnit() string    { return p.at("/etc/systemd/system/" + Import) }

// kubeletDropin makes the kubelet's unit run the check before it starts.
func (p Places) kubeletDropin() string {
	return p.at("/etc/systemd/system/" + distribution.KubeletUnit + ".d/20-refit-preflight.conf")
}

func (p Places) config() string { return p.at(agentconfig.DefaultFile) }

// Options of Install.
type Options struct {
	Places Places
	// Config is merged into the configuration file.
	Config agentconfig.Config
	// From is a bundle in a file, on a device, or in a file system on one of both, as OpenPath of
	// bundlereader takes it; empty for none.
	From string
	// Digest that the bundle must have, empty for any: a user who names the medium by
	// hand vouches for it.
	Digest string
	// ImagePolicy is a file with rules for signatures of images, empty for none.
	ImagePolicy string
	// NoStart leaves the service alone.
	NoStart bool
	// Printf prints progress.
	Printf func(format string, args ...any)
}

// Report is what Install did.
type Report struct {
	// Bundle is the digest of the bundle, empty without one.
	Bundle  string `json:"bundle,omitempty"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Images that were loaded.
	Images []string `json:"images,omitempty"`
	// Changed names the files that were written.
	Changed []string `json:"changed,omitempty"`
	Started bool     `json:"started"`
}

// firstContact is stored for uninstall.
type firstContact struct {
	Bundle string   `json:"bundle"`
	Names  []string `json:"names"`
}

// Install does what is missing.
func Install(ctx context.Context, o Options) (Report, error) {
	var r Report
	if os.Geteuid() != 0 {
		return r, errors.New("installing the agent needs root: run this with sudo")
	}
	if o.ImagePolicy != "" && o.From == "" {
		return r, errors.New("--image-policy verifies the images that --from loads: name the bundle with --from")
	}
	conf := o.Config
	if o.From != "" {
		path, err := absolute(o.From)
		if err != nil {
			return r, fmt.Errorf("bundle: %w", err)
		}
		places, err := loadOwnImages(ctx, o, path, &r)
		if err != nil {
			return r, err
		}
		conf.Media = append(conf.Media, places...) // the agent finds the file by itself
	}
	if err := putFiles(o, conf, &r); err != nil {
		return r, err
	}
	if o.NoStart {
		return r, nil
	}
	return r, startAgent(ctx, o, &r)
}

func putFiles(o Options, conf agentconfig.Config, r *Report) error {
	if err := putBinary(o, r); err != nil {
		return err
	}
	text, err := mergeConfig(o.Places.config(), conf)
	if err != nil {
		return err
	}
	if err := putFile(o.Places.config(), text, 0o644, r); err != nil {
		return err
	}
	for _, f := range o.Places.units() {
		if err := putFile(f.path, []byte(f.text), 0o644, r); err != nil {
			return err
		}
	}
	if d, err := os.Stat(o.Places.at(greenbootChecks)); err == nil && d.IsDir() {
		return putFile(o.Places.greenbootCheck(), []byte(greenbootCheckText), 0o755, r)
	}
	return nil
}

func putBinary(o Options, r *Report) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the agent's own program: %w", err)
	}
	changed, err := putProgram(self, o.Places.Binary(), o.Places.Root)
	if changed {
		r.Changed = append(r.Changed, o.Places.Binary())
	}
	return err
}

// putProgram copies the agent's program, with the label of its usual place.
func putProgram(self, to, root string) (changed bool, err error) {
	digest, err := fsutil.Digest(self)
	if err != nil {
		return false, fmt.Errorf("the agent's own program: %w", err)
	}
	if have, err := fsutil.Digest(to); err == nil && have == digest {
		return false, fsutil.LabelAs(root, to, usualBinary)
	}
	f, err := os.Open(self)
	if err != nil {
		return false, fmt.Errorf("the agent's own program: %w", err)
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return false, fmt.Errorf("the agent's binary: %w", err)
	}
	if err := fsutil.Replace(to, f, digest, 0o755); err != nil {
		return false, err
	}
	return true, fsutil.LabelAs(root, to, usualBinary)
}

// mergeConfig keeps what an administrator wrote. New values win, media are added, and a
// medium that is gone is removed. Fields of a newer version stay: an older agent is
// installed all the same, and reports them.
func mergeConfig(path string, add agentconfig.Config) ([]byte, error) {
	have := agentconfig.ReadOrRecover(path)
	for _, f := range []struct{ to, from *string }{
		{&have.Node, &add.Node}, {&have.Kubeconfig, &add.Kubeconfig}, {&have.StateDir, &add.StateDir},
		{&have.Runtime, &add.Runtime}, {&have.Address, &add.Address},
	} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	var media []string
	for _, m := range slices.Concat(have.Media, add.Media) {
		if _, err := os.Stat(m); err == nil && !slices.Contains(media, m) {
			media = append(media, m)
		}
	}
	have.Media = media
	text, err := yaml.Marshal(have)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	all := map[string]any{}
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	for name, value := range agentconfig.UnknownFields(path) {
		if _, known := all[name]; !known {
			all[name] = value
		}
	}
	out, err := yaml.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return append([]byte("# refit's agent; `refit-agent help run` explains the fields\n"), out...), nil
}

func putFile(path string, text []byte, mode fs.FileMode, r *Report) error {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsutil.WriteFile(path, text, mode); err != nil {
		return err
	}
	r.Changed = append(r.Changed, path)
	return nil
}

// startTimeout is how long the service may take to report that it is ready.
const startTimeout = 90 * time.Second

func startAgent(ctx context.Context, o Options, r *Report) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	m, err := systemd.Connect(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Reload(ctx); err != nil {
		return err
	}
	for _, unit := range enabled() {
		if err := m.Enable(ctx, unit); err != nil {
			return err
		}
	}
	// The kubelet runs already, and this boot is checked before its next start. Checking a
	// store that was filled before may take minutes, so nothing waits for it here.
	if err := m.Begin(ctx, Preflight); err != nil {
		return err
	}
	state, err := m.Active(ctx, Unit)
	if err != nil {
		return err
	}
	if state == "active" && len(r.Changed) == 0 {
		r.Started = true
		return nil
	}
	if err := m.Restart(ctx, Unit); err != nil {
		return err
	}
	r.Started = true
	o.Printf("%s runs", Unit)
	return nil
}

// Removal are the options of Uninstall.
type Removal struct {
	Places Places
	Config agentconfig.Config
	// Unpin releases the images that refit pinned; otherwise they stay pinned.
	Unpin bool
	// KeepState keeps the state directory.
	KeepState bool
	Printf    func(format string, args ...any)
}

// Uninstall removes what Install made.
func Uninstall(ctx context.Context, o Removal) error {
	if os.Geteuid() != 0 {
		return errors.New("removing the agent needs root: run this with sudo")
	}
	if o.Config.StateDir == "" {
		o.Config.StateDir = o.Places.at(agentconfig.DefaultStateDir)
	}
	if err := stopUnits(ctx, o); err != nil {
		return err
	}
	if o.Unpin {
		if err := releasePins(ctx, o); err != nil {
			return err
		}
	}
	if err := removeFiles(o.Places); err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	if !o.KeepState {
		if err := removeState(o); err != nil {
			return fmt.Errorf("uninstall: %w", err)
		}
	}
	o.Printf("the agent is removed")
	return nil
}

// removeFiles removes what Install wrote: the kubelet's drop-in before the binary that it
// calls.
func removeFiles(p Places) error {
	files := []string{p.Binary(), p.at(carriedBinary), p.config(), agentconfig.LastValidPath(p.config()), p.at(statusreport.IssueFile), p.greenbootCheck()}
	for _, u := range p.units() {
		files = append([]string{u.path}, files...)
	}
	for _, unit := range enabled() {
		files = append(files, p.link(unit))
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_ = os.Remove(filepath.Dir(p.kubeletDropin())) // only if nothing else is in it
	_ = os.Remove(filepath.Dir(p.config()))        // only if nothing else is in it
	return nil
}

// removeState removes the state directory. A directory that an administrator chose may have
// other files: there it removes only the agent's files, and the directory if it is empty
// then.
func removeState(o Removal) error {
	dir := o.Config.StateDir
	if filepath.Clean(dir) == o.Places.at(agentconfig.DefaultStateDir) {
		return os.RemoveAll(dir)
	}
	for _, name := range []string{"blobs", "bundles", "journal", "runs", "rollback", "failpoint", "first-contact.json", "kubelet-restart",
		"key.pem", "lock", "pins.json", "sources.json", "want.json", "layers", "hold.lock", "preflight.json", "clean-end", "drill.json", "restore-drill"} {
		path := filepath.Join(dir, name)
		for n := range statefile.Kept {
			if err := os.RemoveAll(statefile.Aside(path, n+1)); err != nil {
				return err
			}
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	_ = os.Remove(dir) // only if nothing else is in it
	return nil
}

func stopUnits(ctx context.Context, o Removal) error {
	for unit, file := range map[string]string{Unit: o.Places.agentUnit(), Preflight: o.Places.preflightUnit(), Import: o.Places.importUnit()} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := stopUnit(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}

func stopUnit(ctx context.Context, unit string) error {
	m, err := systemd.Connect(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Stop(ctx, unit); err != nil {
		return err
	}
	return m.Disable(ctx, unit)
}

func releasePins(ctx context.Context, o Removal) error {
	c, err := openRuntime(ctx, o.Config, o.Places)
	if err != nil {
		return err
	}
	defer c.Close()
	k := imagekeeper.NewKeeper(c, o.Config.StateDir, func(p statefile.Problem) { o.Printf("%s", p.Message) })
	if err := k.ReleaseAll(ctx); err != nil {
		return err
	}
	b, err := os.ReadFile(contactFile(Options{Places: o.Places, Config: o.Config}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var contact firstContact
	if err == nil {
		err = json.Unmarshal(b, &contact)
	}
	if err != nil {
		return fmt.Errorf("record of first contact: %w", err)
	}
	return c.Unpin(ctx, contact.Names)
}

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/refit-dev/refit/internal/distribution"
)

// Detection is the distribution of a node, its places, and where it differs from the row.
type Detection struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Root is the directory that was read.
	Root string `json:"root"`
	// Distribution is the name of the row, or Ambiguous or Unknown.
	Distribution string `json:"distribution"`
	Title        string `json:"title,omitempty"`
	// Role is server or agent.
	Role string `json:"role,omitempty"`
	Unit string `json:"unit,omitempty"`
	// Seen are the paths that prove the distribution; without one those that were found.
	Seen []string `json:"seen"`
	// Message says why no distribution was found.
	Message string `json:"message,omitempty"`
	// Program is what the unit starts.
	Program string `json:"program,omitempty"`
	// Version is what the program prints, only with --versions.
	Version string `json:"version,omitempty"`
	// VersionProblem says why the version is unknown.
	VersionProblem string `json:"versionProblem,omitempty"`
	// Places are where the node keeps what.
	Places []DetectedPlace `json:"places,omitempty"`
	// Differences from the defaults of the distribution.
	Differences []DetectedDifference `json:"differences,omitempty"`
	// NamesDatastore: unit or configuration name a datastore, so it is not the default one.
	NamesDatastore bool `json:"-"`
	// Unreadable are paths that could not be read.
	Unreadable []string `json:"unreadable,omitempty"`
	// Does says what refit does on such nodes.
	Does string `json:"does,omitempty"`
	// Touches is what an update may change.
	Touches []string `json:"touches,omitempty"`
}

// DetectedPlace is a path, and whether it exists.
type DetectedPlace struct {
	What   string `json:"what"`
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
}

// DetectedDifference is where the node differs from the row's default.
type DetectedDifference struct {
	What    string `json:"what"`
	Default string `json:"default"`
	Here    string `json:"here"`
}

// Values of Distribution without a row.
const (
	ambiguousDistribution = "Ambiguous"
	unknownDistribution   = "Unknown"
)

// Detect finds the distribution of the node with a root directory. It reads names, units and
// the distribution's configuration, never a file of another kind, and follows no link out of
// the root. The error is an AmbiguousError or an UnknownError; the Detection has it too.
func Detect(root string) (*Detection, error) {
	r := &rootReader{root: filepath.Join("/", root)}
	d := &Detection{APIVersion: "refit.dev/detection/v1", Kind: "Detection", Root: r.root, Seen: []string{}}
	f, err := distribution.Detect(r.exists)
	if err != nil {
		d.refuse(err)
		d.Unreadable = r.unreadable()
		return d, err
	}
	l := f.Layout(distribution.ReadUnit(r.unit(f)...), r.config(f))
	d.Distribution, d.Title, d.Role, d.Unit, d.Seen = f.Row.Name, f.Row.Title, f.Role, f.Unit, f.Seen
	d.NamesDatastore = distribution.NamesDatastore(append(r.unit(f), r.settings(f, l)...)...)
	d.Program, d.Does, d.Touches = l.Program, f.Row.Does(), f.Row.Touches
	for _, p := range l.Places.List() {
		d.Places = append(d.Places, DetectedPlace{p.What, p.Path, r.exists(p.Path)})
	}
	for _, x := range l.Differences {
		d.Differences = append(d.Differences, DetectedDifference{x.What, x.Default, x.Here})
	}
	d.Unreadable = r.unreadable()
	return d, nil
}

// Supervised returns the detection of a node where one unit starts the container runtime,
// the kubelet and the rest; nil for any other node.
func Supervised(root string) *Detection {
	d, err := Detect(root)
	if row, _ := distribution.ByName(d.Distribution); err != nil || !row.Supervised {
		return nil
	}
	return d
}

// Place returns the path of a place, "" if the distribution has none.
func (d *Detection) Place(what string) string {
	for _, x := range d.Places {
		if x.What == what {
			return x.Path
		}
	}
	return ""
}

// DefaultPlaces returns the kubelet's identity and the container runtime's socket of the node
// with a root directory: those of the detected distribution where one unit starts both, else
// those of kubeadm.
func DefaultPlaces(root string) (kubeconfig, socket string) {
	p := Paths{Root: root}
	if d := Supervised(root); d != nil {
		return p.join(d.Place(distribution.WhatIdentity)), d.Place(distribution.WhatSocket)
	}
	return p.Kubeconfig(), RuntimeSocket(p)
}

func (d *Detection) refuse(err error) {
	d.Message, d.Distribution = err.Error(), unknownDistribution
	var a *distribution.AmbiguousError
	var u *distribution.UnknownError
	switch {
	case errors.As(err, &a):
		d.Distribution = ambiguousDistribution
		for _, name := range a.Names {
			d.Seen = append(d.Seen, a.Seen[name]...)
		}
	case errors.As(err, &u):
		d.Seen = append(d.Seen, u.Seen...)
	}
}

// versionTime is how long a program may take to print its version.
const versionTime = 10 * time.Second

// AskVersion runs the distribution's own program for its version: without environment, input
// or arguments of the unit. Another program than the row names is not run.
func (d *Detection) AskVersion(ctx context.Context) {
	r, ok := distribution.ByName(d.Distribution)
	switch {
	case !ok:
		return
	case d.Root != "/":
		d.VersionProblem = "programs run on their own machine only"
		return
	case d.Program == "":
		d.VersionProblem = "no unit names the program"
		return
	case !slices.ContainsFunc(r.Programs, func(p string) bool { return path.Base(p) == path.Base(d.Program) }):
		d.VersionProblem = d.Program + " is not a program of " + r.Title + ", and was not run"
		return
	}
	var err error
	if d.Version, err = bareVersion(ctx, d.Program, r.VersionArgs); err != nil {
		d.VersionProblem = err.Error()
	}
}

// bareVersion returns the first version that a program prints.
func bareVersion(ctx context.Context, program string, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	var out limitedText
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout = []string{}, "/", &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child may hold the output open
	err := cmd.Run()
	v := versionForm.FindString(string(out))
	switch {
	case v != "" && err == nil:
		return v, nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("version of %s: no answer within %s", program, versionTime)
	case err != nil:
		return "", fmt.Errorf("version of %s: %w", program, err)
	}
	return "", fmt.Errorf("version of %s: its output has none", program)
}

// limitedText keeps the start of what is written.
type limitedText []byte

func (t *limitedText) Write(b []byte) (int, error) {
	*t = append(*t, b[:min(len(b), maxVersionText-len(*t))]...)
	return len(b), nil
}

const (
	// maxVersionText bounds the output of a program, maxUnitText a unit or a configuration,
	// maxDropins how many drop-ins are read.
	maxVersionText = 64 << 10
	maxUnitText    = 1 << 20
	maxDropins     = 100
	// maxLinks is how many symbolic links a path may have.
	maxLinks = 40
)

// rootReader reads below a root directory. Links are resolved in that root, as its own system
// would.
type rootReader struct {
	root   string
	denied map[string]bool
}

// resolve returns the place of a path of the node on this machine, with all links followed.
func (r *rootReader) resolve(name string) (string, error) {
	links, done := 0, "/"
	rest := strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			done = path.Dir(done)
			continue
		}
		if part == "" || part == "." {
			continue
		}
		next := path.Join(done, part)
		st, err := os.Lstat(filepath.Join(r.root, next))
		if err != nil {
			return "", err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", name, syscall.ELOOP)
		}
		to, err := os.Readlink(filepath.Join(r.root, next))
		if err != nil {
			return "", err
		}
		if path.IsAbs(to) {
			done = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return filepath.Join(r.root, done), nil
}

// exists reports whether a path of the node exists. A path that this user may not see counts
// as missing, and is listed.
func (r *rootReader) exists(name string) bool {
	_, err := r.resolve(name)
	if errors.Is(err, fs.ErrPermission) {
		if r.denied == nil {
			r.denied = map[string]bool{}
		}
		r.denied[name] = true
	}
	return err == nil
}

func (r *rootReader) unreadable() []string {
	var out []string
	for p := range r.denied {
		out = append(out, p)
	}
	sort.Strings(out)
	return out
}

// read returns a regular file of the node, "" for anything else: a pipe is not opened.
func (r *rootReader) read(name string) string {
	at, err := r.resolve(name)
	if err != nil {
		return ""
	}
	f, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			r.exists(name)
		}
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxUnitText))
	if err != nil {
		return ""
	}
	return string(b)
}

// unit returns the texts of a unit and its drop-ins, in the order of systemd: by the names of
// the drop-ins.
func (r *rootReader) unit(f distribution.Found) []string {
	if f.UnitFile == "" {
		return nil
	}
	texts := []string{r.read(f.UnitFile)}
	dropins := map[string]string{}
	var names []string
	for _, dir := range distribution.UnitDirs() {
		at, err := r.resolve(dir + f.Unit + ".d")
		if err != nil {
			continue
		}
		entries, err := os.ReadDir(at)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if n := e.Name(); strings.HasSuffix(n, ".conf") && dropins[n] == "" && len(names) < maxDropins {
				dropins[n] = path.Join(dir, f.Unit+".d", n) // the first directory masks the others
				names = append(names, n)
			}
		}
	}
	sort.Strings(names)
	for _, n := range names {
		texts = append(texts, r.read(dropins[n]))
	}
	return texts
}

// settings returns the texts that set more than the unit: environments and configurations.
func (r *rootReader) settings(f distribution.Found, l distribution.Layout) []string {
	name := strings.TrimSuffix(f.Unit, ".service")
	texts := []string{r.read(l.Places.Config), r.read(f.Row.RunningConfig)}
	for _, at := range []string{"/etc/default/" + name, "/etc/sysconfig/" + name, f.UnitFile + ".env", strings.TrimSuffix(f.UnitFile, ".service") + ".env"} {
		texts = append(texts, r.read(at))
	}
	at, err := r.resolve(l.Places.Config + ".d")
	if err != nil {
		return texts
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return texts
	}
	for _, e := range entries[:min(len(entries), maxDropins)] {
		texts = append(texts, r.read(path.Join(l.Places.Config+".d", e.Name())))
	}
	return texts
}

// config returns the distribution's own configuration.
func (r *rootReader) config(f distribution.Found) string {
	if f.Row.DataFlag == "" {
		return ""
	}
	return r.read(f.Row.Places.Config)
}

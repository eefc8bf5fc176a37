package scenario

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/components"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Options of a scenario.
type Options struct {
	// Name of the lab.
	Name string
	// From and To are Kubernetes releases the lab can build.
	From, To string
	// Nodes, the first ControlPlanes (0 is 1) of them with the control plane.
	Nodes, ControlPlanes int
	// Runtime of the nodes, as lab.Options has it.
	Runtime string
	// Distribution of which the nodes run a look-alike, as lab.Options has it; From and To
	// have a build then.
	Distribution string
	// Datastore of its server, as lab.Options has it.
	Datastore string
	// Later is how many of the nodes, the last, do not join at first (lab.Join).
	Later int
	// OSImage that the workers boot, or the only node, as lab.Options has it.
	OSImage string
	// OSImageOnAll has control planes boot it, too.
	OSImageOnAll bool
	// ControlPlane is spec.controlPlane of an UpdatePool for all nodes; "" makes no pool.
	ControlPlane v1alpha1.ControlPlaneMethod
	// MediumNode is the node that has the stick.
	MediumNode string
	// Refit is the program to run; refit-agent, refit-controller and refit-lab are next to
	// it. The default is next to this program.
	Refit string
	// Out is where progress and the output of commands go.
	Out io.Writer
}

// Scenario is one play of the story.
type Scenario struct {
	Options
	Lab    *lab.Lab
	Client client.Client

	work       string // keys, image, bundle, stick
	kubeconfig string
	apiServer  string
	from, to   *components.Kubernetes
	lookAlike  *components.LookAlike // of To; nil on kubeadm nodes
	app        components.Image
	started    time.Time
	phases     map[string]float64
	media      map[string]string // device to file
	others     bool              // a lab of that name was there before: it is not ours to take away
}

// New makes a scenario; nothing runs yet.
func New(o Options) (*Scenario, error) {
	if o.Refit == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		o.Refit = filepath.Join(filepath.Dir(self), "refit")
	}
	for _, b := range []string{"refit", "refit-agent", "refit-controller", "refit-lab"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(o.Refit), b)); err != nil {
			return nil, fmt.Errorf("%s is not next to %s: run make build first", b, o.Refit)
		}
	}
	work, err := os.MkdirTemp("/var/tmp", "refit-"+o.Name+"-")
	if err != nil {
		return nil, err
	}
	return &Scenario{Options: o, work: work, started: time.Now(), phases: map[string]float64{}, media: map[string]string{}}, nil
}

// Path is a file in the scenario's work directory.
func (s *Scenario) Path(name string) string { return filepath.Join(s.work, name) }

// report prints one line with the seconds since the start.
func (s *Scenario) report(format string, a ...any) {
	fmt.Fprintf(s.Out, "%7.1f  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, a...))
}

// phase runs f, and remembers how long it took.
func (s *Scenario) phase(name string, f func() error) error {
	t := time.Now()
	err := f()
	s.phases[name] += time.Since(t).Seconds()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// RefitResult is what a refit command answered.
type RefitResult struct {
	Stdout, Stderr string
	Code           int
}

// Run runs a refit command against the lab's cluster; an exit code that is not
// 0 is no error.
func (s *Scenario) Run(ctx context.Context, args ...string) (RefitResult, error) {
	c := exec.CommandContext(ctx, s.Refit, args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, io.MultiWriter(&errs, indent{s.Out})
	err := c.Run()
	r := RefitResult{Stdout: out.String(), Stderr: errs.String()}
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		r.Code, err = ee.ExitCode(), nil
	}
	return r, err
}

// refit runs a refit command that must succeed and gives its standard output.
func (s *Scenario) refit(ctx context.Context, args ...string) (string, error) {
	s.report("$ refit %s", strings.Join(args, " "))
	r, err := s.Run(ctx, args...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit code %d: %s", r.Code, lastLines(r.Stderr+r.Stdout, 5))
	}
	if err != nil {
		return r.Stdout, fmt.Errorf("refit %s: %w", args[0], err)
	}
	return r.Stdout, nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// indent writes lines indented, to mark the output of commands.
type indent struct{ w io.Writer }

func (i indent) Write(p []byte) (int, error) {
	for line := range strings.SplitSeq(strings.TrimRight(string(p), "\n"), "\n") {
		if _, err := fmt.Fprintf(i.w, "         %s\n", line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Components builds, or finds built, both releases and what a node needs.
func (s *Scenario) Components(ctx context.Context) error {
	return s.phase("components", func() (err error) {
		progress := func(line string) { s.report("%s", line) }
		if s.from, err = components.Release(ctx, distribution.SplitVersion(s.From).Release, progress); err != nil {
			return err
		}
		if s.to, err = components.Release(ctx, distribution.SplitVersion(s.To).Release, progress); err != nil {
			return err
		}
		if s.Distribution != "" {
			if s.lookAlike, err = components.ForLookAlike(ctx, s.To, progress); err != nil {
				return err
			}
		}
		s.app, err = components.App(ctx, "v1", progress)
		return err
	})
}

// Up makes the cluster at the older release, with the workload.
func (s *Scenario) Up(ctx context.Context) error {
	err := s.phase("labUp", func() (err error) {
		s.report("a cluster of %d nodes at %s comes up", s.Nodes, s.From)
		s.Lab, err = lab.Up(ctx, lab.Options{Name: s.Name, Nodes: s.Nodes, ControlPlanes: s.ControlPlanes, Later: s.Later, Runtime: s.Runtime, OSImage: s.OSImage, OSImageOnAll: s.OSImageOnAll, Distribution: s.Distribution, Datastore: s.Datastore, Version: s.From, Progress: func(line string) { s.report("%s", line) }})
		if err != nil {
			s.others = errors.As(err, new(lab.ErrUp))
			return err
		}
		return s.connect()
	})
	if err != nil {
		return err
	}
	return s.phase("workload", func() error {
		s.report("a workload of %d pods with a budget of %d starts", WorkloadReplicas, WorkloadBudget)
		return deployWorkload(ctx, s.Client, s.app.Name)
	})
}

func (s *Scenario) connect() error {
	s.kubeconfig = s.Lab.Kubeconfig()
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	s.apiServer = cfg.Host
	cfg.Timeout, cfg.QPS, cfg.Burst = 10*time.Second, 100, 200
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	s.Client, err = client.New(cfg, client.Options{Scheme: scheme})
	return err
}

// Bundle is a bundle file and what it says of itself.
type Bundle struct {
	Path   string
	Digest string
	Size   int64
	// Images are the digests by name, Groups the groups.
	Images, Groups map[string]string
}

// BundleOptions vary the bundle.
type BundleOptions struct {
	File    string // name in the work directory
	Version string
	Key     string // path of the key; default the scenario's own
	// Release the payloads and images come from; default To.
	Release *components.Kubernetes
	// LookAlike is the program in a lab with a distribution; default that of To.
	LookAlike *components.LookAlike
	// Without leaves out the images whose name contains it.
	Without string
	// LeaveKubernetes makes a bundle that does not move Kubernetes: of the release
	// only the sandbox image is in it.
	LeaveKubernetes bool
	// Images in addition to the usual ones.
	Images []components.Image
	// Payloads in addition to the usual ones, file by name.
	Payloads map[string]string
	// Resources is a file or folder of manifests for the controller.
	Resources string
}

// FromRelease is the release the cluster started at.
func (s *Scenario) FromRelease() *components.Kubernetes { return s.from }

// Key makes a key pair under the name and gives the path of the private key.
func (s *Scenario) Key(ctx context.Context, name string) (string, error) {
	dir := s.Path(name)
	if _, err := os.Stat(filepath.Join(dir, "refit.key")); err == nil {
		return filepath.Join(dir, "refit.key"), nil
	}
	_, err := s.refit(ctx, "keys", "generate", "--out", dir)
	return filepath.Join(dir, "refit.key"), err
}

// MakeBundle makes a bundle of a release: its images, the workload's image,
// refit's own image and the node payloads.
func (s *Scenario) MakeBundle(ctx context.Context, o BundleOptions) (b Bundle, err error) {
	err = s.phase("bundleCreate", func() error {
		b, err = s.makeBundle(ctx, o)
		return err
	})
	return b, err
}

func (s *Scenario) makeBundle(ctx context.Context, o BundleOptions) (Bundle, error) {
	if o.LookAlike != nil {
		o.Release = o.LookAlike.Release
	}
	if o.Release == nil {
		o.Release = s.to
	}
	if o.Key == "" {
		var err error
		if o.Key, err = s.Key(ctx, "keys"); err != nil {
			return Bundle{}, err
		}
	}
	if _, err := s.refit(ctx, "self-image", "--output", s.Path("image")); err != nil {
		return Bundle{}, err
	}
	file := s.Path(o.File)
	args := []string{"bundle", "create", "--output", file, "--key", o.Key, "--name", "demo", "--version", o.Version, "oci:" + s.Path("image")}
	args = append(args, s.sources(o)...)
	if _, err := s.refit(ctx, args...); err != nil {
		return Bundle{}, err
	}
	return s.Inspect(ctx, file)
}

// sources of a bundle in addition to refit's own image.
func (s *Scenario) sources(o BundleOptions) []string {
	images := append(slices.Clone(o.Release.Images), s.app)
	programs := []string{"kubelet", "kubeadm", "kubectl"}
	if o.LeaveKubernetes {
		images, programs = []components.Image{o.Release.Pause()}, nil
	}
	if s.Distribution != "" {
		images, programs = append(o.Release.OnEveryNode(), s.app), nil
	}
	images = append(images, o.Images...)
	var args []string
	for _, i := range images {
		if o.Without == "" || !strings.Contains(i.Name, o.Without) {
			args = append(args, "oci-archive:"+i.Archive)
		}
	}
	for _, p := range programs {
		args = append(args, "payload:"+p+"="+filepath.Join(o.Release.BinDir, p))
	}
	if l := cmp.Or(o.LookAlike, s.lookAlike); l != nil && !o.LeaveKubernetes {
		args = append(args, "payload:"+s.Distribution+"@"+l.Version+"="+l.Program)
	}
	args = append(args, "payload:refit-agent="+filepath.Join(filepath.Dir(s.Refit), "refit-agent"))
	for _, name := range slices.Sorted(maps.Keys(o.Payloads)) {
		args = append(args, "payload:"+name+"="+o.Payloads[name])
	}
	if o.Resources != "" {
		args = append(args, "resources:"+o.Resources)
	}
	return args
}

// Inspect reads a bundle's header.
func (s *Scenario) Inspect(ctx context.Context, file string) (Bundle, error) {
	out, err := s.refit(ctx, "bundle", "inspect", file, "-o", "json")
	if err != nil {
		return Bundle{}, err
	}
	var v struct {
		Digest string `json:"digest"`
		Images []struct {
			Name   string `json:"name"`
			Digest string `json:"digest"`
			Group  string `json:"group"`
		} `json:"images"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		return Bundle{}, fmt.Errorf("bundle inspect: %w", err)
	}
	st, err := os.Stat(file)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{Path: file, Digest: v.Digest, Size: st.Size(), Images: map[string]string{}, Groups: map[string]string{}}
	for _, i := range v.Images {
		b.Images[i.Name], b.Groups[i.Name] = i.Digest, i.Group
	}
	return b, nil
}

// Needed are the images of a bundle that a node holds: workers leave out the control plane's.
func (s *Scenario) Needed(b Bundle, node string) map[string]string {
	all := maps.Clone(b.Images)
	if slices.Contains(s.Lab.Workers(), node) {
		maps.DeleteFunc(all, func(name, _ string) bool { return b.Groups[name] == bundle.GroupControlPlane })
	}
	return all
}

// Rsh is the remote shell that refit install uses in the lab.
func (s *Scenario) Rsh() string {
	return filepath.Join(filepath.Dir(s.Refit), "refit-lab") + " --name " + s.Name + " rsh"
}

// Close removes the work directory, and the lab unless the caller created it.
func (s *Scenario) Close(ctx context.Context) error {
	if s.others {
		return os.RemoveAll(s.work)
	}
	err := s.phase("labDown", func() error { return lab.Down(ctx, s.Name) })
	return errors.Join(err, os.RemoveAll(s.work))
}

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/host/systemd"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Verbs.
const (
	// VerbApply upgrades the cluster's own configuration too: first control plane.
	VerbApply = "apply"
	// VerbNode upgrades this node only.
	VerbNode = "node"
)

// Host is what the updater asks of the node.
type Host interface {
	// Kubeadm is where the program is, or is to be put.
	Kubeadm(ctx context.Context) (string, error)
	StaticPods() ([]kube.StaticPod, error)
	// KubeletService is the kubelet, to be restarted when its old configuration is
	// restored.
	KubeletService() servicerestart.Host
	// ConfigFiles are the files of the kubelet's configuration that kubeadm writes
	// anew on every node.
	ConfigFiles() []string
	// Etcd is this node's member, nil if it has none.
	Etcd(ctx context.Context) (Etcd, error)
	// TempDir is where kubeadm leaves copies of what it replaced.
	TempDir() string
	// Unsettled says what keeps kubeadm from being started, nothing if it may start.
	Unsettled(ctx context.Context) ([]string, error)
	// APIAnswers says why no API server answers, nil if one does.
	APIAnswers(ctx context.Context) error
	// CgroupV1 reports the old cgroup hierarchy.
	CgroupV1() bool
	// RunDetached starts a command in a unit of its own, with its output in log
	// and its end in result; DetachedRuns reports whether the unit runs.
	RunDetached(ctx context.Context, unit, description, log, result string, argv []string) error
	DetachedRuns(ctx context.Context, unit string) (bool, error)
}

const (
	// manifestsTime is how long kubeadm waits for a static pod; less makes it
	// roll back an etcd that is merely slow.
	manifestsTime = "5m0s"
	// maxStarts is how often kubeadm is started again after an interruption.
	maxStarts = 5
	// preflightTries is how often preflight checks may refuse before it is a
	// failure: they change nothing, and a runtime that is just restarting is no
	// reason to halt an update.
	preflightTries = 3
	// preflightPause is the time between two of them.
	preflightPause = 10 * time.Second
	// errorLineLimit is how many lines of its output go into a failure.
	errorLineLimit = 12
)

// Updater is the step "kubeadm".
type Updater struct{ host Host }

// New makes the updater.
func New(h Host) *Updater { return &Updater{host: h} }

// Name is kubeadm.
func (u *Updater) Name() string { return "kubeadm" }

// files of a task. The marker outlives an attempt: what succeeded once does not run again
// when a later step is tried anew.
type files struct{ dir, config, log, result, marker, count string }

func attemptFiles(t updaters.Task) files {
	dir := filepath.Join(t.Dir, fmt.Sprintf("%s-%d", t.Step.ID, t.Attempt))
	return files{dir: dir, config: filepath.Join(dir, "upgrade.yaml"), log: filepath.Join(dir, "log"), result: filepath.Join(dir, "result.json"),
		count: filepath.Join(dir, "starts"), marker: filepath.Join(t.Dir, t.Step.ID+".done")}
}

func unitName(t updaters.Task) string { return "refit-run-" + t.Step.ID + ".service" }

// Observe reports whether kubeadm succeeded in this run and the manifests have the target's
// version.
func (u *Updater) Observe(_ context.Context, t updaters.Task) (updaters.Observation, error) {
	version, err := os.ReadFile(attemptFiles(t).marker)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return updaters.Observation{}, fmt.Errorf("kubeadm's success: %w", err)
	}
	if string(version) != t.Step.To {
		return updaters.Observation{Detail: "kubeadm has not succeeded in this run"}, nil
	}
	pods, err := u.host.StaticPods()
	if err != nil {
		return updaters.Observation{}, err
	}
	for _, name := range []string{kube.APIServer, "kube-controller-manager", "kube-scheduler"} {
		p := kube.Find(pods, name)
		if p == nil {
			continue // a worker
		}
		if tag := kube.Tag(p.Containers[0].Image); tag != t.Step.To {
			return updaters.Observation{Detail: fmt.Sprintf("the manifest of %s has version %s", name, tag)}, nil
		}
	}
	return updaters.Observation{Done: true}, nil
}

// Update starts kubeadm when the node is settled, and follows it to its end.
func (u *Updater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	f := attemptFiles(t)
	o, err := u.Observe(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	if o.Done {
		return updaters.Result{Done: true}, nil
	}
	runs, err := u.host.DetachedRuns(ctx, unitName(t))
	if err != nil {
		return updaters.Result{}, err
	}
	if runs {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "kubeadm runs: %s", lastLine(f.log)), nil
	}
	// The result is read after the unit was seen to have ended.
	result, err := systemd.ReadCommandResult(f.result)
	if err != nil {
		return updaters.Result{}, err
	}
	if result != nil {
		return u.handleResult(ctx, t, result)
	}
	return u.startKubeadm(ctx, t)
}

// lastLine is the last line of kubeadm's output, without its prefix.
func lastLine(log string) string {
	line := systemd.TailLog(log, 1)
	if i := strings.Index(line, "] "); i >= 0 && strings.HasPrefix(line, "[") {
		line = line[i+2:]
	}
	if line == "" {
		return "no output yet"
	}
	return line
}

func (u *Updater) handleResult(ctx context.Context, t updaters.Task, r *systemd.CommandResult) (updaters.Result, error) {
	f := attemptFiles(t)
	if r.Exit != 0 {
		why := errorLines(f.log)
		if r.Error != "" {
			why = r.Error + "\n" + why
		}
		if again, ok := transientFailure(f, why); ok {
			return again, os.Remove(f.result)
		}
		return updaters.Fail(v1alpha1.ReasonStepFailed, "kubeadm upgrade %s ended with status %d (its output is in %s):\n%s", t.Step.Verb, r.Exit, f.log, why), nil
	}
	if r, over, err := u.restartForConfig(ctx, t); !over || err != nil {
		return r, err
	}
	if err := u.removeLeftovers(t); err != nil {
		return updaters.Result{}, err
	}
	if err := fsutil.WriteFile(f.marker, []byte(t.Step.To), 0o600); err != nil {
		return updaters.Result{}, err
	}
	o, err := u.Observe(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	if !o.Done {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "kubeadm reported success, but %s", o.Detail), nil
	}
	return updaters.Result{Done: true}, nil
}

// transientFailure reports a failure that changed nothing, or after which kubeadm can run
// again; such a failure is retried a few times.
func transientFailure(f files, why string) (again updaters.Result, ok bool) {
	switch {
	case refusedByPreflight(f.log) && updaters.ReadTries(f.count) < preflightTries:
		again = updaters.InProgress(v1alpha1.ReasonUpdating, "kubeadm's preflight checks failed, nothing was changed; retrying: %s", why)
		again.After = preflightPause
	case lostAPIServer(why) && updaters.ReadTries(f.count) < maxStarts:
		again = updaters.InProgress(v1alpha1.ReasonAPIServerUnavailable, "kubeadm lost the API server; it runs again when the API server answers: %s", why)
	default:
		return again, false
	}
	return again, true
}

// searchedLines is how many lines of the log are searched for kubeadm's errors.
const searchedLines = 200

// errorLines are the errors that kubeadm reports, or the end of its output.
func errorLines(log string) string {
	var errs []string
	for l := range strings.SplitSeq(systemd.TailLog(log, searchedLines), "\n") {
		if strings.Contains(l, "[ERROR") || strings.HasPrefix(l, "error") {
			errs = append(errs, l)
		}
	}
	if len(errs) == 0 {
		return systemd.TailLog(log, errorLineLimit)
	}
	return strings.Join(errs[:min(errorLineLimit, len(errs))], "\n")
}

// refusedByPreflight reports whether kubeadm ended before it changed anything.
func refusedByPreflight(log string) bool {
	return strings.Contains(systemd.TailLog(log, searchedLines), "[preflight] Some fatal errors occurred")
}

// lostAPIServer reports whether kubeadm ended because the API server did not answer. It can
// run again, unless it has rolled back static pods itself: then a person must check first.
func lostAPIServer(why string) bool {
	return connectionLost.MatchString(why) && !strings.Contains(why, "kubeadm has tried to recover")
}

var connectionLost = regexp.MustCompile(`(?m)^error.*(dial tcp|connection refused|connection reset|no route to host|TLS handshake timeout|: EOF)`)

func (u *Updater) startKubeadm(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	f := attemptFiles(t)
	problems, err := u.host.Unsettled(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	if len(problems) > 0 {
		return updaters.InProgress(v1alpha1.ReasonControlPlaneUnhealthy, "kubeadm starts when the node is settled: %s", strings.Join(problems, "; ")), nil
	}
	if err := u.host.APIAnswers(ctx); err != nil {
		return updaters.InProgress(v1alpha1.ReasonAPIServerUnavailable, "kubeadm starts when the API server answers: %v", err), nil
	}
	n := updaters.ReadTries(f.count) + 1
	if n > maxStarts {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "kubeadm was interrupted %d times before it finished; its output is in %s:\n%s", maxStarts, f.log, systemd.TailLog(f.log, errorLineLimit)), nil
	}
	if r, ok, err := u.prepareEtcd(ctx, t); !ok || err != nil {
		return r, err
	}
	argv, err := u.prepare(ctx, t)
	if err != nil {
		return updaters.Result{}, err
	}
	if err := fsutil.WriteFile(f.count, []byte(fmt.Sprint(n)), 0o600); err != nil {
		return updaters.Result{}, err
	}
	err = u.host.RunDetached(ctx, unitName(t), "refit: kubeadm upgrade "+t.Step.Verb+" to "+t.Step.To, f.log, f.result, argv)
	if err != nil {
		return updaters.Result{}, err
	}
	failpoint.Here(failpoint.KubeadmStarted)
	return updaters.InProgress(v1alpha1.ReasonUpdating, "kubeadm was started"), nil
}

// prepare puts kubeadm in its place, backs up what it will write anew, and returns what to
// run.
func (u *Updater) prepare(ctx context.Context, t updaters.Task) ([]string, error) {
	path, err := u.host.Kubeadm(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := updaters.Swap(t, "kubeadm", path); err != nil {
		return nil, err
	}
	failpoint.Here(failpoint.KubeadmBinary)
	for _, c := range u.host.ConfigFiles() {
		if err := updaters.BackUp(t, configBackup(c), c); err != nil {
			return nil, err
		}
	}
	if err := u.recordForeignLeftovers(t); err != nil {
		return nil, err
	}
	if err := u.recordConfig(t); err != nil {
		return nil, err
	}
	return u.command(t, path)
}

// command writes kubeadm's configuration and returns what to run.
func (u *Updater) command(t updaters.Task, path string) ([]string, error) {
	f := attemptFiles(t)
	skip, err := u.skipPhases(t)
	if err != nil {
		return nil, err
	}
	patches, err := patchesDirectory(t.Step)
	if err != nil {
		return nil, err
	}
	config, err := u.upgradeConfig(t.Step, skip, patches)
	if err != nil {
		return nil, err
	}
	if err := fsutil.WriteFile(f.config, config, 0o600); err != nil {
		return nil, err
	}
	switch t.Step.Verb {
	case VerbApply:
		// --yes answers the one question; it forces nothing.
		return []string{path, "upgrade", "apply", "--config", f.config, "--yes"}, nil
	case VerbNode:
		return []string{path, "upgrade", "node", "--config", f.config}, nil
	}
	return nil, fmt.Errorf("updater kubeadm has no verb %q", t.Step.Verb)
}

// upgradeConfig is an UpgradeConfiguration. imagePullPolicy must not be Never: that
// would switch off the check that the images are there.
func (u *Updater) upgradeConfig(s v1alpha1.UpdateStep, skipPhases []string, patches string) ([]byte, error) {
	common := func() map[string]any {
		m := map[string]any{"imagePullPolicy": "IfNotPresent"}
		if len(skipPhases) > 0 {
			m["skipPhases"] = skipPhases
		}
		if patches != "" {
			m["patches"] = map[string]any{"directory": patches}
		}
		if u.host.CgroupV1() {
			m["ignorePreflightErrors"] = []string{"SystemVerification"}
		}
		return m
	}
	apply := common()
	apply["kubernetesVersion"] = s.To
	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "UpgradeConfiguration",
		"apply": apply, "node": common(), "timeouts": map[string]any{"upgradeManifests": manifestsTime},
	})
	if err != nil {
		return nil, fmt.Errorf("kubeadm's configuration: %w", err)
	}
	return out, nil
}

// configBackup is the name of a configuration file's backup.
func configBackup(path string) string { return "config-" + filepath.Base(path) }

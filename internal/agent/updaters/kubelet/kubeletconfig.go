package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/nodefiles"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/agent/updaters/servicerestart"
	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/model"
)

// ConfigHost is what the updater asks of the node.
type ConfigHost interface {
	servicerestart.Host // the kubelet
	updaters.Configs
	// Command is the kubelet's command as systemd has it, variables unexpanded; Flags
	// are those of the running process, nil if it does not run.
	Command(ctx context.Context) ([]string, error)
	Flags(ctx context.Context) ([]string, error)
	// Started is when the process started.
	Started(ctx context.Context) (time.Time, error)
	// ModTime is when a file of the node was written.
	ModTime(path string) (time.Time, error)
	ReloadUnits(ctx context.Context) error
	// Configz is the configuration that the kubelet reports; nil if it refuses the
	// request.
	Configz(ctx context.Context) (map[string]any, error)
}

const (
	// defaultDropinDir is used if the kubelet has no directory for drop-ins yet.
	defaultDropinDir = distribution.KubeadmDropins
	// dropinName is the name of refit's drop-in there.
	dropinName = "90-refit.conf"
	// unitDropin adds the directory to the kubelet's command.
	unitDropin    = "/etc/systemd/system/" + distribution.KubeletUnit + ".d/95-refit-config-dir.conf"
	configDirFlag = "--config-dir"
	// startPrecision is how precisely the start of a process is known.
	startPrecision = time.Second
	// configLimit is how long a kubelet may take to come back before the step fails.
	configLimit = 5 * time.Minute
)

// ConfigUpdater is the step "kubelet-config".
type ConfigUpdater struct {
	host ConfigHost
	fs   nodefiles.FS
	now  func() time.Time
}

// NewConfig makes the updater; files are below root, empty for the node's own.
func NewConfig(h ConfigHost, root string) *ConfigUpdater {
	return &ConfigUpdater{host: h, fs: nodefiles.FS{Root: root}, now: time.Now}
}

// Name is kubelet-config.
func (u *ConfigUpdater) Name() string { return "kubelet-config" }

// configDir is the value of the flag, which is one word or two.
func configDir(args []string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, configDirFlag+"="); ok {
			return v
		}
		if a == configDirFlag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// dropins are the drop-in with the fields, and that of the unit. The latter exists only if
// the kubelet would not read the first without it.
func (u *ConfigUpdater) dropins(ctx context.Context) (fields updaters.OwnFile, unit updaters.OwnFile, err error) {
	flags, err := u.host.Flags(ctx)
	if err != nil {
		return fields, unit, err
	}
	at := configDir(flags)
	if at == "" {
		at = defaultDropinDir
	}
	return updaters.OwnFile{FS: u.fs, Path: filepath.Join(at, dropinName)}, updaters.OwnFile{FS: u.fs, Path: unitDropin}, nil
}

// findProblem says what is not as wanted, "" if all is.
func (u *ConfigUpdater) findProblem(ctx context.Context, want string) (string, error) {
	f, _, err := u.dropins(ctx)
	if err != nil {
		return "", err
	}
	there, err := f.HasContent([]byte(want))
	if err != nil {
		return "", err
	}
	if !there {
		return f.Path + " is not as wanted", nil
	}
	if says, err := u.findUnread(ctx, f.Path); err != nil || says != "" {
		return says, err
	}
	if sick := u.host.Unready(ctx); sick != "" {
		return sick, nil
	}
	return u.findValueProblem(ctx, want)
}

// findUnread says why the running kubelet has not loaded a drop-in, "" if it has.
func (u *ConfigUpdater) findUnread(ctx context.Context, path string) (string, error) {
	flags, err := u.host.Flags(ctx)
	if err != nil {
		return "", err
	}
	if configDir(flags) != filepath.Dir(path) {
		return "the kubelet does not read " + filepath.Dir(path), nil
	}
	written, err := u.host.ModTime(path)
	if err != nil {
		return "", err
	}
	started, err := u.host.Started(ctx)
	if err == nil && started.Add(startPrecision).Before(written) {
		return "the kubelet has not loaded it yet", nil
	}
	return "", err
}

// findValueProblem compares what the kubelet reports with what is wanted.
func (u *ConfigUpdater) findValueProblem(ctx context.Context, want string) (string, error) {
	have, err := u.host.Configz(ctx)
	if err != nil || have == nil {
		return "", err
	}
	var w map[string]any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		return "", fmt.Errorf("the wanted configuration: %w", err)
	}
	delete(w, "apiVersion")
	delete(w, "kind")
	if field := firstDifference("", w, have); field != "" {
		return "the kubelet reports another value of " + field, nil
	}
	return "", nil
}

// Observe checks the files, the process and its answers.
func (u *ConfigUpdater) Observe(ctx context.Context, t updaters.Task) (updaters.Observation, error) {
	c, err := updaters.Config(t, u.host)
	if err != nil {
		return updaters.Observation{}, err
	}
	says, err := u.findProblem(ctx, c.Kubelet)
	if err != nil {
		return updaters.Observation{}, err
	}
	if says == "" {
		s, err := servicerestart.ReadState(t)
		if err != nil {
			return updaters.Observation{}, err
		}
		if !s.Done {
			says = s.Message
		}
	}
	return updaters.Observation{Done: says == "", Detail: says}, nil
}

// Update does the next thing that is missing.
func (u *ConfigUpdater) Update(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	c, no, ok := updaters.LoadConfig(t, u.host)
	if !ok {
		return no, nil
	}
	o, err := u.Observe(ctx, t)
	if err == nil && o.Done {
		return updaters.Result{Done: true}, nil
	}
	says := o.Detail
	if err == nil {
		err = u.writeDropins(ctx, t, c.Kubelet)
	}
	if err == nil {
		var s servicerestart.State
		if s, err = servicerestart.AdvanceRestart(ctx, u.host, t, u.now()); !s.Done && s.Message != "" {
			says = s.Message
		}
	}
	if err != nil {
		says = err.Error()
	}
	if u.now().Sub(t.Started) > configLimit {
		return updaters.Fail(v1alpha1.ReasonStepFailed, "the kubelet does not run with its new configuration within %s: %s\n%s", configLimit, says, u.host.Log(ctx)), nil
	}
	return updaters.InProgress(v1alpha1.ReasonUpdating, "%s", says), nil
}

// writeDropins writes both files, and records that the kubelet must restart.
func (u *ConfigUpdater) writeDropins(ctx context.Context, t updaters.Task, want string) error {
	f, unit, err := u.dropins(ctx)
	if err != nil {
		return err
	}
	there, err1 := f.HasContent([]byte(want))
	flags, err2 := u.host.Flags(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	reads := configDir(flags) != "" || flags == nil
	if there && reads {
		return nil
	}
	if err := servicerestart.RequireRestart(ctx, u.host, t); err != nil {
		return err
	}
	if err := f.Write(t, []byte(want), 0o644); err != nil {
		return err
	}
	failpoint.Here(failpoint.FilesWritten)
	if reads {
		return nil
	}
	command, err := u.host.Command(ctx)
	if err == nil {
		err = unit.Write(unitTask(t), unitText(command, filepath.Dir(f.Path)), 0o644)
	}
	if err != nil {
		return err
	}
	return u.host.ReloadUnits(ctx)
}

// unitTask keeps the backups of the two drop-ins apart.
func unitTask(t updaters.Task) updaters.Task {
	t.Step.ID += "-unit"
	return t
}

// unitText is the kubelet's command with the directory. systemd interprets a percent sign;
// it splits a variable that is a word of its own into several words.
func unitText(command []string, dir string) []byte {
	words := make([]string, 0, len(command)+1)
	for _, w := range command {
		if strings.HasPrefix(w, configDirFlag) {
			continue
		}
		w = strings.ReplaceAll(w, "%", "%%")
		if strings.ContainsAny(w, " \t\"'\\") || w == "" {
			w = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`
		}
		words = append(words, w)
	}
	words = append(words, configDirFlag+"="+dir)
	return []byte("# Written by refit: the kubelet reads its drop-ins from " + dir + ".\n[Service]\nExecStart=\nExecStart=" + strings.Join(words, " ") + "\n")
}

// Undo restores what was there, and the kubelet runs with it.
func (u *ConfigUpdater) Undo(ctx context.Context, t updaters.Task) (updaters.Result, error) {
	f, unit, err := u.dropins(ctx)
	if err != nil {
		return updaters.Result{}, err
	}
	a, err1 := f.Differs(t)
	b, err2 := unit.Differs(unitTask(t))
	if err := errors.Join(err1, err2); err != nil {
		return updaters.Result{}, err
	}
	s, err := servicerestart.UndoWithRestart(ctx, u.host, t, u.now(), a || b, func() error {
		return errors.Join(f.Restore(t), unit.Restore(unitTask(t)), u.host.ReloadUnits(ctx))
	})
	if err != nil || !s.Done {
		return updaters.InProgress(v1alpha1.ReasonUpdating, "the kubelet's old configuration is restored: %s", s.Message), err
	}
	return updaters.Result{Done: true, Message: s.Message}, nil
}

// Fields is the hash of the drop-in that the kubelet runs with.
func (u *ConfigUpdater) Fields(ctx context.Context, c *model.NodeConfig) map[string]string {
	if c.Kubelet == "" {
		return nil
	}
	says, err := u.findProblem(ctx, c.Kubelet)
	if err != nil {
		return nil
	}
	v := model.DigestOf([]byte(c.Kubelet))
	if says != "" {
		v = "another"
	}
	return map[string]string{model.FieldKubelet: v}
}

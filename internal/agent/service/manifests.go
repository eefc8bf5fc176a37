package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters/kubeadm"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// manifestInterval is the time between two reads of kubeadm's configuration, which
	// decides what the manifests should be. Changed files are compared at once.
	manifestInterval = 5 * time.Minute
	// maxManifestField bounds a field in bytes, maxManifestNames the names in it.
	maxManifestField = 1024
	maxManifestNames = 10
)

// manifestFields compares the manifests of a control-plane node with those that its kubeadm
// writes. It runs kubeadm only after a change of the files or of the configuration. The
// facts loop alone calls it.
type manifestFields struct {
	host *nodeHost
	// dir is for files of the comparison.
	dir string
	// configuration is kubeadm's, patches the directory that the node's UpdatePool names.
	configuration, patches func(ctx context.Context) (string, error)
	// program is the path and the version of kubeadm.
	program func(ctx context.Context) (path, version string)
	run     func(ctx context.Context, argv []string) error

	// files and inputs identify what was compared at checked, with the result out.
	files, inputs string
	checked       time.Time
	out           map[string]string
}

// Fields returns the changes that an update replaces, or why kubeadm cannot write manifests
// by its dry run. It returns nothing if kubeadm has another version than the API server.
func (m *manifestFields) Fields(ctx context.Context, _ agent.Asked) map[string]string {
	pods, err := m.host.StaticPods()
	server := kube.Find(pods, kube.APIServer)
	if err != nil || server == nil {
		return nil
	}
	path, version := m.program(ctx)
	if version == "" || version != kube.Tag(server.Containers[0].Image) {
		m.files = ""
		return nil
	}
	files := version + stateOf(m.host.Manifests())
	if files != m.files || time.Since(m.checked) >= manifestInterval {
		m.compare(ctx, path, files)
	}
	return m.out
}

// compare sets out, unless something could not be read: then the next observation does.
func (m *manifestFields) compare(ctx context.Context, kubeadmPath, files string) {
	configuration, err := m.configuration(ctx)
	if err != nil || configuration == "" {
		return
	}
	patches, err := m.patches(ctx)
	if err != nil {
		return
	}
	if inputs := configuration + patches + stateOf(patches); files != m.files || inputs != m.inputs {
		check := kubeadm.ManifestCheck{Kubeadm: kubeadmPath, Node: m.host.Node(), Manifests: m.host.Manifests(), ClusterConfiguration: configuration, Patches: patches, Dir: m.dir, Run: m.run}
		changes, err := check.Changes(ctx)
		if err != nil && ctx.Err() != nil {
			return // it was cut off
		}
		m.out, m.inputs = manifestResult(changes, err), inputs
	}
	m.files, m.checked = files, time.Now()
}

func manifestResult(changes []string, err error) map[string]string {
	switch {
	case err != nil:
		return map[string]string{model.FieldManifestProblem: text.Truncate(text.CleanLine(err.Error()), maxManifestField)}
	case len(changes) == 0:
		return nil
	}
	return map[string]string{model.FieldManifestChanges: text.Truncate(text.FirstOf(changes, maxManifestNames, ", "), maxManifestField)}
}

// stateOf identifies the files in a directory by name, size and time of change.
func stateOf(dir string) string {
	var out strings.Builder
	entries, _ := os.ReadDir(dir) // an unreadable directory has no files to compare
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			fmt.Fprintf(&out, "%s %d %d\n", e.Name(), st.Size(), st.ModTime().UnixNano())
		}
	}
	return out.String()
}

// kubeadmProgram finds kubeadm and its version.
func (h *nodeHost) kubeadmProgram(ctx context.Context) (path, version string) {
	path, err := exec.LookPath("kubeadm")
	if err != nil {
		return "", ""
	}
	version, err = h.binaries.Version(ctx, path, "version", "-o", "short")
	if err != nil {
		return "", ""
	}
	return path, version
}

// runKubeadm runs a command of kubeadm; the error has what kubeadm reported.
func runKubeadm(ctx context.Context, argv []string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.HasPrefix(line, "error") {
			return errors.New(line)
		}
	}
	return fmt.Errorf("kubeadm: %w: %s", err, text.Tail(string(out), maxManifestField/2))
}

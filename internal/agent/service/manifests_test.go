package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/agent"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

const planeManifest = `metadata: {name: kube-apiserver, annotations: {kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: "192.0.2.1:6443"}}
spec: {containers: [{name: kube-apiserver, image: "r/kube-apiserver:v1.35.4", command: [kube-apiserver, --v=2]}]}
`

// plane is a control-plane node whose kubeadm writes planeManifest, or fails.
type plane struct {
	*manifestFields
	runs, reads int
	version     string
	fails       error
	away        bool
	wants       string
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{version: "v1.35.4", wants: planeManifest}
	p.manifestFields = &manifestFields{host: &nodeHost{node: "n1", paths: kube.Paths{Root: t.TempDir()}}, dir: t.TempDir(),
		configuration: func(context.Context) (string, error) {
			p.reads++
			if p.away {
				return "", errors.New("no answer")
			}
			return "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n", nil
		},
		patches: func(context.Context) (string, error) { return "", nil },
		program: func(context.Context) (string, string) { return "/usr/bin/kubeadm", p.version },
		run: func(_ context.Context, argv []string) error {
			p.runs++
			dir := strings.TrimPrefix(argv[1], "KUBEADM_INIT_DRYRUN_DIR=")
			return errors.Join(p.fails, fsutil.WriteFile(filepath.Join(dir, "kube-apiserver.yaml"), []byte(p.wants), 0o600))
		}}
	p.manifest(t, planeManifest)
	return p
}

func (p *plane) manifest(t *testing.T, text string) {
	t.Helper()
	if err := fsutil.WriteFile(filepath.Join(p.host.Manifests(), "kube-apiserver.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestChangedManifestsAreFields(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	fields := func() map[string]string { return p.Fields(t.Context(), agent.Asked{}) }
	if got := fields(); len(got) > 0 {
		t.Errorf("as kubeadm wrote it: %v", got)
	}
	p.manifest(t, strings.Replace(planeManifest, "--v=2", "--v=2, --token-auth-file=/secret", 1))
	want := "kube-apiserver: --token-auth-file"
	if got := fields()[model.FieldManifestChanges]; got != want {
		t.Errorf("%q", got)
	}
	runs, reads := p.runs, p.reads
	for range 5 {
		if got := fields()[model.FieldManifestChanges]; got != want || p.runs != runs || p.reads != reads {
			t.Fatalf("%q after %d runs of kubeadm and %d reads of its configuration", got, p.runs-runs, p.reads-reads)
		}
	}
	p.checked = time.Now().Add(-2 * manifestInterval)
	if got := fields()[model.FieldManifestChanges]; got != want || p.runs != runs || p.reads != reads+1 {
		t.Errorf("later: %q after %d runs of kubeadm and %d reads of its configuration", got, p.runs-runs, p.reads-reads)
	}
	// The person moves the flag into kubeadm's configuration.
	p.wants = strings.Replace(planeManifest, "--v=2", "--v=2, --token-auth-file=/secret", 1)
	p.configuration = func(context.Context) (string, error) {
		return "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer: {extraArgs: []}\n", nil
	}
	p.checked = time.Now().Add(-2 * manifestInterval)
	if got := fields(); len(got) > 0 {
		t.Errorf("with the flag in the configuration: %v", got)
	}
}

func TestManifestsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*plane)
		want   map[string]string
	}{
		"kubeadm has another version":    {func(p *plane) { p.version = "v1.36.3" }, nil},
		"there is no kubeadm":            {func(p *plane) { p.version = "" }, nil},
		"the API server does not answer": {func(p *plane) { p.away = true }, nil},
		"a worker":                       {func(p *plane) { _ = os.RemoveAll(p.host.Manifests()) }, nil},
		"the dry run fails": {func(p *plane) { p.fails = errors.New("error: external CA\nmore") },
			map[string]string{model.FieldManifestProblem: "error: external CA more"}},
	} {
		p := newPlane(t)
		p.manifest(t, strings.Replace(planeManifest, "--v=2", "--v=4", 1))
		c.change(p)
		got := p.Fields(t.Context(), agent.Asked{})
		if len(got) != len(c.want) || got[model.FieldManifestProblem] != c.want[model.FieldManifestProblem] {
			t.Errorf("%s: %q", name, got)
		}
	}
}

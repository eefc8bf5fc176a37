// Package apitest starts a real API server and etcd for tests.
//
// Promise: a test sees what a kubeadm cluster would answer: RBAC and the Node authorizer,
// NodeRestriction, refit's own kinds, rules and admission policies. It has a server alone, in the
// state after the installation. Servers are reset and used again in packages that call Main, and by
// all packages of a run that has a lender (see Lend).
// Without the binaries the test is skipped, with a message that names the directories to fill.
//
// Input: KUBEBUILDER_ASSETS, REFIT_LAB_BIN or the lab's cache. Output: client configurations.
// Callers: tests of config and of the controller.
package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/areas"
)

// ControllerUser is the identity that the installed controller has.
const ControllerUser = "system:serviceaccount:refit-system:refit-controller"

// Without a sink, controller-runtime sets one 30 s after the program's start, without a lock
// against loggers that are being created: a data race.
func init() { ctrl.SetLogger(logr.Discard()) }

const noBinaries = "no kube-apiserver and etcd: set KUBEBUILDER_ASSETS or REFIT_LAB_BIN to their directory, or run `refit-lab up` once"

// Start starts a server with refit's kinds, access rules and policies, and returns its
// administrator's configuration. The server stops with the test, or is reset for the next test
// of a package that shares servers (see Main).
func Start(t testing.TB) *rest.Config {
	t.Helper()
	bin := Binaries()
	if bin == "" {
		t.Skip(noBinaries)
	}
	if !testing.Short() {
		if socket := os.Getenv(LenderSocket); socket != "" {
			return borrow(t, socket)
		}
		if shared {
			return lend(t, bin)
		}
	}
	return start(t, bin, nil, areas.Set{})
}

// StartWithout is Start with more flags for the server, and with an installation that leaves
// areas out.
func StartWithout(t testing.TB, without areas.Set, flags map[string]string) *rest.Config {
	t.Helper()
	bin := Binaries()
	if bin == "" {
		t.Skip(noBinaries)
	}
	return start(t, bin, flags, without)
}

// StartVersion is Start with a server whose version has a prefix ("v1.35."), from the lab's
// cache, and with more flags.
func StartVersion(t testing.TB, version string, flags map[string]string) *rest.Config {
	t.Helper()
	home, _ := os.UserHomeDir()
	found, _ := filepath.Glob(filepath.Join(home, ".cache/refit/lab/bin/kubernetes-"+version+"*", "kube-apiserver"))
	for _, f := range found {
		if dir := filepath.Dir(f); usable(dir) {
			return start(t, dir, flags, areas.Set{})
		}
	}
	t.Skipf("no kube-apiserver %s: run `refit-lab components --version %sN` once", version, version)
	return nil
}

// StartEmpty starts a server without anything of refit.
func StartEmpty(t testing.TB) *rest.Config {
	t.Helper()
	bin := Binaries()
	if bin == "" {
		t.Skip(noBinaries)
	}
	return startEmpty(t, bin, nil)
}

func start(t testing.TB, bin string, flags map[string]string, without areas.Set) *rest.Config {
	t.Helper()
	cfg := startEmpty(t, bin, flags)
	if err := apply(cfg, without); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func startEmpty(t testing.TB, bin string, flags map[string]string) *rest.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("an API server takes seconds: left out by -short")
	}
	s, err := launch(bin, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	users.Store(s.cfg.Host, addUser(s.addUser))
	return s.cfg
}

// launch starts a server. Its caller stops it.
func launch(bin string, flags map[string]string) (*server, error) {
	env := &envtest.Environment{
		BinaryAssetsDirectory:    bin,
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	args := env.ControlPlane.GetAPIServer().Configure()
	args.Set("authorization-mode", "Node", "RBAC")
	args.Set("enable-admission-plugins", "NodeRestriction")
	for name, value := range flags {
		args.Set(name, value)
	}
	// API server and etcd are small and live for minutes: with fewer garbage collections they use a sixth
	// less CPU time. Programs that the test starts later keep the default.
	if os.Getenv("GOGC") == "" {
		if err := os.Setenv("GOGC", "400"); err != nil {
			return nil, err
		}
		defer func() { _ = os.Unsetenv("GOGC") }()
	}
	cfg, err := env.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server from %s: %w", bin, err)
	}
	cfg.QPS, cfg.Burst = 500, 1000
	return &server{env: env, cfg: cfg}, nil
}

// As returns a configuration that acts as another user.
func As(cfg *rest.Config, user string, groups ...string) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return out
}

// AsNode returns a configuration with the identity of a node.
func AsNode(cfg *rest.Config, node string) *rest.Config {
	return As(cfg, "system:node:"+node, "system:nodes")
}

// Certificate returns a configuration with its own client certificate, as a kubelet has. The
// server must have been started by this package.
func Certificate(t testing.TB, cfg *rest.Config, user string, groups ...string) *rest.Config {
	t.Helper()
	add, ok := users.Load(cfg.Host)
	if !ok {
		t.Fatalf("no server of this package is at %s", cfg.Host)
	}
	out, err := add.(addUser)(envtest.User{Name: user, Groups: groups})
	if err != nil {
		t.Fatalf("make a certificate for %s: %v", user, err)
	}
	out.QPS, out.Burst = cfg.QPS, cfg.Burst
	return out
}

// addUser makes a configuration with a client certificate.
type addUser func(envtest.User) (*rest.Config, error)

// users has the addUser of each running server, by host.
var users sync.Map

// Binaries returns the directory with kube-apiserver and etcd, empty if there is none.
func Binaries() string {
	// The socket's path is new in each run of test/run.sh. go test sees that it is read, so no result
	// that needs an API server comes from its cache.
	_ = os.Getenv(LenderSocket)
	dirs := []string{os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("REFIT_LAB_BIN")}
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{"*", "*/*", "*/*/*"} {
		found, _ := filepath.Glob(filepath.Join(home, ".cache/refit/lab", pattern, "kube-apiserver"))
		sort.Sort(sort.Reverse(sort.StringSlice(found)))
		for _, f := range found {
			dirs = append(dirs, filepath.Dir(f))
		}
	}
	for _, d := range dirs {
		if d != "" && usable(d) {
			return d
		}
	}
	return ""
}

func usable(dir string) bool {
	return executable(filepath.Join(dir, "kube-apiserver")) && executable(filepath.Join(dir, "etcd"))
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// apply installs refit's manifests as the installer does, and waits until the kinds are served.
func apply(cfg *rest.Config, without areas.Set) error {
	objs, err := config.Rules()
	if err != nil {
		return err
	}
	crds, err := config.CRDs()
	if err != nil {
		return err
	}
	objs, crds = config.Without(objs, without), config.Without(crds, without)
	kinds, err := crdList(crds)
	if err != nil {
		return err
	}
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{CRDs: kinds}); err != nil {
		return fmt.Errorf("install the kinds: %w", err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	for _, o := range objs[len(crds):] {
		if err := c.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("refit"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func crdList(objs []*unstructured.Unstructured) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, o := range objs {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", o.GetName(), err)
		}
		out = append(out, crd)
	}
	return out, nil
}

package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/refit-dev/refit/config"
)

// controllerUser is the identity that an installed controller has.
const controllerUser = "system:serviceaccount:refit-system:refit-controller"

// The servers may use memory instead of time: they share few processors with all
// the nodes.
const (
	serversGC     = "800"
	serversMemory = "12GiB"
)

// servers are etcd and the API server.
type servers struct {
	env   *envtest.Environment
	admin *rest.Config
	// kubeconfig of the controller, a file.
	kubeconfig string
}

// startServers starts them with the authorizers and admission of a kubeadm
// cluster and what an installation of refit adds.
func startServers(ctx context.Context, o Options) (*servers, error) {
	s := &servers{env: &envtest.Environment{BinaryAssetsDirectory: o.BinDir, ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute}}
	api := s.env.ControlPlane.GetAPIServer().Configure()
	api.Set("authorization-mode", "Node", "RBAC")
	api.Set("enable-admission-plugins", "NodeRestriction")
	api.Set("max-requests-inflight", "800")
	api.Set("max-mutating-requests-inflight", "400")
	api.Set("etcd-compaction-interval", "1m") // every node is written often: the default of five keeps them all
	etcd := &envtest.Etcd{}
	etcd.Configure().Set("quota-backend-bytes", "8589934592")
	s.env.ControlPlane.Etcd = etcd
	if err := errors.Join(os.Setenv("GOGC", serversGC), os.Setenv("GOMEMLIMIT", serversMemory)); err != nil {
		return nil, err
	}
	var err error
	s.admin, err = s.env.Start()
	if err := errors.Join(err, os.Unsetenv("GOGC"), os.Unsetenv("GOMEMLIMIT")); err != nil {
		return nil, fmt.Errorf("start etcd and the API server from %s: %w", o.BinDir, err)
	}
	s.admin.QPS = -1
	if err := s.install(ctx); err != nil {
		return s, err
	}
	user, err := s.env.AddUser(envtest.User{Name: controllerUser, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:refit-system"}}, nil)
	if err != nil {
		return s, fmt.Errorf("make the controller's identity: %w", err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		return s, fmt.Errorf("make the controller's identity: %w", err)
	}
	s.kubeconfig = filepath.Join(o.Dir, "controller.kubeconfig")
	return s, os.WriteFile(s.kubeconfig, text, 0o600)
}

// install applies refit's kinds, rules and policies.
func (s *servers) install(ctx context.Context) error {
	crds, err := config.CRDs()
	if err != nil {
		return err
	}
	rules, err := config.Rules()
	if err != nil {
		return err
	}
	var typed []*apiextensionsv1.CustomResourceDefinition
	for _, o := range crds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd); err != nil {
			return fmt.Errorf("%s: %w", o.GetName(), err)
		}
		typed = append(typed, crd)
	}
	if _, err := envtest.InstallCRDs(s.admin, envtest.CRDInstallOptions{CRDs: typed}); err != nil {
		return fmt.Errorf("install the kinds: %w", err)
	}
	c, err := client.New(s.admin, client.Options{})
	if err != nil {
		return err
	}
	for _, o := range rules[len(crds):] {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("refit"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (s *servers) stop() error {
	if s == nil || s.env == nil {
		return nil
	}
	return s.env.Stop()
}

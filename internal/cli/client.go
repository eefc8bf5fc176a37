package cli

import (
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
)

// requestTimeout bounds one call: an API server that hangs while its etcd is
// replaced must not hang the command.
const requestTimeout = 10 * time.Second

func (o *options) rest() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to talk to: %w; give --kubeconfig FILE or set KUBECONFIG", err)
	}
	cfg.Timeout = requestTimeout
	cfg.QPS, cfg.Burst = 50, 100
	return cfg, nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			fmt.Fprintln(os.Stderr, "internal: "+err.Error())
			os.Exit(1)
		}
	}
	return s
}

func (o *options) client() (client.Client, error) {
	cfg, err := o.rest()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, fmt.Errorf("cannot reach the API server %s: %w", cfg.Host, err)
	}
	return c, nil
}

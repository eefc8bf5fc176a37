package workloadcluster

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/version"
)

// askWithin bounds one request to a workload cluster: several must fit into the
// time that Cluster API waits.
const askWithin = 2 * time.Second

// Clients keeps a client per kubeconfig; one that changed is made anew.
type Clients struct {
	// Scheme knows refit's kinds.
	Scheme *runtime.Scheme
	// Servers guards the connections.
	Servers *outbound.Guard

	mu      sync.Mutex
	clients map[string]kept
}

type kept struct {
	version string
	client  client.Client
}

// maxClients are kept; beyond, all are made anew.
const maxClients = 1000

// Client asks with the kubeconfig in a Secret, as Cluster API stores it. The
// errors quote nothing of it.
func (s *Clients) Client(secret *corev1.Secret) (client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(secret.UID)
	if k, ok := s.clients[key]; ok && k.version == secret.ResourceVersion {
		return k.client, nil
	}
	cfg, err := inlineConfig(secret.Data["value"])
	if err != nil {
		return nil, err
	}
	cfg.Timeout, cfg.UserAgent = askWithin, "refit-controller/"+version.Version()
	cfg.QPS, cfg.Burst = 50, 100
	cfg.Dial, cfg.Proxy = s.Servers.DialContext, s.Servers.Proxy
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := client.New(cfg, client.Options{Scheme: s.Scheme})
	if err != nil {
		return nil, errors.New("its certificates or its server cannot be used")
	}
	if s.clients == nil || len(s.clients) >= maxClients {
		s.clients = map[string]kept{}
	}
	s.clients[key] = kept{secret.ResourceVersion, c}
	return c, nil
}

package clusterapi

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/outbound"
)

// workloadTimeout bounds one request to a workload cluster: several must fit into the time that
// Cluster API waits.
const workloadTimeout = 2 * time.Second

// workloadClients caches a client per kubeconfig; a changed kubeconfig gets a new client.
type workloadClients struct {
	// Scheme has refit's kinds.
	Scheme *runtime.Scheme
	// Servers restricts the connections.
	Servers *outbound.Guard

	mu      sync.Mutex
	clients map[string]cachedClient
}

type cachedClient struct {
	version string
	client  client.Client
}

// maxClients is how many clients are cached; beyond it the cache is cleared.
const maxClients = 1000

// Client returns a client for the kubeconfig in a Secret, as Cluster API stores it. Errors
// quote nothing of it.
func (s *workloadClients) Client(secret *corev1.Secret) (client.Client, error) {
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
	cfg.Timeout, cfg.UserAgent = workloadTimeout, "refit-controller/"+componentversion.Refit()
	cfg.QPS, cfg.Burst = 50, 100
	cfg.Dial, cfg.Proxy = s.Servers.DialContext, s.Servers.Proxy
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := client.New(cfg, client.Options{Scheme: s.Scheme})
	if err != nil {
		return nil, errors.New("its certificates or its server cannot be used")
	}
	if s.clients == nil || len(s.clients) >= maxClients {
		s.clients = map[string]cachedClient{}
	}
	s.clients[key] = cachedClient{secret.ResourceVersion, c}
	return c, nil
}

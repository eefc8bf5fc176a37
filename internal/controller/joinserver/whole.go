package joinserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refit-dev/refit/internal/bootimage/ignition"

	"github.com/refit-dev/refit/internal/controller/nodeconfigs"
	"github.com/refit-dev/refit/internal/convert"
	"github.com/refit-dev/refit/internal/model"
)

// cacheFor is how long a pool's configuration counts: a hundred machines that join at
// once ask the API server once.
const cacheFor = 2 * time.Second

// rendered is what nodes of a pool are to be.
type rendered struct {
	config model.NodeConfig
	there  bool
	at     time.Time
}

// fullConfig is what a person gives machines of a pool, with what its nodes are to be: files,
// units, the OS image by digest. What the pool wants stands above, since the agent would
// change it to that anyway.
func (s *Server) fullConfig(ctx context.Context, p ignition.Pool, config []byte) ([]byte, error) {
	if p.Spec != 3 {
		return config, nil // NodeConfigs have no words of version 2; the agent brings them later
	}
	c, ok, err := s.rendered(ctx, p.Name)
	if err != nil || !ok {
		return config, err
	}
	own, left, err := ignition.FromNodeConfig(c)
	if err != nil {
		return nil, fmt.Errorf("configuration of pool %s: %w", p.Name, err)
	}
	if len(left) > 0 {
		s.Log.V(1).Info("a machine that joins gets this from its agent later", "pool", p.Name, "what", left)
	}
	version, err := ignition.Version(config)
	if err != nil {
		return nil, err
	}
	return ignition.Merge(version, config, own)
}

// userData is the same for cloud-init.
func (s *Server) userData(ctx context.Context, pool string, held *corev1.Secret) ([]byte, error) {
	c, _, err := s.rendered(ctx, pool)
	if err != nil {
		return nil, err
	}
	out, _, err := ignition.CloudInit(c, string(held.Data[convert.KeyUserData]))
	return out, err
}

// rendered is the configuration of the nodes of a pool; there is false if no NodeConfig
// selects them. A configuration in conflict is an error: a machine that joined without it
// would have to be changed at once.
func (s *Server) rendered(ctx context.Context, pool string) (c model.NodeConfig, there bool, err error) {
	s.wholes.Lock()
	defer s.wholes.Unlock()
	now := s.Now()
	if x, ok := s.known[pool]; ok && now.Sub(x.at) < cacheFor && !now.Before(x.at) {
		return x.config, x.there, nil
	}
	_, c, verdicts, err := nodeconfigs.ForNewNode(ctx, s.Client, pool)
	if err != nil {
		return c, false, err
	}
	if len(verdicts) > 0 {
		return c, false, errors.New("NodeConfigs of pool " + pool + " are in conflict: " + verdicts[0].Message)
	}
	if c.OS != nil && strings.HasPrefix(c.OS.Image, model.NoRegistry+"/") {
		// The nodes put it together, and this machine is none yet: its agent sees to it.
		os := *c.OS
		os.Image, c.OS = "", &os
	}
	if s.known == nil {
		s.known = map[string]rendered{}
	}
	s.known[pool] = rendered{config: c, there: !c.Empty(), at: now}
	return c, !c.Empty(), nil
}

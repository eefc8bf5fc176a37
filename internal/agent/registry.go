package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/agent/peertransfer"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/registry"
	"github.com/refit-dev/refit/internal/text"
)

const (
	// handOverTime is how long a fetch fails before the status says so, and the controller
	// has another node fetch.
	handOverTime = 30 * time.Second
	// failedTime is how long the status reports a failed fetch that is not this node's task
	// any more. The controller prefers other nodes meanwhile.
	failedTime = 10 * time.Minute
)

// registrySources are the registries from which this node fetches bundles, by their digests.
// The bundle loop changes them, the peer server reads. The zero value is empty.
type registrySources struct {
	mu     sync.Mutex
	all    map[string]*registrySource
	failed map[string]*failedFetch
	// handOver replaces handOverTime in tests.
	handOver time.Duration
}

// registrySource is a registry and what it was made for.
type registrySource struct {
	*peertransfer.Registry
	generation int64
	close      func()
}

// failedFetch is a fetch that fails, or failed last.
type failedFetch struct {
	blocker     model.Blocker
	since, last time.Time
}

// get returns the registry of a bundle that this node fetches, nil for other bundles.
func (s *registrySources) get(digest string) *peertransfer.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.all[digest]; r != nil {
		return r.Registry
	}
	return nil
}

// update makes the sources that the desired state asks for. Where a bundle is comes from the
// object of an administrator, as this node has read it itself: the controller only says that
// the node is to fetch.
func (s *registrySources) update(w *desired.State, where func(digest string, generation int64) *v1alpha1.BundleRegistry, open func(digest string, where *v1alpha1.BundleRegistry) (*peertransfer.Registry, func())) {
	now := map[string]*registrySource{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range w.Spec.Bundles {
		if b.Fetch == 0 {
			continue
		}
		if old := s.all[b.Digest]; old != nil && old.generation == b.Fetch {
			now[b.Digest] = old
			continue
		}
		if at := where(b.Digest, b.Fetch); at != nil {
			r, closeIdle := open(b.Digest, at)
			now[b.Digest] = &registrySource{r, b.Fetch, closeIdle}
			delete(s.failed, b.Digest) // of another place
		}
	}
	for d, old := range s.all {
		if now[d] != old {
			old.Close()
			old.close()
		}
	}
	s.all = now
}

// record records how a fetch goes; nil is well.
func (s *registrySources) record(digest string, v *model.Blocker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == nil {
		delete(s.failed, digest)
		return
	}
	if s.failed == nil {
		s.failed = map[string]*failedFetch{}
	}
	f := s.failed[digest]
	if f == nil {
		f = &failedFetch{since: time.Now()}
		s.failed[digest] = f
	}
	f.blocker, f.last = *v, time.Now()
}

// report lists the fetches that have failed for a while.
func (s *registrySources) report() (out []v1alpha1.FailedFetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	least := s.handOver
	if least == 0 {
		least = handOverTime
	}
	for _, digest := range slices.Sorted(maps.Keys(s.failed)) {
		f := s.failed[digest]
		switch task := s.all[digest] != nil; {
		case !task && time.Since(f.last) > failedTime:
			delete(s.failed, digest)
		case f.last.Sub(f.since) >= least:
			out = append(out, v1alpha1.FailedFetch{Bundle: digest, Reason: f.blocker.Reason, Message: text.Truncate(f.blocker.Message, maxFetchMessage)})
		}
	}
	return out[:min(len(out), 8)]
}

// maxFetchMessage bounds the message of a failed fetch in bytes, so that a NodeUpdate stays small.
const maxFetchMessage = 300

// openRegistry makes the source of a bundle.
func (l *bundleLoop) openRegistry(digest string, at *v1alpha1.BundleRegistry) (*peertransfer.Registry, func()) {
	over := l.registryTransport(at.CABundle)
	repository, name, err := registry.ParseReference(at.Reference)
	if err != nil { // the API server refuses it
		repository, name = at.Reference, ""
	}
	var places []registry.Place
	for _, m := range at.Mirrors {
		places = append(places, registry.Place{Repository: m})
	}
	places = append(places, registry.Place{Repository: repository})
	file := l.conf.RegistryAuth
	if file == "" {
		file = agentconfig.DefaultRegistryAuth
	}
	conf := peertransfer.RegistryConfig{Bundle: digest, Places: places, Name: name, Transport: over, Logins: func() (*registry.Keys, error) { return readLogins(file) }, Retry: l.registryRetry}
	return peertransfer.NewRegistry(conf), over.CloseIdleConnections
}

// registryTransport connects to registries: within the bandwidth limit, and to no local address
// that the node's configuration does not allow.
func (l *bundleLoop) registryTransport(authorities string) *http.Transport {
	t := outbound.New(outbound.AgentRegistry, l.conf.LocalRegistries...).Transport()
	t.DialContext = l.limit.Dial(t.DialContext)
	t.DisableCompression = true
	if authorities == "" {
		return t
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(authorities)) {
		l.log.Warn("spec.registry.caBundle of the Bundle has no certificate in PEM")
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t
}

// readLogins reads the node's logins to registries, nil if it has none.
func readLogins(file string) (*registry.Keys, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("logins to registries: %w", err)
	}
	keys, err := registry.ParseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return keys, nil
}

// registryBlocker returns why a bundle does not come from its registry, nil if it does.
func (l *bundleLoop) registryBlocker(r *peertransfer.Registry, digest string) *model.Blocker {
	f := r.Fault()
	if f == nil {
		return nil
	}
	v := &model.Blocker{Object: "Bundle/" + digest, Message: fmt.Sprintf("bundle %s cannot be fetched: %s", text.ShortDigest(digest), f.Message)}
	switch f.Kind {
	case registry.RateLimited:
		v.Reason, v.Waiting, v.Fix = v1alpha1.ReasonRegistryRateLimited, true, "Wait: the node asks again by itself."
	case registry.Unauthorized:
		v.Reason = v1alpha1.ReasonRegistryUnauthorized
		v.Fix = fmt.Sprintf("Put a login that may pull into %s on node %s, or name nodes that have one in spec.registry.nodeSelector of the Bundle.", agentconfig.DefaultRegistryAuth, l.conf.Node)
	case registry.TagDeleted, registry.RepositoryMissing, registry.BlobMissing:
		v.Reason, v.Fix = v1alpha1.ReasonRegistryContentMissing, "Push the bundle again: refit bundle push FILE REFERENCE."
	case registry.InvalidAnswer:
		v.Reason, v.Fix = v1alpha1.ReasonRegistryContentWrong, "Push the bundle again under a tag of its own, or name another registry in spec.registry of the Bundle."
	case registry.Unreachable:
		v.Reason, v.Waiting, v.Fix = v1alpha1.ReasonRegistryUnreachable, true, "Check the registry, and the network between it and this node."
	}
	return v
}

// noSource returns why a part of a bundle does not come: what the registry answers, if this
// node asks one, or that no other node has it.
func (l *bundleLoop) noSource(reason, digest, what string) model.Blocker {
	if r := l.registries.get(digest); r != nil {
		if v := l.registryBlocker(r, digest); v != nil {
			return *v
		}
	}
	v := model.Blocker{Reason: reason, Waiting: true, Object: "Bundle/" + digest, Message: what, Fix: "Plug the medium into any node of the cluster."}
	if at := l.authority.Registry(digest, 0); at != nil {
		v.Message += "; one node fetches it from " + at.Reference
		v.Fix = "Wait. The status of the Bundle names that node, and what stops it."
	}
	return v
}

// recordFetch records for the controller whether this node can fetch a bundle: another may have
// a login, a way to the registry, or room.
func (l *bundleLoop) recordFetch(digest string, verdicts []model.Blocker) {
	r := l.registries.get(digest)
	if r == nil {
		return
	}
	v := l.registryBlocker(r, digest)
	if full := slices.IndexFunc(verdicts, func(b model.Blocker) bool { return b.Reason == v1alpha1.ReasonInsufficientSpace }); v == nil && full >= 0 {
		v = &verdicts[full]
	}
	l.registries.record(digest, v)
	failed := l.registries.report()
	l.update(func(s *state) { s.failedFetches = failed })
}

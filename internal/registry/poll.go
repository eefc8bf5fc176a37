package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"

	"github.com/refit-dev/refit/internal/outbound"
)

const (
	// pollTime bounds one request.
	pollTime = 20 * time.Second
	// maxAnswer is the largest manifest or configuration that is read, in bytes.
	maxAnswer = 8 << 20
	// maxPages, maxListing (bytes) and maxTags limit one listing. Registries put 100 tags on a
	// page by default, or fewer.
	maxPages   = 2000
	maxListing = 16 << 20
	maxTags    = 200_000
)

// manifestTypes are all accepted types: with fewer, a registry may answer with a platform's
// manifest in place of the index, and so with another digest.
var manifestTypes = []string{
	"application/vnd.oci.image.index.v1+json", "application/vnd.oci.image.manifest.v1+json",
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
}

var validDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Poller polls registries with few requests: HEAD before GET, nothing twice that did not
// change, and none at all to a registry that said to wait. Its cache saves requests; losing
// it does no harm. Safe for concurrent use.
type Poller struct {
	inner http.RoundTripper
	now   func() time.Time

	mu    sync.Mutex
	hosts map[string]*backoffState
	conns map[string]*conn
	heads map[string]head
	lists map[string]listing
}

// NewPoller makes a poller over a transport (nil is the default one), with a clock.
func NewPoller(over http.RoundTripper, now func() time.Time) *Poller {
	return &Poller{inner: outbound.KeepLogins(over), now: now, hosts: map[string]*backoffState{}, conns: map[string]*conn{}, heads: map[string]head{}, lists: map[string]listing{}}
}

// Place is a repository and the credentials for it.
type Place struct {
	// Repository with its registry, normalised, without tag.
	Repository string
	// Keys to registries; nil is anonymous. They never appear in an error.
	Keys *Keys
	// Insecure allows plain HTTP.
	Insecure bool
}

// conn is an authenticated connection to a repository.
type conn struct {
	repo   name.Repository
	client *http.Client
	scheme string
}

type head struct {
	digest, etag string
	at           time.Time
}

type listing struct {
	tags []string
	at   time.Time
}

// Digest is what a tag points to now: its index, if it has one. An answer that is younger
// than fresh is not requested again, even if another track got it.
func (p *Poller) Digest(ctx context.Context, at Place, tag string, fresh time.Duration) (string, error) {
	key := at.key() + " " + tag
	p.mu.Lock()
	known, asked := p.heads[key]
	p.mu.Unlock()
	if asked && fresh > 0 && p.now().Sub(known.at) < fresh {
		return known.digest, nil
	}
	resp, err := p.request(ctx, at, http.MethodHead, "manifests/"+tag, known.header(tag))
	if err != nil {
		if f := (*Failure)(nil); errors.As(err, &f) && f.Kind == TagDeleted {
			p.dropHead(key)
		}
		return "", err
	}
	if resp.status == http.StatusNotModified {
		p.cacheHead(key, head{known.digest, known.etag, p.now()})
		return known.digest, nil
	}
	d := resp.header.Get("Docker-Content-Digest")
	if !validDigest.MatchString(d) {
		if d, err = p.digestOf(ctx, at, tag); err != nil {
			return "", err
		}
	}
	p.cacheHead(key, head{d, resp.header.Get("Etag"), p.now()})
	return d, nil
}

// header of a request, with the known ETag. A digest's ETag never changes, so a registry may
// answer "not modified" without checking whether it still has it (distribution does).
func (h head) header(tag string) http.Header {
	out := http.Header{"Accept": {strings.Join(manifestTypes, ", ")}}
	if h.etag != "" && !validDigest.MatchString(tag) {
		out.Set("If-None-Match", h.etag)
	}
	return out
}

// digestOf reads a manifest from a registry that does not send its digest.
func (p *Poller) digestOf(ctx context.Context, at Place, tag string) (string, error) {
	resp, err := p.request(ctx, at, http.MethodGet, "manifests/"+tag, http.Header{"Accept": {strings.Join(manifestTypes, ", ")}})
	if err != nil {
		return "", err
	}
	return digest.FromBytes(resp.body).String(), nil
}

func (p *Poller) cacheHead(key string, h head) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heads[key] = h
}

func (p *Poller) dropHead(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.heads, key)
}

// Tags lists a repository, sorted: one listing serves all that ask within fresh.
func (p *Poller) Tags(ctx context.Context, at Place, fresh time.Duration) ([]string, error) {
	p.mu.Lock()
	known, asked := p.lists[at.key()]
	p.mu.Unlock()
	if asked && fresh > 0 && p.now().Sub(known.at) < fresh {
		return slices.Clone(known.tags), nil
	}
	var tags []string
	next, size := "tags/list", 0
	for range maxPages {
		resp, err := p.request(ctx, at, http.MethodGet, next, http.Header{"Accept": {"application/json"}})
		if err != nil {
			return nil, err
		}
		// Counted before they are decoded: a tag of one byte costs many.
		if size += len(resp.body); size > maxListing || len(tags)+bytes.Count(resp.body, []byte(",")) > maxTags {
			return nil, at.failure(InvalidAnswer, fmt.Errorf("its list of tags has more than %d bytes or %d tags", maxListing, maxTags))
		}
		var page struct {
			Tags []string `json:"tags"`
		}
		if err := json.Unmarshal(resp.body, &page); err != nil {
			return nil, at.failure(InvalidAnswer, fmt.Errorf("its list of tags is not JSON: %w", err))
		}
		tags = append(tags, page.Tags...)
		if next = nextPage(resp.header.Get("Link")); next == "" {
			break
		}
	}
	if next != "" {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("its list of tags has more than %d pages", maxPages))
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	p.mu.Lock()
	p.lists[at.key()] = listing{tags, p.now()}
	p.mu.Unlock()
	return slices.Clone(tags), nil
}

var linkNext = regexp.MustCompile(`<([^>]+)>;\s*rel="?next"?`)

// nextPage is the rest of the path of a listing's next page, "" at the end. It takes only the
// query: the page must be of the same repository.
func nextPage(link string) string {
	m := linkNext.FindStringSubmatch(link)
	if m == nil {
		return ""
	}
	u, err := url.Parse(m[1])
	if err != nil || u.RawQuery == "" {
		return ""
	}
	return "tags/list?" + u.RawQuery
}

// Description is what an image's manifests and configuration say.
type Description struct {
	// AppVersion is its label or annotation org.opencontainers.image.version.
	AppVersion string
	// Labels of the index, its first platform's manifest and configuration; the
	// outer ones win.
	Labels map[string]string
	// Same are the digests of platform manifests and configurations under it.
	Same []string
	// Size is how many bytes a node of the largest platform fetches.
	Size int64
}

type manifest struct {
	Annotations map[string]string `json:"annotations"`
	Manifests   []struct {
		Digest   string `json:"digest"`
		Platform *struct {
			OS string `json:"os"`
		} `json:"platform"`
	} `json:"manifests"`
	Config *struct {
		Digest string `json:"digest"`
		Size   int64  `json:"size"`
	} `json:"config"`
	Layers []struct {
		Size int64 `json:"size"`
	} `json:"layers"`
}

// size is how many bytes a node fetches of it.
func (m *manifest) size() (n int64) {
	if m.Config != nil {
		n = max(0, m.Config.Size)
	}
	for _, l := range m.Layers {
		n += max(0, l.Size)
	}
	return n
}

// maxPlatforms is how many platforms of an image are inspected.
const maxPlatforms = 8

// Describe reads the manifests and the configurations under a digest. It costs a few
// requests, so it is for unknown images.
func (p *Poller) Describe(ctx context.Context, at Place, d string) (Description, error) {
	out := Description{Labels: map[string]string{}}
	top, err := p.manifest(ctx, at, d)
	if err != nil {
		return out, err
	}
	out.addLabels(top.Annotations)
	platforms, err := p.platforms(ctx, at, top, &out)
	if err != nil {
		return out, err
	}
	for _, m := range platforms {
		out.Size = max(out.Size, m.size())
		if m.Config != nil {
			out.Same = append(out.Same, m.Config.Digest)
		}
	}
	if len(platforms) > 0 && platforms[0].Config != nil {
		err = p.labels(ctx, at, platforms[0], &out)
	}
	out.AppVersion = out.Labels["org.opencontainers.image.version"]
	return out, err
}

// platforms are the manifests of an index, or the single manifest.
func (p *Poller) platforms(ctx context.Context, at Place, top manifest, out *Description) ([]manifest, error) {
	if len(top.Manifests) == 0 {
		return []manifest{top}, nil
	}
	var all []manifest
	for _, m := range top.Manifests {
		if m.Platform != nil && m.Platform.OS == "unknown" || len(all) == maxPlatforms {
			continue // an attestation
		}
		child, err := p.manifest(ctx, at, m.Digest)
		if err != nil {
			return nil, err
		}
		out.Same = append(out.Same, m.Digest)
		all = append(all, child)
	}
	return all, nil
}

func (d *Description) addLabels(labels map[string]string) {
	for k, v := range labels {
		if _, has := d.Labels[k]; !has {
			d.Labels[k] = v
		}
	}
}

func (p *Poller) labels(ctx context.Context, at Place, m manifest, out *Description) error {
	out.addLabels(m.Annotations)
	raw, err := p.readVerified(ctx, at, "blobs/", m.Config.Digest, "")
	if err != nil {
		return err
	}
	var c struct {
		Config struct {
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return at.failure(InvalidAnswer, fmt.Errorf("configuration %s is not JSON: %w", m.Config.Digest, err))
	}
	out.addLabels(c.Config.Labels)
	return nil
}

func (p *Poller) manifest(ctx context.Context, at Place, d string) (m manifest, err error) {
	raw, err := p.readVerified(ctx, at, "manifests/", d, strings.Join(manifestTypes, ", "))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, at.failure(InvalidAnswer, fmt.Errorf("manifest %s is not JSON: %w", d, err))
	}
	return m, nil
}

// readVerified reads an object by its digest, and compares it.
func (p *Poller) readVerified(ctx context.Context, at Place, what, d, accept string) ([]byte, error) {
	if !validDigest.MatchString(d) {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("%q is not a digest", d))
	}
	header := http.Header{}
	if accept != "" {
		header.Set("Accept", accept)
	}
	resp, err := p.request(ctx, at, http.MethodGet, what+d, header)
	if err != nil {
		return nil, err
	}
	if got := digest.FromBytes(resp.body).String(); got != d {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("asked for %s it answers with %s", d, got))
	}
	return resp.body, nil
}

// answer of a registry.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// request sends a request, unless the registry must not be asked now.
func (p *Poller) request(ctx context.Context, at Place, method, path string, header http.Header) (*answer, error) {
	host, _, _ := strings.Cut(at.Repository, "/")
	if err := p.checkBackoff(host); err != nil {
		return nil, err
	}
	answering, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	a, err := p.send(answering, at, method, path, header)
	if err != nil && ctx.Err() != nil { // the caller gave up: that is no fault of the registry
		return nil, ctx.Err()
	}
	if err == nil {
		err = at.checkStatus(a, path)
	}
	p.recordAnswer(host, a, err)
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (p *Poller) send(ctx context.Context, at Place, method, path string, header http.Header) (*answer, error) {
	c, err := p.conn(ctx, at)
	if err != nil {
		return nil, at.classify(err)
	}
	u := c.scheme + "://" + c.repo.RegistryStr() + "/v2/" + c.repo.RepositoryStr() + "/" + path
	req, err := http.NewRequestWithContext(ctx, method, u, nil)
	if err != nil {
		return nil, at.failure(InvalidAnswer, err)
	}
	req.Header = header
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, at.classify(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, at.classify(err)
	}
	if len(body) > maxAnswer {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("its answer has more than %d bytes", maxAnswer))
	}
	return &answer{resp.StatusCode, resp.Header, bytes.Clone(body)}, nil
}

// conn returns the connection to a repository. A cached one needs no further requests.
func (p *Poller) conn(ctx context.Context, at Place) (*conn, error) {
	p.mu.Lock()
	c := p.conns[at.key()]
	p.mu.Unlock()
	if c != nil {
		return c, nil
	}
	var options []name.Option
	if at.Insecure {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(at.Repository, options...)
	if err != nil {
		return nil, fmt.Errorf("repository %q: %w", at.Repository, err)
	}
	auth := authn.Anonymous
	if at.Keys != nil {
		auth = at.Keys.authenticatorFor(repo.Name())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollTime)
	defer cancel()
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth, transport.NewUserAgent(p.inner, "refit"), []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	// The transport corrects the scheme to the registry's.
	c = &conn{repo: repo, client: &http.Client{Transport: rt}, scheme: repo.Scheme()}
	p.mu.Lock()
	p.conns[at.key()] = c
	p.mu.Unlock()
	return c, nil
}

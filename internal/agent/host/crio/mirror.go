package crio

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/fsutil"
)

const (
	// takeTime is how long the runtime may take to read its configuration, after
	// which a load fails.
	takeTime = 30 * time.Second
	// askTime bounds one question by which that is found out: it reaches nothing
	// but loopback.
	askTime = 5 * time.Second
	askGap  = 50 * time.Millisecond
)

// mirror is a read-only registry on loopback with some images. Its path is a secret that only
// readers of the runtime's configuration know.
type mirror struct {
	server *http.Server
	addr   string
	secret string
	blobs  cri.Blobs
	// repos by number in the path: names of hosts and ports are no path.
	repos []string
	// images by repository and tag, types by digest of the image.
	images map[string]cri.Target
	asked  atomic.Int64
}

// maxManifest is the largest manifest or index that is served, in bytes: that of
// other registries and runtimes.
const maxManifest = 4 << 20

func newMirror(load []cri.Target, blobs cri.Blobs) (*mirror, error) {
	l, err := listenMirror()
	if err != nil {
		return nil, fmt.Errorf("mirror on loopback: %w", err)
	}
	m := &mirror{addr: l.Addr().String(), secret: strings.ToLower(rand.Text()), blobs: blobs, images: map[string]cri.Target{}}
	for _, img := range load {
		if repo := img.Repository(); !slices.Contains(m.repos, repo) {
			m.repos = append(m.repos, repo)
		}
		m.images[img.Name] = img
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	for i, repo := range m.repos {
		mux.HandleFunc("GET "+m.path(i)+"manifests/{ref}", func(w http.ResponseWriter, r *http.Request) { m.manifest(w, r, repo) })
		mux.HandleFunc("GET "+m.path(i)+"blobs/{digest}", m.blob)
	}
	mux.HandleFunc("GET /v2/"+m.secret+"/ready/manifests/{ref}", func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		http.NotFound(w, r)
	})
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: askTime}
	go func() { _ = m.server.Serve(l) }() // ends with Close
	return m, nil
}

func (m *mirror) path(repo int) string { return fmt.Sprintf("/v2/%s/r%d/", m.secret, repo) }

func (m *mirror) serves(img cri.Target) bool { return m.images[img.Name].Digest == img.Digest }

// canary is a name that leads to our mirror if the runtime has taken its file,
// and to a closed port of loopback if not.
func (m *mirror) canary() string { return "127.0.0.1:1/" + m.secret }

// file tells the runtime of the mirror: one entry for each repository, so that
// nothing else is diverted. The mirror stands in the registry's own place and not
// before it: what it does not have is asked of nobody else.
func (m *mirror) file() []byte {
	var b strings.Builder
	b.WriteString("# Written by refit while it loads images; removed when that ends.\n")
	entry := func(prefix, path string) {
		fmt.Fprintf(&b, "[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n", prefix, m.addr+"/"+m.secret+path)
	}
	for i, repo := range m.repos {
		entry(repo, fmt.Sprintf("/r%d", i))
	}
	entry(m.canary(), "/ready")
	return []byte(b.String())
}

func (m *mirror) manifest(w http.ResponseWriter, r *http.Request, repo string) {
	ref := r.PathValue("ref")
	digest := ref
	if !strings.Contains(ref, ":") {
		img, ok := m.images[repo+":"+ref]
		if !ok {
			http.NotFound(w, r)
			return
		}
		digest = img.Digest
	}
	body, err := m.readManifest(digest)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	var said struct {
		MediaType string          `json:"mediaType"`
		Manifests json.RawMessage `json:"manifests"`
	}
	_ = json.Unmarshal(body, &said) // what is no JSON has no type
	w.Header().Set("Content-Type", m.typeOf(digest, said.MediaType, said.Manifests != nil))
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body)
}

// typeOf returns the media type of a manifest: its own, the image's, or OCI's.
func (m *mirror) typeOf(digest, itself string, index bool) string {
	if itself != "" {
		return itself
	}
	for _, img := range m.images {
		if img.Digest == digest && img.MediaType != "" {
			return img.MediaType
		}
	}
	if index {
		return "application/vnd.oci.image.index.v1+json"
	}
	return "application/vnd.oci.image.manifest.v1+json"
}

func (m *mirror) readManifest(digest string) ([]byte, error) {
	r, err := m.blobs.Open(digest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	body, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err == nil && len(body) > maxManifest {
		err = fmt.Errorf("manifest %s is larger than %d bytes", digest, maxManifest)
	}
	return body, err
}

func (m *mirror) blob(w http.ResponseWriter, r *http.Request) {
	digest := r.PathValue("digest")
	b, err := m.blobs.Open(digest)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer b.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", digest)
	if file, ok := b.(io.ReadSeeker); ok { // serves the length and range requests
		http.ServeContent(w, r, "", time.Time{}, file)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	// The runtime compares what it gets with the digest; a connection that ends
	// early is an error to it, not an end.
	if _, err := io.Copy(w, b); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// openMirror starts a mirror and returns when the runtime asks it.
func (c *Client) openMirror(ctx context.Context, load []cri.Target, blobs cri.Blobs) error {
	m, err := newMirror(load, blobs)
	if err != nil {
		return err
	}
	c.mirror = m
	if err := os.MkdirAll(c.places.join("/etc/containers/registries.conf.d"), 0o755); err != nil {
		return fmt.Errorf("telling the container runtime of the images: %w", err)
	}
	if err := fsutil.WriteFile(c.places.Mirror(), m.file(), 0o600); err != nil {
		return fmt.Errorf("telling the container runtime of the images: %w", err)
	}
	if err := c.reload(); err != nil {
		return err
	}
	if !c.pollUntil(ctx, func() bool { return c.usesMirror(ctx, m) }) {
		return errors.Join(ctx.Err(), fmt.Errorf("the container runtime has not taken %s within %s: %s", c.places.Mirror(), c.take, c.configHint(ctx)))
	}
	return nil
}

// configHint returns why a runtime may not have read its configuration, and the fix.
func (c *Client) configHint(ctx context.Context) string {
	if pid, err := c.process(); err == nil && pid == 0 {
		name, version, err := c.Version(ctx)
		if err != nil {
			name = "an unresponsive runtime"
		}
		return strings.TrimSpace(name+" "+version) + " is not CRI-O and gets no signal, so it must reload /etc/containers/registries.conf.d by itself; load the images with its own tools, or use containerd or CRI-O"
	}
	return "search its log for \"Unable to reload\": an error in another configuration file keeps it from reading any"
}

// closeMirror takes the file away, and then the mirror, when the runtime does not ask
// it any more.
func (c *Client) closeMirror(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.mirror
	if m == nil {
		return nil
	}
	c.mirror = nil
	defer m.server.Close()
	if err := os.Remove(c.places.Mirror()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking the mirror away from the container runtime: %w", err)
	}
	if err := c.reload(); err != nil {
		return err
	}
	if !c.pollUntil(ctx, func() bool { return !c.usesMirror(ctx, m) }) {
		return errors.Join(ctx.Err(), fmt.Errorf("the container runtime still uses the removed registry mirror: it has not read its configuration since %s was removed: %s", c.places.Mirror(), c.configHint(ctx)))
	}
	return nil
}

// usesMirror reports whether the runtime uses the mirror: whether a test pull reaches it.
func (c *Client) usesMirror(ctx context.Context, m *mirror) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	before := m.asked.Load()
	_ = c.cri.Pull(ctx, m.canary()+":ready", askTime) // it always fails: only the request to the mirror counts
	return m.asked.Load() != before
}

// pollUntil polls done for as long as the runtime may take.
func (c *Client) pollUntil(ctx context.Context, done func() bool) bool {
	deadline := time.Now().Add(c.take)
	for !done() {
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
		t := time.NewTimer(askGap)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	return true
}

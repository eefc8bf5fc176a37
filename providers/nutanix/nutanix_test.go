package nutanix

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
	"github.com/refit-dev/refit/providers/cloud/cloudtest"
)

// prism is a Prism Central in the form of its published API v3. Each change is processed for one
// question, in which the image is in state RUNNING.
type prism struct {
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	next   int
	images map[string]map[string]any
	files  map[string][]byte
	busy   map[string]bool
	sums   bool // reports checksums
	reads  int
	*Cloud
}

func newPrism(t *testing.T) *prism {
	t.Helper()
	p := &prism{t: t, images: map[string]map[string]any{}, files: map[string][]byte{}, busy: map[string]bool{}}
	mux := http.NewServeMux()
	const base = "/api/nutanix/v3/images"
	mux.HandleFunc("POST "+base+"/list", p.list)
	mux.HandleFunc("POST "+base, p.create)
	mux.HandleFunc("GET "+base+"/{id}", p.get)
	mux.HandleFunc("PUT "+base+"/{id}", p.put)
	mux.HandleFunc("DELETE "+base+"/{id}", p.delete)
	mux.HandleFunc("PUT "+base+"/{id}/file", p.upload)
	mux.HandleFunc("GET "+base+"/{id}/file", p.download)
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "refit" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	p.Cloud = &Cloud{Config: Config{Server: p.server.URL, CAFile: ca}, Poll: time.Millisecond, Login: func() (string, string, error) { return "refit", "secret", nil }}
	return p
}

func (p *prism) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// view returns an image as Prism shows it.
func (p *prism) view(id string) map[string]any {
	i := p.images[id]
	out := map[string]any{"spec": i["spec"], "metadata": i["metadata"]}
	status := map[string]any{"state": "COMPLETE"}
	if s, ok := i["state"].(string); ok {
		status["state"] = s
	}
	if p.busy[id] {
		status["state"] = "RUNNING"
	}
	if f, ok := p.files[id]; ok {
		resources := map[string]any{"size_bytes": len(f)}
		if p.sums {
			resources["checksum"] = map[string]any{"checksum_algorithm": "SHA_256", "checksum_value": fmt.Sprintf("%x", sha256.Sum256(f))}
		}
		status["resources"] = resources
	}
	out["status"] = status
	return out
}

func (p *prism) list(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Kind, Filter   string
		Length, Offset int
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []any
	for n := 1; n <= p.next; n++ {
		id := fmt.Sprintf("uuid-%d", n)
		// Prism compares the beginning only, so that refit must compare names itself.
		if i := p.images[id]; i != nil && strings.HasPrefix(i["spec"].(map[string]any)["name"].(string), strings.TrimPrefix(in.Filter, "name==")) {
			all = append(all, p.view(id))
		}
	}
	all = all[min(in.Offset, len(all)):]
	p.answer(w, http.StatusOK, map[string]any{"entities": all[:min(in.Length, len(all))]})
}

func (p *prism) add(spec, more map[string]any) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	id := fmt.Sprintf("uuid-%d", p.next)
	i := map[string]any{"spec": spec, "metadata": map[string]any{"uuid": id, "kind": "image", "spec_version": 0, "creation_time": "2026-11-01T00:00:00Z"}}
	maps.Copy(i, more)
	p.images[id] = i
	return id
}

func (p *prism) create(w http.ResponseWriter, r *http.Request) {
	var in struct{ Spec map[string]any }
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.Spec["name"] == nil {
		p.answer(w, http.StatusUnprocessableEntity, nil)
		return
	}
	id := p.add(in.Spec, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[id] = true
	p.answer(w, http.StatusAccepted, p.view(id))
}

func (p *prism) get(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := r.PathValue("id")
	if p.images[id] == nil {
		p.answer(w, http.StatusNotFound, nil)
		return
	}
	p.answer(w, http.StatusOK, p.view(id))
	p.busy[id] = false
}

func (p *prism) put(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Spec     map[string]any
		Metadata map[string]any
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.images[r.PathValue("id")]
	if i == nil || in.Metadata["uuid"] != r.PathValue("id") || in.Spec["resources"] == nil {
		p.answer(w, http.StatusUnprocessableEntity, nil)
		return
	}
	i["spec"] = in.Spec
	p.busy[r.PathValue("id")] = true
	p.answer(w, http.StatusAccepted, p.view(r.PathValue("id")))
}

func (p *prism) delete(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.images, r.PathValue("id"))
	p.answer(w, http.StatusAccepted, map[string]any{})
}

func (p *prism) upload(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	data, err := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.files[id]; there || p.busy[id] || p.images[id] == nil {
		w.WriteHeader(http.StatusConflict)
		return
	}
	p.files[id], p.busy[id] = data, true // also what broke off
	if err == nil {
		w.WriteHeader(http.StatusOK)
	}
}

func (p *prism) download(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	_, _ = w.Write(p.files[r.PathValue("id")])
}

func (p *prism) descriptions() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, i := range p.images {
		out = append(out, fmt.Sprint(i["spec"].(map[string]any)["description"]))
	}
	return strings.Join(out, "; ")
}

func (p *prism) over(l *cloudtest.Line) *Cloud {
	c := *p.Cloud
	c.Transport = l.Wrap
	return &c
}

// resolve asks until Prism processes nothing any more.
func (p *prism) resolve(w cloud.Wanted) cloud.Answer {
	p.t.Helper()
	p.mu.Lock()
	clear(p.busy)
	p.mu.Unlock()
	a, err := p.Resolve(context.Background(), w)
	if err != nil {
		p.t.Fatal(err)
	}
	return a
}

func writeDisk(t *testing.T) (cloud.Payload, cloud.Wanted) {
	t.Helper()
	data := []byte(strings.Repeat("a disk of many bytes. ", 20_000))
	path := filepath.Join(t.TempDir(), "rhcos.qcow2")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	return cloud.Payload{Path: path, Size: int64(len(data)), SHA256: sum}, cloud.Wanted{Name: "rhcos-9.6.1", Image: bootstream.Image{
		Key: bootstream.Key{Architecture: "amd64", Platform: "nutanix"}, Version: "9.6.1", Attributes: map[string]string{"location": "https://example.test/rhcos.qcow2", "sha256": sum}}}
}

// An upload that dies anywhere is never taken for complete, and the next one ends it.
func TestKilledUpload(t *testing.T) {
	f, w := writeDisk(t)
	cloudtest.RunKilled(t, func(t *testing.T) cloudtest.Killed {
		p := newPrism(t)
		return cloudtest.Killed{
			Upload: func(l *cloudtest.Line) error { return p.over(l).Upload(context.Background(), w, f) },
			AfterCut: func(t *testing.T) bool {
				a := p.resolve(w)
				if a.Problem != "" || a.Exists && !strings.Contains(p.descriptions(), markVerified) {
					t.Errorf("%+v; %s", a, p.descriptions())
				}
				return a.Exists
			},
			AfterEnd: func(t *testing.T, _ *cloudtest.Line) bool {
				a := p.resolve(w)
				if a.Unverified || a.Names["name"] != w.Name || a.Names["id"] == "" || a.Architecture != "X86_64" {
					t.Errorf("%+v", a)
				}
				if got := p.descriptions(); got != markPrefix+w.Sum()+markVerified {
					t.Error("left over:", got)
				}
				return a.Exists
			},
		}
	})
}

// What Prism received is compared: by its checksum, else by reading it back.
func TestDamagedUpload(t *testing.T) {
	f, w := writeDisk(t)
	for _, sums := range []bool{false, true} {
		p := newPrism(t)
		p.sums = sums
		err := p.over(&cloudtest.Line{Flip: 10_000}).Upload(context.Background(), w, f)
		if err == nil || !strings.Contains(err.Error(), "other bytes received by Prism") || p.resolve(w).Exists || p.descriptions() != "" {
			t.Errorf("checksums %v: %v, %s", sums, err, p.descriptions())
		}
		if err := p.Upload(context.Background(), w, f); err != nil || !p.resolve(w).Exists || (p.reads == 0) != sums {
			t.Errorf("checksums %v: %v, read back %d times", sums, err, p.reads)
		}
	}
}

func TestResolve(t *testing.T) {
	f, w := writeDisk(t)
	spec := func(description string) map[string]any {
		return map[string]any{"name": w.Name, "description": description, "resources": map[string]any{"image_type": "DISK_IMAGE", "architecture": "X86_64"}}
	}
	for name, tc := range map[string]struct {
		images []map[string]any
		state  string
		exists bool
		want   string
	}{
		"none":            {nil, "", false, ""},
		"by a person":     {[]map[string]any{spec("golden")}, "", true, ""},
		"failed":          {[]map[string]any{spec("golden")}, "ERROR", false, "is in state ERROR"},
		"two":             {[]map[string]any{spec("golden"), spec("golden")}, "", false, "2 images are named rhcos-9.6.1"},
		"of another file": {[]map[string]any{spec(markPrefix + "0000" + markVerified)}, "", false, "was made from a file with SHA-256 0000"},
		"not verified":    {[]map[string]any{spec(markPrefix + w.Sum() + markOpen)}, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPrism(t)
			for _, s := range tc.images {
				more := map[string]any{}
				if tc.state != "" {
					more["state"] = tc.state
				}
				p.add(s, more)
			}
			for range pageLength { // more than one page of longer names
				p.add(map[string]any{"name": w.Name + "0", "description": ""}, nil)
			}
			a := p.resolve(w)
			if a.Exists != tc.exists || tc.want == "" && a.Problem != "" || !strings.Contains(a.Problem, tc.want) {
				t.Errorf("%+v", a)
			}
			before := p.descriptions()
			if a.Problem != "" && p.Upload(context.Background(), w, f) == nil {
				t.Error("an upload next to it succeeded")
			}
			if a.Problem != "" && len(p.descriptions()) != len(before) {
				t.Error("refit changed what is not its own")
			}
		})
	}
}

func TestPrismThatDoesNotAnswer(t *testing.T) {
	_, w := writeDisk(t)
	p := newPrism(t)
	p.Login = func() (string, string, error) { return "refit", "wrong", nil }
	if a, err := p.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a refused login is not an image that does not exist: %+v %v", a, err)
	}
	p.Config.Server = strings.Replace(p.server.URL, "https", "http", 1)
	if _, err := p.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "must begin with https://") {
		t.Error(err)
	}
}

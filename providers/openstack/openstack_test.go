package openstack

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
	"github.com/refit-dev/refit/providers/cloud/cloudtest"
)

// glance is an image service with an identity service, in the form of their published APIs. An
// upload that breaks off leaves the image in status saving, and no second one is accepted.
type glance struct {
	t      *testing.T
	server *httptest.Server
	mu     sync.Mutex
	next   int
	images map[string]map[string]any
	old    bool // no SHA-512
	*Cloud
}

func newGlance(t *testing.T) *glance {
	t.Helper()
	g := &glance{t: t, images: map[string]map[string]any{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/auth/tokens", g.login)
	mux.HandleFunc("GET /image/{$}", func(w http.ResponseWriter, _ *http.Request) {
		g.answer(w, http.StatusMultipleChoices, map[string]any{"versions": []any{map[string]any{"id": "v2.16", "status": "CURRENT",
			"links": []any{map[string]any{"rel": "self", "href": g.server.URL + "/image/v2/"}}}}})
	})
	mux.HandleFunc("GET /image/v2/images", g.list)
	mux.HandleFunc("POST /image/v2/images", g.create)
	mux.HandleFunc("GET /image/v2/images/{id}", g.get)
	mux.HandleFunc("PATCH /image/v2/images/{id}", g.patch)
	mux.HandleFunc("DELETE /image/v2/images/{id}", g.delete)
	mux.HandleFunc("PUT /image/v2/images/{id}/file", g.upload)
	g.server = httptest.NewServer(mux)
	t.Cleanup(g.server.Close)
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds:\n  site:\n    auth: {auth_url: %s/v3, username: refit, password: secret, project_name: images, user_domain_name: Default, project_domain_name: Default}\n    region_name: RegionOne\n", g.server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.Cloud = &Cloud{Config: Config{Cloud: "site", File: file}}
	return g
}

func (g *glance) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (g *glance) login(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(string(body), `"password":"secret"`) {
		g.answer(w, http.StatusUnauthorized, map[string]any{"error": map[string]any{"code": 401, "message": "The request you have made requires authentication."}})
		return
	}
	w.Header().Set("X-Subject-Token", "token")
	endpoint := map[string]any{"id": "e", "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": g.server.URL + "/image"}
	g.answer(w, http.StatusCreated, map[string]any{"token": map[string]any{"expires_at": "2099-01-01T00:00:00.000000Z",
		"catalog": []any{map[string]any{"type": "image", "name": "glance", "id": "s", "endpoints": []any{endpoint}}}}})
}

func (g *glance) list(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	hidden := r.URL.Query().Get("os_hidden") == "true"
	out := []any{}
	for _, i := range g.images {
		if i["name"] == r.URL.Query().Get("name") && i["os_hidden"] == hidden {
			out = append(out, i)
		}
	}
	g.answer(w, http.StatusOK, map[string]any{"images": out, "schema": "/v2/schemas/images"})
}

func (g *glance) add(name string, more map[string]any) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	id := fmt.Sprintf("id-%d", g.next)
	i := map[string]any{"id": id, "name": name, "status": "queued", "os_hidden": false, "size": nil, "checksum": nil, "created_at": "2026-11-01T00:00:00Z", "updated_at": "2026-11-02T00:00:00Z", "visibility": "private", "tags": []string{}}
	for k, v := range more {
		i[k] = v
	}
	g.images[id] = i
	return id
}

func (g *glance) create(w http.ResponseWriter, r *http.Request) {
	var in map[string]any
	if json.NewDecoder(r.Body).Decode(&in) != nil || in["disk_format"] != "qcow2" || in["container_format"] != "bare" {
		g.answer(w, http.StatusBadRequest, nil)
		return
	}
	id := g.add(in["name"].(string), in)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer(w, http.StatusCreated, g.images[id])
}

func (g *glance) get(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.images[r.PathValue("id")]
	if i == nil {
		g.answer(w, http.StatusNotFound, nil)
		return
	}
	g.answer(w, http.StatusOK, i)
}

func (g *glance) patch(w http.ResponseWriter, r *http.Request) {
	var ops []struct{ Op, Path, Value string }
	err := json.NewDecoder(r.Body).Decode(&ops)
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.images[r.PathValue("id")]
	if err != nil || i == nil || r.Header.Get("Content-Type") != "application/openstack-images-v2.1-json-patch" {
		g.answer(w, http.StatusBadRequest, nil)
		return
	}
	for _, op := range ops {
		i[strings.TrimPrefix(op.Path, "/")] = op.Value
	}
	g.answer(w, http.StatusOK, i)
}

func (g *glance) delete(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.images, r.PathValue("id"))
	w.WriteHeader(http.StatusNoContent)
}

func (g *glance) upload(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	g.mu.Lock()
	i := g.images[id]
	if i == nil || i["status"] != "queued" {
		g.mu.Unlock()
		w.WriteHeader(http.StatusConflict)
		return
	}
	i["status"] = "saving"
	g.mu.Unlock()
	long, short := sha512.New(), md5.New()
	n, err := io.Copy(io.MultiWriter(long, short), r.Body)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i["status"], i["size"], i["checksum"] = "active", n, fmt.Sprintf("%x", short.Sum(nil))
	if !g.old {
		i["os_hash_algo"], i["os_hash_value"] = "sha512", fmt.Sprintf("%x", long.Sum(nil))
	}
	w.WriteHeader(http.StatusNoContent)
}

// names are the names and statuses of all images.
func (g *glance) names() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, i := range g.images {
		out = append(out, fmt.Sprint(i["name"], " ", i["status"], " ", i[propertyVerified]))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (g *glance) over(l *cloudtest.Line) *Cloud {
	c := *g.Cloud
	c.Transport = l.Wrap
	return &c
}

func (g *glance) resolve(w cloud.Wanted) cloud.Answer {
	g.t.Helper()
	a, err := g.Resolve(context.Background(), w)
	if err != nil {
		g.t.Fatal(err)
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
		Key: bootstream.Key{Architecture: "amd64", Platform: "openstack"}, Version: "9.6.1", Attributes: map[string]string{"location": "https://example.test/rhcos.qcow2", "sha256": sum}}}
}

// An upload that dies anywhere is never taken for complete, and the next one ends it.
func TestKilledUpload(t *testing.T) {
	p, w := writeDisk(t)
	cloudtest.RunKilled(t, func(t *testing.T) cloudtest.Killed {
		g := newGlance(t)
		return cloudtest.Killed{
			Upload: func(l *cloudtest.Line) error { return g.over(l).Upload(context.Background(), w, p) },
			AfterCut: func(t *testing.T) bool {
				a := g.resolve(w)
				if a.Problem != "" || a.Exists && !strings.Contains(g.names(), "active true") {
					t.Errorf("%+v; %s", a, g.names())
				}
				return a.Exists
			},
			AfterEnd: func(t *testing.T, _ *cloudtest.Line) bool {
				a := g.resolve(w)
				if a.Unverified || a.Names["name"] != w.Name || a.Names["id"] == "" || a.Architecture != "x86_64" {
					t.Errorf("%+v", a)
				}
				if g.names() != "rhcos-9.6.1 active true" {
					t.Error("left over:", g.names())
				}
				return a.Exists
			},
		}
	})
}

// What Glance received is compared, also by an old one that has an MD5 only.
func TestDamagedUpload(t *testing.T) {
	p, w := writeDisk(t)
	for _, old := range []bool{false, true} {
		g := newGlance(t)
		g.old = old
		err := g.over(&cloudtest.Line{Flip: 10_000}).Upload(context.Background(), w, p)
		if err == nil || !strings.Contains(err.Error(), "other bytes received by Glance") || g.resolve(w).Exists || g.names() != "" {
			t.Errorf("old %v: %v, %s", old, err, g.names())
		}
		if err := g.Upload(context.Background(), w, p); err != nil || !g.resolve(w).Exists {
			t.Errorf("old %v: %v", old, err)
		}
	}
}

func TestResolve(t *testing.T) {
	p, w := writeDisk(t)
	active := map[string]any{"status": "active"}
	for name, tc := range map[string]struct {
		images []map[string]any
		exists bool
		want   string
	}{
		"none":              {nil, false, ""},
		"by a person":       {[]map[string]any{active}, true, ""},
		"hidden":            {[]map[string]any{{"status": "active", "os_hidden": true}}, true, ""},
		"deactivated":       {[]map[string]any{{"status": "deactivated"}}, false, "is in status deactivated"},
		"two":               {[]map[string]any{active, active}, false, "2 images are named rhcos-9.6.1"},
		"of another file":   {[]map[string]any{{"status": "active", propertySum: "0000", propertyVerified: "true"}}, false, "was made from a file with SHA-256 0000"},
		"active, not ready": {[]map[string]any{{"status": "active", propertySum: w.Sum()}}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGlance(t)
			for _, i := range tc.images {
				g.add(w.Name, i)
			}
			g.add("rhcos-9.6.10", active)
			a := g.resolve(w)
			if a.Exists != tc.exists || tc.want == "" && a.Problem != "" || !strings.Contains(a.Problem, tc.want) || a.Deprecated.IsZero() == (name == "hidden") {
				t.Errorf("%+v", a)
			}
			before := g.names()
			if a.Problem != "" && g.Upload(context.Background(), w, p) == nil {
				t.Error("an upload next to it succeeded")
			}
			if a.Problem != "" && g.names() != before {
				t.Errorf("refit changed what is not its own: %s, before %s", g.names(), before)
			}
		})
	}
}

func TestCloudThatDoesNotAnswer(t *testing.T) {
	_, w := writeDisk(t)
	g := newGlance(t)
	g.server.Close()
	if a, err := g.Resolve(context.Background(), w); err == nil {
		t.Errorf("a cloud that is unreachable is not one without the image: %+v", a)
	}
	g = newGlance(t)
	data, _ := os.ReadFile(g.Config.File)
	_ = os.WriteFile(g.Config.File, []byte(strings.Replace(string(data), "secret", "wrong", 1)), 0o600)
	if a, err := g.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "log in to site") {
		t.Errorf("%+v %v", a, err)
	}
}

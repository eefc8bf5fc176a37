package containerd

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve answers as a registry with these blobs would: manifests and blobs by
// digest, nothing by tag.
func serve(t *testing.T, blobs blobMap, types map[string]string) (host string, stop func()) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		b, ok := blobs[d]
		switch {
		case r.URL.Path == "/v2/":
			return
		case !ok:
			http.NotFound(w, r)
			return
		}
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", types[d])
		}
		w.Header().Set("Docker-Content-Digest", d)
		_, _ = w.Write(b)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), s.Close
}

// The runtime fetches by digest before anything is restarted. The
// tag that pods name stays where it was, and what was fetched is there when the
// registry is not.
func TestPull(t *testing.T) {
	d := startDaemon(t)
	c, err := Open(d.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	blobs := blobMap{}
	types := map[string]string{}
	host, stop := serve(t, blobs, types)
	old := makeImage(blobs, host+"/app:2.6.2-rev1", "old", false)
	long := makeImage(blobs, host+"/app:2.6.2-rev1-b5.2", "new", false)
	types[long.Digest] = ociManifest
	if _, err := c.Load(t.Context(), old, blobs); err != nil {
		t.Fatal(err)
	}
	names, err := c.Pull(t.Context(), long)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "held and pinned per CRI under the long tag", held(t, c, long))
	eventually(t, "the tag that pods name is where it was", held(t, c, old))
	stop()
	if id, err := c.CRI().ImageID(t.Context(), host+"/app@"+long.Digest); err != nil || id == "" {
		t.Fatalf("by digest, as a pod will ask, it is not there: %q %v", id, err)
	}
	if again, ok, err := c.Pin(t.Context(), long); err != nil || !ok || len(again) != len(names) {
		t.Fatalf("pinned again without a registry: %v %v %v", again, ok, err)
	}
	other := long
	other.Name = host + "/app:2.6.2-rev1-b5.2-again"
	if _, err := c.Pull(t.Context(), other); err != nil {
		t.Fatalf("what is there by its digest is asked of the registry: %v", err)
	}
	gone := makeImage(blobs, host+"/app:2.6.2-rev1-b5.3", "newer", false)
	if _, err := c.Pull(t.Context(), gone); err == nil || !strings.Contains(err.Error(), gone.Digest) {
		t.Fatalf("without a registry: %v", err)
	}
	if tag, _, _ := report(t, c, gone); tag {
		t.Fatal("a name was made for what never came")
	}
}

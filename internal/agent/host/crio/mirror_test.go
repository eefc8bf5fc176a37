package crio

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/refit-dev/refit/internal/agent/host/cri"
)

func listen(t *testing.T, socket string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The mirror has the images of this load by tag and digest, and
// nothing for who does not know its path.
func TestMirror(t *testing.T) {
	blobs := blobMap{}
	one := makeImage(blobs, "reg.test:5000/a/one:1", "one", true)
	two := makeImage(blobs, "docker.io/library/two:1", "two", false)
	m, err := newMirror([]cri.Target{one, two}, blobs)
	if err != nil {
		t.Fatal(err)
	}
	defer m.server.Close()
	get := func(method, path string) (int, http.Header, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, string(body)
	}
	base := "/v2/" + m.secret
	for name, c := range map[string]struct {
		path, kind, body string
		status           int
	}{
		"the question whether it is a registry": {"/v2/", "", "", 200},
		"an index by its tag":                   {base + "/r0/manifests/1", ociIndex, string(blobs[one.Digest]), 200},
		"an index by its digest":                {base + "/r0/manifests/" + one.Digest, ociIndex, string(blobs[one.Digest]), 200},
		"a manifest":                            {base + "/r1/manifests/1", ociManifest, string(blobs[two.Digest]), 200},
		"a blob":                                {base + "/r1/blobs/" + two.Digest, "application/octet-stream", string(blobs[two.Digest]), 200},
		"a tag of another repository":           {base + "/r1/manifests/2", "", "", 404},
		"a repository that is not loaded":       {base + "/r2/manifests/1", "", "", 404},
		"another path":                          {"/v2/guess/r0/manifests/1", "", "", 404},
		"a list of everything":                  {"/v2/_catalog", "", "", 404},
		"a blob that is not here":               {base + "/r0/blobs/sha256:" + strings.Repeat("a", 64), "", "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			status, header, body := get(http.MethodGet, c.path)
			if status != c.status || c.status == 200 && body != c.body || c.kind != "" && header.Get("Content-Type") != c.kind {
				t.Fatalf("%d %q %q", status, header.Get("Content-Type"), body)
			}
			if again, _, _ := get(http.MethodHead, c.path); again != status {
				t.Errorf("HEAD answers %d", again)
			}
			if status, _, _ := get(http.MethodPut, c.path); status < 400 {
				t.Errorf("PUT answers %d: it is read-only", status)
			}
		})
	}
	t.Run("the file diverts these repositories and nothing else", func(t *testing.T) {
		var f struct {
			Registry []struct {
				Prefix, Location string
				Insecure         bool
				Mirror           []struct{ Location string }
			}
		}
		if _, err := toml.Decode(string(m.file()), &f); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range f.Registry {
			got = append(got, r.Prefix)
			if !r.Insecure || len(r.Mirror) != 0 || !strings.HasPrefix(r.Location, m.addr+"/"+m.secret+"/") {
				t.Errorf("%+v: what is not on loopback would be asked for elsewhere", r)
			}
		}
		if want := []string{"reg.test:5000/a/one", "docker.io/library/two", m.canary()}; !slices.Equal(got, want) {
			t.Fatalf("%v", got)
		}
	})
}

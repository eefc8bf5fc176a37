package bundleserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// Pushes, other paths and hostile names are refused with a code, and change nothing.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	d := makeStandard(t)
	_, srv := registry(t, d.file)
	base := "/v2/registry.k8s.io/app/"
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"POST", base + "blobs/uploads/", 405, codeUnsupported},
		{"POST", base + "blobs/uploads/?mount=" + d.app + "&from=registry.k8s.io/multi", 405, codeUnsupported},
		{"PATCH", base + "blobs/uploads/1", 405, codeUnsupported},
		{"PUT", base + "manifests/1", 405, codeUnsupported},
		{"DELETE", base + "manifests/" + d.app, 405, codeUnsupported},
		{"DELETE", base + "blobs/" + d.app, 405, codeUnsupported},
		{"OPTIONS", "/v2/", 405, codeUnsupported},
		{"GET", base + "blobs/uploads/1", 404, codeUploadUnknown},
		{"GET", "/", 404, codeUnsupported},
		{"GET", "/v1/search", 404, codeUnsupported},
		{"GET", "/v2/app", 404, codeUnsupported},
		{"GET", "/v2/../../etc/passwd", 404, codeUnsupported},
		{"GET", "/v2/..%2f..%2fetc/manifests/passwd", 400, codeNameInvalid},
		{"GET", "/v2/%2e%2e/%2e%2e/etc/blobs/" + d.app, 400, codeNameInvalid},
		{"GET", "/v2/registry.k8s.io/app/../../x/manifests/1", 400, codeNameInvalid},
		{"GET", "/v2/registry.k8s.io//app/manifests/1", 400, codeNameInvalid},
		{"GET", "/v2/UPPER/manifests/1", 400, codeNameInvalid},
		{"GET", "/v2/a%00b/manifests/1", 400, codeNameInvalid},
		{"GET", "/v2/a%0d%0aSet-Cookie:x/manifests/1", 400, codeNameInvalid},
		{"GET", base + "manifests/1%0d%0aSet-Cookie:%20x", 400, codeDigestInvalid},
		{"GET", base + "manifests/" + strings.Repeat("a", 2000), 404, codeUnsupported},
		{"GET", base + "tags/other", 404, codeUnsupported},
		{"GET", base + "tags/list?n=99999999999999999999", 400, codeUnsupported},
		{"GET", "/v2/app/manifests/1?ns=" + strings.Repeat("a", 3000), 404, codeNameUnknown},
		{"GET", "/v2/" + strings.Repeat("a/", 600) + "manifests/1", 404, codeUnsupported},
	} {
		a := ask(t, srv, c.method, c.path)
		if a.status != c.status || a.code(t) != c.code || a.header.Get("Set-Cookie") != "" || len(a.body) > 1000 {
			t.Errorf("%s %.100s: %d %s %v", c.method, c.path, a.status, a.body, a.header)
		}
		if c.status == 405 && a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: Allow %q", c.path, a.header.Get("Allow"))
		}
	}
	if a := ask(t, srv, "GET", base+"manifests/1"); a.body != d.manifest {
		t.Errorf("after all: %+v", a)
	}
}

// A damaged blob ends as an error: before its first bytes as an answer, after them as a broken
// connection. Others are served.
func TestDamagedBlobs(t *testing.T) {
	t.Parallel()
	d := makeStandard(t)
	layer := bundle.DigestOf(d.layer)
	at := bytes.Index(d.file, d.layer)
	for name, c := range map[string]struct {
		at     int
		status int
		prefix int
		part   string
	}{
		"in the first chunk":        {at: at, status: 500},
		"in the second chunk":       {at: at + 600, status: 200, prefix: 512},
		"in the last chunk":         {at: at + len(d.layer) - 1, status: 200, prefix: 1024},
		"in a part":                 {at: at + 600, status: 500, part: "bytes=512-"},
		"outside of a part":         {at: at + 600, status: 500, part: "bytes=0-9"},
		"the file ends in the blob": {at: -(at + 700), status: 200, prefix: 512},
	} {
		t.Run(name, func(t *testing.T) {
			file := bytes.Clone(d.file)
			if c.at < 0 {
				file = file[:-c.at]
			} else {
				file[c.at] ^= 1
			}
			s, srv := registry(t, file)
			var header []string
			if c.part != "" {
				header = []string{"Range", c.part}
			}
			a := ask(t, srv, http.MethodGet, "/v2/registry.k8s.io/app/blobs/"+layer, header...)
			// What is sent before the damage is found is small here: it may still be in a buffer.
			if a.status != c.status && (c.status != 200 || a.status != 0) || s.Damaged() != 1 {
				t.Errorf("%d %.100q, %d damaged", a.status, a.body, s.Damaged())
			}
			if c.status == 200 && (a.err == nil || len(a.body) > c.prefix || !bytes.HasPrefix(d.layer, []byte(a.body))) {
				t.Errorf("%v, %d bytes", a.err, len(a.body))
			}
			if c.status == 500 && (a.code(t) != codeUnknown || !strings.Contains(a.body, layer)) {
				t.Errorf("the error does not name the blob: %s", a.body)
			}
			if a := ask(t, srv, http.MethodGet, "/v2/registry.k8s.io/app/manifests/1"); c.at > 0 && a.body != d.manifest {
				t.Errorf("an intact manifest: %+v", a)
			}
		})
	}
	t.Run("a manifest", func(t *testing.T) {
		file := bytes.Clone(d.file)
		file[bytes.LastIndex(file, []byte(d.manifest))+5] ^= 1
		_, srv := registry(t, file)
		if a := ask(t, srv, http.MethodGet, "/v2/registry.k8s.io/app/manifests/1"); a.status != 500 || a.code(t) != codeUnknown {
			t.Errorf("%+v", a)
		}
		if a := ask(t, srv, http.MethodGet, "/v2/registry.k8s.io/multi/manifests/1"); a.body != d.indexBody {
			t.Errorf("an intact index: %+v", a)
		}
	})
}

// A chunk table may fit other bytes than those of the blob it claims to describe. The bytes of
// such a blob never arrive as a complete body.
func TestChunkTableOfOtherBytes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	good := bytes.Repeat([]byte("good layer"), 100)
	digest, below := s.manifest(nil, good)
	s.image("example.test/app:1", bundle.MediaTypeManifest, digest, below...)
	s.meta.Sort()
	i := s.index[bundle.DigestOf(good)]
	s.blobs[i] = bytes.Repeat([]byte("evil layer"), 100)
	parts := bundletest.Parts{Meta: s.meta, Blobs: s.blobs, Table: bundletest.Table(s.blobs, s.meta.ChunkSize)}
	server, srv := registry(t, parts.File(parts.Header(t)))
	path := "/v2/example.test/app/blobs/" + bundle.DigestOf(good)
	if a := ask(t, srv, http.MethodGet, path); a.err == nil || len(a.body) > 512 {
		t.Errorf("%d %v, %d bytes", a.status, a.err, len(a.body))
	}
	for range 2 {
		if a := ask(t, srv, http.MethodGet, path, "Range", "bytes=0-9"); a.status != 500 || a.code(t) != codeUnknown {
			t.Errorf("%+v", a)
		}
	}
	if server.Damaged() != 3 {
		t.Errorf("%d damaged", server.Damaged())
	}
}

// Manifests of a hostile bundle: no JSON, an index of itself and of millions, a deep chain.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	list := []object{}
	for i := range 2000 {
		list = append(list, object{"mediaType": "x\r\nSet-Cookie: y", "digest": fmt.Sprintf("sha256:%064x", i), "platform": object{"os": "a\r\nb"}})
	}
	many := s.add(s.json(object{"manifests": list}))
	s.image("example.test/many:1", bundle.MediaTypeIndex, many)
	text := s.add([]byte("no JSON"))
	s.image("example.test/text:1", bundle.MediaTypeManifest, text)
	below := []string{s.add([]byte(`{"schemaVersion":2}`))}
	for range 100 {
		below = append(below, s.add(s.json(object{"manifests": []object{{"digest": below[len(below)-1]}}})))
	}
	s.image("example.test/deep:1", bundle.MediaTypeIndex, below[100], below[:100]...)
	_, srv := registry(t, s.bytes())
	for path, status := range map[string]int{
		"many/manifests/1": 200, "many/manifests/" + fmt.Sprintf("sha256:%064x", 7): 404,
		"text/manifests/1": 200, "deep/manifests/1": 200, "deep/manifests/" + below[99]: 200, "deep/manifests/" + below[0]: 404,
		"deep/blobs/" + below[0]: 200,
	} {
		if a := ask(t, srv, http.MethodGet, "/v2/example.test/"+path); a.status != status || a.header.Get("Set-Cookie") != "" || strings.ContainsAny(a.header.Get("Content-Type"), "\r\n") {
			t.Errorf("%s: %d %.100s %v", path, a.status, a.body, a.header)
		}
	}
}

// Many clients at once get whole blobs, with fewer buffers than clients.
func TestParallelPulls(t *testing.T) {
	t.Parallel()
	d := makeStandard(t)
	s, srv := registry(t, d.file)
	for len(s.slots) > 2 {
		<-s.slots
	}
	layer := bundle.DigestOf(d.layer)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			want, header := string(d.layer), []string(nil)
			if i%2 == 1 {
				want, header = string(d.layer[i:]), []string{"Range", fmt.Sprintf("bytes=%d-", i)}
			}
			if a := ask(t, srv, http.MethodGet, "/v2/registry.k8s.io/app/blobs/"+layer, header...); a.body != want || a.err != nil {
				t.Errorf("%d: %d, %d bytes, %v", i, a.status, len(a.body), a.err)
			}
		})
	}
	wg.Wait()
	if len(s.slots) != 2 || s.Damaged() != 0 {
		t.Errorf("%d buffers are left of 2", len(s.slots))
	}
}

// Clients that go away in the middle, or send nothing, hold neither buffers nor the end back.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("large layer "), 1<<20)
	file := bundletest.Bytes(t, bundletest.Spec{ChunkSize: 1 << 20, Images: []bundletest.Image{{Name: "example.test/app:1", Layers: [][]byte{big}}}})
	var log lockedBuffer
	s, err := New(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), open(t, file))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, nil) }()
	dial := func(request string) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, request); err != nil {
			t.Fatal(err)
		}
		return c
	}
	silent := dial("")
	defer silent.Close()
	for range 2 * cap(s.slots) {
		c := dial("GET /v2/example.test/app/blobs/" + bundle.DigestOf(big) + " HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); len(s.slots) < cap(s.slots); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d buffers are back", len(s.slots), cap(s.slots))
		}
	}
	stuck := dial("GET /v2/example.test/app/blobs/" + bundle.DigestOf(big) + " HTTP/1.1\r\nHost: x\r\n\r\n")
	defer stuck.Close()
	if _, err := io.ReadFull(stuck, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(stopTime + 20*time.Second):
		t.Fatal("it does not end while a client reads nothing")
	}
	text := log.String()
	if !strings.Contains(text, `msg="response aborted"`) || !strings.Contains(text, "path=/v2/example.test/app/blobs/sha256:") {
		t.Errorf("log:\n%s", text)
	}
	if s.Damaged() != 0 || strings.Contains(text, "failed to read blob") {
		t.Errorf("clients that went away count as damage:\n%s", text)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

package bundleserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

const octets = "application/octet-stream"

// site makes bundles of images with contents that tests know.
type site struct {
	t     *testing.T
	meta  bundle.Metadata
	blobs [][]byte
	index map[string]int
}

func newSite(t *testing.T) *site {
	return &site{t: t, index: map[string]int{}, meta: bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.1.0", Name: "served", Version: "1.0.0",
		Platforms: []string{"linux/amd64"}, Images: []bundle.Image{}, Blobs: []bundle.Blob{}, ChunkSize: bundle.MinChunkSize}}
}

func (s *site) add(content []byte) (digest string) {
	digest = bundle.DigestOf(content)
	if _, ok := s.index[digest]; !ok {
		s.index[digest] = len(s.blobs)
		s.blobs = append(s.blobs, content)
		s.meta.Blobs = append(s.meta.Blobs, bundle.Blob{Digest: digest, Size: int64(len(content))})
	}
	return digest
}

// image adds a name for a manifest or index with all that is under it.
func (s *site) image(name, mediaType, digest string, below ...string) {
	img := bundle.Image{Name: name, Digest: digest, MediaType: mediaType, Group: bundle.GroupWorkload}
	seen := map[int]bool{}
	for _, d := range append([]string{digest}, below...) {
		if i := s.index[d]; !seen[i] {
			seen[i] = true
			img.Blobs = append(img.Blobs, i)
			img.Size += s.meta.Blobs[i].Size
		}
	}
	s.meta.Images = append(s.meta.Images, img)
}

func (s *site) json(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

type object = map[string]any

// manifest adds a manifest of layers and returns its digest, and all that is under it.
func (s *site) manifest(more object, layers ...[]byte) (digest string, below []string) {
	list := []object{}
	diffIDs := []string{}
	for _, l := range layers {
		d := s.add(l)
		below = append(below, d)
		diffIDs = append(diffIDs, d)
		list = append(list, object{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": d, "size": len(l)})
	}
	config := s.json(object{"architecture": "amd64", "os": "linux", "rootfs": object{"type": "layers", "diff_ids": diffIDs}})
	below = append(below, s.add(config))
	m := object{"schemaVersion": 2, "mediaType": bundle.MediaTypeManifest, "layers": list,
		"config": object{"mediaType": "application/vnd.oci.image.config.v1+json", "digest": bundle.DigestOf(config), "size": len(config)}}
	for k, v := range more {
		m[k] = v
	}
	return s.add(s.json(m)), below
}

func (s *site) bytes() []byte {
	s.meta.Sort()
	p := bundletest.Parts{Meta: s.meta, Blobs: s.blobs, Table: bundletest.Table(s.blobs, s.meta.ChunkSize)}
	return p.File(p.Header(s.t))
}

func open(t *testing.T, file []byte) *bundlereader.File {
	t.Helper()
	f, err := bundlereader.Open(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// registry serves bundles on loopback.
func registry(t *testing.T, files ...[]byte) (*Server, *httptest.Server) {
	t.Helper()
	var opened []*bundlereader.File
	for _, f := range files {
		opened = append(opened, open(t, f))
	}
	s, err := New(t.Context(), slog.New(slog.DiscardHandler), opened...)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.logged(s))
	t.Cleanup(srv.Close)
	return s, srv
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func ask(t *testing.T, srv *httptest.Server, method, path string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}).Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// code is the code of an error's body.
func (a answer) code(t *testing.T) string {
	t.Helper()
	var e struct {
		Errors []struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || len(e.Errors) != 1 || e.Errors[0].Message == "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the error has the body %q (%v)", a.body, err)
		return ""
	}
	return e.Errors[0].Code
}

// standard is a bundle with an image of every kind, and what tests ask for.
type standard struct {
	file                                []byte
	layer                               []byte
	app, index, signature, sbom, absent string
	manifest, indexBody                 string
}

func makeStandard(t *testing.T) standard {
	s := newSite(t)
	d := standard{layer: bytes.Repeat([]byte("0123456789"), 130), absent: "sha256:" + strings.Repeat("a", 64)} // three chunks
	var below []string
	d.app, below = s.manifest(nil, d.layer, []byte("one"), []byte{})
	d.manifest = string(s.blobs[s.index[d.app]])
	for _, tag := range []string{"1", "2", "latest", "v1.0_x"} {
		s.image("registry.k8s.io/app:"+tag, bundle.MediaTypeManifest, d.app, below...)
	}
	s.image("example.test:5000/a/b:1", bundle.MediaTypeManifest, d.app, below...)
	s.image("docker.io/library/busybox:1", bundle.MediaTypeManifest, d.app, below...)
	body := s.json(object{"schemaVersion": 2, "mediaType": bundle.MediaTypeIndex, "manifests": []object{
		{"mediaType": bundle.MediaTypeManifest, "digest": d.absent, "size": 500, "platform": object{"os": "linux", "architecture": "s390x"}},
		{"mediaType": bundle.MediaTypeManifest, "digest": d.app, "size": len(d.manifest), "platform": object{"os": "linux", "architecture": "amd64"}}}})
	d.index, d.indexBody = s.add(body), string(body)
	s.image("registry.k8s.io/multi:1", bundle.MediaTypeIndex, d.index, append(below, d.app)...)
	subject := object{"subject": object{"mediaType": bundle.MediaTypeManifest, "digest": d.app, "size": len(d.manifest)}, "annotations": object{"by": "tests"}}
	d.signature, below = s.manifest(subject, []byte("signature"))
	s.image("registry.k8s.io/app@"+d.signature, bundle.MediaTypeManifest, d.signature, below...)
	subject["artifactType"] = "application/spdx+json"
	d.sbom, below = s.manifest(subject, []byte("sbom"))
	s.image("registry.k8s.io/app:sbom", bundle.MediaTypeManifest, d.sbom, below...)
	d.file = s.bytes()
	return d
}

// The pull part of the distribution specification, and its part for listing.
func TestPull(t *testing.T) {
	t.Parallel()
	d := makeStandard(t)
	_, srv := registry(t, d.file)
	layer := bundle.DigestOf(d.layer)
	index := func(list ...string) string {
		return `{"schemaVersion":2,"mediaType":"` + bundle.MediaTypeIndex + `","manifests":[` + strings.Join(list, ",") + `]}`
	}
	for name, c := range map[string]struct {
		path   string
		header []string
		status int
		code   string
		body   string
		want   map[string]string
	}{
		"the question whether it is a registry": {path: "/v2/", status: 200, body: "{}", want: map[string]string{"Docker-Distribution-Api-Version": "registry/2.0"}},
		"a manifest by its tag": {path: "/v2/registry.k8s.io/app/manifests/1", status: 200, body: d.manifest,
			want: map[string]string{"Content-Type": bundle.MediaTypeManifest, "Docker-Content-Digest": d.app, "Content-Length": fmt.Sprint(len(d.manifest)), "Etag": `"` + d.app + `"`}},
		"a manifest by its digest":                      {path: "/v2/registry.k8s.io/app/manifests/" + d.app, status: 200, body: d.manifest, want: map[string]string{"Docker-Content-Digest": d.app}},
		"an index of which one platform is there":       {path: "/v2/registry.k8s.io/multi/manifests/1", status: 200, body: d.indexBody, want: map[string]string{"Content-Type": bundle.MediaTypeIndex}},
		"the manifest of the platform that is there":    {path: "/v2/registry.k8s.io/multi/manifests/" + d.app, status: 200, body: d.manifest},
		"the manifest of a platform that is not there":  {path: "/v2/registry.k8s.io/multi/manifests/" + d.absent, status: 404, code: codeManifestUnknown},
		"a manifest that the client has":                {path: "/v2/registry.k8s.io/app/manifests/1", header: []string{"If-None-Match", `"x", "` + d.app + `"`}, status: 304},
		"a tag that is not there":                       {path: "/v2/registry.k8s.io/app/manifests/3", status: 404, code: codeManifestUnknown},
		"a reference that can be no tag":                {path: "/v2/registry.k8s.io/app/manifests/.INVALID_MANIFEST_NAME", status: 404, code: codeManifestUnknown},
		"a manifest by a digest that is none":           {path: "/v2/registry.k8s.io/app/manifests/sha256:xyz", status: 400, code: codeDigestInvalid},
		"a layer by its digest as a manifest":           {path: "/v2/registry.k8s.io/app/manifests/" + layer, status: 404, code: codeManifestUnknown},
		"the manifest of another repository":            {path: "/v2/registry.k8s.io/multi/manifests/" + d.sbom, status: 404, code: codeManifestUnknown},
		"a repository that is not there":                {path: "/v2/registry.k8s.io/other/manifests/1", status: 404, code: codeNameUnknown},
		"a blob":                                        {path: "/v2/registry.k8s.io/app/blobs/" + layer, status: 200, body: string(d.layer), want: map[string]string{"Content-Type": octets, "Docker-Content-Digest": layer, "Content-Length": "1300", "Accept-Ranges": "bytes"}},
		"a blob of no bytes":                            {path: "/v2/registry.k8s.io/app/blobs/" + bundle.DigestOf(nil), status: 200, want: map[string]string{"Content-Length": "0"}},
		"a blob that is not there":                      {path: "/v2/registry.k8s.io/app/blobs/" + d.absent, status: 404, code: codeBlobUnknown},
		"a blob of another repository":                  {path: "/v2/registry.k8s.io/multi/blobs/" + bundle.DigestOf([]byte("sbom")), status: 404, code: codeBlobUnknown},
		"a blob by another algorithm":                   {path: "/v2/registry.k8s.io/app/blobs/sha512:" + strings.Repeat("a", 128), status: 404, code: codeBlobUnknown},
		"a blob by a digest that is none":               {path: "/v2/registry.k8s.io/app/blobs/abc", status: 400, code: codeDigestInvalid},
		"a blob that the client has":                    {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"If-None-Match", "W/\"" + layer + "\""}, status: 304},
		"a range inside a chunk":                        {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=5-9"}, status: 206, body: "56789", want: map[string]string{"Content-Range": "bytes 5-9/1300", "Content-Length": "5", "Docker-Content-Digest": layer}},
		"a range over the border of chunks":             {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=500-1099"}, status: 206, body: string(d.layer[500:1100]), want: map[string]string{"Content-Range": "bytes 500-1099/1300"}},
		"a range without an end, as after a lost link":  {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=1024-"}, status: 206, body: string(d.layer[1024:])},
		"a range past the end":                          {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=1295-9999"}, status: 206, body: "56789", want: map[string]string{"Content-Range": "bytes 1295-1299/1300"}},
		"the last bytes":                                {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=-5"}, status: 206, body: "56789"},
		"more last bytes than there are":                {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=-9999"}, status: 200, body: string(d.layer)},
		"a range after the end":                         {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=1300-"}, status: 416, code: codeUnsupported, want: map[string]string{"Content-Range": "bytes */1300"}},
		"a range of no last bytes":                      {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=-0"}, status: 416, code: codeUnsupported},
		"two ranges":                                    {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=0-1,5-6"}, status: 200, body: string(d.layer)},
		"a range that is none":                          {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=9-5"}, status: 200, body: string(d.layer)},
		"a range of what the client had, unchanged":     {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=1295-", "If-Range", `"` + layer + `"`}, status: 206, body: "56789"},
		"a range of what the client had, now different": {path: "/v2/registry.k8s.io/app/blobs/" + layer, header: []string{"Range", "bytes=1295-", "If-Range", `"x"`}, status: 200, body: string(d.layer)},
		"tags":                              {path: "/v2/registry.k8s.io/app/tags/list", status: 200, body: `{"name":"registry.k8s.io/app","tags":["1","2","latest","sbom","v1.0_x"]}`, want: map[string]string{"Link": ""}},
		"two tags":                          {path: "/v2/registry.k8s.io/app/tags/list?n=2", status: 200, body: `{"name":"registry.k8s.io/app","tags":["1","2"]}`, want: map[string]string{"Link": `</v2/registry.k8s.io/app/tags/list?last=2&n=2>; rel="next"`}},
		"the tags after one":                {path: "/v2/registry.k8s.io/app/tags/list?n=3&last=2", status: 200, body: `{"name":"registry.k8s.io/app","tags":["latest","sbom","v1.0_x"]}`, want: map[string]string{"Link": ""}},
		"the tags after one that is gone":   {path: "/v2/registry.k8s.io/app/tags/list?last=k", status: 200, body: `{"name":"registry.k8s.io/app","tags":["latest","sbom","v1.0_x"]}`},
		"no tags":                           {path: "/v2/registry.k8s.io/app/tags/list?n=0", status: 200, body: `{"name":"registry.k8s.io/app","tags":[]}`, want: map[string]string{"Link": ""}},
		"a number of tags that is none":     {path: "/v2/registry.k8s.io/app/tags/list?n=-1", status: 400, code: codeUnsupported},
		"tags of no repository":             {path: "/v2/registry.k8s.io/other/tags/list", status: 404, code: codeNameUnknown},
		"the catalog":                       {path: "/v2/_catalog", status: 200, body: `{"repositories":["docker.io/library/busybox","example.test_5000/a/b","registry.k8s.io/app","registry.k8s.io/multi"]}`},
		"a page of the catalog":             {path: "/v2/_catalog?n=1&last=docker.io/library/busybox", status: 200, body: `{"repositories":["example.test_5000/a/b"]}`, want: map[string]string{"Link": `</v2/_catalog?last=example.test_5000%2Fa%2Fb&n=1>; rel="next"`}},
		"referrers of what has none":        {path: "/v2/registry.k8s.io/app/referrers/" + d.absent, status: 200, body: index(), want: map[string]string{"Content-Type": bundle.MediaTypeIndex}},
		"referrers in no repository":        {path: "/v2/registry.k8s.io/other/referrers/" + d.app, status: 200, body: index()},
		"referrers in another repository":   {path: "/v2/docker.io/library/busybox/referrers/" + d.app, status: 200, body: index()},
		"referrers of a digest that's none": {path: "/v2/registry.k8s.io/app/referrers/1", status: 400, code: codeDigestInvalid},
		"an image of containerd's mirror":   {path: "/v2/app/manifests/1?ns=registry.k8s.io", status: 200, body: d.manifest},
		"a registry with a port, as mirror": {path: "/v2/a/b/manifests/1?ns=example.test:5000", status: 200, body: d.manifest},
		"a registry with a port, by name":   {path: "/v2/example.test_5000/a/b/manifests/1", status: 200, body: d.manifest},
		"pages for a mirror":                {path: "/v2/app/tags/list?n=4&ns=registry.k8s.io", status: 200, body: `{"name":"registry.k8s.io/app","tags":["1","2","latest","sbom"]}`, want: map[string]string{"Link": `</v2/app/tags/list?last=sbom&n=4&ns=registry.k8s.io>; rel="next"`}},
		"a path with host, as mirror":       {path: "/v2/registry.k8s.io/app/manifests/1?ns=registry.k8s.io", status: 200, body: d.manifest},
		"an image of another registry":      {path: "/v2/registry.k8s.io/app/manifests/1?ns=evil.example", status: 404, code: codeNameUnknown},
		"an image of Docker's mirror":       {path: "/v2/library/busybox/manifests/1", status: 200, body: d.manifest},
		"the same for another registry":     {path: "/v2/library/busybox/manifests/1?ns=evil.example", status: 404, code: codeNameUnknown},
		"only an image of Docker Hub":       {path: "/v2/app/manifests/1", status: 404, code: codeNameUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask(t, srv, http.MethodGet, c.path, c.header...)
			if a.err != nil || a.status != c.status || c.code == "" && a.body != c.body || c.code != "" && a.code(t) != c.code {
				t.Fatalf("%d %q %v, want %d %s %q", a.status, a.body, a.err, c.status, c.code, c.body)
			}
			for k, v := range c.want {
				if a.header.Get(k) != v {
					t.Errorf("%s: %q, want %q", k, a.header.Get(k), v)
				}
			}
			if c.status == 206 || c.status == 416 {
				return // HTTP has no ranges for HEAD
			}
			h := ask(t, srv, http.MethodHead, c.path, c.header...)
			h.header.Del("Date")
			a.header.Del("Date")
			if diff := cmp.Diff(a.header, h.header); h.status != a.status || h.body != "" || diff != "" {
				t.Errorf("HEAD differs from GET: %d %s", h.status, diff)
			}
		})
	}
}

// The referrers of an image, with and without the filter.
func TestReferrers(t *testing.T) {
	t.Parallel()
	d := makeStandard(t)
	_, srv := registry(t, d.file)
	for query, want := range map[string][]string{"": {d.signature, d.sbom}, "?artifactType=application/spdx%2Bjson": {d.sbom}, "?artifactType=other": {}} {
		a := ask(t, srv, http.MethodGet, "/v2/registry.k8s.io/app/referrers/"+d.app+query)
		var list struct {
			Manifests []struct {
				MediaType, ArtifactType, Digest string
				Size                            int64
				Annotations                     map[string]string
			}
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, m := range list.Manifests {
			got[m.Digest] = true
			kind := "application/vnd.oci.image.config.v1+json" // that of the config, if the manifest has none
			if m.Digest == d.sbom {
				kind = "application/spdx+json"
			}
			if m.MediaType != bundle.MediaTypeManifest || m.ArtifactType != kind || m.Size == 0 || m.Annotations["by"] != "tests" {
				t.Errorf("%+v", m)
			}
		}
		if len(got) != len(want) || len(list.Manifests) != len(want) {
			t.Errorf("%q: %s", query, a.body)
		}
		for _, w := range want {
			if !got[w] {
				t.Errorf("%q: no %s", query, w)
			}
		}
		if applied := a.header.Get("OCI-Filters-Applied"); (applied == "artifactType") != (query != "") {
			t.Errorf("%q: filters %q", query, applied)
		}
	}
}

// Two bundles are one registry; one name with two images is refused.
func TestSeveralBundles(t *testing.T) {
	t.Parallel()
	one := bundletest.Tiny()
	two := bundletest.Spec{Images: []bundletest.Image{{Name: "registry.example/app:2", Layers: [][]byte{[]byte("two")}}, one.Images[1]}}
	_, srv := registry(t, bundletest.Bytes(t, one), bundletest.Bytes(t, two))
	if a := ask(t, srv, http.MethodGet, "/v2/registry.example/app/tags/list"); a.body != `{"name":"registry.example/app","tags":["1","2"]}` {
		t.Errorf("%s", a.body)
	}
	if a := ask(t, srv, http.MethodGet, "/v2/registry.example/app/blobs/"+bundle.DigestOf([]byte("two"))); a.body != "two" {
		t.Errorf("%s", a.body)
	}
	if a := ask(t, srv, http.MethodGet, "/v2/registry.example/app/blobs/"+bundle.DigestOf([]byte("#!kubelet"))); a.status != 404 {
		t.Errorf("a payload is served: %+v", a)
	}
	one.Images[0].Layers = [][]byte{[]byte("different")}
	_, err := New(t.Context(), slog.New(slog.DiscardHandler), open(t, bundletest.Bytes(t, bundletest.Tiny())), open(t, bundletest.Bytes(t, one)))
	if err == nil || !strings.Contains(err.Error(), "registry.example/app:1 differs in bundles sha256:") {
		t.Errorf("%v", err)
	}
}

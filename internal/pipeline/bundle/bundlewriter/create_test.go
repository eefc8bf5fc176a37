package bundlewriter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundlereader"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

func contents(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Sizes are bytes, compressed and unpacked, shared layers once.
func TestABundleSaysWhatItHolds(t *testing.T) {
	_, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}, Name: "two"})
	m := h.Metadata
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, m.Platforms); diff != "" {
		t.Error(diff)
	}
	app, pause := h.ImageByName(appName), h.ImageByName(pauseName)
	if app == nil || pause == nil || len(m.Images) != 2 {
		t.Fatalf("images: %+v", m.Images)
	}
	if app.Group != bundle.GroupWorkload || pause.Group != bundle.GroupNode {
		t.Errorf("groups: %s, %s", app.Group, pause.Group)
	}
	layers := func(seeds ...int) (n int64) {
		sizes := map[int]int{1: 40000, 2: 30000, 3: 500}
		for _, s := range seeds {
			n += int64(len(layerTar(int64(s), sizes[s])))
		}
		return n
	}
	if pause.UnpackedSize != layers(1) || app.UnpackedSize != layers(1, 2, 3) {
		t.Errorf("unpacked: pause %d, want %d; app %d, want %d", pause.UnpackedSize, layers(1), app.UnpackedSize, layers(1, 2, 3))
	}
	var unpacked int64
	for _, b := range m.Blobs {
		unpacked += b.UnpackedSize
	}
	if unpacked != layers(1, 2, 3) {
		t.Errorf("distinct layers unpacked: %d, want %d", unpacked, layers(1, 2, 3))
	}
	if len(m.Blobs) != 3+1+3+3 { // 3 manifests, an index, 3 configs, 3 layers
		t.Errorf("%d blobs: a shared layer is there twice?", len(m.Blobs))
	}
	if m.Blobs[len(m.Blobs)-1].UnpackedSize == 0 || m.Blobs[0].UnpackedSize != 0 {
		t.Error("layers are not last")
	}
}

// The same inputs give the same bytes, regardless of their order and packing.
func TestSameInputsGiveTheSameBytes(t *testing.T) {
	dir := twoImages(t)
	kubelet := writeFile(t, "kubelet", "#!/bin/sh\n", 0o755)
	archive := archiveOf(t, dir)
	a, _ := create(t, Options{Sources: []string{"oci:" + dir, "payload:kubelet@v1.36.3=" + kubelet}})
	want := contents(t, a)
	for name, sources := range map[string][]string{
		"again":           {"oci:" + dir, "payload:kubelet@v1.36.3=" + kubelet},
		"another order":   {"payload:kubelet@v1.36.3=" + kubelet, "oci:" + dir + ":v1", "oci:" + dir + ":" + pauseName},
		"from an archive": {"oci-archive:" + archive, "payload:kubelet@v1.36.3=" + kubelet},
		"from the bundle": {"bundle:" + a},
		"twice":           {"bundle:" + a, "oci:" + dir},
	} {
		b, _ := create(t, Options{Sources: sources, Name: "kubernetes"})
		if !bytes.Equal(want, contents(t, b)) {
			t.Errorf("%s: other bytes", name)
		}
	}
}

// archiveOf packs a layout with tar, as other tools do, with folders and ./ names.
func archiveOf(t testing.TB, dir string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "a.tar")
	if b, err := exec.Command("tar", "-C", dir, "-cf", out, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return out
}

// An ordinary OCI tool reads the images of a bundle by name.
func TestSkopeoReadsABundle(t *testing.T) {
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed")
	}
	out, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	for _, n := range []string{pauseName, appName} {
		dir := filepath.Join(t.TempDir(), "copy")
		b, err := exec.Command(skopeo, "--insecure-policy", "copy", "--all", "--preserve-digests", "oci-archive:"+out+":"+n, "dir:"+dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", n, err, b)
		}
		if got := bundle.DigestOf(contents(t, filepath.Join(dir, "manifest.json"))); got != h.ImageByName(n).Digest {
			t.Errorf("skopeo got %s of %s, the bundle says %s", got, n, h.ImageByName(n).Digest)
		}
	}
}

// testRegistry serves the images of a layout and counts blob requests.
func testRegistry(t *testing.T, dir string) (host string, blobs *atomic.Int64, fail *atomic.Int64) {
	t.Helper()
	blobs, fail = &atomic.Int64{}, &atomic.Int64{}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256:") {
			blobs.Add(1)
			if fail.Add(-1) >= 0 {
				breakOff(w, r, handler)
			}
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	host = strings.TrimPrefix(srv.URL, "http://")
	pushLayout(t, dir, host)
	return host, blobs, fail
}

// pushLayout pushes the images of a layout to a registry.
func pushLayout(t *testing.T, dir, host string, options ...remote.Option) {
	t.Helper()
	p, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	idx, err := p.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	m, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		_, repo, _ := strings.Cut(d.Annotations["org.opencontainers.image.ref.name"], "/")
		ref, err := name.ParseReference(host + "/" + repo)
		if err != nil {
			t.Fatal(err)
		}
		if d.MediaType.IsIndex() {
			img, e := idx.ImageIndex(d.Digest)
			if err = e; err == nil {
				err = remote.WriteIndex(ref, img, options...)
			}
		} else {
			img, e := idx.Image(d.Digest)
			if err = e; err == nil {
				err = remote.Write(ref, img, options...)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// breakOff sends half of an answer and then breaks the connection.
func breakOff(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, r)
	w.Header().Set("Content-Length", strconv.Itoa(rec.Body.Len()))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// Images come from a registry by tag, digest or both, and are
// the same bytes as from a layout.
func TestImagesFromARegistry(t *testing.T) {
	dir := twoImages(t)
	host, _, fail := testRegistry(t, dir)
	_, want := create(t, Options{Sources: []string{"oci:" + dir}})
	fail.Store(6) // transfers of configs and layers break off in the middle
	app := want.ImageByName(appName)
	list := writeFile(t, "list", "# images\n"+host+"/pause:3.10.2 # trailing\n\ndocker://"+host+"/team/app@"+app.Digest+"\n"+host+"/team/app:v1@"+app.Digest+"\n", 0o644)
	_, h := create(t, Options{Sources: []string{"list:" + list, "registry.example/renamed:1=docker://" + host + "/team/app:v1"}})
	got := map[string]string{}
	for _, i := range h.Metadata.Images {
		got[i.Name] = i.Digest
	}
	wantImages := map[string]string{
		host + "/pause:3.10.2":           want.ImageByName(pauseName).Digest,
		host + "/team/app@" + app.Digest: app.Digest,
		host + "/team/app:v1":            app.Digest,
		"registry.example/renamed:1":     app.Digest,
	}
	if diff := cmp.Diff(wantImages, got); diff != "" {
		t.Error(diff)
	}
}

func TestPlatformsAreChosen(t *testing.T) {
	dir := twoImages(t)
	_, h := create(t, Options{Sources: []string{"oci:" + dir}, Platforms: []string{"linux/amd64"}})
	if diff := cmp.Diff([]string{"linux/amd64"}, h.Metadata.Platforms); diff != "" {
		t.Error(diff)
	}
	_, all := create(t, Options{Sources: []string{"oci:" + dir}})
	if h.ImageByName(appName).Digest != all.ImageByName(appName).Digest {
		t.Error("choosing a platform changed the digest of the index that pods may name")
	}
	if h.ImageByName(appName).Size >= all.ImageByName(appName).Size {
		t.Error("the other platform's blobs are still there")
	}
	// a bundle of one platform is a source for another bundle
	path, _ := create(t, Options{Sources: []string{"oci:" + dir}, Platforms: []string{"linux/amd64"}})
	_, again := create(t, Options{Sources: []string{"bundle:" + path}, Name: "images"})
	if again.Digest != h.Digest {
		t.Error("a bundle made from a bundle of one platform differs from it")
	}
}

// What would not work offline is refused or warned about.
func TestWhatWouldFailOfflineIsRefused(t *testing.T) {
	dir := twoImages(t)
	tool := writeFile(t, "tool", "x", 0o755)
	untagged := layoutOf(t, named{"registry.example/app", image(t, "amd64")})
	unnamed := layoutOf(t, named{"", image(t, "amd64")})
	host, _, _ := testRegistry(t, dir)
	for sentence, c := range map[string]struct {
		o    Options
		want string
	}{
		"an image without a tag":                    {Options{Sources: []string{"docker://" + host + "/pause"}}, "has no tag"},
		"an image without a tag in a layout":        {Options{Sources: []string{"oci:" + untagged}}, "has no tag"},
		"an image without a name in a layout":       {Options{Sources: []string{"oci:" + unnamed}}, "no name"},
		"a tag that the registry does not have":     {Options{Sources: []string{"docker://" + host + "/pause:9"}}, "pause:9"},
		"a platform that an image does not have":    {Options{Sources: []string{"oci:" + dir}, Platforms: []string{"linux/arm64"}}, "has no platform linux/arm64; it has linux/amd64"},
		"a layout that is none":                     {Options{Sources: []string{"oci:" + t.TempDir()}}, "not an OCI image layout"},
		"a tag that the layout does not have":       {Options{Sources: []string{"oci:" + dir + ":v9"}}, "no image called"},
		"two images of one name":                    {Options{Sources: []string{"oci:" + dir, pauseName + "=oci:" + dir + ":v1"}}, "only one of them"},
		"a kubelet that does not say its version":   {Options{Sources: []string{"payload:kubelet=" + tool}}, "payload:kubelet@vX.Y.Z="},
		"k3s with a version of Kubernetes":          {Options{Sources: []string{"payload:k3s@v1.36.3=" + tool}}, "is no version of k3s"},
		"k3s and a kubelet":                         {Options{Sources: []string{"payload:k3s@v1.36.3+k3s1=" + tool, "payload:kubelet@v1.36.3=" + tool}}, "must be one release"},
		"k0s without a version":                     {Options{Sources: []string{"payload:k0s=" + tool}}, "does not say its version"},
		"a kubelet and a kubeadm of two releases":   {Options{Sources: []string{"payload:kubelet@v1.36.3=" + tool, "payload:kubeadm@v1.35.4=" + tool}}, "must be one release"},
		"a payload whose name is a path":            {Options{Sources: []string{"payload:../x=" + tool}}, "payload name"},
		"a payload that is not there":               {Options{Sources: []string{"payload:x=" + filepath.Join(t.TempDir(), "none")}}, "no such file"},
		"a folder as payload":                       {Options{Sources: []string{"payload:x=" + t.TempDir()}}, "not a regular file"},
		"no source":                                 {Options{}, "no source"},
		"a source of the command line":              {Options{Sources: []string{"cluster:x"}}, "name cluster: on the command line"},
		"a source of no kind":                       {Options{Sources: []string{"foo"}}, "no kind of source"},
		"a bad version":                             {Options{Sources: []string{"oci:" + dir}, Version: "latest"}, "not a semantic version"},
		"a bad name":                                {Options{Sources: []string{"oci:" + dir}, Name: "A B"}, "bundle name"},
		"an output in a folder that does not exist": {Options{Sources: []string{"oci:" + dir}}, "output"},
	} {
		t.Run(sentence, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if c.want == "output" {
				out = filepath.Join(t.TempDir(), "none", "out")
			}
			_, err := Create(t.Context(), out, c.o, nil)
			var input *InputError
			if !errors.As(err, &input) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestLatestIsWarnedAbout(t *testing.T) {
	dir := layoutOf(t, named{"registry.example/app:latest", image(t, "amd64")}, named{"word", image(t, "amd64", gzipLayer(t, 1, 10))})
	var warned []string
	_, h := create(t, Options{Sources: []string{"oci:" + dir}, Warn: func(s string) { warned = append(warned, s) }})
	if len(warned) != 2 || !strings.Contains(warned[0], "latest") || !strings.Contains(warned[1], `"word"`) {
		t.Errorf("warned: %q", warned)
	}
	if h.ImageByName("word") == nil {
		t.Error("an image is not under the name in its annotations")
	}
}

func TestGroupsAreInferredOrGiven(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.36.3":          bundle.GroupControlPlane,
		"registry.k8s.io/kube-controller-manager:v1.36.3": bundle.GroupControlPlane,
		"registry.k8s.io/kube-scheduler:v1.36.3":          bundle.GroupControlPlane,
		"registry.k8s.io/etcd:3.6.6-0":                    bundle.GroupControlPlane,
		"quay.example/coreos/etcd:3.6":                    bundle.GroupWorkload,
		"registry.k8s.io/kube-proxy:v1.36.3":              bundle.GroupNode,
		"registry.k8s.io/pause:3.10.2":                    bundle.GroupNode,
		"registry.k8s.io/coredns/coredns:v1.12.1":         bundle.GroupNode,
		"mirror.example/k8s/kube-proxy:v1.36.3":           bundle.GroupNode,
		"refit.dev/refit:0.1.0":                           bundle.GroupRefit,
		"docker.io/library/nginx:1.29":                    bundle.GroupWorkload,
	} {
		if got := GroupOf(image); got != want {
			t.Errorf("%s is in group %s, want %s", image, got, want)
		}
	}
	_, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}, Groups: []GroupRule{{"registry.example/team/*", "infra"}}})
	if g := h.ImageByName(appName).Group; g != "infra" {
		t.Errorf("group %s", g)
	}
}

// A source whose bytes are not what its manifests say makes no bundle.
func TestADamagedSourceMakesNoBundle(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"a changed byte": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut off":        func(b []byte) []byte { return b[:len(b)-1] },
		"too long":       func(b []byte) []byte { return append(b, 'x') },
	} {
		for _, part := range []string{"layer", "manifest"} {
			t.Run(name+" in a "+part, func(t *testing.T) {
				dir := twoImages(t)
				_, h := create(t, Options{Sources: []string{"oci:" + dir}})
				img := h.ImageByName(pauseName)
				digest := img.Digest
				if part == "layer" {
					digest = h.Metadata.Blobs[img.Blobs[len(img.Blobs)-1]].Digest
				}
				p := filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
				if err := os.WriteFile(p, spoil(contents(t, p)), 0o644); err != nil {
					t.Fatal(err)
				}
				out := filepath.Join(t.TempDir(), "out")
				_, err := Create(t.Context(), out, Options{Sources: []string{"oci:" + dir}}, nil)
				if err == nil || !strings.Contains(err.Error(), digest) {
					t.Fatalf("got %v, want an error that names %s", err, digest)
				}
				if _, err := os.Stat(out); err == nil {
					t.Error("there is an output")
				}
			})
		}
	}
}

// The whole of a large blob is hashed by the registry's client alone.
func TestARegistryWithOtherBytesMakesNoBundle(t *testing.T) {
	host, _, _ := testRegistry(t, layoutOf(t, named{appName, image(t, "amd64", gzipLayer(t, 1, 300_000))}))
	for name, spoil := range map[string]func([]byte) []byte{
		"whole":          func(b []byte) []byte { return b },
		"a changed byte": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"cut off":        func(b []byte) []byte { return b[:len(b)-1] },
		"too long":       func(b []byte) []byte { return append(b, 'x') },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // what is retried takes some seconds
			var requests atomic.Int64
			proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: host}) }}
			proxy.ModifyResponse = func(r *http.Response) error {
				if r.Request.Method != http.MethodGet || r.ContentLength < 250_000 {
					return nil
				}
				requests.Add(1)
				b, err := io.ReadAll(r.Body)
				if err != nil {
					return err
				}
				b = spoil(b)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
				r.Header.Set("Content-Length", strconv.Itoa(len(b)))
				return nil
			}
			srv := httptest.NewServer(proxy)
			t.Cleanup(srv.Close)
			out := filepath.Join(t.TempDir(), "out")
			ref := strings.TrimPrefix(srv.URL, "http://") + "/team/app:v1"
			_, err := Create(t.Context(), out, Options{Sources: []string{"docker://" + ref}, Key: bundletest.Key(1), Version: "1.0.0", ChunkSize: 64 << 10}, nil)
			if (err == nil) != (name == "whole") {
				t.Fatalf("got %v", err)
			}
			if _, e := os.Stat(out); (e == nil) != (err == nil) {
				t.Errorf("output: %v, error: %v", e, err)
			}
			if requests.Load() == 0 {
				t.Error("the layer was not read")
			}
		})
	}
}

func TestALayerThatDoesNotUnpackMakesNoBundle(t *testing.T) {
	raw := append([]byte{0x1f, 0x8b, 8, 0}, "no gzip at all"...)
	dir := layoutOf(t, named{appName, image(t, "amd64", staticLayer{raw, raw})})
	_, err := Create(t.Context(), filepath.Join(t.TempDir(), "out"), Options{Sources: []string{"oci:" + dir}}, nil)
	if err == nil || !strings.Contains(err.Error(), "does not unpack") || !strings.Contains(err.Error(), appName) {
		t.Fatalf("got %v", err)
	}
}

// The trailer of a large layer says its size; only a check of the layers finds what is
// wrong within it.
func TestACheckOfLayersUnpacksThem(t *testing.T) {
	raw := gzipped(t, textOf(8, 1<<20))
	raw[len(raw)/2] ^= 0xff
	dir := layoutOf(t, named{appName, image(t, "amd64", staticLayer{raw, raw})})
	o := Options{Sources: []string{"oci:" + dir}}
	r, err := Create(t.Context(), filepath.Join(t.TempDir(), "out"), o, nil)
	if err != nil || r.Metadata.Images[0].UnpackedSize != 1<<20 {
		t.Fatalf("%v %+v", err, r)
	}
	o.CheckLayers = true
	if _, err := Create(t.Context(), filepath.Join(t.TempDir(), "out"), o, nil); err == nil || !strings.Contains(err.Error(), "does not unpack") {
		t.Fatalf("got %v", err)
	}
}

// An interrupted build fetches only the missing blobs, trusts no file of the unfinished
// output, and ends in the same bytes.
func TestAnInterruptedBuildIsTakenUp(t *testing.T) {
	var images []named
	for i := range 6 {
		images = append(images, named{fmt.Sprintf("registry.example/app%d:v1", i), image(t, "amd64", gzipLayer(t, int64(i), 3<<20))})
	}
	dir := layoutOf(t, images...)
	host, blobs, _ := testRegistry(t, dir)
	var sources []string
	for i := range images {
		sources = append(sources, fmt.Sprintf("docker://%s/app%d:v1", host, i))
	}
	o := Options{Sources: sources, Key: bundletest.Key(1), Version: "1.0.0"}
	want, _ := create(t, o)
	blobs.Store(0)
	create(t, o)
	whole := blobs.Load()

	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Create(ctx, out, o, func(done, total int64) {
		if done > total*7/10 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Fatal("an interrupted build has an output")
	}
	if _, err := bundlereader.OpenPath(out + PartialSuffix); err == nil {
		t.Fatal("an unfinished output passes for a bundle")
	}
	blobs.Store(0)
	h, err := Create(t.Context(), out, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	verify(t, out, h.Digest)
	if got := blobs.Load(); got >= whole-1 {
		t.Errorf("the second run asked for %d blobs, a whole one for %d", got, whole)
	}
	if !bytes.Equal(contents(t, want), contents(t, out)) {
		t.Error("a build in two parts gives other bytes")
	}
}

// Leftovers of a build with other inputs never get into a bundle.
func TestLeftoversOfAnotherBuildDoNoHarm(t *testing.T) {
	o := Options{Sources: []string{"oci:" + twoImages(t)}, Key: bundletest.Key(1), Version: "1.0.0"}
	clean, _ := create(t, o)
	want := contents(t, clean)
	damaged := bytes.Clone(want)
	for i := 20000; i < len(damaged); i += 1000 {
		damaged[i] ^= 0xff
	}
	for name, left := range map[string][]byte{
		"noise":                      bytes.Repeat([]byte{0xa5}, len(want)+100000),
		"the same, damaged":          damaged,
		"the same, but cut off":      want[:len(want)/2],
		"the same and more after it": append(bytes.Clone(want), "more"...),
	} {
		out := filepath.Join(t.TempDir(), "out")
		if err := os.WriteFile(out+PartialSuffix, left, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(t.Context(), out, o, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(want, contents(t, out)) {
			t.Errorf("%s: got into the bundle", name)
		}
	}
}

// Space is asked for before anything is written.
func TestNoRoomIsSaidBeforeWriting(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	_, err := openPartial(out, 1<<60)
	var space *SpaceError
	if !errors.As(err, &space) || space.Needed != 1<<60 || space.Free <= 0 {
		t.Fatalf("got %v", err)
	}
	if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTwoBuildsOfOneOutputDoNotMix(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	f, err := openPartial(out, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := openPartial(out, 1000); err == nil || !strings.Contains(err.Error(), "another refit") {
		t.Fatalf("got %v", err)
	}
}

func TestSourcesAreParsed(t *testing.T) {
	withColon := filepath.Join(t.TempDir(), "a:b")
	if err := os.Mkdir(withColon, 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Source{
		"oci:dir":                                     {Kind: "oci", Path: "dir"},
		"oci:dir:v1":                                  {Kind: "oci", Path: "dir", Tag: "v1"},
		"oci:dir:registry.k8s.io/pause:3.10":          {Kind: "oci", Path: "dir", Tag: "registry.k8s.io/pause:3.10"},
		"oci:" + withColon:                            {Kind: "oci", Path: withColon},
		"oci-archive:f.tar:v1":                        {Kind: "oci-archive", Path: "f.tar", Tag: "v1"},
		"docker://localhost:5000/a:1":                 {Kind: "docker", Path: "localhost:5000/a:1"},
		"registry.example/a:2=docker://b.example/a:1": {Kind: "docker", Path: "b.example/a:1", As: "registry.example/a:2"},
		"list:f":                          {Kind: "list", Path: "f"},
		"bundle:f":                        {Kind: "bundle", Path: "f"},
		"payload:kubelet=bin/kubelet":     {Kind: "payload", As: "kubelet", Path: "bin/kubelet"},
		"payload:kubelet@v1.36.3=bin/k=x": {Kind: "payload", As: "kubelet", Version: "v1.36.3", Path: "bin/k=x"},
	} {
		got, err := ParseSource(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "oci:", "payload:x", "cluster:", "manifests:x", "kustomize:x", "tracks:", "resources:", "untagged=oci:dir"} {
		if got, err := ParseSource(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"kubernetes:v1.36.3", "k3s:v1.36.3+k3s1", "rke2:v1.36.3+rke2r1", "k0s:v1.36.3+k0s.0", "tracks:", "os-image:edge", "manifests:x", "kustomize:x", "chart:x"} {
		if _, err := ParseSource(text); err == nil || !strings.Contains(err.Error(), "on the command line of refit bundle create, not in a list") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The version of a program comes from its build information; it is never run.
func TestProgramsSayTheirVersion(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, h := create(t, Options{Sources: []string{"payload:tool=" + self, "payload:script=" + writeFile(t, "s", "#!/bin/sh\nexit 1\n", 0o700)}})
	tool, script := h.PayloadByName("tool", "linux/amd64"), h.PayloadByName("script", "linux/s390x")
	if tool == nil || script == nil {
		t.Fatalf("payloads: %+v", h.Metadata.Payloads)
	}
	if tool.Platform == "" || tool.Mode != 0o755 || script.Platform != "" || script.Mode != 0o755 {
		t.Errorf("tool %+v, script %+v", tool, script)
	}
	for flags, want := range map[string]string{
		`-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3`: "v1.36.3",
		`-X 'k8s.io/component-base/version.gitVersion=v1.36.3'`:     "v1.36.3",
		`-X main.Version=2.0.1-rc.1 -s`:                             "2.0.1-rc.1",
		`-s -w`:                                                     "",
	} {
		got := ""
		if m := versionFlag.FindStringSubmatch(flags); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", flags, got, want)
		}
	}
}

// Signing in place keeps every byte outside the signature slot.
func TestSigningInPlaceKeepsAllOtherBytes(t *testing.T) {
	path, h := create(t, Options{Sources: []string{"oci:" + twoImages(t)}})
	before := contents(t, path)
	signed, err := Sign(path, bundletest.Key(2))
	if err != nil {
		t.Fatal(err)
	}
	after := contents(t, path)
	at := h.SlotOffset()
	if !bytes.Equal(before[:at], after[:at]) || !bytes.Equal(before[at+bundle.SignatureSlotSize:], after[at+bundle.SignatureSlotSize:]) {
		t.Error("bytes outside the slot changed")
	}
	if signed.Digest != h.Digest || len(signed.Signatures[0].Signatures) != 2 {
		t.Errorf("signed: %+v", signed.Signatures)
	}
	verify(t, path, h.Digest)
	if _, err := Sign(writeFile(t, "x", "x", 0o644), bundletest.Key(1)); !errors.Is(err, bundle.ErrNotBundle) {
		t.Errorf("got %v", err)
	}
}

var _ v1.Layer = staticLayer{}

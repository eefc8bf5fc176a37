package bundlecmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
)

// foreign is an architecture that this computer does not have.
var foreign = map[bool]string{true: "amd64", false: "arm64"}[runtime.GOARCH == "arm64"]

// testRelease is the version of the programs and of kubeadm's list.
const testRelease = "v1.36.3"

// scriptList are the images of the kubeadm of these tests.
var scriptList = []string{"registry.k8s.io/kube-apiserver:v1.36.3", "registry.k8s.io/coredns/coredns:v1.14.2", "registry.k8s.io/etcd:3.6.8-0", "registry.k8s.io/pause:3.10.2"}

// kubeadmScript answers as kubeadm does, and refuses a version that is not its own.
func kubeadmScript(version string) string {
	return fmt.Sprintf("#!/bin/sh\ncase \"$*\" in\n'version -o short') echo %[1]s;;\n'config images list --kubernetes-version %[1]s') printf '%%s\\n' %[2]s;;\n*) echo \"unexpected: $*\" >&2; exit 7;;\nesac\n",
		version, strings.Join(scriptList, " "))
}

// elfProgram is the beginning of a program for a machine, with its version as Go's linker
// writes it.
func elfProgram(arch, name, version string) string {
	machine := map[string]uint16{"amd64": 62, "arm64": 183}[arch]
	head := make([]byte, 64)
	copy(head, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(head[18:], machine)
	return string(head) + name + " for " + arch + "\x00" + version + "\x00"
}

// releaseFiles are the programs of a release below a directory, by path.
func releaseFiles(below, arch, version string) map[string]string {
	out := map[string]string{below + "kubeadm": kubeadmScript(version)}
	if arch != runtime.GOARCH {
		out[below+"kubeadm"] = elfProgram(arch, "kubeadm", version)
	}
	for _, name := range []string{"kubelet", "kubectl"} {
		out[below+name] = elfProgram(arch, name, version)
	}
	return out
}

// join merges files by path.
func join(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func writeFiles(t *testing.T, dir string, files map[string]string, mode os.FileMode) {
	t.Helper()
	for name, data := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// tarball is a tar compressed by gzip.
func tarball(t *testing.T, files map[string]string) string {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func sum256(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// kubernetesSite is a site with a layout of the images, and a cache of its own.
func kubernetesSite(t *testing.T, images ...string) string {
	t.Helper()
	dir := site(t)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	appendImages(t, filepath.Join(dir, "layout"), images)
	return dir
}

// appendImages adds images to a layout by their names.
func appendImages(t *testing.T, dir string, names []string) {
	t.Helper()
	p, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		img, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})); err != nil {
			t.Fatal(err)
		}
	}
}

func inspectBundle(t *testing.T) bundleView {
	t.Helper()
	var v bundleView
	if err := json.Unmarshal([]byte(must(t, "bundle", "inspect", "b", "-o", "json")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// createRelease runs refit bundle create for the release.
func createRelease(t *testing.T, args ...string) result {
	t.Helper()
	return refit(t, append([]string{"bundle", "create", "--output", "b", "--key", "keys/refit.key", "kubernetes:" + testRelease}, args...)...)
}

// payloadsOf are the payloads of the bundle b: name, version, platform.
func payloadsOf(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, p := range inspectBundle(t).Payloads {
		out = append(out, strings.TrimSpace(p.Name+" "+p.Version+" "+p.Platform))
	}
	return out
}

var thisHost = "linux/" + runtime.GOARCH

func TestKubernetesFromDirectory(t *testing.T) {
	kubernetesSite(t, scriptList...)
	plugins := tarball(t, map[string]string{"./bridge": elfProgram(runtime.GOARCH, "bridge", ""), "./LICENSE": "Apache"})
	files := join(releaseFiles("from/linux/"+runtime.GOARCH+"/", runtime.GOARCH, testRelease), releaseFiles("from/"+testRelease+"/bin/linux/"+foreign+"/", foreign, testRelease), map[string]string{
		"from/crictl-v1.36.0-linux-" + runtime.GOARCH + ".tar.gz":     tarball(t, map[string]string{"crictl": elfProgram(runtime.GOARCH, "crictl", "")}),
		"from/cni-plugins-linux-" + runtime.GOARCH + "-v1.9.1.tgz":    plugins,
		"from/cni-plugins-linux-" + foreign + "-v1.9.1.tgz":           tarball(t, map[string]string{"./bridge": elfProgram(foreign, "bridge", "")}),
		"from/linux/" + runtime.GOARCH + "/kubelet.sha256":            sum256(elfProgram(runtime.GOARCH, "kubelet", testRelease)),
		"from/cni-plugins-linux-" + runtime.GOARCH + "-v1.9.1.sha256": "about another file",
		"from/SHA256SUMS": sum256(plugins) + "  ./cni-plugins-linux-" + runtime.GOARCH + "-v1.9.1.tgz\n",
	})
	writeFiles(t, ".", files, 0o644) // as curl leaves them
	r := createRelease(t, "--kubernetes-from", "from", "--kubernetes-images", "oci:layout", "--platform", thisHost+",linux/"+foreign)
	if r.code != console.ExitOK {
		t.Fatal(r.err)
	}
	v := inspectBundle(t)
	if v.Name != "kubernetes" || v.Version != "1.36.3" {
		t.Errorf("bundle %s %s", v.Name, v.Version)
	}
	groups := map[string]string{}
	for _, i := range v.Images {
		groups[i.Name] = i.Group
	}
	if diff := cmp.Diff(map[string]string{scriptList[0]: "control-plane", scriptList[1]: "node", scriptList[2]: "control-plane", scriptList[3]: "node"}, groups); diff != "" {
		t.Error(diff)
	}
	want := []string{"cni-plugins v1.9.1 " + thisHost, "cni-plugins v1.9.1 linux/" + foreign, "crictl v1.36.0 " + thisHost,
		"kubeadm v1.36.3", "kubeadm v1.36.3 linux/" + foreign, "kubectl v1.36.3 " + thisHost, "kubectl v1.36.3 linux/" + foreign, "kubelet v1.36.3 " + thisHost, "kubelet v1.36.3 linux/" + foreign}
	got := payloadsOf(t)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, p := range v.Payloads {
		if want := map[bool]string{true: "0644", false: "0755"}[p.Name == "cni-plugins"]; p.Mode != want {
			t.Errorf("%s has mode %s", p.Name, p.Mode)
		}
	}
	for _, note := range []string{"kubelet for " + thisHost + " from from/linux/" + runtime.GOARCH + "/kubelet (SHA-256 verified)",
		"kubelet for linux/" + foreign + " from from/v1.36.3/bin/linux/" + foreign + "/kubelet (no checksum found)", "-v1.9.1.tgz (SHA-256 verified)"} {
		if !strings.Contains(r.err, note) {
			t.Errorf("it does not print %q:\n%s", note, r.err)
		}
	}
}

// Without --platform the bundle is for this computer, and a flat directory is enough.
func TestKubernetesOfThisComputer(t *testing.T) {
	kubernetesSite(t, scriptList...)
	writeFiles(t, "from", join(releaseFiles("", runtime.GOARCH, testRelease), map[string]string{"linux": "a file, not a directory"}), 0o755)
	if r := createRelease(t, "--kubernetes-from", "from", "--kubernetes-images", "oci:layout", "--name", "site", "--version", "7.0.0"); r.code != console.ExitOK || !strings.Contains(r.err, "the bundle is for "+thisHost) {
		t.Fatal(r.err)
	}
	if v := inspectBundle(t); v.Name != "site" || v.Version != "7.0.0" || v.KubernetesVersion != testRelease || !slices.Equal(v.Platforms, []string{thisHost}) {
		t.Errorf("%s %s, Kubernetes %s, %v", v.Name, v.Version, v.KubernetesVersion, v.Platforms)
	}
	if _, err := os.Stat("cache/refit"); err == nil {
		t.Error("a cache was made for programs that need none")
	}
}

func TestKubernetesFromArchives(t *testing.T) {
	kubernetesSite(t, scriptList...)
	inServer, inNode := map[string]string{"kubernetes/LICENSES": "many"}, map[string]string{}
	for name, data := range releaseFiles("", runtime.GOARCH, testRelease) {
		inServer["kubernetes/server/bin/"+name] = data
	}
	for name, data := range releaseFiles("", foreign, testRelease) {
		inNode["kubernetes/node/bin/"+name] = data
	}
	server, node := "kubernetes-server-linux-"+runtime.GOARCH+".tar.gz", "kubernetes-node-linux-"+foreign+".tar.gz"
	serverTar := tarball(t, inServer)
	writeFiles(t, ".", map[string]string{server: serverTar, node: tarball(t, inNode), server + ".sha512": fmt.Sprintf("%x  %s\n", sha512.Sum512([]byte(serverTar)), server)}, 0o644)
	args := []string{"--kubernetes-from", server, "--kubernetes-from", node, "--kubernetes-images", "oci:layout", "--platform", thisHost + ",linux/" + foreign}
	first := createRelease(t, args...)
	if first.code != console.ExitOK || !strings.Contains(first.err, server+" (SHA-512 verified)") {
		t.Fatal(first.err)
	}
	if got := payloadsOf(t); len(got) != 6 {
		t.Errorf("payloads: %v", got)
	}
	unpacked, err := filepath.Glob("cache/refit/kubernetes/unpacked-*/kubelet")
	if err != nil || len(unpacked) != 2 {
		t.Fatalf("unpacked: %v, %v", unpacked, err)
	}
	before, err := os.Stat(unpacked[0])
	if err != nil {
		t.Fatal(err)
	}
	if again := createRelease(t, args...); again.code != console.ExitOK || again.out != first.out {
		t.Errorf("the second run: exit code %d, %s instead of %s\n%s", again.code, again.out, first.out, again.err)
	}
	if after, err := os.Stat(unpacked[0]); err != nil || !os.SameFile(before, after) {
		t.Errorf("the second run unpacked the archive again: %v", err)
	}
}

// What create refuses, and what it prints then.
func TestKubernetesRefused(t *testing.T) {
	kubernetesSite(t, scriptList[1:]...)
	good := releaseFiles("", runtime.GOARCH, testRelease)
	kubelet := good["kubelet"]
	other := elfProgram(runtime.GOARCH, "kubelet", "v1.36.30")
	writeFiles(t, "good", good, 0o755)
	writeFiles(t, "sums", join(good, map[string]string{"kubelet.sha256": sum256("other") + "\n"}), 0o755)
	writeFiles(t, "list", join(good, map[string]string{"SHA512SUMS": fmt.Sprintf("%x *kubectl\n", sha512.Sum512(nil))}), 0o755)
	writeFiles(t, "empty-sum", join(good, map[string]string{"kubelet.sha256": "<html>"}), 0o755)
	writeFiles(t, "older", releaseFiles("", runtime.GOARCH, "v1.36.2"), 0o755)
	writeFiles(t, "mixed", join(good, map[string]string{"kubelet": other}), 0o755)
	writeFiles(t, "half", map[string]string{"kubeadm": good["kubeadm"], "kubectl": elfProgram(foreign, "kubectl", testRelease)}, 0o755)
	writeFiles(t, "foreign", releaseFiles("", foreign, testRelease), 0o755)
	writeFiles(t, "broken", join(good, map[string]string{"kubeadm": "#!/bin/sh\necho no space >&2\nexit 1\n"}), 0o755)
	writeFiles(t, "chatty", join(good, map[string]string{"kubeadm": strings.Replace(kubeadmScript(testRelease), "registry.k8s.io/pause:3.10.2", "'WARNING: no image'", 1)}), 0o755)
	writeFiles(t, "two", join(good, map[string]string{"crictl-v1-linux-" + runtime.GOARCH + ".tar.gz": "", "crictl-v2-linux-" + runtime.GOARCH + ".tar.gz": ""}), 0o755)
	writeFiles(t, ".", map[string]string{"site.tar.gz": tarball(t, map[string]string{"bin/kubelet": kubelet}), "text.tar.gz": "no tar"}, 0o644)
	for _, c := range []struct {
		line string
		code int
		says []string
	}{
		{"kubernetes:latest", 2, []string{"latest names another release tomorrow"}},
		{"kubernetes:stable-1.36", 2, []string{"a bundle must say what is in it"}},
		{"kubernetes:1.36", 2, []string{`"1.36" is not the version of a release`}},
		{"kubernetes:", 2, []string{"is not the version of a release"}},
		{"kubernetes:1.36.3/../x", 2, []string{"is not the version of a release"}},
		{"oci:layout --kubernetes-from good", 2, []string{"belong to the sources kubernetes:VERSION and cluster:"}},
		{"kubernetes:1.36.3 --platform windows/amd64", 2, []string{"--platform windows/amd64: "}},
		{"kubernetes:1.36.3 --kubernetes-from none", 2, []string{"--kubernetes-from: stat none"}},
		{"kubernetes:1.36.3 --kubernetes-from http://releases.example", 2, []string{"use an https URL"}},
		{"kubernetes:1.36.3 --kubernetes-from ftp://user:word@releases.example", 2, []string{"ftp://user:xxxxx@releases.example: use an https URL"}},
		{"kubernetes:1.36.3 --kubernetes-images registry.example/k8s", 2, []string{"write docker://HOST/PATH for a mirror"}},
		{"kubernetes:1.36.3 --kubernetes-images docker://", 2, []string{"the place is missing"}},
		{"kubernetes:1.36.3 --kubernetes-images oci:a --kubernetes-images oci:b", 2, []string{"the same images have two places"}},
		{"kubernetes:1.36.3 --kubernetes-from sums", 6, []string{"sums/kubelet: its SHA-256 is " + sum256(kubelet), "sums/kubelet.sha256 has " + sum256("other")}},
		{"kubernetes:1.36.3 --kubernetes-from list", 6, []string{"list/kubectl: its SHA-512 is ", fmt.Sprintf("list/SHA512SUMS has %x", sha512.Sum512(nil))}},
		{"kubernetes:1.36.3 --kubernetes-from empty-sum", 2, []string{"empty-sum/kubelet.sha256 has no SHA-256 checksum"}},
		{"kubernetes:1.36.3 --kubernetes-from older", 2, []string{`kubeadm from older/kubeadm is "v1.36.2"`, "kubernetes:v1.36.2"}},
		{"kubernetes:1.36.3 --kubernetes-from mixed", 2, []string{"kubelet for " + thisHost + " from mixed/kubelet is not v1.36.3"}},
		{"kubernetes:1.36.3 --kubernetes-from half", 2, []string{"2 programs missing: kubelet for " + thisHost + ", kubectl for " + thisHost, "half has no kubelet", "kubectl is for linux/" + foreign}},
		{"kubernetes:1.36.3 --kubernetes-from foreign --platform linux/" + foreign, 2, []string{"there is none for " + thisHost, "list:FILE"}},
		{"kubernetes:1.36.3 --kubernetes-from broken", 1, []string{"run kubeadm version -o short of broken/kubeadm: exit status 1: no space"}},
		{"kubernetes:1.36.3 --kubernetes-from chatty", 1, []string{"images of kubeadm from chatty/kubeadm", "WARNING"}},
		{"kubernetes:1.36.3 --kubernetes-from two", 2, []string{"more than one archive with crictl"}},
		{"kubernetes:1.36.3 --kubernetes-from site.tar.gz", 2, []string{"archive site.tar.gz: it has no kubeadm, kubelet, kubectl", "kubernetes/server/bin"}},
		{"kubernetes:1.36.3 --kubernetes-from text.tar.gz", 2, []string{"archive text.tar.gz: it is not a tar compressed by gzip"}},
		{"kubernetes:1.36.3 --kubernetes-from good --kubernetes-images oci:layout", 2, []string{`layout has no image called "registry.k8s.io/kube-apiserver:v1.36.3"`}},
	} {
		r := refit(t, append([]string{"bundle", "create", "--output", "b", "--unsigned"}, strings.Fields(c.line)...)...)
		if r.code != c.code || r.out != "" {
			t.Errorf("%s: exit code %d, want %d: %s", c.line, r.code, c.code, r.err)
		}
		for _, s := range c.says {
			if !strings.Contains(r.err, s) {
				t.Errorf("%s: %q does not have %q", c.line, r.err, s)
			}
		}
	}
	if _, err := os.Stat("b"); err == nil {
		t.Error("a bundle was written")
	}
}

// serverForTest serves files by path, each with its checksum. A handler of the test comes
// first: it answers true if it served the request.
type serverForTest struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	first    func(w http.ResponseWriter, r *http.Request) bool
}

func serveRelease(t *testing.T, files map[string]string) *serverForTest {
	t.Helper()
	s := &serverForTest{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
		s.mu.Unlock()
		if s.first != nil && s.first(w, r) {
			return
		}
		if data, ok := files[strings.TrimSuffix(r.URL.Path, ".sha256")]; ok && strings.HasSuffix(r.URL.Path, ".sha256") {
			fmt.Fprintln(w, sum256(data))
			return
		}
		data, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(data))
	}))
	t.Cleanup(s.Close)
	return s
}

// take returns the requests since the last call.
func (s *serverForTest) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

func TestKubernetesFromURL(t *testing.T) {
	kubernetesSite(t, scriptList...)
	below := func(arch string) string { return "/release/" + testRelease + "/bin/linux/" + arch + "/" }
	crictl := "/tools/crictl-v1.36.0-linux-" + foreign + ".tar.gz"
	s := serveRelease(t, join(releaseFiles(below(runtime.GOARCH), runtime.GOARCH, testRelease), releaseFiles(below(foreign), foreign, testRelease),
		map[string]string{crictl: tarball(t, map[string]string{"crictl": elfProgram(foreign, "crictl", "")})}))
	args := []string{"--kubernetes-from", s.URL + "/release", "--kubernetes-from", s.URL + crictl, "--kubernetes-images", "oci:layout", "--platform", "linux/" + foreign}
	first := createRelease(t, args...)
	if first.code != console.ExitOK || !strings.Contains(first.err, "kubelet for linux/"+foreign+" from "+s.URL+below(foreign)+"kubelet (SHA-256 verified)") {
		t.Fatal(first.err)
	}
	if diff := cmp.Diff([]string{"crictl v1.36.0 linux/" + foreign, "kubeadm v1.36.3 linux/" + foreign, "kubectl v1.36.3 linux/" + foreign, "kubelet v1.36.3 linux/" + foreign}, payloadsOf(t)); diff != "" {
		t.Error(diff)
	}
	if all := s.take(); !slices.Contains(all, below(runtime.GOARCH)+"kubeadm") || slices.Contains(all, below(runtime.GOARCH)+"kubelet") {
		t.Errorf("of this computer's platform only kubeadm is needed: %v", all)
	}
	if again := createRelease(t, args...); again.code != console.ExitOK || again.out != first.out {
		t.Errorf("the second run: exit code %d, %s instead of %s\n%s", again.code, again.out, first.out, again.err)
	}
	for _, r := range s.take() {
		if !strings.HasSuffix(r, ".sha256") {
			t.Errorf("the second run downloads %s again", r)
		}
	}
	r := createRelease(t, "--kubernetes-from", s.URL, "--platform", thisHost)
	if r.code != console.ExitUsage || !strings.Contains(r.err, "3 programs missing") || !strings.Contains(r.err, "/kubelet.sha256 has no such file (404 Not Found)") {
		t.Errorf("another base: exit code %d: %s", r.code, r.err)
	}
}

func TestDownload(t *testing.T) {
	data := strings.Repeat("a program of some length ", 40_000)
	const file = "/v1.36.3/bin/linux/amd64/kubelet"
	// cut sends the first half of the file, and closes or keeps the connection.
	cut := func(hang bool) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != file || r.Header.Get("Range") != "" {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = io.WriteString(w, data[:len(data)/2])
			w.(http.Flusher).Flush()
			if hang {
				<-r.Context().Done()
			}
			panic(http.ErrAbortHandler)
		}
	}
	always := func(status int, of string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == of {
				w.WriteHeader(status)
			}
			return r.URL.Path == of
		}
	}
	send := func(of, text string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == of {
				_, _ = io.WriteString(w, text)
			}
			return r.URL.Path == of
		}
	}
	// left is what an earlier run left of the file.
	for name, c := range map[string]struct {
		first    func(w http.ResponseWriter, r *http.Request) bool
		left     string
		requests []string
		says     []string
	}{
		"whole":                        {requests: []string{file + ".sha256", file}},
		"cut":                          {first: cut(false), requests: []string{file + ".sha256", file, file + " bytes=HAVE-"}},
		"stalled":                      {first: cut(true), requests: []string{file + ".sha256", file, file + " bytes=HAVE-"}},
		"left by an earlier run":       {left: data[:1000], requests: []string{file + ".sha256", file + " bytes=1000-"}},
		"all left by an earlier run":   {left: data, requests: []string{file + ".sha256"}},
		"damaged by an earlier run":    {left: "x" + data[1:1000], requests: []string{file + ".sha256", file + " bytes=1000-", file}},
		"too much of an earlier run":   {left: data + "x", requests: []string{file + ".sha256", file + fmt.Sprintf(" bytes=%d-", len(data)+1), file}},
		"no ranges":                    {left: data[:1000], first: send(file, data), requests: []string{file + ".sha256", file + " bytes=1000-"}},
		"other bytes":                  {first: send(file, "other"), requests: []string{file + ".sha256", file}, says: []string{"its SHA-256 is " + sum256("other"), "kubelet.sha256 has " + sum256(data)}},
		"no checksum":                  {first: always(404, file+".sha256"), requests: []string{file + ".sha256"}, says: []string{"has no such file (404 Not Found), and files without a checksum are not used"}},
		"a page instead of a checksum": {first: send(file+".sha256", "<html>"), requests: []string{file + ".sha256"}, says: []string{"the server sends no SHA-256"}},
		"not allowed":                  {first: always(403, file), requests: []string{file + ".sha256", file}, says: []string{"the server answers 403 Forbidden"}},
		"a server in trouble": {first: always(503, file), requests: []string{file + ".sha256", file, file, file, file},
			says: []string{"the server answers 503 Service Unavailable; the next run continues"}},
		"redirect to plain HTTP": {first: func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "http://releases.example/kubelet", http.StatusFound)
			return true
		}, requests: []string{file + ".sha256"}, says: []string{"the server redirects to http://releases.example/kubelet"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			s := serveRelease(t, map[string]string{file: data})
			s.first = c.first
			cache := &programCache{}
			defer cache.close()
			dir, err := cache.subdir("sha256-" + sum256(data))
			if err != nil {
				t.Fatal(err)
			}
			if c.left != "" {
				writeFiles(t, dir, map[string]string{"kubelet" + partialSuffix: c.left}, 0o600)
			}
			d := newDownloader(cache, io.Discard)
			d.pause, d.stall = time.Millisecond, 2*time.Second
			u, err := url.Parse(s.URL + file)
			if err != nil {
				t.Fatal(err)
			}
			got, check, err := d.fetch(t.Context(), u)
			requests := s.take()
			for i := range requests {
				requests[i] = withoutOffset(requests[i], c.left)
			}
			if diff := cmp.Diff(c.requests, requests); diff != "" {
				t.Errorf("requests: %s", diff)
			}
			if len(c.says) == 0 {
				have, e := fsutil.Digest(got)
				st, e2 := os.Stat(got)
				if err := errors.Join(err, e, e2); err != nil || have != "sha256:"+sum256(data) || check != "SHA-256 verified" || st.Mode().Perm() != 0o755 {
					t.Errorf("%s %s %q: %v", got, have, check, err)
				}
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not have %q", err, s)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "kubelet")); err == nil {
				t.Error("there is a file that is not verified")
			}
		})
	}
}

// withoutOffset hides how much of a cut answer arrived, if no earlier run left anything.
func withoutOffset(request, left string) string {
	if before, _, ok := strings.Cut(request, " bytes="); ok && left == "" {
		return before + " bytes=HAVE-"
	}
	return request
}

// An interrupted download ends at once, and what arrived stays for the next run.
func TestDownloadInterrupted(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	data := strings.Repeat("kubelet ", 100_000)
	s := serveRelease(t, map[string]string{"/kubelet": data})
	cache := &programCache{}
	defer cache.close()
	dir, err := cache.subdir("sha256-" + sum256(data))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.first = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/kubelet" || r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = io.WriteString(w, data[:len(data)/2])
		w.(http.Flusher).Flush()
		for {
			if st, err := os.Stat(filepath.Join(dir, "kubelet"+partialSuffix)); err == nil && st.Size() > 0 {
				cancel()
				return true
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	d := newDownloader(cache, io.Discard)
	u, err := url.Parse(s.URL + "/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.fetch(ctx, u); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	file, _, err := d.fetch(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if all := s.take(); !strings.Contains(all[len(all)-1], "bytes=") {
		t.Errorf("the next run starts again: %v", all)
	}
	if have, err := fsutil.Digest(file); err != nil || have != "sha256:"+sum256(data) {
		t.Errorf("%s: %v", have, err)
	}
}

func TestCacheHasOneUser(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	one, two := &programCache{}, &programCache{}
	if _, err := one.subdir("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := two.subdir("a"); console.ExitCode(err) != console.ExitBlocked || !strings.Contains(err.Error(), "in use by another refit bundle create") {
		t.Errorf("two users: %v", err)
	}
	one.close()
	if _, err := two.subdir("a"); err != nil {
		t.Error(err)
	}
	two.close()
}

func TestImageReferences(t *testing.T) {
	places, err := parseImagePlaces([]string{"docker://mirror.example:5000/k8s/", "registry.k8s.io/coredns=docker://other.example", "registry.k8s.io/pause=oci:pause"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"registry.k8s.io/etcd:3.6.8-0":            {"mirror.example:5000/k8s/etcd:3.6.8-0"},
		"registry.k8s.io/coredns/coredns:v1.14.2": {"other.example/coredns:v1.14.2"},
		"registry.k8s.io/corednsx:v1":             {"mirror.example:5000/k8s/corednsx:v1"},
		"vendor.example/a/b/etcd:1":               {"mirror.example:5000/k8s/a/b/etcd:1", "mirror.example:5000/k8s/etcd:1"},
	} {
		if diff := cmp.Diff(want, places.placeOf(name).references(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if p := places.placeOf("registry.k8s.io/pause:3.10.2"); p.kind != layoutKind || p.path != "pause" {
		t.Errorf("pause: %+v", p)
	}
	if p := places[1:].placeOf("registry.k8s.io/etcd:1"); p != nil {
		t.Errorf("etcd has the place %+v", p)
	}
}

func TestArchiveFacts(t *testing.T) {
	for name, want := range map[string]string{
		"kubernetes-server-linux-amd64.tar.gz":      "[kubeadm kubelet kubectl] amd64 ",
		"kubernetes-node-linux-arm64.tar.gz":        "[kubeadm kubelet kubectl] arm64 ",
		"release.tar.gz":                            "[kubeadm kubelet kubectl]  ",
		"crictl-v1.36.0-linux-amd64.tar.gz":         "[crictl] amd64 v1.36.0",
		"crictl-v1.36.0-beta.1-linux-arm64.tar.gz":  "[crictl] arm64 v1.36.0-beta.1",
		"cni-plugins-linux-amd64-v1.9.1.tgz":        "[cni-plugins] amd64 v1.9.1",
		"cni-plugins-linux-ppc64le-v1.9.1-rc.1.tgz": "[cni-plugins] ppc64le v1.9.1-rc.1",
	} {
		programs, arch, version := archiveFacts(name)
		if got := fmt.Sprintf("%v %s %s", programs, arch, version); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for entry, want := range map[string]string{"kubernetes/server/bin/kubelet": "kubelet", "./kubernetes/node/bin/kubeadm": "kubeadm", "kubelet": "", "crictl": "crictl", "./crictl": "crictl",
		"kubernetes/server/bin/kube-proxy": "", "kubernetes/server/bin/../../../etc/kubelet": "", "x/kubernetes/server/bin/kubelet": ""} {
		if got := archivedProgram(entry, append([]string{programCrictl}, releasePrograms...)); got != want {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
}

// The text is found wherever the reads divide it.
func TestHasText(t *testing.T) {
	want := []byte(testRelease + "\x00")
	for _, at := range []int{0, 5, 256<<10 - 3, 256<<10 - 1, 256 << 10, 600_000} {
		data := append(bytes.Repeat([]byte("v1.36."), at/6+1)[:at], want...)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(data), "single bytes": io.MultiReader(bytes.NewReader(data[:at]), bytes.NewReader(data[at:at+3]), bytes.NewReader(data[at+3:]))} {
			if ok, err := hasText(r, want); !ok || err != nil {
				t.Errorf("at %d, %s: %v %v", at, name, ok, err)
			}
		}
		if ok, err := hasText(bytes.NewReader(data[:len(data)-1]), want); ok || err != nil {
			t.Errorf("at %d without its end: %v %v", at, ok, err)
		}
	}
}

func TestSums(t *testing.T) {
	sum := sum256("x")
	for text, want := range map[string]string{sum: sum, strings.ToUpper(sum) + "\n": sum, sum + "  kubelet\n": sum, "": "", "kubelet " + sum: "", sum[1:]: "", strings.Repeat("g", 64): ""} {
		if got := parseSum(text, 32); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	list := "# sums\n" + sum256("a") + "  a\n" + sum256("b") + " *b\n" + sum256("c") + "  ./linux/amd64/c\nSHA256 (d) = " + sum256("d") + "\n"
	for name, want := range map[string]string{"a": sum256("a"), "b": sum256("b"), "linux/amd64/c": sum256("c"), "c": "", "d": "", "": ""} {
		if got := findSum(list, name, 32); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestPlatforms(t *testing.T) {
	if p := hostPlatform("darwin", "arm64"); p != "" {
		t.Errorf("kubeadm for %s", p)
	}
	r := &releaseReader{version: testRelease}
	if _, err := r.kubeadmFor(t.Context(), nil, ""); console.ExitCode(err) != console.ExitUsage || !strings.Contains(err.Error(), "runs on Linux only") {
		t.Errorf("on another system: %v", err)
	}
	if _, err := architectures(nil); console.ExitCode(err) != console.ExitUsage {
		t.Errorf("on another system without --platform: %v", err)
	}
	got, err := architectures([]string{"linux/amd64", "linux/arm64", "linux/amd64"})
	if diff := cmp.Diff([]string{"amd64", "arm64"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// Only a command line without --kubernetes-from leads to the internet, and it prints so.
func TestDefaultPlace(t *testing.T) {
	var out bytes.Buffer
	r := &releaseReader{version: testRelease, cache: &programCache{}, out: &out}
	places, err := r.openPlaces(nil)
	if err != nil || len(places) != 1 || places[0].(*serverPlace).base.String() != "https://dl.k8s.io" || !strings.Contains(out.String(), "programs come from https://dl.k8s.io") {
		t.Errorf("%v %v %s", places, err, out.String())
	}
}

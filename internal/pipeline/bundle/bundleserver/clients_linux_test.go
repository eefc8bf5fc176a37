package bundleserver

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// real is a bundle of images that runtimes unpack, one of them for this machine's platform only,
// and their digests by name.
func real(t *testing.T) (file []byte, digests map[string]string) {
	t.Helper()
	s := newSite(t)
	digests = map[string]string{}
	layer := func(text string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	shared := layer(strings.Repeat("shared ", 20_000))
	for _, image := range []string{"registry.k8s.io/pause:3.10.2", "registry.k8s.io/coredns/coredns:v1.12.1", "example.test:5000/a/b:1", "docker.io/library/busybox:1"} {
		digest, below := s.manifest(nil, shared, layer(image))
		s.image(image, bundle.MediaTypeManifest, digest, below...)
		digests[image] = digest
	}
	digest, below := s.manifest(nil, shared, layer("one platform"))
	index := s.add(s.json(object{"schemaVersion": 2, "mediaType": bundle.MediaTypeIndex, "manifests": []object{
		{"mediaType": bundle.MediaTypeManifest, "digest": "sha256:" + strings.Repeat("a", 64), "size": 500, "platform": object{"os": "linux", "architecture": "s390x"}},
		{"mediaType": bundle.MediaTypeManifest, "digest": digest, "size": len(s.blobs[s.index[digest]]), "platform": object{"os": "linux", "architecture": runtime.GOARCH}}}}))
	s.image("registry.k8s.io/etcd:3.6.5-0", bundle.MediaTypeIndex, index, append(below, digest)...)
	digests["registry.k8s.io/etcd:3.6.5-0"] = index
	return s.bytes(), digests
}

// crane's library pulls every image under its name here, and lists the registry.
func TestCrane(t *testing.T) {
	t.Parallel()
	file, digests := real(t)
	_, srv := registry(t, file)
	host := strings.TrimPrefix(srv.URL, "http://")
	for image, digest := range digests {
		repo, tag := SplitName(image)
		ref, err := name.NewTag(host+"/"+Alias(repo)+":"+tag, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Get(ref, remote.WithContext(t.Context()))
		if err != nil || got.Digest.String() != digest {
			t.Errorf("%s: %v", image, err)
			continue
		}
		img, err := remote.Image(ref, remote.WithContext(t.Context()), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
		if err != nil {
			t.Error(err)
			continue
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 2 {
			t.Errorf("%s: %d layers, %v", image, len(layers), err)
		}
		for _, l := range layers {
			r, err := l.Compressed() // compares the digest
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			if err != nil {
				t.Errorf("%s: %v", image, err)
			}
		}
	}
	reg, err := name.NewRegistry(host, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	list, err := remote.CatalogPage(reg, "", 3, remote.WithContext(t.Context()))
	if err != nil || !slices.Equal(list, []string{"docker.io/library/busybox", "example.test_5000/a/b", "registry.k8s.io/coredns/coredns"}) {
		t.Errorf("%v %v", list, err)
	}
	tags, err := remote.List(reg.Repo("registry.k8s.io", "etcd"), remote.WithContext(t.Context()), remote.WithPageSize(1))
	if err != nil || !slices.Equal(tags, []string{"3.6.5-0"}) {
		t.Errorf("%v %v", tags, err)
	}
	pushed, err := random.Layer(100, types.OCILayer)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteLayer(reg.Repo("registry.k8s.io", "pause"), pushed, remote.WithContext(t.Context())); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a push: %v", err)
	}
}

// mirrors is the file that leads CRI-O, Podman and skopeo to the registry.
func mirrors(host string, digests map[string]string) string {
	var b strings.Builder
	seen := map[string]bool{}
	for image := range digests {
		registry, _, _ := strings.Cut(image, "/")
		if seen[registry] {
			continue
		}
		seen[registry] = true
		fmt.Fprintf(&b, "[[registry]]\nlocation = %q\n[[registry.mirror]]\nlocation = %q\ninsecure = true\n", registry, host+"/"+strings.ReplaceAll(registry, ":", "_"))
	}
	return b.String()
}

// skopeo pulls every image under its original name through the mirror, and by its name here.
func TestSkopeo(t *testing.T) {
	t.Parallel()
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed")
	}
	file, digests := real(t)
	_, srv := registry(t, file)
	host := strings.TrimPrefix(srv.URL, "http://")
	conf := filepath.Join(t.TempDir(), "registries.conf")
	if err := os.WriteFile(conf, []byte(mirrors(host, digests)), 0o600); err != nil {
		t.Fatal(err)
	}
	copyTo := func(image string, option ...string) (digest, output string) {
		dir := t.TempDir()
		args := append([]string{"--insecure-policy", "--registries-conf", conf, "copy", "--preserve-digests"}, append(option, "docker://"+image, "dir:"+dir)...)
		out, _ := exec.CommandContext(t.Context(), skopeo, args...).CombinedOutput()
		manifest, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
		if err != nil {
			return "", string(out)
		}
		return bundle.DigestOf(manifest), string(out)
	}
	for image, digest := range digests {
		repo, tag := SplitName(image)
		if strings.Contains(image, "etcd") {
			got, out := copyTo(image) // of an index, the image of this platform
			if got == "" {
				t.Errorf("%s: %s", image, out)
			}
			if got, out := copyTo(image, "--all"); got != "" || !strings.Contains(out, "manifest unknown") && !strings.Contains(out, "other platforms") {
				t.Errorf("%s with all platforms: %s %s", image, got, out)
			}
			continue
		}
		if got, out := copyTo(image); got != digest {
			t.Errorf("%s: %s", image, out)
		}
		if got, out := copyTo(host+"/"+Alias(repo)+":"+tag, "--src-tls-verify=false"); got != digest {
			t.Errorf("%s by its name here: %s", image, out)
		}
	}
	out, err := exec.CommandContext(t.Context(), skopeo, "--insecure-policy", "copy", "--dest-tls-verify=false", "--src-tls-verify=false",
		"docker://"+host+"/registry.k8s.io/pause:3.10.2", "docker://"+host+"/registry.k8s.io/pushed:1").CombinedOutput()
	if err == nil {
		t.Errorf("a push: %s", out)
	}
}

// program finds a program that the lab has built: REFIT_LAB_BIN, or its cache.
func program(t *testing.T, set, file string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root: a real %s is started", file)
	}
	var places []string
	if d := os.Getenv("REFIT_LAB_BIN"); d != "" {
		places = append(places, filepath.Join(d, file))
	}
	if c, err := os.UserCacheDir(); err == nil {
		m, _ := filepath.Glob(filepath.Join(c, "refit", "lab", "bin", set, file))
		places = append(places, m...)
	}
	for _, p := range places {
		if st, err := os.Stat(p); err == nil && st.Mode()&0o111 != 0 {
			return p
		}
	}
	t.Skipf("no %s: set REFIT_LAB_BIN to a directory that has it, or run `refit-lab up` once with this runtime", file)
	return ""
}

// start starts a runtime and waits until it answers. The test ends it.
func start(t *testing.T, dir, socket string, cmd *exec.Cmd) *cri.Client {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	})
	c, err := cri.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for range 300 {
		if _, _, err = c.Version(t.Context()); err == nil {
			return c
		}
		time.Sleep(100 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	t.Fatalf("the runtime does not answer: %v; its log ends:\n%s", err, text[max(0, len(text)-3000):])
	return nil
}

// pullAll has a runtime pull every image by tag and by digest, and compares what it lists.
func pullAll(t *testing.T, dir string, c *cri.Client, digests map[string]string) {
	t.Helper()
	for image, digest := range digests {
		repo, _ := SplitName(image)
		for _, ref := range []string{image, repo + "@" + digest} {
			if err := c.Pull(t.Context(), ref, time.Minute); err != nil {
				text, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Fatalf("%s: %v; the log ends:\n%s", ref, err, text[max(0, len(text)-3000):])
			}
		}
		all, err := c.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(all, func(i cri.Image) bool {
			return slices.Contains(i.Tags, image) && slices.Contains(i.Digests, repo+"@"+digest)
		}) {
			t.Errorf("%s is not there by tag and digest: %+v", image, all)
		}
	}
	if err := c.Pull(t.Context(), "registry.k8s.io/pause:none", time.Minute); err == nil {
		t.Error("a tag that the bundle does not have was pulled")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A real containerd pulls every image under its original name through hosts.toml.
func TestContainerd(t *testing.T) {
	bin := program(t, "containerd-*", "containerd")
	file, digests := real(t)
	_, srv := registry(t, file)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "certs.d", "_default", "hosts.toml"), fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", srv.URL))
	write(t, filepath.Join(dir, "config.toml"), fmt.Sprintf(`version = 3
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "%[1]s/c.sock"
[plugins.'io.containerd.cri.v1.images']
snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "%[1]s/certs.d"
[plugins.'io.containerd.cri.v1.runtime'.cni]
conf_dir = "%[1]s/cni"
`, dir))
	cmd := exec.Command(bin, "--config", filepath.Join(dir, "config.toml"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
	pullAll(t, dir, start(t, dir, filepath.Join(dir, "c.sock"), cmd), digests)
}

// A real CRI-O pulls every image under its original name through registries.conf.
func TestCRIO(t *testing.T) {
	bin := filepath.Dir(program(t, "crio-*", "crio"))
	if _, err := os.Stat("/usr/bin/conmon"); err != nil {
		t.Skip("conmon is not installed")
	}
	file, digests := real(t)
	_, srv := registry(t, file)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "etc/policy.json"), `{"default": [{"type": "insecureAcceptAnything"}]}`)
	write(t, filepath.Join(dir, "etc/containers/registries.conf"), mirrors(strings.TrimPrefix(srv.URL, "http://"), digests))
	write(t, filepath.Join(dir, "cni/none"), "")
	write(t, filepath.Join(dir, "etc/crio.conf.d/none"), "")
	write(t, filepath.Join(dir, "etc/crio.conf"), fmt.Sprintf(`[crio]
root = "%[1]s/root"
runroot = "%[1]s/runroot"
storage_driver = "vfs"
log_dir = "%[1]s/logs"
version_file = "%[1]s/version"
clean_shutdown_file = ""
[crio.api]
listen = "%[1]s/c.sock"
[crio.image]
signature_policy = "%[1]s/etc/policy.json"
[crio.network]
network_dir = "%[1]s/cni"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
pinns_path = "%[2]s/pinns"
namespaces_dir = "%[1]s/ns"
container_exits_dir = "%[1]s/exits"
container_attach_socket_dir = "%[1]s/attach"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/bin/conmon"
`, dir, bin))
	script := fmt.Sprintf("mkdir -p /etc/containers && mount --bind %[1]s/etc/containers /etc/containers && exec %[2]s/crio --config %[1]s/etc/crio.conf --config-dir %[1]s/etc/crio.conf.d", dir, bin)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	pullAll(t, dir, start(t, dir, filepath.Join(dir, "c.sock"), cmd), digests)
}

// Slow bodies of requests that nothing reads do not hold connections.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	file, _ := real(t)
	_, srv := registry(t, file)
	c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "PUT /v2/a/manifests/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * bodyTime))
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(c); err != nil {
		t.Fatalf("the connection stays: %v, %s", err, answer.String())
	}
	if answer.Len() > 0 && !strings.Contains(answer.String(), http.StatusText(http.StatusMethodNotAllowed)) {
		t.Error(answer.String())
	}
}

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// childDir tells this test binary to be an agent over the files in a directory.
const childDir = "REFIT_TEST_AGENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	os.Exit(m.Run())
}

// files is the environment of a child process: API server and runtime are files, so that they
// survive a kill as the real ones do.
type files struct{ dir string }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) read(name string, into any) {
	if b, err := os.ReadFile(f.path(name)); err == nil {
		_ = json.Unmarshal(b, into)
	}
}

func (f files) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return fsutil.WriteFile(f.path(name), b, 0o600)
}

func (f files) Watch(ctx context.Context, got func(*v1alpha1.NodeUpdate)) {
	nu := &v1alpha1.NodeUpdate{}
	f.read("nodeupdate", nu)
	got(nu)
	<-ctx.Done()
}

func (f files) Content(_ context.Context, name string) (*v1alpha1.Content, error) {
	c := &v1alpha1.Content{}
	f.read(name, c)
	return c, nil
}

func (f files) ApplyStatus(_ context.Context, s *v1alpha1.NodeUpdateStatus) error {
	return f.write("status", s)
}

type runtimeState struct{ Images, Pins map[string]string }

// runtimeFiles is a runtime whose images and pins are in a file.
type runtimeFiles struct{ files }

func (r runtimeFiles) state() runtimeState {
	s := runtimeState{Images: map[string]string{}, Pins: map[string]string{}}
	r.read("runtime", &s)
	return s
}

func (r runtimeFiles) Present(context.Context) (out []pin.RuntimeImage, err error) {
	s := r.state()
	for n, d := range s.Images {
		out = append(out, pin.RuntimeImage{Tags: []string{n}, Digests: []string{pin.Repository(n) + "@" + d}, Pinned: s.Pins[n] != ""})
	}
	return out, nil
}

func (r runtimeFiles) Load(ctx context.Context, img containerd.Image, blobs containerd.Blobs) ([]string, error) {
	b, err := blobs.Open(img.Digest)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if n, err := io.Copy(io.Discard, b); err != nil || n != img.Size {
		return nil, errors.New("a half image was to be loaded")
	}
	s := r.state()
	s.Images[img.Name] = img.Digest
	if err := r.write("runtime", s); err != nil {
		return nil, err
	}
	failpoint.Here(failpoint.LoadDone)
	names, _, err := r.Pin(ctx, img)
	return names, err
}

func (r runtimeFiles) Pin(_ context.Context, img containerd.Image) ([]string, bool, error) {
	s := r.state()
	if s.Images[img.Name] != img.Digest {
		return nil, false, nil
	}
	s.Pins[img.Name] = "pinned"
	err := r.write("runtime", s)
	failpoint.Here(failpoint.PinLabel)
	return []string{img.Name}, true, err
}

func (r runtimeFiles) Unpin(context.Context, []string) error { return nil }
func (r runtimeFiles) Root(context.Context) (string, error)  { return r.dir, nil }
func (r runtimeFiles) Version(context.Context) (string, string, error) {
	return "files", "1", nil
}
func (r runtimeFiles) Watch(ctx context.Context, _ func()) { <-ctx.Done() }

// child is the agent; it ends itself when all is held.
func child(dir string) {
	f := files{dir}
	failpoint.KillFrom(f.path("state/failpoint"))
	a, err := New(agentconfig.Config{Node: "n1", StateDir: f.path("state"), RunDir: f.path("run"), Kubeconfig: f.path("none"),
		Address: "127.0.0.1:17960", NoDevices: true, Media: []string{f.path("stick")}, LocalRegistries: []string{"127.0.0.1"}, RegistryAuth: f.path("logins")},
		Parts{API: f, Runtime: runtimeFiles{f}, Runner: func(Store) Runner { return noRun{} }, Facts: noFacts{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	a.space.eviction = func() kube.Eviction { return kube.Eviction{} }
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			var s v1alpha1.NodeUpdateStatus
			if f.read("status", &s); held(&s) {
				cancel()
			}
		}
	}()
	if err := a.Run(ctx); err != nil {
		println(err.Error())
		os.Exit(1)
	}
}

// Promise 6: the process is killed with SIGKILL at every point between the
// stick and the pin, and the next one goes on; what is called held is whole.
func TestKilledAnywhereItGoesOn(t *testing.T) {
	for _, point := range []string{
		failpoint.HeaderFetched, failpoint.HeaderStored, failpoint.ChunkWritten + ":3", failpoint.BlobSync + ":2", failpoint.BlobRename + ":2",
		failpoint.MediumCopy + ":4", failpoint.LoadDone, failpoint.PinLabel, failpoint.PinRecord, failpoint.StatusApply,
	} {
		t.Run(point, func(t *testing.T) {
			f := files{t.TempDir()}
			path, h := mediumWith(t, bundletest.Tiny(), 1)
			own, img := madeOf(t, bundletest.Tiny(), h)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			api := newFakeAPI()
			nu := &v1alpha1.NodeUpdate{}
			nu.Generation = 1
			nu.Spec.Bundles = []v1alpha1.ApprovedBundle{{Digest: h.Digest}}
			img.Overlay = api.content(t, v1alpha1.ContentOSImage, own)
			list := everything(h)
			list.Images = append(list.Images, img)
			nu.Spec.Pins = api.content(t, v1alpha1.ContentPins, list)
			for _, err := range []error{
				os.WriteFile(f.path("stick"), raw, 0o600), os.MkdirAll(f.path("state"), 0o700),
				f.write("nodeupdate", nu), f.write(nu.Spec.Pins, api.contents[nu.Spec.Pins]), f.write(img.Overlay, api.contents[img.Overlay]),
				os.WriteFile(f.path("state/failpoint"), []byte(point), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := start(t, f); !wasKilled(err) {
				t.Fatalf("the point was not reached: %v", err)
			}
			if err := start(t, f); err != nil {
				t.Fatalf("the second process: %v", err)
			}
			var s v1alpha1.NodeUpdateStatus
			f.read("status", &s)
			rt := runtimeFiles{f}.state()
			if !held(&s) || len(rt.Images) != 3 || len(rt.Pins) != 3 || s.Pins.BytesDone != s.Pins.BytesTotal {
				t.Fatalf("held %v, runtime %+v, holding %+v", held(&s), rt, s.Pins)
			}
		})
	}
}

func start(t *testing.T, f files) error {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childDir+"="+f.dir)
	c.Stderr = os.Stderr
	return c.Run()
}

func wasKilled(err error) bool {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return false
	}
	ws, ok := e.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

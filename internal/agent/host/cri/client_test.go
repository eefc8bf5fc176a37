package cri

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/refit-dev/refit/internal/agent/host/cri/critest"
)

// A runtime that accepts connections and never answers (stopped, or its disk hangs) must not block
// a caller forever.
func TestARuntimeThatHangsIsAnError(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.limit = 200 * time.Millisecond
	ended := make(chan error, 1)
	go func() {
		_, err := c.Images(t.Context())
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Fatal("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}

// pods is a runtime with static pods and others.
type pods struct {
	runtime.UnimplementedRuntimeServiceServer
	runtime.UnimplementedImageServiceServer
	sandboxes  []*runtime.PodSandbox
	containers []*runtime.Container
	images     []*runtime.Image
}

func (p *pods) ListPodSandbox(context.Context, *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	return &runtime.ListPodSandboxResponse{Items: p.sandboxes}, nil
}

func (p *pods) ListContainers(context.Context, *runtime.ListContainersRequest) (*runtime.ListContainersResponse, error) {
	return &runtime.ListContainersResponse{Containers: p.containers}, nil
}

func (p *pods) ListImages(context.Context, *runtime.ListImagesRequest) (*runtime.ListImagesResponse, error) {
	return &runtime.ListImagesResponse{Images: p.images}, nil
}

// StaticDigests reports the image of the container, not the image that the tag in the manifest
// names now, and not that of an API pod with the same name.
func TestStaticDigestsAreOfWhatRuns(t *testing.T) {
	sandbox := func(id, source string) *runtime.PodSandbox {
		return &runtime.PodSandbox{Id: id, Annotations: map[string]string{sourceAnnotation: source}}
	}
	container := func(sandbox, image string, created int64) *runtime.Container {
		return &runtime.Container{PodSandboxId: sandbox, ImageRef: image, CreatedAt: created, Image: &runtime.ImageSpec{Image: "r.example/proxy:1.0"},
			Labels: map[string]string{"io.kubernetes.pod.namespace": "edge", "io.kubernetes.pod.name": "proxy-n1", "io.kubernetes.container.name": "app"}}
	}
	old := &runtime.Image{Id: "sha256:id-old", RepoDigests: []string{"r.example/proxy@sha256:old", "mirror.example/proxy@sha256:old", "r.example/proxy@sha256:old-index"}}
	now := &runtime.Image{Id: "sha256:id-new", RepoTags: []string{"r.example/proxy:1.0"}, RepoDigests: []string{"r.example/proxy@sha256:new"}}
	for what, x := range map[string]struct {
		containers []*runtime.Container
		want       []string
	}{
		"the tag names another image by now":     {[]*runtime.Container{container("static", "sha256:id-old", 1)}, []string{"sha256:old", "sha256:old-index"}},
		"the container that was created last":    {[]*runtime.Container{container("static", "sha256:id-new", 2), container("static", "sha256:id-old", 1)}, []string{"sha256:new"}},
		"a runtime that gives a name for the ID": {[]*runtime.Container{container("static", "r.example/proxy@sha256:new", 1)}, []string{"sha256:new"}},
		"a pod of the API server":                {[]*runtime.Container{container("static", "sha256:id-old", 1), container("api", "sha256:id-new", 2)}, []string{"sha256:old", "sha256:old-index"}},
		"only a pod of the API server":           {[]*runtime.Container{container("api", "sha256:id-new", 2)}, nil},
		"an image that is not there any more":    {[]*runtime.Container{container("static", "sha256:gone", 1)}, nil},
		"an image without a name":                {[]*runtime.Container{container("static", "", 1)}, nil},
		"no container":                           {nil, nil},
	} {
		t.Run(what, func(t *testing.T) {
			c, err := Open(critest.Listen(t, &pods{containers: x.containers, images: []*runtime.Image{old, now, {Id: "sha256:id-none"}},
				sandboxes: []*runtime.PodSandbox{sandbox("static", fromFile), sandbox("api", "api")}}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := c.StaticDigests(t.Context(), "edge", "proxy-n1", "app")
			if err != nil || !slices.Equal(got, x.want) {
				t.Errorf("%v, %v; want %v", got, err, x.want)
			}
			for _, other := range [][3]string{{"edge", "proxy-n1", "sidecar"}, {"edge", "proxy", "app"}, {"kube-system", "proxy-n1", "app"}} {
				if got, err := c.StaticDigests(t.Context(), other[0], other[1], other[2]); err != nil || len(got) > 0 {
					t.Errorf("%v runs %v, %v", other, got, err)
				}
			}
		})
	}
}

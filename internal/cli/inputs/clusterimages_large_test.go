package inputs_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// Memory and requests follow the pages, not the pods.
func TestThousandsOfPods(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes 2000 pods")
	}
	cfg := apitest.Start(t)
	cfg.QPS, cfg.Burst = 1000, 2000
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const pods = 2000
	padding, controls := strings.Repeat("x", 8000), true
	for i := range pods {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p-%04d", i), Annotations: map[string]string{"padding": padding},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Game", Name: "g", UID: "3f1e7c3a-8a45-4a2b-9a55-0b1c2d3e4f50", Controller: &controls}}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "registry.example/app:1"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	peak, done, stopped := before.HeapInuse, make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapInuse)
			}
		}
	}()
	start := time.Now()
	images, err := inputs.ReadClusterImages(t.Context(), inputs.ClusterOptions{Config: cfg})
	took := time.Since(start)
	close(done)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	grown := int64(peak) - int64(before.HeapInuse)
	t.Logf("%d objects, %d requests, %v, heap grew by %d bytes", images.Objects, images.Requests, took.Round(time.Millisecond), grown)
	// Four pages of pods, one each of the other kinds, the groups and kubeadm's settings.
	if len(images.Refs) != 1 || images.Objects != pods || images.Requests > 14 || grown > 32<<20 {
		t.Errorf("%d references, %d objects, %d requests, %d bytes", len(images.Refs), images.Objects, images.Requests, grown)
	}
}

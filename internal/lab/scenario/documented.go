package scenario

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/lab/components"
)

// MoveAsDocumented updates a node as the documentation of k3s, RKE2 and k0s says for sites without
// a registry: archives into the folder of images, the new program, a restart of the unit.
func (s *Scenario) MoveAsDocumented(ctx context.Context, node string, to *components.LookAlike) error {
	row, _ := distribution.ByName(s.Distribution)
	files := map[string]string{to.Program: "/usr/local/bin/" + row.Name}
	for _, i := range to.Release.OnEveryNode() {
		files[i.Archive] = filepath.Join(row.Places.Images, filepath.Base(i.Archive))
	}
	for from, path := range files {
		if err := s.place(ctx, node, from, path); err != nil {
			return fmt.Errorf("node %s: %s: %w", node, path, err)
		}
	}
	unit := row.Servers[0]
	if node != s.Lab.Nodes()[0] {
		unit = row.Agents[0]
	}
	s.report("node %s restarts with %s", node, to.Version)
	return s.Exec(ctx, node, "systemctl", "restart", unit)
}

// place replaces a file of a node by a rename.
func (s *Scenario) place(ctx context.Context, node, from, path string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	const replace = `cat > "$0.new" && chmod 755 "$0.new" && mv "$0.new" "$0"`
	return s.Lab.Exec(ctx, node, f, io.Discard, io.Discard, "sh", "-c", replace, path)
}

// ImageWait is a container that waited for its image.
type ImageWait struct {
	Node  string `json:"node"`
	Pod   string `json:"pod"`
	Image string `json:"image"`
	// Reasons that the kubelet reported, as ErrImagePull.
	Reasons []string `json:"reasons"`
	// Seconds between the first sample with such a reason and the last.
	Seconds float64 `json:"seconds"`

	first time.Time
}

// ImageMonitor finds containers that wait for an image.
type ImageMonitor struct {
	mu    sync.Mutex
	waits map[string]*ImageWait
	order []string
}

// imageReasons are those of the kubelet for a container without its image.
var imageReasons = map[string]bool{"ErrImagePull": true, "ImagePullBackOff": true, "ErrImageNeverPull": true}

// WatchImages lists all pods until ctx ends.
func WatchImages(ctx context.Context, c client.Client) *ImageMonitor {
	m := &ImageMonitor{waits: map[string]*ImageWait{}}
	go func() {
		for ctx.Err() == nil {
			var pods corev1.PodList
			list, cancel := context.WithTimeout(ctx, time.Second)
			err := c.List(list, &pods)
			cancel()
			if err == nil {
				m.sample(pods.Items, time.Now())
			}
			sleep(ctx, pollEvery)
		}
	}()
	return m
}

func (m *ImageMonitor) sample(pods []corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && imageReasons[w.Reason] {
				m.record(&pods[i], c, now)
			}
		}
	}
}

func (m *ImageMonitor) record(p *corev1.Pod, c corev1.ContainerStatus, now time.Time) {
	key := string(p.UID) + "/" + c.Name
	w := m.waits[key]
	if w == nil {
		w = &ImageWait{Node: p.Spec.NodeName, Pod: p.Namespace + "/" + p.Name, Image: c.Image, first: now}
		m.waits[key], m.order = w, append(m.order, key)
	}
	if r := c.State.Waiting.Reason; !contains(w.Reasons, r) {
		w.Reasons = append(w.Reasons, r)
	}
	w.Seconds = now.Sub(w.first).Seconds()
}

// Waits so far, in the order in which they were seen.
func (m *ImageMonitor) Waits() []ImageWait {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []ImageWait{}
	for _, key := range m.order {
		out = append(out, *m.waits[key])
	}
	return out
}

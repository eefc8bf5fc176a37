package scenario

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pollEvery is the distance of two looks.
const pollEvery = 100 * time.Millisecond

// APIMonitor measures how long the API server does not answer.
type APIMonitor struct {
	mu  sync.Mutex
	bad time.Duration
}

// WatchAPI polls url (https://.../readyz) until ctx ends. One look that fails
// counts from the end of the last good look to the next good one.
func WatchAPI(ctx context.Context, url string) *APIMonitor {
	m := &APIMonitor{}
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // readiness only; nothing is sent or believed
	go m.run(ctx, func() bool { return readyz(ctx, c, url) })
	return m
}

func readyz(ctx context.Context, c *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (m *APIMonitor) run(ctx context.Context, ok func() bool) {
	lastGood := time.Now()
	wasBad := false
	for ctx.Err() == nil {
		good := ok()
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		if good {
			if wasBad {
				m.addOutage(now.Sub(lastGood))
			}
			lastGood, wasBad = now, false
		} else {
			wasBad = true
		}
		sleep(ctx, pollEvery)
	}
}

func (m *APIMonitor) addOutage(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bad += d
}

// Unavailable is the time so far.
func (m *APIMonitor) Unavailable() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bad
}

// WorkloadMonitor measures the lowest number of ready pods.
type WorkloadMonitor struct {
	mu      sync.Mutex
	min     int
	samples int
}

// WatchWorkload lists the pods with the labels until ctx ends. A look that the
// API server does not answer is no sample: without it no eviction happens.
func WatchWorkload(ctx context.Context, c client.Client, namespace string, labels map[string]string) *WorkloadMonitor {
	m := &WorkloadMonitor{min: -1}
	go func() {
		for ctx.Err() == nil {
			var pods corev1.PodList
			look, cancel := context.WithTimeout(ctx, time.Second)
			err := c.List(look, &pods, client.InNamespace(namespace), client.MatchingLabels(labels))
			cancel()
			if err == nil {
				m.sample(readyPods(pods.Items))
			}
			sleep(ctx, pollEvery)
		}
	}()
	return m
}

func readyPods(pods []corev1.Pod) int {
	n := 0
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue // on its way out: it takes no new requests
		}
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return n
}

func (m *WorkloadMonitor) sample(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples++
	if m.min < 0 || n < m.min {
		m.min = n
	}
}

// Lowest is the lowest number of ready pods, and the number of samples.
func (m *WorkloadMonitor) Lowest() (lowest, samples int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.min, m.samples
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

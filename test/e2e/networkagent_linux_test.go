package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/lab/scenario"
)

const (
	// agentReplacements of the pod are measured, with a request of each kind every requestEvery.
	agentReplacements = 10
	requestEvery      = 20 * time.Millisecond
)

// requests of one kind, and how they ended.
type requests struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Connections: new for each request, or one.
	Connections string `json:"connections"`
	Requests    int    `json:"requests"`
	Failed      int    `json:"failed"`
	// LongestMillis is the longest time of one request.
	LongestMillis int64 `json:"longestMillis"`
	// Interruptions are failures one after the other; LongestInterruptionMillis is from the first of
	// them to the next request that succeeded.
	Interruptions             int    `json:"interruptions"`
	LongestInterruptionMillis int64  `json:"longestInterruptionMillis"`
	FirstFailure              string `json:"firstFailure,omitempty"`
}

// TestNetworkAgentIsReplaced replaces the pod of the network agent of a node, kube-proxy, without a
// drain, as the rollout of a DaemonSet does. It counts the requests that fail meanwhile.
func TestNetworkAgentIsReplaced(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a lab of two nodes takes minutes: make e2e")
	}
	s := start(t, "images-agent", 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var service corev1.Service
	must(t, s.Client.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "app"}, &service))
	var pod *corev1.Pod
	eventually(t, 2*time.Minute, "a pod is Ready on n2", func() (bool, string) {
		var l corev1.PodList
		if err := s.Client.List(ctx, &l, client.InNamespace("shop"), client.MatchingLabels{"app": "app"}); err != nil {
			return false, err.Error()
		}
		for i := range l.Items {
			if p := &l.Items[i]; p.Spec.NodeName == "n2" && p.Status.PodIP != "" && podReady(p) {
				pod = p
				return true, p.Name
			}
		}
		return false, fmt.Sprintf("%d pods", len(l.Items))
	})
	waitForService(t, s, net.JoinHostPort(service.Spec.ClusterIP, "80"))
	direct, through := net.JoinHostPort(pod.Status.PodIP, "8080"), net.JoinHostPort(service.Spec.ClusterIP, "80")
	all := []*requests{
		{From: "n1", To: "pod on n2", Connections: "new"}, {From: "n2", To: "service", Connections: "new"},
		{From: "n1", To: "pod on n2", Connections: "one"}, {From: "n2", To: "service", Connections: "one"},
	}
	var running sync.WaitGroup
	for _, r := range all {
		address := direct
		if r.To == "service" {
			address = through
		}
		c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: r.Connections == "new",
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return s.Lab.Dial(ctx, r.From, network, address)
			}}}
		running.Go(func() { r.send(ctx, c, "http://"+address+"/") })
	}
	var seconds []float64
	for range agentReplacements {
		seconds = append(seconds, replaceAgent(t, s.Client, "n2"))
		time.Sleep(2 * time.Second)
	}
	cancel()
	running.Wait()
	for _, r := range all {
		if r.Requests < 100 {
			t.Errorf("%+v: too few requests to say anything", r)
		}
		// The next request after an interruption shows that the old rules, or new ones, are in force.
		if r.Interruptions > agentReplacements || r.To != "service" && r.Failed > 0 {
			t.Errorf("more failed than one interruption of services for each replacement: %+v", r)
		}
		t.Logf("measured: %+v", *r)
	}
	keepResult(t, "networkagent.json", func() any {
		return map[string]any{"agent": "kube-proxy", "node": "n2", "replacements": agentReplacements, "secondsUntilReady": seconds, "requests": all}
	})
}

// waitForService waits until both nodes have the rules for a Service: before, a Ready pod is refused.
func waitForService(t *testing.T, s *scenario.Scenario, address string) {
	t.Helper()
	for _, node := range []string{"n1", "n2"} {
		c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return s.Lab.Dial(ctx, node, network, address)
		}}}
		eventually(t, time.Minute, node+" reaches the Service", func() (bool, string) {
			err := getOnce(t.Context(), c, "http://"+address+"/")
			return err == nil, fmt.Sprint(err)
		})
	}
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// send sends requests until ctx ends.
func (r *requests) send(ctx context.Context, c *http.Client, url string) {
	var failing time.Time
	for ctx.Err() == nil {
		begin := time.Now()
		err := getOnce(ctx, c, url)
		if ctx.Err() != nil {
			return
		}
		r.Requests++
		r.LongestMillis = max(r.LongestMillis, time.Since(begin).Milliseconds())
		switch {
		case err == nil && !failing.IsZero():
			r.LongestInterruptionMillis = max(r.LongestInterruptionMillis, time.Since(failing).Milliseconds())
			failing = time.Time{}
		case err != nil:
			if r.Failed++; r.FirstFailure == "" {
				r.FirstFailure = err.Error()
			}
			if failing.IsZero() {
				failing = begin
				r.Interruptions++
			}
		}
		time.Sleep(requestEvery)
	}
}

func getOnce(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// replaceAgent deletes the pod of kube-proxy on a node, and returns after how many seconds the next
// one was Ready.
func replaceAgent(t *testing.T, c client.Client, node string) float64 {
	t.Helper()
	agent := func() *corev1.Pod {
		var l corev1.PodList
		must(t, c.List(t.Context(), &l, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-proxy"}))
		for i := range l.Items {
			if p := &l.Items[i]; p.Spec.NodeName == node && podReady(p) {
				return p
			}
		}
		return nil
	}
	old := agent()
	if old == nil {
		t.Fatalf("no kube-proxy is Ready on %s", node)
	}
	begin, uid := time.Now(), types.UID("")
	must(t, c.Delete(t.Context(), old))
	eventually(t, 2*time.Minute, "kube-proxy is replaced", func() (bool, string) {
		if p := agent(); p != nil && p.UID != old.UID {
			uid = p.UID
		}
		return uid != "", string(uid)
	})
	return time.Since(begin).Seconds()
}

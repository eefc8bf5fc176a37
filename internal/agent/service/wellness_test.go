package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/refit-dev/refit/internal/agent/host/kube"
	"github.com/refit-dev/refit/internal/agent/updaters/engine"
)

// What the node sees of itself comes from its kubelet, the API server and the peers.
func TestWellness(t *testing.T) {
	boot, err := (&nodeHost{}).BootID()
	if err != nil {
		t.Fatal(err)
	}
	ready, bootID, lease := "True", boot, `{"spec":{"renewTime":"2026-11-27T09:00:00.000000Z"}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/nodes/n1":
			fmt.Fprintf(w, `{"status":{"conditions":[{"type":"Ready","status":%q,"message":"cni"}],"nodeInfo":{"bootID":%q}}}`, ready, bootID)
		case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1":
			fmt.Fprint(w, lease)
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	defer s.Close()
	conf := filepath.Join(t.TempDir(), "kubelet.conf")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '" + s.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var kubelet error
	failed := ""
	w := wellness{host: &nodeHost{node: "n1", kubeconfig: conf, paths: kube.Paths{Root: t.TempDir()}},
		kubelet: func(context.Context) error { return kubelet }, peers: func(context.Context) int { return 3 },
		failed: func(context.Context) string { return failed }}
	expect := func(want engine.Health) {
		t.Helper()
		got := w.Observe(t.Context())
		if want.API != "" && strings.Contains(got.API, want.API) {
			got.API = want.API
		}
		if got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	const beat = "2026-11-27T09:00:00.000000Z"
	expect(engine.Health{Heartbeat: beat, Peers: 3})
	failed = "sshd.service"
	expect(engine.Health{Heartbeat: beat, Peers: 3, Failed: failed})
	ready, failed = "Unknown", ""
	expect(engine.Health{NotReady: "the node is not Ready: cni", Heartbeat: beat, Peers: 3})
	ready, bootID = "True", "another"
	expect(engine.Health{NotReady: "the kubelet has not reported this boot to the API server yet", Heartbeat: beat, Peers: 3})
	bootID, lease = boot, "no lease"
	kubelet = errors.New("kubelet's health: refused")
	expect(engine.Health{Kubelet: "kubelet's health: refused", Peers: 3})
	s.Close()
	kubelet = nil
	expect(engine.Health{API: "does not answer", Peers: 3})
}

// An open connection to the API server does not show that a new one would open.
func TestANewConnectionToTheAPIServer(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "kubelet.conf")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := wellness{host: &nodeHost{node: "n1", kubeconfig: conf}}
	if err := w.dialServer(t.Context()); err == nil || !strings.Contains(err.Error(), "no new connection to the API server") {
		t.Fatal(err)
	}
}

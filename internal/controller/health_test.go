package controller

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// A controller that starts while no API server answers lives and is not ready: the
// kubelet must not kill it for that.
func TestProbesAnswerWithoutAnAPIServer(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: &rest.Config{Host: "https://127.0.0.1:1"}, HealthAddress: address, Registry: prometheus.NewRegistry(), Log: logr.Discard()})
	}()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path) //nolint:noctx // a test
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	code, text := 0, ""
	for range 100 {
		if code, text = get("/readyz"); strings.Contains(text, "waiting for the API server") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "waiting for the API server") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	if code, text := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, text)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the controller ended without an error before it reached the API server")
	}
}

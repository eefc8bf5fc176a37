package notifications

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// A real Alertmanager shows an alert with its labels, and ends it when its cause is gone.
func TestRealAlertmanager(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Skip("needs prometheus-alertmanager: make deps installs it")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(config, []byte("route: {receiver: none}\nreceivers: [{name: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	c := exec.Command(binary, "--config.file="+config, "--storage.path="+dir, "--web.listen-address="+address, "--cluster.listen-address=")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill() // it has nothing to save
		_ = c.Wait()
	})
	u, err := url.Parse("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	s := newAlertmanager(testPoster(&receiver{name: "am", kind: typeAlertmanager, url: u}, logr.Discard()), time.Now)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	n := notice{Event: eventNeedsPerson, Update: "to-136", Phase: "Blocked", Reason: "NodeOnHold", Message: "m", Fix: "f", At: time.Now().Add(-time.Minute)}
	other := n
	other.Update = "to-137"
	s.set([]notice{n, other})
	wait := func(want int) []alert {
		t.Helper()
		var active []alert
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if active, err = activeAlerts(t, u); err == nil && len(active) == want {
				return active
			}
		}
		t.Fatalf("%v %+v, want %d", err, active, want)
		return nil
	}
	for _, a := range wait(2) {
		if a.Labels["alertname"] != "RefitUpdateNeedsPerson" || a.Labels["severity"] != "warning" || a.Labels["reason"] != "NodeOnHold" || a.Annotations["fix"] != "f" {
			t.Errorf("%+v", a)
		}
	}
	s.set([]notice{other})
	if left := wait(1); left[0].Labels["update"] != "to-137" {
		t.Errorf("%+v", left)
	}
}

func activeAlerts(t *testing.T, u *url.URL) ([]alert, error) {
	t.Helper()
	resp, err := http.Get(u.String() + "/api/v2/alerts")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %d", resp.StatusCode)
	}
	var out []alert
	return out, json.NewDecoder(resp.Body).Decode(&out)
}

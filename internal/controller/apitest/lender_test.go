package apitest

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Tests borrow servers as they were installed. A server comes back from a test that passes, and
// does not from a test that failed or crashed.
func TestLend(t *testing.T) {
	if testing.Short() {
		t.Skip("starts API servers")
	}
	if Binaries() == "" {
		t.Skip(noBinaries)
	}
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Lend(ctx, socket) }()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	t.Setenv(LenderSocket, socket)
	var hosts []string
	use := func(name string) {
		t.Run(name, func(t *testing.T) {
			cfg := Start(t)
			hosts = append(hosts, cfg.Host)
			c := newClient(t, cfg)
			if err := c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
				t.Error(err)
			}
			node := newClient(t, Certificate(t, cfg, "system:node:n1", "system:nodes"))
			if err := node.Get(t.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{}); err != nil {
				t.Errorf("the node reads itself: %v", err)
			}
			if err := node.Get(t.Context(), client.ObjectKey{Name: "n2"}, &corev1.Node{}); !apierrors.IsForbidden(err) {
				t.Errorf("the node reads another one: %v, want forbidden", err)
			}
		})
	}
	use("first")
	use("second")
	t.Run("crashes", func(t *testing.T) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := json.NewDecoder(conn).Decode(&a); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, a.Host)
		_ = conn.Close()
	})
	use("third")
	if hosts[0] != hosts[1] || hosts[1] != hosts[2] {
		t.Errorf("%v: want the same server three times", hosts[:3])
	}
	if hosts[3] == hosts[2] {
		t.Error("the server of a test that crashed was lent again")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, host := range hosts {
		if conn, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(host, "https:"), "/")); err == nil {
			_ = conn.Close()
			t.Errorf("%s still answers", host)
		}
	}
}

package cli

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// complete returns what a shell offers after a command line whose last word is unfinished.
func complete(t *testing.T, kubeconfig string, line ...string) (offers []string, directive string) {
	t.Helper()
	var out, hints bytes.Buffer
	root := rootOf("refit", &options{Access: inputs.Access{Kubeconfig: kubeconfig, Out: &out, Err: &hints}})
	root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, line...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1], lines[len(lines)-1]
}

func TestShellsCompleteNamesOfTheCluster(t *testing.T) {
	cfg := apitest.Start(t)
	config := kubeconfig(t, cfg)
	admin, err := (&inputs.Access{Kubeconfig: config}).Client()
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: named("edge-1")}, &corev1.Node{ObjectMeta: named("edge-2")}, &corev1.Node{ObjectMeta: named("core-1")},
		&v1alpha1.Bundle{ObjectMeta: named("site-1.36.3")},
		&v1alpha1.ClusterUpdate{ObjectMeta: named("to-1.36.3"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: "sha256:" + strings.Repeat("a", 64), Start: v1alpha1.StartManual}},
		&v1alpha1.UpdatePool{ObjectMeta: named("workers"), Spec: v1alpha1.UpdatePoolSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
		&v1alpha1.ImageTrack{ObjectMeta: named("shop-app"), Spec: v1alpha1.ImageTrackSpec{Repository: "r.example/shop/app", Follow: v1alpha1.TrackFollow{Tag: "2.6.2-rev1"}}},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatalf("%T: %v", o, err)
		}
	}
	const noFiles, files = ":4", ":0"
	for line, want := range map[string]struct {
		offers    string
		directive string
	}{
		"hold edge":                       {"edge-1 edge-2", noFiles},
		"hold edge-1 ":                    {"", noFiles},
		"gate ":                           {"to-1.36.3", noFiles},
		"pause to":                        {"to-1.36.3", noFiles},
		"apply x":                         {"", noFiles},
		"plan --to s":                     {"site-1.36.3", files},
		"rollback --pool ":                {"workers", files},
		"retry --node core":               {"core-1", files},
		"bundle remove site":              {"site-1.36.3", noFiles},
		"tags approve ":                   {"shop-app", noFiles},
		"tags approve shop-app ":          {"", noFiles},
		"bootimage token w":               {"workers", noFiles},
		"explain node/edge-2":             {"node/edge-2", noFiles},
		"explain node/edge-2 ":            {"", noFiles},
		"gate --kubeconfig /nowhere/at a": {"", noFiles},
	} {
		words := strings.Split(line, " ")
		offers, directive := complete(t, config, words...)
		slices.Sort(offers)
		if got := strings.Join(offers, " "); got != want.offers || directive != want.directive {
			t.Errorf("refit %s: offers %q %s, want %q %s", line, got, directive, want.offers, want.directive)
		}
	}
	if offers, _ := complete(t, config, "explain", ""); !slices.Contains(offers, "node/") || !slices.Contains(offers, v1alpha1.ReasonNodeNotReady) {
		t.Errorf("refit explain offers %q", offers)
	}
}

// A shell that completes never hangs on an API server that does not answer.
func TestCompletionEndsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and is silent
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	done := make(chan []string, 1)
	config := kubeconfig(t, &rest.Config{Host: "http://" + l.Addr().String()})
	go func() {
		offers, _ := complete(t, config, "hold", "")
		done <- offers
	}()
	select {
	case offers := <-done:
		if len(offers) > 0 {
			t.Errorf("offers %q", offers)
		}
	case <-time.After(3 * completionTimeout):
		t.Error("the completion still waits")
	}
}

// A flag that completes an object is one that there is.
func TestCompletedFlagsExist(t *testing.T) {
	t.Parallel()
	root := rootOf("refit", &options{})
	for path, flags := range completedFlags {
		c, _, err := root.Find(strings.Fields(path))
		if err != nil || c.CommandPath() != "refit "+path {
			t.Errorf("there is no command refit %s (%v)", path, err)
			continue
		}
		for flag, word := range flags {
			if c.Flags().Lookup(flag) == nil || completed[word] == nil {
				t.Errorf("refit %s --%s %s: no such flag or word", path, flag, word)
			}
		}
	}
}

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/peerapi"
)

// journalWith gives a node's agent whose journal is a text, as it is: an agent that hides nothing.
func journalWith(lines string) func(*peerapi.Identity) http.Handler {
	return func(*peerapi.Identity) http.Handler {
		return peerapi.WithLogs(http.NotFoundHandler(), func(string) bool { return true }, func(_ context.Context, _ peerapi.LogQuery, w io.Writer) error {
			_, err := io.WriteString(w, lines)
			return err
		})
	}
}

// An archive has the ends of the journals, without secrets; nodes that give none are named, and
// the rest of the archive is as it was.
func TestSupportHasJournals(t *testing.T) {
	s := newLogSite(t)
	secrets := []string{"planted0.0123456789abcdef", "planted-1-password", "planted-2-bearer", "eyJwbGFudGVk.planted3.x", "planted-4-proxy", "planted5planted5"}
	s.agent("n1", journalWith(journal+"join with abcdef.0123456789abcdef\npassword="+secrets[1]+"\nAuthorization: Bearer "+secrets[2]+"\njwt "+secrets[3]+
		"\nproxy http://me:"+secrets[4]+"@proxy:3128\n-----BEGIN PRIVATE KEY-----\n"+secrets[5]+"\n-----END PRIVATE KEY-----\nlast line\n"))
	s.agent("large", journalWith(strings.Repeat("a line of an agent that logs a lot\n", 20_000)+"last line\n"))
	s.agent("old", func(*peerapi.Identity) http.Handler { return http.NotFoundHandler() })
	s.agent("broken", func(*peerapi.Identity) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	s.make(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "silent"}})
	s.awaitNodeUpdate("silent")
	s.eventually("afterwards", "logs", "n1")

	file := filepath.Join(t.TempDir(), "site.tar.gz")
	s.types(console.ExitOK, "support", "--output", file)
	files := unpackSupport(t, file)
	for name, data := range files {
		for _, secret := range append(secrets, "abcdef.0123456789abcdef") {
			if strings.Contains(data, secret) {
				t.Errorf("%s has the secret %s", name, secret)
			}
		}
	}
	if j := files["journals/n1.log"]; !strings.HasPrefix(j, journal) || !strings.HasSuffix(j, "last line\n") {
		t.Errorf("the journal of n1: %q", j)
	}
	if j := files["journals/large.log"]; len(j) > maxJournal || len(j) < maxJournal/2 || !strings.HasPrefix(j, "a line") || !strings.HasSuffix(j, "last line\n") {
		t.Errorf("the journal of large has %d bytes", len(j))
	}
	var h inputs.Support
	if err := json.Unmarshal([]byte(files[inputs.SupportHeader]), &h); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{"old": "is older than this controller", "broken": "did not give its log", "silent": "no agent has reported"} {
		if !slices.ContainsFunc(h.LeftOut, func(l inputs.SupportGap) bool {
			return l.What == "journal of "+node && strings.Contains(l.Why, want)
		}) {
			t.Errorf("no gap for node %s: %v", node, h.LeftOut)
		}
		if _, ok := files["journals/"+node+".log"]; ok {
			t.Errorf("a journal of node %s", node)
		}
	}
	if said := s.types(console.ExitOK, "status", "--from", file); !strings.Contains(said, "not in the archive: journal of silent") {
		t.Error(said)
	}
	if st, err := os.Stat(file); err != nil || st.Size() > maxSupport {
		t.Errorf("%v %v", st, err)
	}
}

// awaitNodeUpdate waits until the controller has made it.
func (s *logSite) awaitNodeUpdate(node string) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = s.Get(context.Background(), client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: node}, &v1alpha1.NodeUpdate{}); err == nil {
			return
		}
	}
	s.t.Fatal(err)
}

// Of many nodes those in trouble are asked first, and the rest is named in one gap.
func TestJournalsOfManyNodes(t *testing.T) {
	t.Parallel()
	g := &supportGathering{}
	for i := range 30 {
		g.agents = append(g.agents, supportAgent{fmt.Sprintf("n%02d", i), false, 2})
	}
	g.gatherJournals(t.Context(), nil) // no agent is asked
	if len(g.LeftOut) != 1 || !strings.HasSuffix(g.LeftOut[0].What, "n19 and 10 more") {
		t.Errorf("%v", g.LeftOut)
	}
	problem := []v1alpha1.NodeProblem{{}}
	for want, st := range []v1alpha1.NodeUpdateStatus{
		{Run: &v1alpha1.NodeRunStatus{State: v1alpha1.RunFailed}, Problems: problem},
		{Run: &v1alpha1.NodeRunStatus{State: v1alpha1.RunSucceeded}, Problems: problem},
		{Run: &v1alpha1.NodeRunStatus{State: v1alpha1.RunSucceeded}},
	} {
		if got := journalRank(&st); got != want {
			t.Errorf("%+v has rank %d, want %d", st, got, want)
		}
	}
	g = &supportGathering{}
	g.addJournals([]string{"b", "a", "c"}, []journalAnswer{{err: io.EOF}, {err: io.EOF}, {log: []byte("x\n")}})
	if len(g.LeftOut) != 1 || g.LeftOut[0].What != "journal of a, b" || len(g.files) != 1 {
		t.Errorf("%v %v", g.LeftOut, g.files)
	}
	if got := string(lastLines([]byte("first\nsecond\nthird\n"), 10)); got != "third\n" {
		t.Errorf("%q", got)
	}
}

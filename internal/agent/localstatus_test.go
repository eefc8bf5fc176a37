package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/statusreport"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
)

// eventually waits until ok returns an empty string.
func eventually(t *testing.T, ok func() (missing string)) {
	t.Helper()
	var last string
	for range 300 {
		if last = ok(); last == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal(last)
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func pageBody(address, path string) string {
	r, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + address + path)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func hasText(text, want string) string {
	if strings.Contains(text, want) {
		return ""
	}
	return fmt.Sprintf("%q is missing in:\n%s", want, text)
}

// A node that never reached the API server since its start shows its state, and the state of what
// it was to do before.
func TestNodeShowsItsStateWithoutTheAPIServer(t *testing.T) {
	path, h := mediumWith(t, bundletest.Tiny(), 1)
	n := newTestNode(t, "n1", 18011, path)
	approve(t, h, everything(h), n)
	n.reported("all is pinned", held)
	n.stop()

	n.api.mu.Lock()
	n.api.away = true
	n.api.mu.Unlock()
	n.conf.StatusPage, n.conf.Console = freePort(t), true
	n.issue = &statusreport.Issue{Path: filepath.Join(t.TempDir(), "issue.d", "refit.issue")}
	n.start()
	eventually(t, func() string { return hasText(pageBody(n.conf.StatusPage, "/technician"), "This machine is prepared") })
	eventually(t, func() string {
		return hasText(pageBody(n.conf.StatusPage, "/technician"), "the machine continues without it")
	})
	var s statusreport.NodeStatus
	if err := json.Unmarshal([]byte(pageBody(n.conf.StatusPage, "/api/status")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node != "n1" || s.APIReached || s.APIReachedAt.IsZero() || s.MayPullMedium != statusreport.MediumYes || s.Percent != 100 || s.Status != nil {
		t.Errorf("%+v", s)
	}
	local, err := statusreport.ReadLocal(n.conf.RunDir)
	if err != nil || local.Status.Phase != phaseReady || len(local.Stored) != 1 || local.Stored[0] != h.Digest || local.Approved[0] != h.Digest {
		t.Errorf("%+v %v", local, err)
	}
	eventually(t, func() string {
		b, err := os.ReadFile(n.issue.Path)
		if err != nil {
			return err.Error()
		}
		return hasText(string(b), "This machine is prepared")
	})

	n.api.mu.Lock()
	n.api.away = false
	n.api.mu.Unlock()
	wake(n.api.changed)
	eventually(t, func() string { return hasText(pageBody(n.conf.StatusPage, "/api/status"), `"apiReached": true`) })

	n.stop()
	if _, err := os.Stat(n.issue.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the console shows a sentence that nothing updates: %v", err)
	}
	if c, err := net.Dial("tcp", n.conf.StatusPage); err == nil {
		c.Close()
		t.Error("the page is served after the end of the agent")
	}
}

// The API server goes while the agent runs: the node records since when, and why.
func TestNodeRecordsTheLastAnswerOfTheAPIServer(t *testing.T) {
	n := newTestNode(t, "n1", 18012)
	n.reported("a status", func(*v1alpha1.NodeUpdateStatus) bool { return true })
	n.api.mu.Lock()
	n.api.away = true
	n.api.mu.Unlock()
	n.agent.update(func(s *state) {
		s.problems, s.serverVerdict = nil, serverVerdict("n1", errors.New("a change of state"))
	})
	eventually(t, func() string {
		l, err := statusreport.ReadLocal(n.conf.RunDir)
		if err != nil {
			return err.Error()
		}
		if l.APIReachedAt.IsZero() || len(l.Blockers) != 1 {
			return fmt.Sprintf("%+v", l)
		}
		return hasText(l.APIError, "connection refused")
	})
}

// A page that cannot be served and a console that cannot be written are problems of the node,
// not the end of its agent. Both end by themselves.
func TestPageAndConsoleFailWithAReason(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := newTestNode(t, "n1", 18013)
	n.stop()
	dir := filepath.Join(t.TempDir(), "issue.d")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in place of the directory
		t.Fatal(err)
	}
	n.conf.StatusPage, n.conf.Console = busy.Addr().String(), true
	n.issue = &statusreport.Issue{Path: filepath.Join(dir, "refit.issue")}
	n.start()
	problem := func(s *v1alpha1.NodeUpdateStatus, reason, object string) string {
		for _, p := range s.Problems {
			if p.Reason == reason && p.Object == object && p.Fix != "" {
				return p.Message
			}
		}
		return ""
	}
	n.reported("the busy port and the console", func(s *v1alpha1.NodeUpdateStatus) bool {
		return strings.Contains(problem(s, agentconfig.ReasonInvalid, pageObject), "in use") && strings.Contains(problem(s, v1alpha1.ReasonStateNotWritable, n.issue.Path), "not a directory")
	})
	busy.Close()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return hasText(pageBody(n.conf.StatusPage, "/technician"), "Plug the USB stick") })
	n.reported("no problem", func(s *v1alpha1.NodeUpdateStatus) bool { return len(s.Problems) == 0 })
}

// An address that is no address, or that a node needs itself, is refused with a reason.
func TestPageRefusesAnAddress(t *testing.T) {
	n := newTestNode(t, "n1", 18014)
	n.stop()
	n.conf.StatusPage = "127.0.0.1:10250"
	n.start()
	n.reported("the kubelet's port", func(s *v1alpha1.NodeUpdateStatus) bool {
		return len(s.Problems) == 1 && s.Problems[0].Reason == agentconfig.ReasonInvalid && strings.Contains(s.Problems[0].Message, "kubelet")
	})
}

// Reboot daemons of the machine learn that an image needs a reboot, and nothing of an earlier boot.
func TestARebootIsRequested(t *testing.T) {
	n := newTestNode(t, "n1", 18015)
	file := func() string {
		b, err := os.ReadFile(n.rebootFile)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Reboot = &v1alpha1.RebootRequest{BootID: "this boot", Cause: "a driver"}
	})
	eventually(t, func() string { return hasText(file(), "refit: a driver") })
	n.api.tell(func(s *v1alpha1.NodeUpdateSpec) {
		s.Reboot = &v1alpha1.RebootRequest{BootID: "an earlier boot", Cause: "a driver"}
	})
	eventually(t, func() string { return hasText(file(), "no such file") })
}

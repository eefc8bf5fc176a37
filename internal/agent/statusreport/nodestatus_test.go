package statusreport

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

var update = flag.Bool("update", false, "write the golden files")

var clock = time.Date(2026, 11, 26, 13, 40, 0, 0, time.UTC)

const (
	bundleNew = "sha256:e7b0233c88a5e7b0233c88a5e7b0233c88a5e7b0233c88a5e7b0233c88a5aaaa"
	bundleOld = "sha256:11112222333344445555666677778888999900001111222233334444555566bb"
)

// moment is a node in a phase, some seconds after its agent wrote and reached the API server.
func moment(phase string, change func(*Local)) *Local {
	l := &Local{Node: "worker-1", WrittenAt: clock.Add(-5 * time.Second), APIReachedAt: clock.Add(-20 * time.Second), Approved: []string{bundleNew},
		Status: &v1alpha1.NodeUpdateStatus{Phase: phase, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionFalse}}}}
	if change != nil {
		change(l)
	}
	return l
}

func (l *Local) stalled(reason string) {
	l.Status.Conditions[0].Status, l.Status.Conditions[0].Reason = metav1.ConditionTrue, reason
}

func (l *Local) medium(state string) {
	l.Status.Media = []v1alpha1.Medium{{Device: "/dev/sdb", Digest: bundleNew, State: state}}
}

func (l *Local) copied(mib int64) {
	l.Status.Pins = &v1alpha1.PinStatus{BytesTotal: 1000 << 20, BytesDone: mib << 20}
}

// run adds a permitted run of five steps, and its state on the node.
func (l *Local) run(state v1alpha1.RunState, step string, done int32, reason, message string) {
	l.Permitted = &LocalRun{Name: "to-1.36.3", UID: "u1", Bundle: bundleNew, Steps: 5}
	l.copied(1000)
	l.Status.Run = &v1alpha1.NodeRunStatus{UID: "u1", State: state, Step: step, StepsDone: done, Reason: reason, Message: message}
}

// moments of one node, and its agent's process where it does not run.
func moments() (all map[string]*Local, processes map[string]string) {
	away := func(l *Local) {
		l.APIReachedAt, l.APIError = clock.Add(-8*time.Minute), "dial tcp 10.0.0.1:6443: connect: connection refused"
	}
	return map[string]*Local{
		"01-idle": moment("Idle", func(l *Local) { l.Approved = nil }),
		"02-found": moment("Idle", func(l *Local) {
			l.Approved = nil
			l.medium(v1alpha1.MediumFound)
		}),
		"03-unusable": moment("Idle", func(l *Local) {
			l.Approved = nil
			l.medium(v1alpha1.MediumUnreadable)
		}),
		"04-copying": moment("Copying", func(l *Local) {
			l.copied(410)
			l.medium(v1alpha1.MediumCopying)
		}),
		"05-missing": moment("Waiting", func(l *Local) {
			l.copied(410)
			l.Status.Conditions[0].Reason = v1alpha1.ReasonNoSource
			l.Blockers = []model.Blocker{{Reason: v1alpha1.ReasonNoSource, Waiting: true, Message: "7 chunks of bundle " + bundleNew + " missing", Fix: "Plug the medium into any node of the cluster."}}
		}),
		"06-full": moment("Waiting", func(l *Local) {
			l.copied(410)
			l.stalled(v1alpha1.ReasonInsufficientSpace)
			l.Blockers = []model.Blocker{{Reason: v1alpha1.ReasonInsufficientSpace, Message: "node worker-1 has no space left in /var/lib/refit"}}
		}),
		"07-ready": moment("Ready", func(l *Local) {
			l.copied(1000)
			l.medium(v1alpha1.MediumCopied)
		}),
		"08-starts": moment("Ready", func(l *Local) {
			l.run(v1alpha1.RunSucceeded, "", 5, "", "")
			l.Status.Run.UID = "an earlier one"
			l.medium(v1alpha1.MediumCopied)
		}),
		"09-updating": moment("Updating", func(l *Local) {
			l.run(v1alpha1.RunRunning, "kubelet", 2, v1alpha1.ReasonUpdating, "waiting for the kubelet")
			l.medium(v1alpha1.MediumCopied)
		}),
		"10-updating-api-away": moment("Updating", func(l *Local) {
			l.run(v1alpha1.RunRunning, "control-plane", 1, v1alpha1.ReasonUpdating, "")
			away(l)
		}),
		"11-halted": moment("Failed", func(l *Local) {
			l.run(v1alpha1.RunFailed, "kubelet", 2, v1alpha1.ReasonStepFailed, "kubelet did not start:\nexit status 1")
		}),
		"12-undone": moment("Ready", func(l *Local) { l.run(v1alpha1.RunUndone, "", 0, "", "") }),
		"13-done":   moment("Ready", func(l *Local) { l.run(v1alpha1.RunSucceeded, "", 5, "", "") }),
		"14-next-release": moment("Ready", func(l *Local) {
			l.run(v1alpha1.RunSucceeded, "", 5, "", "")
			l.Permitted.Bundle = bundleOld
		}),
		"22-next-medium": moment("Ready", func(l *Local) {
			l.run(v1alpha1.RunSucceeded, "", 5, "", "")
			l.medium(v1alpha1.MediumFound)
			l.Status.Media[0].Digest = bundleOld
		}),
		"15-problem": moment("Idle", func(l *Local) {
			l.Status.Problems = []v1alpha1.NodeProblem{{Reason: v1alpha1.ReasonStateNotWritable, Object: "/var/lib/refit/want.json", Message: "want.json cannot be written: no space left on device", Fix: "make room"},
				{Reason: v1alpha1.ReasonStateFileDamaged, Message: "repaired", Repaired: true}}
		}),
		"16-paused": moment("Waiting", func(l *Local) {
			l.copied(1000)
			l.Status.Conditions[0].Reason = v1alpha1.ReasonPaused
		}),
		"17-never-reached": moment("Idle", func(l *Local) { l.APIReachedAt, l.Approved = time.Time{}, nil }),
		"18-stopped": moment("Updating", func(l *Local) {
			l.run(v1alpha1.RunRunning, "kubelet", 2, v1alpha1.ReasonUpdating, "waiting for the kubelet")
			l.WrittenAt = clock.Add(-time.Hour)
		}),
		"19-silent":         moment("Ready", func(l *Local) { l.WrittenAt = clock.Add(-6 * time.Minute) }),
		"20-nothing":        {Status: &v1alpha1.NodeUpdateStatus{}},
		"21-starting-agent": {Node: "worker-1"},
		"23-boot":           {Node: "worker-1", Status: &v1alpha1.NodeUpdateStatus{Phase: "Updating"}},
	}, map[string]string{"18-stopped": AgentStopped, "20-nothing": AgentStopped, "23-boot": AgentStarting}
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs: go test -update writes it\n%s", path, got)
	}
}

// The text of every moment, and the page of some.
func TestMoments(t *testing.T) {
	all, processes := moments()
	for name, l := range all {
		process := cmp.Or(processes[name], AgentRunning)
		n := MakeNodeStatus(l, process, clock)
		if n.Sentence == "" || n.Colour == "" {
			t.Errorf("%s has no sentence or no colour: %+v", name, n)
		}
		var b bytes.Buffer
		if err := WriteText(&b, n); err != nil {
			t.Fatal(err)
		}
		compareGolden(t, name+".txt", b.Bytes())
	}
	for _, name := range []string{"04-copying", "10-updating-api-away", "11-halted", "13-done"} {
		compareGolden(t, name+".html", []byte(pageHTML(MakeNodeStatus(all[name], AgentRunning, clock).Public())))
	}
}

// The medium may go when this machine has the whole bundle, or when no bundle on it is used. It may
// also go when a run of the bundle is permitted: every machine has what it needs then.
func TestMayPullMedium(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Local)
		want   string
	}{
		"no medium":               {func(*Local) {}, MediumNone},
		"found":                   {func(l *Local) { l.medium(v1alpha1.MediumFound) }, MediumNo},
		"copying":                 {func(l *Local) { l.medium(v1alpha1.MediumCopying) }, MediumNo},
		"copied for this machine": {func(l *Local) { l.medium(v1alpha1.MediumCopied) }, MediumNo},
		"copied as a whole": {func(l *Local) {
			l.medium(v1alpha1.MediumCopied)
			l.Stored = []string{bundleNew}
		}, MediumYes},
		"copied, and the gate opened": {func(l *Local) {
			l.medium(v1alpha1.MediumCopied)
			l.run(v1alpha1.RunRunning, "drain", 0, "", "")
		}, MediumYes},
		"copied, and the run is of another bundle": {func(l *Local) {
			l.medium(v1alpha1.MediumCopied)
			l.run(v1alpha1.RunRunning, "drain", 0, "", "")
			l.Permitted.Bundle = bundleOld
		}, MediumNo},
		"refused":    {func(l *Local) { l.medium(v1alpha1.MediumRefused) }, MediumYes},
		"unreadable": {func(l *Local) { l.medium(v1alpha1.MediumUnreadable) }, MediumYes},
		"one refused and one copying": {func(l *Local) {
			l.medium(v1alpha1.MediumRefused)
			l.Status.Media = append(l.Status.Media, v1alpha1.Medium{State: v1alpha1.MediumCopying})
		}, MediumNo},
	} {
		if got := MakeNodeStatus(moment("Ready", c.change), AgentRunning, clock).MayPullMedium; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Texts of bundles and programs reach a terminal escaped.
func TestTextOfHostileNamesIsClean(t *testing.T) {
	const attack = "\x1b[2J\x1b]0;owned\a\u202e\r"
	l := moment("Failed", func(l *Local) { l.run(v1alpha1.RunFailed, attack, 2, attack, attack+"\n"+attack) })
	l.Node, l.APIError, l.Permitted.Name = attack, attack, attack
	l.Blockers = []model.Blocker{{Reason: attack, Message: attack, Fix: attack}}
	l.Status.Problems = []v1alpha1.NodeProblem{{Reason: attack, Message: attack, Fix: attack}}
	var b bytes.Buffer
	if err := WriteText(text.CleanWriter(&b), MakeNodeStatus(l, AgentRunning, clock)); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\a\r\u202e") {
		t.Errorf("%q", b.String())
	}
	if !strings.Contains(b.String(), "owned") {
		t.Errorf("the attack is not in the text, so nothing was tested: %q", b.String())
	}
}

// A file that is damaged or of another program is no status, and stays as it is.
func TestReadLocalRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "zeros": strings.Repeat("\x00", 64), "truncated": `{"node":"n1","status":{"pha`, "no status": `{"node":"n1"}`,
		"another type": `{"status":[]}`, "too large": `{"status":{},"x":"` + strings.Repeat("x", maxLocal) + `"}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, LocalFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := ReadLocal(dir); err == nil {
			t.Errorf("%s: %+v", name, l)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("%s: the file was changed: %v", name, err)
		}
	}
	dir := t.TempDir()
	want := moment("Copying", func(l *Local) { l.copied(410) })
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadLocal(dir); err != nil || got.Node != want.Node || got.Status.Pins.BytesDone != 410<<20 || !got.APIReachedAt.Equal(want.APIReachedAt) {
		t.Errorf("%+v %v", got, err)
	}
}

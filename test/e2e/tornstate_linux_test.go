package e2e

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/coldstart"
	"github.com/refit-dev/refit/internal/lab"
	"github.com/refit-dev/refit/internal/lab/scenario"
)

// kubeletWithin is how soon a kubelet must run after the power is back.
const kubeletWithin = 2 * time.Minute

// tornCase is a fault that is there when a node starts after a power cut.
type tornCase struct {
	name string
	// script damages the node's state, before anything of the node runs.
	script string
	// after undoes what no power cut does: a disk that is full by the test; early, before the
	// status is asked for, since there is no agent that could write it.
	after string
	early bool
	// reason and object that the node's status must name; object is a part of it.
	reason, object string
	// run is the reason that the status of a run must name.
	run string
	// or is the reason of a condition that says as much: a full disk may have just enough
	// room for the agent's files.
	or string
}

// tornResult is what results/tornstate.json keeps of a case.
type tornResult struct {
	Case string `json:"case"`
	Node string `json:"node"`
	// KubeletSeconds from the power cut to a running kubelet, HeldSeconds until all
	// images were pinned, copied and reported again.
	KubeletSeconds float64 `json:"kubeletSeconds"`
	HeldSeconds    float64 `json:"heldSeconds"`
	// Problem as the status had it, and whether an event said it.
	Problem v1alpha1.NodeProblem `json:"problem,omitzero"`
	Event   bool                 `json:"event"`
	// Run is what the status said of a run, if the case is about one.
	Run *v1alpha1.NodeRunStatus `json:"run,omitempty"`
	// Released says why the kubelet started without a finished check, if it did.
	Released string `json:"released,omitempty"`
}

const state = "/var/lib/refit/"

func zeroed(path string) string {
	return fmt.Sprintf("rm -rf %[1]s; head -c 64 /dev/zero > %[1]s", path)
}

func halved(path string) string {
	return fmt.Sprintf("truncate -s $(( $(stat -c %%s %[1]s) / 2 )) %[1]s", path)
}

func tornCases() (all []tornCase) {
	const damaged = v1alpha1.ReasonStateFileDamaged
	const drill = `echo '{"id":"d1","bootID":"an older boot","done":true}' > ` + state + `drill.json; `
	for _, f := range []string{"pins.json", "want.json", "key.pem", "drill.json", "authority.json", "sources.json"} {
		before := ""
		if f == "drill.json" {
			before = drill
		}
		all = append(all, tornCase{name: f + " zero-filled", script: before + zeroed(state+f), reason: damaged, object: f},
			tornCase{name: f + " truncated", script: before + halved(state+f), reason: damaged, object: f})
	}
	return append(all,
		tornCase{name: "agent.yaml zero-filled", script: zeroed("/etc/refit/agent.yaml"), reason: v1alpha1.ReasonAgentConfigInvalid, object: "agent.yaml",
			after: "cp /etc/refit/agent.yaml.last /etc/refit/agent.yaml; systemctl restart refit-agent"},
		tornCase{name: "agent.yaml of a newer version", script: `sed -i '/^{}$/d' /etc/refit/agent.yaml; echo 'quotas: {egress: 7}' >> /etc/refit/agent.yaml`, reason: v1alpha1.ReasonAgentConfigInvalid, object: "agent.yaml",
			after: "cp /etc/refit/agent.yaml.last /etc/refit/agent.yaml; systemctl restart refit-agent"},
		tornCase{name: "bundles folder zero-filled", script: zeroed(state + "bundles"), reason: damaged, object: "bundles"},
		tornCase{name: "bundle headers truncated", script: `for f in ` + state + `bundles/*/header; do ` + halved("$f") + `; done`, reason: damaged, object: "bundles/"},
		tornCase{name: "agent.yaml with text after its end", script: "printf '{}\\nquotas: {egress: 7}\\n' > /etc/refit/agent.yaml", reason: v1alpha1.ReasonAgentConfigInvalid, object: "agent.yaml",
			after: "cp /etc/refit/agent.yaml.last /etc/refit/agent.yaml; systemctl restart refit-agent"},
		tornCase{name: "journal zero-filled in the middle", script: journal("1") + "dd if=/dev/zero of=" + journalFile("1") + " bs=1 seek=$(( $(stat -c %s " + journalFile("1") + ") - 200 )) count=64 conv=notrunc",
			run: v1alpha1.ReasonJournalCorrupt},
		tornCase{name: "journal zero-filled at the end", script: journal("2") + "head -c 64 /dev/zero >> " + journalFile("2"), reason: damaged, object: journalFile("2"), run: v1alpha1.ReasonUpdated},
		tornCase{name: "journal truncated", script: journal("3") + "truncate -s -20 " + journalFile("3"), reason: damaged, object: journalFile("3"), run: v1alpha1.ReasonUpdated},
		tornCase{name: "all at once", script: strings.Join([]string{zeroed(state + "pins.json"), zeroed(state + "want.json"), zeroed(state + "drill.json"), zeroed(state + "key.pem"), zeroed(state + "bundles")}, "; "), reason: damaged, object: "pins.json"},
		tornCase{name: "disk read-only", script: "mount --bind /var/lib/refit /var/lib/refit && mount -o remount,bind,ro /var/lib/refit", reason: v1alpha1.ReasonStateNotWritable, object: state,
			after: "umount /var/lib/refit; systemctl restart refit-agent"},
		tornCase{name: "disk full", script: fillDisk, or: v1alpha1.ReasonInsufficientSpace, reason: v1alpha1.ReasonStateNotWritable, object: state,
			after: "rm -f /var/lib/lab-full-*; systemctl restart refit-agent"},
		tornCase{name: "check switched off", script: "touch /etc/refit/preflight.off", reason: v1alpha1.ReasonColdStartCheckOff, object: "refit-preflight", after: "rm /etc/refit/preflight.off"},
		tornCase{name: "the agent's program is torn", script: "cp -a /usr/local/bin/refit-agent /root/refit-agent; head -c 4096 /dev/zero > /usr/local/bin/refit-agent",
			after: "cp -a /root/refit-agent /usr/local/bin/refit-agent; systemctl restart refit-agent", early: true, reason: v1alpha1.ReasonColdStartCheckFailed, object: "refit-preflight"},
	)
}

// journalFile is a journal of a run that this node's spec does not name. The agent must
// neither act on it nor fail because of it.
func journalFile(run string) string {
	return state + "journal/0000000" + run + ".0c0a3c52-0000-4000-8000-00000000000" + run + ".1.jsonl"
}

// journal writes one as an agent does, of a run without steps that has not ended.
func journal(run string) string {
	all := []string{fmt.Sprintf(`"event":"run","at":"2026-01-01T00:00:00Z","run":{"name":"torn","uid":"0c0a3c52-0000-4000-8000-00000000000%s","bundle":"","planDigest":"","attempt":1,"steps":[]}`, run)}
	for range 5 {
		all = append(all, `"event":"spent","at":"2026-01-01T00:00:00Z","step":"none","spent":1`)
	}
	script := "mkdir -p " + state + "journal; rm -f " + journalFile(run) + "; "
	for i, line := range all {
		object := fmt.Sprintf(`{"line":%d,%s}`, i+1, line)
		sum := crc32.Checksum([]byte(object), crc32.MakeTable(crc32.Castagnoli))
		script += fmt.Sprintf(`echo '%s,"crc32c":"%08x"}' >> %s; `, strings.TrimSuffix(object, "}"), sum, journalFile(run))
	}
	return script
}

// fillDisk takes all blocks without writing them, then those that are left by files.
const fillDisk = `i=0; for size in 1G 256M 64M 16M 4M 1M 256K 64K 16K 4K; do while fallocate -l $size /var/lib/lab-full-$i; do i=$((i+1)); done; rm -f /var/lib/lab-full-$i; i=$((i+1)); done`

// TestTornState cuts the power of nodes whose agent finds its state damaged, its disk full
// or read-only, or its check of no use, when they start again. Each kubelet must run within
// two minutes, the reason must be in the node's status and in an event, and the node must
// hold everything again without a hand.
func TestTornState(t *testing.T) {
	if os.Getenv("REFIT_E2E") == "" {
		t.Skip("a power cut for each file: make e2e")
	}
	s := prepared(t, scenario.Options{Name: "tornstate", From: from, To: to, Nodes: 3, Runtime: lab.RuntimeContainerd, MediumNode: "n2"})
	ctx := t.Context()
	var all []tornResult
	keepResult(t, "tornstate.json", func() any {
		return struct {
			Cases []tornResult `json:"cases"`
			Steps []outcome    `json:"steps"`
		}{all, played[t.Name()]}
	})
	must(t, s.Components(ctx))
	must(t, s.Up(ctx))
	b, err := s.MakeBundle(ctx, scenario.BundleOptions{File: "release.tar", Version: strings.TrimPrefix(from, "v"), Release: s.FromRelease()})
	must(t, err)
	device, err := s.Insert(ctx, s.MediumNode, b)
	must(t, err)
	must(t, s.Install(ctx, b, device))
	must(t, s.Approve(ctx, b))
	copied(t, s)
	must(t, s.Eject(ctx, s.MediumNode, device))
	workers := s.Lab.Workers()
	for i, c := range tornCases() {
		if only := os.Getenv("REFIT_TORN"); only != "" && !strings.Contains(c.name, only) {
			continue
		}
		step(t, c.name, func(t *testing.T) { all = append(all, tear(t, s, workers[i%len(workers)], c)) })
	}
}

// tear cuts a node's power and has it start with a fault.
func tear(t *testing.T, s *scenario.Scenario, node string, c tornCase) tornResult {
	t.Helper()
	ctx := t.Context()
	r := tornResult{Case: c.name, Node: node}
	must(t, s.Lab.WriteFile(ctx, node, "/etc/systemd/system/lab-once.service", []byte(onceUnit), 0o644))
	must(t, s.Lab.WriteFile(ctx, node, "/root/once.sh", []byte(c.script+"\n"), 0o644))
	must(t, s.Exec(ctx, node, "sh", "-c", "systemctl daemon-reload && systemctl enable lab-once && touch /var/lib/lab-once && sync"))
	boot := bootOf(t, s, node)
	cut := time.Now()
	must(t, s.Lab.CutPower(ctx, node))
	eventually(t, kubeletWithin, "the kubelet of "+node+" runs", func() (bool, string) {
		out, err := s.Output(ctx, node, "sh", "-c", `systemctl is-active kubelet && date -d "$(systemctl show -P ActiveEnterTimestamp kubelet)" +%s`)
		_, at, _ := strings.Cut(strings.TrimSpace(out), "\n")
		seconds, parsed := strconv.ParseInt(at, 10, 64)
		if err == nil && parsed == nil {
			r.KubeletSeconds = time.Unix(seconds, 0).Sub(cut.Truncate(time.Second)).Seconds()
		}
		return err == nil && parsed == nil, out
	})
	if r.KubeletSeconds > kubeletWithin.Seconds() {
		t.Errorf("the kubelet ran %.0f s after the cut", r.KubeletSeconds)
	}
	if out, err := s.Output(ctx, node, "cat", "/run/refit/preflight.json"); err == nil {
		var p coldstart.Report
		must(t, json.Unmarshal([]byte(out), &p))
		r.Released = p.Released
	}
	if c.early {
		must(t, s.Exec(ctx, node, "sh", "-c", c.after))
	}
	if c.reason == "" && c.run == "" {
		t.Errorf("%s: nothing says which reason the status must name", c.name)
	}
	if c.run != "" {
		r.Run = runOf(t, s, node, c.run)
	}
	if c.reason != "" {
		r.Problem = problemOf(t, s, node, c)
		if r.Problem.Reason == c.reason {
			r.Event = eventSince(t, s, node, c, cut)
		}
	}
	if c.after != "" && !c.early {
		must(t, s.Exec(ctx, node, "sh", "-c", c.after))
	}
	eventually(t, 5*time.Minute, node+" is Ready in a new boot and holds everything again", func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		if err != nil {
			return false, err.Error()
		}
		h, cold := nu.Status.Pins, nu.Status.ColdStart
		if h == nil || cold == nil || bootOf(t, s, node) == boot {
			return false, nu.Status.Message
		}
		return h.Content == nu.Spec.Pins && h.ImagesTotal > 0 && h.ImagesPinned == h.ImagesTotal && cold.Copies == h.ImagesTotal,
			fmt.Sprintf("%d of %d pinned, %d copies, %s", h.ImagesPinned, h.ImagesTotal, cold.Copies, nu.Status.Message)
	})
	r.HeldSeconds = time.Since(cut).Seconds()
	return r
}

func runOf(t *testing.T, s *scenario.Scenario, node, reason string) (found *v1alpha1.NodeRunStatus) {
	t.Helper()
	eventually(t, 3*time.Minute, "the status of the run on "+node+" names "+reason, func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		if err != nil {
			return false, err.Error()
		}
		found = nu.Status.Run
		return found != nil && found.Reason == reason && found.Message != "" && strings.HasPrefix(found.UID, "0c0a3c52-"), fmt.Sprintf("%+v", found)
	})
	return found
}

func problemOf(t *testing.T, s *scenario.Scenario, node string, c tornCase) (found v1alpha1.NodeProblem) {
	t.Helper()
	eventually(t, 3*time.Minute, "the status of "+node+" names "+c.reason, func() (bool, string) {
		nu, err := nodeUpdate(t, s, node)
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(nu.Status.Problems, func(p v1alpha1.NodeProblem) bool {
			return p.Reason == c.reason && strings.Contains(p.Object, c.object)
		})
		if j := slices.IndexFunc(nu.Status.Conditions, func(x metav1.Condition) bool { return x.Reason == c.or }); i < 0 && j >= 0 {
			found = v1alpha1.NodeProblem{Reason: c.or, Message: nu.Status.Message}
			return true, found.Message
		}
		degraded := slices.ContainsFunc(nu.Status.Conditions, func(x metav1.Condition) bool { return x.Type == v1alpha1.ConditionDegraded })
		if i < 0 || !degraded {
			return false, fmt.Sprintf("%+v", nu.Status.Problems)
		}
		found = nu.Status.Problems[i]
		return found.Fix != "", found.Message
	})
	return found
}

func eventSince(t *testing.T, s *scenario.Scenario, node string, c tornCase, cut time.Time) bool {
	t.Helper()
	eventually(t, 2*time.Minute, "an event of "+node+" names "+c.reason, func() (bool, string) {
		var all corev1.EventList
		if err := s.Client.List(t.Context(), &all); err != nil {
			return false, err.Error()
		}
		return slices.ContainsFunc(all.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == node && e.Reason == c.reason && strings.Contains(e.Message, "Fix: ") && !e.LastTimestamp.Time.Before(cut.Truncate(time.Second))
		}), fmt.Sprintf("%d events", len(all.Items))
	})
	return true
}

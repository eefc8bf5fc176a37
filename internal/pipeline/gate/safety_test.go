package gate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/refit-dev/refit/internal/model"
)

// What counts as silent, in numbers.
func TestSilentAfter(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int32]time.Duration{0: 180 * time.Second, 10: 180 * time.Second, 60: 180 * time.Second, 61: 183 * time.Second, 120: 360 * time.Second, 600: 1800 * time.Second} {
		if got := SilentAfter(seconds); got != want {
			t.Errorf("every %d s: silent after %s, want %s", seconds, got, want)
		}
	}
	for name, tc := range map[string]struct {
		seconds int32
		ago     time.Duration
		closed  bool
	}{
		"every two minutes, heard 6 minutes ago":      {120, 6 * time.Minute, false},
		"every two minutes, 6 minutes 1 second ago":   {120, 6*time.Minute + time.Second, true},
		"every ten seconds, heard 3 minutes ago":      {10, 3 * time.Minute, false},
		"every ten seconds, 3 minutes 1 second ago":   {10, 3*time.Minute + time.Second, true},
		"as by default, heard 3 minutes 1 second ago": {0, 3*time.Minute + time.Second, true},
	} {
		in := open()
		in.Nodes[1].HeartbeatSeconds, in.Nodes[1].Heartbeat = tc.seconds, now.Add(-tc.ago)
		if got := slices.Contains(Decide(in).Closed, "agents"); got != tc.closed {
			t.Errorf("%s: closed %t", name, got)
		}
	}
}

// remembers decides twice over the same nodes, as the controller does, and says
// which checks are closed the second time.
func remembers(in Input, then func(*Input)) string {
	found := CheckNodes(in, nil)
	then(&in)
	return strings.Join(DecideFrom(in, CheckNodes(in, found)).Closed, ",")
}

// An update that lasts for longer than a month: its own end counts.
func TestALongUpdate(t *testing.T) {
	t.Parallel()
	for left, closed := range map[time.Duration]bool{35 * day: true, 40 * day: true, 40*day + time.Second: false} {
		in := open()
		in.Lasts = 40 * day
		in.Nodes[0].Certificates = []Certificate{{"apiserver.crt", now.Add(left)}}
		if got := slices.Contains(Decide(in).Closed, "certificates"); got != closed {
			t.Errorf("%s are left: closed %t", left, got)
		}
	}
}

// What the gate remembers of a node is never more than it would say anew: each
// moment at which an answer changes, and another length of the update.
func TestTheMemoryEnds(t *testing.T) {
	t.Parallel()
	later := func(d time.Duration) func(*Input) {
		return func(in *Input) {
			in.Now = in.Now.Add(d)
		}
	}
	ends := func(in time.Duration) func(*Node) {
		return func(n *Node) { n.Certificates = []Certificate{{"apiserver.crt", now.Add(in)}} }
	}
	for name, tc := range map[string]struct {
		node func(*Node)
		then func(*Input)
		want string
	}{
		"nothing changes": {ends(40 * day), later(0), ""},
		"the update lasts longer than the certificate":        {ends(2 * time.Hour), func(in *Input) { in.Lasts = 3 * time.Hour }, "certificates"},
		"the update lasts less long than the certificate":     {ends(2 * time.Hour), func(in *Input) { in.Lasts = 90 * time.Minute }, ""},
		"the certificate ends before the update would by now": {ends(3 * time.Hour), later(2 * time.Hour), "certificates"},
		"it would still outlast the update":                   {ends(3 * time.Hour), later(2*time.Hour - time.Second), ""},
		"an agent is not heard any more":                      {func(*Node) {}, later(2*time.Minute + time.Second), "agents"},
		"an agent is still heard":                             {func(*Node) {}, later(2 * time.Minute), ""},
		"the clock was set back to before the request":        {func(n *Node) { n.Heartbeat = now.Add(-5 * time.Minute) }, func(in *Input) { in.Now = in.Now.Add(-3 * time.Minute) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := open()
			in.Lasts = time.Hour
			in.Nodes = in.Nodes[:1]
			tc.node(in.Nodes[0])
			if len(in.Nodes[0].Certificates) > 0 {
				in.Nodes[0].HeartbeatSeconds = 1 << 20 // so that only the certificate has a moment
			}
			if got := remembers(in, tc.then); got != tc.want {
				t.Errorf("closed by %q, want %q", got, tc.want)
			}
		})
	}
}

// A warning comes when its day comes, from memory too.
func TestTheMemoryEndsForWarnings(t *testing.T) {
	t.Parallel()
	in := open()
	in.Nodes = in.Nodes[:1]
	in.Nodes[0].Certificates = []Certificate{{"apiserver.crt", now.Add(30*day + time.Hour)}}
	in.Nodes[0].HeartbeatSeconds = 1 << 20
	var found []*NodeFindings
	decide := func() Result {
		found = CheckNodes(in, found)
		return DecideFrom(in, found)
	}
	if r := decide(); answer(r, "certificates") != Passed {
		t.Fatalf("%+v", r)
	}
	in.Now = now.Add(time.Hour)
	if r := decide(); answer(r, "certificates") != Passed {
		t.Errorf("30 days are left: %+v", r.Warnings)
	}
	in.Now = now.Add(time.Hour + time.Second)
	if r := decide(); answer(r, "certificates") != Warned {
		t.Errorf("less than 30 days are left: %+v", r)
	}
}

// Findings about other facts are not used, wherever they stand in the list.
func TestFindingsOfOtherNodesAreNotUsed(t *testing.T) {
	t.Parallel()
	in := open()
	found := CheckNodes(in, nil)
	in.Nodes = slices.Clone(in.Nodes)
	changed := *in.Nodes[0]
	changed.Ready = false
	in.Nodes[0] = &changed
	slices.Reverse(found[1:])
	for name, nodes := range map[string][]*NodeFindings{"in another order": found, "too short": found[:1], "nil among them": {nil, found[1]}} {
		if diff := cmp.Diff(Decide(in), DecideFrom(in, CheckNodes(in, nodes))); diff != "" {
			t.Errorf("%s: from scratch (-) and from earlier findings (+): %s", name, diff)
		}
	}
	if Decide(in).Open() {
		t.Error("the gate is open although a node is not Ready")
	}
}

// The same facts are not asked twice, and other facts are.
func TestTheMemoryIsUsed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node func(*Node)
		then func(*Input)
		same bool
	}{
		"the same moment": {func(*Node) {}, func(*Input) {}, true},
		"a moment later":  {func(*Node) {}, func(in *Input) { in.Now = now.Add(time.Minute) }, true},
		"a node without a certificate is asked once however long it lasts": {func(*Node) {}, func(in *Input) { in.Lasts = time.Hour }, true},
		"a node with one is asked again":                                   {func(n *Node) { n.Certificates = []Certificate{{"a", now.Add(90 * day)}} }, func(in *Input) { in.Lasts = time.Hour }, false},
		"a moment has come":                                                {func(*Node) {}, func(in *Input) { in.Now = now.Add(2 * time.Minute) }, false},
		"a node with one, and the same length":                             {func(n *Node) { n.Certificates = []Certificate{{"a", now.Add(90 * day)}} }, func(*Input) {}, true},
		"the clock was set back":                                           {func(*Node) {}, func(in *Input) { in.Now = now.Add(-time.Second) }, false},
		"a moment that has passed is no moment":                            {func(n *Node) { n.Heartbeat = now.Add(-time.Hour) }, func(in *Input) { in.Now = now.Add(day) }, true},
		"the first of two moments counts": {func(n *Node) {
			n.Certificates = []Certificate{{"b", now.Add(31 * day)}, {"a", now.Add(30*day + time.Minute)}, {"c", now.Add(40 * day)}}
		}, func(in *Input) { in.Now = now.Add(time.Minute) }, false},
	} {
		in := open()
		in.Nodes = in.Nodes[:1]
		tc.node(in.Nodes[0])
		before := CheckNodes(in, nil)
		tc.then(&in)
		if same := CheckNodes(in, before)[0] == before[0]; same != tc.same {
			t.Errorf("%s: asked again %t", name, !same)
		}
	}
}

// Each fact of a node alone: which check it closes or warns, and every word of it.
func TestNodeFacts(t *testing.T) {
	t.Parallel()
	etcd := func(change func(*Etcd)) func(*Node) {
		return func(n *Node) {
			n.Etcd = &Etcd{Healthy: true, Size: 10, Quota: 100}
			change(n.Etcd)
		}
	}
	for name, tc := range map[string]struct {
		node   func(*Node)
		inPlan bool
		no     string // "check: reason: message | fix"
		warn   string
	}{
		"well": {func(*Node) {}, true, "", ""},
		"busy": {func(n *Node) { n.Busy = "ClusterUpdate/old" }, true, "no-other-update: AnotherUpdateRunning: node n2 is still at work for ClusterUpdate/old", ""},
		"busy, silent for long": {func(n *Node) { n.Busy, n.Heartbeat = "ClusterUpdate/old", now.Add(-time.Hour) }, false,
			"", "no-other-update: AnotherUpdateRunning: node n2 is still at work for ClusterUpdate/old; agents"},
		"busy, heard at the last moment": {func(n *Node) { n.Busy, n.Heartbeat = "x", now.Add(-3*time.Minute) }, true, "no-other-update: AnotherUpdateRunning: node n2 is still at work for x", ""},
		"busy, without an agent":         {func(n *Node) { n.Busy, n.AgentKnown = "x", false }, false, "", "no-other-update: AnotherUpdateRunning: node n2 is still at work for x; agents"},
		"without an agent":               {func(n *Node) { n.AgentKnown = false }, true, "agents: AgentMissing: node n2 has no refit agent", ""},
		"not Ready":                      {func(n *Node) { n.Ready = false }, true, "nodes-ready: NodeNotReady: node n2 is not Ready", ""},
		"not Ready, outside the plan":    {func(n *Node) { n.Ready = false }, false, "", "nodes-ready: NodeNotReady: node n2 is not Ready"},

		"etcd at 69 percent":      {etcd(func(e *Etcd) { e.Size = 69 }), true, "", ""},
		"etcd at 70 percent":      {etcd(func(e *Etcd) { e.Size = 70 }), true, "", "etcd-space: EtcdSpace: the database of etcd on node n2 has reached 70 percent of its quota of 100 bytes"},
		"etcd at 89 percent":      {etcd(func(e *Etcd) { e.Size = 89 }), true, "", "etcd-space: EtcdSpace: the database of etcd on node n2 has reached 70 percent of its quota of 100 bytes"},
		"etcd at 90 percent":      {etcd(func(e *Etcd) { e.Size = 90 }), true, "etcd-space: EtcdSpace: the database of etcd on node n2 has reached 90 percent of its quota of 100 bytes", ""},
		"etcd, a quota of 1 byte": {etcd(func(e *Etcd) { e.Size, e.Quota = 1, 1 }), true, "etcd-space: EtcdSpace: the database of etcd on node n2 has reached 90 percent of its quota of 1 bytes", ""},
		"etcd, a negative quota":  {etcd(func(e *Etcd) { e.Quota = -1 }), true, "", ""},
		"etcd not healthy":        {etcd(func(e *Etcd) { e.Healthy, e.Message = false, "no leader" }), false, "quorum: EtcdUnhealthy: etcd on node n2 is not healthy: no leader", ""},

		"a certificate for exactly as long": {func(n *Node) { n.Certificates = []Certificate{{"apiserver.crt", now.Add(time.Hour)}} }, true, "certificates: CertificateExpires: certificate apiserver.crt of node n2 ends on 2026-11-20 12:00Z, before the update would", ""},
		"a certificate for a second longer": {func(n *Node) { n.Certificates = []Certificate{{"apiserver.crt", now.Add(time.Hour + time.Second)}} }, true, "", "certificates: CertificateExpires: certificate apiserver.crt of node n2 ends on 2026-11-20 12:00Z"},
		"a certificate for exactly 30 days": {func(n *Node) { n.Certificates = []Certificate{{"apiserver.crt", now.Add(720 * time.Hour)}} }, true, "", ""},
		"a second less than 30 days":        {func(n *Node) { n.Certificates = []Certificate{{"apiserver.crt", now.Add(720*time.Hour - time.Second)}} }, true, "", "certificates: CertificateExpires: certificate apiserver.crt of node n2 ends on 2026-12-20 10:59Z"},
		"the second certificate of two":     {func(n *Node) { n.Certificates = []Certificate{{"a", now.Add(90 * day)}, {"apiserver.crt", now}} }, true, "certificates: CertificateExpires: certificate apiserver.crt of node n2 ends on 2026-11-20 11:00Z, before the update would", ""},

		"a clock under ten seconds ahead": {func(n *Node) { n.SkewKnown, n.Skew = true, 10*time.Second-1 }, true, "", ""},
		"a clock ten seconds behind":      {func(n *Node) { n.SkewKnown, n.Skew = true, -10*time.Second }, true, "", "clock: ClockSkew: the clock of node n2 is more than 10s behind the API server's"},
		"a clock under two minutes ahead": {func(n *Node) { n.SkewKnown, n.Skew = true, 2*time.Minute-1 }, true, "", "clock: ClockSkew: the clock of node n2 is more than 10s ahead of the API server's"},
		"a clock two minutes ahead":       {func(n *Node) { n.SkewKnown, n.Skew = true, 2*time.Minute }, true, "clock: ClockSkew: the clock of node n2 is more than 2m0s ahead of the API server's", ""},
		"a clock outside the plan":        {func(n *Node) { n.SkewKnown, n.Skew = true, time.Hour }, false, "", "clock: ClockSkew: the clock of node n2 is more than 10s ahead of the API server's"},
		"a clock that is right":           {func(n *Node) { n.SkewKnown = true }, true, "", ""},

		"drift the update writes over": {func(n *Node) { n.Drift = []Drift{{Kind: DriftFiles, Detail: "f"}} }, true, "drift: Drifted: node n2: f", ""},
		"drift that the pool repairs":  {func(n *Node) { n.Drift = []Drift{{Kind: DriftFiles, Detail: "f", RepairedByUpdate: true}} }, true, "", "drift: Drifted: node n2: f"},
		"drift of another kind":        {func(n *Node) { n.Drift = []Drift{{Kind: "Else", Detail: "f"}} }, true, "", "drift: Drifted: node n2: f"},
		"drift outside the plan":       {func(n *Node) { n.Drift = []Drift{{Kind: DriftFiles, Detail: "f"}} }, false, "", ""},
		"drift of several kinds":       {func(n *Node) { n.Drift = []Drift{{Kind: DriftOverlay, Detail: "o"}, {Kind: DriftForeign, Detail: "g"}} }, true, "drift: Drifted: node n2: o; drift: Drifted: node n2: g", ""},

		"no report yet":                      {func(n *Node) { n.Loaded = nil }, true, "images-held: Loading: node n2 has not started to load the images", ""},
		"a report about another list":        {func(n *Node) { n.Loaded.Content = "pins-0" }, true, "images-held: Loading: node n2 has not started to load the images", ""},
		"no pin set yet":                     {func(n *Node) { n.PinSetHasBundle = false }, true, "images-held: Loading: node n2 has not received the pin set with the bundle's images yet", ""},
		"no pin set yet, payloads missing":   {func(n *Node) { n.PinSetHasBundle, n.Loaded.PayloadsReady = false, 0 }, true, "images-held: Loading: node n2 has not received the pin set with the bundle's images yet", ""},
		"one image missing":                  {func(n *Node) { n.Loaded.ImagesReady = 8 }, true, "images-held: ImagesMissing: node n2 does not hold and pin all of its 9 images yet", ""},
		"one image not pinned":               {func(n *Node) { n.Loaded.ImagesPinned = 8 }, true, "images-held: ImagesMissing: node n2 does not hold and pin all of its 9 images yet", ""},
		"one payload missing":                {func(n *Node) { n.Loaded.PayloadsReady = 1 }, true, "payloads-held: PayloadMissing: node n2 does not have all of its 2 payloads yet", ""},
		"a payload missing, outside":         {func(n *Node) { n.Loaded.PayloadsReady = 1 }, false, "", "payloads-held: PayloadMissing: node n2 does not have all of its 2 payloads yet"},
		"a payload missing, of another list": {func(n *Node) { n.Loaded.Content, n.Loaded.PayloadsReady = "pins-0", 1 }, true, "images-held: Loading: node n2 has not started to load the images", ""},
		"a payload missing, no agent":        {func(n *Node) { n.AgentKnown, n.Loaded.PayloadsReady = false, 1 }, true, "agents: AgentMissing: node n2 has no refit agent", ""},
		"nothing is wanted of it":            {func(n *Node) { n.WantPinSet, n.Loaded = "", nil }, true, "", ""},
		"it holds more than is wanted":       {func(n *Node) { n.Loaded.ImagesReady, n.Loaded.ImagesPinned, n.Loaded.PayloadsReady = 10, 10, 3 }, true, "", ""},
		"stopped for another reason": {func(n *Node) {
			n.Loaded.ImagesReady, n.Stalled = 1, &model.Blocker{Reason: "BundleCorrupt", Message: "torn"}
		}, true, "images-held: BundleCorrupt: torn", ""},
		"stopped for want of room, which is there by now": {func(n *Node) {
			n.Loaded.ImagesReady, n.Stalled = 1, &model.Blocker{Reason: "InsufficientSpace", Message: "full"}
		}, true, "images-held: InsufficientSpace: full", ""},
		"stopped for want of room": {func(n *Node) {
			n.Loaded.ImagesReady, n.Loaded.Needed, n.Stalled = 1, map[string]int64{"images": 1500}, &model.Blocker{Reason: "InsufficientSpace", Message: "full"}
		}, true, "space: InsufficientSpace: node n2 needs 1500 bytes, 1000 are free (file system of state and images) | free 500 bytes", ""},
		"stopped for another reason and short of room": {func(n *Node) {
			n.Loaded.ImagesReady, n.Loaded.Needed, n.Stalled = 1, map[string]int64{"images": 1500}, &model.Blocker{Reason: "BundleCorrupt", Message: "torn"}
		}, true, "space: InsufficientSpace: node n2 needs 1500 bytes, 1000 are free (file system of state and images) | free 500 bytes; images-held: BundleCorrupt: torn", ""},

		"room to the byte":         {func(n *Node) { n.Loaded.Needed = map[string]int64{"images": 600, "state": 400} }, true, "", ""},
		"one byte short":           {func(n *Node) { n.Loaded.Needed = map[string]int64{"images": 600, "state": 401} }, true, "space: InsufficientSpace: node n2 needs 1001 bytes, 1000 are free (file system of state and images) | free 1 bytes", ""},
		"short, outside the plan":  {func(n *Node) { n.Loaded.Needed = map[string]int64{"images": 1001} }, false, "", "space: InsufficientSpace: node n2 needs 1001 bytes, 1000 are free (file system of state and images) | free 1 bytes"},
		"short, of another list":   {func(n *Node) { n.Loaded.Content, n.Loaded.Needed = "pins-0", map[string]int64{"images": 1001} }, true, "images-held: Loading: node n2 has not started to load the images", ""},
		"room for the snapshot":    {func(n *Node) { n.Snapshot = 1000 }, true, "", ""},
		"the snapshot is too much": {func(n *Node) { n.Snapshot = 1001 }, true, "space: InsufficientSpace: node n2 needs 1001 bytes, 1001 of them for a snapshot of etcd, 1000 are free (file system of state and images) | free 1 bytes", ""},
		"a snapshot of one byte":   {func(n *Node) { n.Snapshot, n.Loaded.Needed = 1, map[string]int64{"state": 1000} }, true, "space: InsufficientSpace: node n2 needs 1001 bytes, 1 of them for a snapshot of etcd, 1000 are free (file system of state and images) | free 1 bytes", ""},
		"the snapshot goes into refit's own directory": {func(n *Node) {
			n.Snapshot, n.FileSystems = 1001, []FileSystem{{Name: "images", ID: "z", Free: 5}, {Name: "state", ID: "a", Free: 1000}}
		}, true, "space: InsufficientSpace: node n2 needs 1001 bytes, 1001 of them for a snapshot of etcd, 1000 are free (file system of state) | free 1 bytes", ""},
		"two file systems are short": {func(n *Node) {
			n.Loaded.Needed, n.FileSystems = map[string]int64{"images": 9, "state": 8}, []FileSystem{{Name: "images", ID: "z", Free: 5}, {Name: "state", ID: "a", Free: 1}}
		}, true, strings.Join([]string{"space: InsufficientSpace: node n2 needs 8 bytes, 1 are free (file system of state) | free 7 bytes",
			"space: InsufficientSpace: node n2 needs 9 bytes, 5 are free (file system of images) | free 4 bytes"}, "; "), ""},

		"a policy that asks for allowed images": {func(n *Node) { n.PullVerification = "NeverVerifyAllowlistedImages" }, true, "image-pulls: ImagePullAlways: the kubelet of node n2 has imagePullCredentialsVerificationPolicy NeverVerifyAllowlistedImages", ""},
		"short of memory":                       {func(n *Node) { n.Pressure = []string{"MemoryPressure", "PIDPressure"} }, true, "pressure: NodePressure: node n2 reports MemoryPressure, PIDPressure", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := open()
			in.Lasts = time.Hour
			tc.node(in.Nodes[1])
			in.Nodes[1].InPlan = tc.inPlan
			in.answers = newAnswers(CheckNodes(in, nil))
			no, warn := said2(&in)
			checkSaid(t, "no", no, tc.no)
			checkSaid(t, "warning", warn, tc.warn)
			if r := Decide(in); r.Open() != (tc.no == "") {
				t.Errorf("the gate is open: %t", r.Open())
			}
		})
	}
}

// said2 lists "check: reason: message | fix" of all checks, blockers and warnings.
func said2(in *Input) (no, warn []string) {
	text := func(c Check, v model.Blocker) string {
		return c.Name + ": " + v.Reason + ": " + v.Message + " | " + v.Fix
	}
	for _, c := range Checks() {
		vs, ws := c.Evaluate(in)
		for _, v := range vs {
			no = append(no, text(c, v))
		}
		for _, v := range ws {
			warn = append(warn, text(c, v))
		}
	}
	return no, warn
}

// checkSaid compares the beginnings; "" wants no message.
func checkSaid(t *testing.T, what string, got []string, want string) {
	t.Helper()
	var all []string
	if want != "" {
		all = strings.Split(want, "; ")
	}
	ok := len(got) == len(all)
	for i := range min(len(got), len(all)) {
		ok = ok && strings.HasPrefix(got[i], all[i])
	}
	if !ok {
		t.Errorf("%s: %q, want %q", what, got, all)
	}
}

// Facts of the cluster, in the order in which they are reported.
func TestClusterFacts(t *testing.T) {
	t.Parallel()
	hook := func(configuration, name string, nodes ...string) Webhook {
		return Webhook{Configuration: configuration, Name: name, Service: "a/b", Nodes: nodes, Vital: true}
	}
	for name, tc := range map[string]struct {
		change   func(*Input)
		no, warn string
	}{
		"the blocker about the approval is passed on": {func(in *Input) {
			in.Approved, in.Approval = false, &model.Blocker{Reason: "SignatureInvalid", Message: "no"}
		}, "bundle-approved: SignatureInvalid: no | ", ""},
		"approved, although another blocker is set": {func(in *Input) { in.Approval = &model.Blocker{Reason: "SignatureInvalid"} }, "", ""},
		"two control-plane nodes, one Ready":        {func(in *Input) { in.Nodes[1].ControlPlane, in.Nodes[1].Ready, in.Nodes[1].InPlan = true, false, false }, "control-plane: ControlPlaneUnhealthy: 1 of 2 control-plane nodes are Ready, all are needed", "nodes-ready"},
		"a worker is not Ready":                     {func(in *Input) { in.Nodes[1].Ready, in.Nodes[1].InPlan = false, false }, "", "nodes-ready"},
		"two members, none of them moves":           {func(in *Input) { members(in, 2); in.Nodes[0].InPlan, in.Nodes[1].InPlan = false, false }, "", ""},
		"two members, the first moves":              {func(in *Input) { members(in, 2); in.Nodes[1].InPlan = false }, "", "quorum: QuorumAtRisk"},
		"two members, the second moves":             {func(in *Input) { members(in, 2); in.Nodes[0].InPlan = false }, "", "quorum: QuorumAtRisk"},
		"one member":                                {func(in *Input) { members(in, 1) }, "", ""},
		"two members of three nodes":                {func(in *Input) { in.Nodes = append(in.Nodes, ready("n3", true)); members(in, 3) }, "", ""},
		"a webhook without a backend":               {func(in *Input) { in.Webhooks = []Webhook{hook("c", "w")} }, "webhooks: WebhookBlocks: webhook w of c fails closed, and its service a/b has no ready backend. The API server refuses the requests that it covers | repair the backend of a/b, or remove the webhook", ""},
		"webhooks in order":                         {func(in *Input) { in.Webhooks = []Webhook{hook("c", "z"), hook("c", "a"), hook("b", "x")} }, "webhooks: WebhookBlocks: webhook x of b; webhooks: WebhookBlocks: webhook a of c; webhooks: WebhookBlocks: webhook z of c", ""},
		"removed APIs in order": {func(in *Input) {
			in.RemovedAPIs = []RemovedAPI{{"z", "v1", "r", "", "1.36"}, {"a", "v1", "r", "", "1.36"}, {"", "v1", "r", "", "1.36"}}
		}, "removed-apis: APIRemoved: a client requests r of a/v1; removed-apis: APIRemoved: a client requests r of v1; removed-apis: APIRemoved: a client requests r of z/v1", ""},
		"what a node needs asks a registry": {func(in *Input) {
			in.Images = []ImageRisk{{Always: true, Message: "m", Fix: "f"}, {Message: "n", Fix: "g"}}
		}, "image-references: ImagePullAlways: , container , image : m (lint rule ) | f; if a registry is always there, accept `image-references`", "image-references: MovingTag: , container , image : n (lint rule ) | g"},
		"a webhook resolves tags": {func(in *Input) { in.Pulls.Resolvers = []Resolver{{"o", "m", "f"}} }, "", "image-pulls: TagResolver: m | f"},
		"one pod always pulls":    {func(in *Input) { in.Pulls.AlwaysPods, in.Pulls.Always = 1, []string{"a/b"} }, "", "image-pulls: ImagePullAlways: 1 pods have imagePullPolicy Always"},
		"an OS image that no node can fetch": {func(in *Input) {
			in.OSImages = []OSImage{{Pool: "p", Image: "i", Nodes: 2, Ready: 1, Reason: "OSImageAbsent", Message: "gone"}}
		}, "os-images-held: OSImageAbsent: OS image i is held by 1 of 2 nodes of pool p: gone", ""},
		"findings about an OS image": {func(in *Input) {
			in.OSImages = []OSImage{{Pool: "p", Image: "i", Unread: "u", Findings: []OSImageFinding{{Blocker: model.Blocker{Reason: "A", Message: "a"}}, {Warning: true, Blocker: model.Blocker{Reason: "B", Message: "b"}}}}}
		}, "os-images-fit: A: OS image i of pool p: a", "os-images-fit: FactUnknown: OS image i of pool p: refit cannot read what is in it, so it is not checked: u; os-images-fit: B: OS image i of pool p: b"},
		"an OS image on more nodes than need it": {func(in *Input) { in.OSImages = []OSImage{{Pool: "p", Image: "i", Nodes: 2, Ready: 3}} }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := open()
			in.TargetKubernetes = "v1.36.3"
			tc.change(&in)
			in.answers = newAnswers(CheckNodes(in, nil))
			no, warn := said2(&in)
			if strings.Contains(tc.no, "; if a registry") {
				if len(no) != 1 || no[0] != tc.no {
					t.Errorf("%q", no)
				}
				no, tc.no = nil, ""
			}
			checkSaid(t, "no", no, tc.no)
			checkSaid(t, "warning", warn, tc.warn)
		})
	}
}

func members(in *Input, n int) {
	for _, node := range in.Nodes[:n] {
		node.Etcd = &Etcd{Healthy: true}
	}
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"kubelet-client-current.pem": "the kubelet renews it by itself",
		"kubelet.crt":                "the kubelet renews it by itself",
		"ca.crt":                     "a certificate authority is replaced by hand",
		"etcd/ca.crt":                "a certificate authority is replaced by hand",
		"apiserver.crt":              "kubeadm certs renew all",
	} {
		if got := renewal(&Node{Name: "n1"}, name); !strings.Contains(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestRemovedBy(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]bool{
		{"1.36", "v1.36.3"}: true, {"1.36", "v1.37.0"}: true, {"1.36", "v1.35.9"}: false, {"1.36", "v2.0.0"}: true, {"2.1", "v1.36.0"}: false,
		{"2.1", "v2.0.0"}: false, {"", "v1.36.3"}: false, {"1.36", ""}: false, {"1.x", "v1.36.3"}: false, {"x.1", "v1.36.3"}: false, {"1.36", "vx.40.1"}: false,
		{"1.0", "v1.x.1"}: false, {"x.36", "x.36"}: false, {"1.36.2", "1.36"}: true,
	} {
		if got := removedBy(pair[0], pair[1]); got != want {
			t.Errorf("removed in %q, target %q: %t", pair[0], pair[1], got)
		}
	}
}

// Of two risks for one check the later end counts, whichever comes first; the
// outcomes are in order.
func TestTwoRisksOfOneCheck(t *testing.T) {
	t.Parallel()
	short, long := Risk{Check: "pressure", Reason: "short", Until: now.Add(time.Hour)}, Risk{Check: "pressure", Reason: "long", Until: now.Add(2 * time.Hour)}
	for _, risks := range [][]Risk{{short, long}, {long, short}, {{Check: "webhooks", Reason: "w", Until: now.Add(time.Hour)}, long, {Check: "clock", Reason: "c", Until: now.Add(time.Hour)}}} {
		in := open()
		in.Nodes[0].Pressure, in.Nodes[1].Pressure = []string{"DiskPressure"}, []string{"DiskPressure"}
		in.Accepted = risks
		r := Decide(in)
		if !r.Open() || len(r.Warnings) != 2 || !strings.HasPrefix(r.Warnings[0].Message, "accepted until 2026-11-20T13:00:00Z (long): node n1") || !strings.Contains(r.Warnings[1].Message, "node n2") {
			t.Errorf("%+v", r.Warnings)
		}
		if !slices.IsSortedFunc(r.Risks, func(a, b RiskOutcome) int { return strings.Compare(a.Check, b.Check) }) {
			t.Errorf("%+v", r.Risks)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	if c, ok := FindCheck("agents"); !ok || c.Name != "agents" || c.NeverAcceptable == "" {
		t.Errorf("%+v", c)
	}
	if c, ok := FindCheck("nothing"); ok || c.Name != "" {
		t.Errorf("%+v", c)
	}
	if v := factsUnknown(Check{Name: "n", Question: "a"}, "w"); !v.Waiting || v.Reason != "FactUnknown" {
		t.Errorf("%+v", v)
	}
}

package gate

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/model"
)

// Reason words of the checks in this file.
const (
	reasonNodePressure       = "NodePressure"
	reasonForeignCordon      = "ForeignCordon"
	reasonEtcdUnhealthy      = "EtcdUnhealthy"
	reasonEtcdSpace          = "EtcdSpace"
	reasonQuorumAtRisk       = "QuorumAtRisk"
	reasonCertificateExpires = "CertificateExpires"
	reasonClockSkew          = "ClockSkew"
	reasonAPIRemoved         = "APIRemoved"
	reasonWebhookBlocks      = "WebhookBlocks"
	reasonImagePullAlways    = "ImagePullAlways"
	reasonTagResolver        = "TagResolver"
	reasonCheckUnknown       = "CheckUnknown"
	reasonRiskExpired        = "RiskExpired"
	reasonRiskNotAcceptable  = "RiskNotAcceptable"
	reasonFactUnknown        = "FactUnknown"
)

const (
	// certificateWarn is how long before its end a certificate is spoken of.
	certificateWarn = 30 * 24 * time.Hour
	// skewWarn and skewClose are how far a clock may be off: leases and fresh certificates
	// are valid or not by seconds to minutes.
	skewWarn  = 10 * time.Second
	skewClose = 2 * time.Minute
	// etcdWarn and etcdClose are shares of etcd's quota, in percent: an update
	// rewrites every object of the cluster's nodes and pods some times.
	etcdWarn, etcdClose = 70, 90
)

func pressure(_ *moment, n *Node) *model.Blocker {
	if len(n.Pressure) == 0 {
		return nil
	}
	return &model.Blocker{Reason: reasonNodePressure, Message: "node " + n.Name + " reports " + strings.Join(n.Pressure, ", "),
		Fix: "free room on node " + n.Name + ": it evicts pods and collects unused images by itself now"}
}

func foreignCordons(_ *moment, n *Node) (no, warn blockers) {
	if !n.InPlan || !n.ForeignCordon {
		return nil, nil
	}
	return nil, blockers{withNode(model.Blocker{Reason: reasonForeignCordon,
		Message: "node " + n.Name + " was cordoned, but not by refit; it counts as unavailable, is updated, and stays cordoned",
		Fix:     "kubectl uncordon " + n.Name + ", if the cordon is not needed any more"}, n)}
}

// quorum asks every member, in the plan or not.
func quorum(in *Input) (blockers, blockers) {
	no, warn := in.answers.no["quorum"], in.answers.warn["quorum"]
	if in.answers.members == 2 && in.answers.moving {
		warn = append(warn, model.Blocker{Reason: reasonQuorumAtRisk,
			Message: "etcd has two members: while one of them restarts the whole API is unavailable, about a minute for each control-plane node",
			Fix:     "nothing, if that is fine; three members bear the restart of one"})
	}
	return no, warn
}

// etcdMember asks the member of etcd on a node.
func etcdMember(_ *moment, n *Node) (no, warn blockers) {
	if n.Etcd == nil || n.Etcd.Healthy {
		return nil, nil
	}
	return blockers{withNode(model.Blocker{Reason: reasonEtcdUnhealthy, Message: "etcd on node " + n.Name + " is not healthy: " + n.Etcd.Message,
		Fix: "repair the member first: etcdctl endpoint health --cluster"}, n)}, nil
}

func etcdSpace(_ *moment, n *Node) (no, warn blockers) {
	if n.Etcd == nil || n.Etcd.Quota <= 0 {
		return nil, nil
	}
	v := withNode(model.Blocker{Reason: reasonEtcdSpace, Fix: "on node " + n.Name + ": etcdctl defrag, or raise --quota-backend-bytes"}, n)
	switch percent := n.Etcd.Size * 100 / n.Etcd.Quota; {
	case percent >= etcdClose:
		v.Message = fmt.Sprintf("the database of etcd on node %s has reached %d percent of its quota of %d bytes", n.Name, etcdClose, n.Etcd.Quota)
		no = append(no, v)
	case percent >= etcdWarn:
		v.Message = fmt.Sprintf("the database of etcd on node %s has reached %d percent of its quota of %d bytes", n.Name, etcdWarn, n.Etcd.Quota)
		warn = append(warn, v)
	}
	return no, warn
}

func certificates(m *moment, n *Node) (no, warn blockers) {
	for _, c := range n.Certificates {
		m.changesAt(c.NotAfter.Add(-m.lasts))
		m.changesAt(c.NotAfter.Add(-certificateWarn))
		left := c.NotAfter.Sub(m.now)
		if left > m.lasts && left >= certificateWarn {
			continue
		}
		v := withNode(model.Blocker{Reason: reasonCertificateExpires,
			Message: fmt.Sprintf("certificate %s of node %s ends on %s", c.Name, n.Name, c.NotAfter.UTC().Format("2006-01-02 15:04Z")),
			Fix:     renewal(n, c.Name)}, n)
		if left > m.lasts {
			warn = append(warn, v)
			continue
		}
		v.Message += ", before the update would"
		no = append(no, v)
	}
	return no, warn
}

func renewal(n *Node, name string) string {
	switch {
	case strings.HasPrefix(name, "kubelet"):
		return "on node " + n.Name + ": the kubelet renews it by itself (rotateCertificates); systemctl status kubelet says why it has not"
	case strings.HasSuffix(name, "ca.crt"):
		return "a certificate authority is replaced by hand, on all nodes: see the Kubernetes documentation on rotating CA certificates"
	}
	return "on node " + n.Name + ": kubeadm certs renew all, then restart its static pods"
}

func clockSkew(_ *moment, n *Node) (no, warn blockers) {
	if !n.SkewKnown || n.Skew.Abs() < skewWarn {
		return nil, nil
	}
	way := "ahead of"
	if n.Skew < 0 {
		way = "behind"
	}
	v := withNode(model.Blocker{Reason: reasonClockSkew, Fix: "set the clock of node " + n.Name + " and keep it right: chronyc makestep, or timedatectl"}, n)
	if n.Skew.Abs() >= skewClose && n.InPlan {
		v.Message = fmt.Sprintf("the clock of node %s is more than %s %s the API server's", n.Name, skewClose, way)
		return blockers{v}, nil
	}
	v.Message = fmt.Sprintf("the clock of node %s is more than %s %s the API server's", n.Name, skewWarn, way)
	return nil, blockers{v}
}

// budgets passes on what the drain's look ahead found, before the first node is
// touched. A budget may be loosened while the update waits at that node, so it
// warns.
func budgets(in *Input) (blockers, blockers) { return nil, in.DrainWarnings }

// webhooks: one that fails closed and whose backends all go with one drain
// refuses what it is asked about until a backend is back.
func webhooks(in *Input) (blockers, blockers) {
	if len(in.Webhooks) == 0 {
		return nil, nil
	}
	drained := map[string]bool{}
	for _, n := range in.Nodes {
		drained[n.Name] = n.Drained
	}
	var no, warn blockers
	for _, w := range sortedWebhooks(in.Webhooks) {
		v := model.Blocker{Reason: reasonWebhookBlocks, Object: w.Configuration,
			Fix: "run backends of " + w.Service + " on several nodes, exclude its namespace from the webhook (namespaceSelector), or set failurePolicy Ignore"}
		name := fmt.Sprintf("webhook %s of %s fails closed", w.Name, w.Configuration)
		switch {
		case len(w.Nodes) == 0:
			v.Message = name + ", and its service " + w.Service + " has no ready backend. The API server refuses the requests that it covers"
			v.Fix = "repair the backend of " + w.Service + ", or remove the webhook"
		case len(w.Nodes) == 1 && drained[w.Nodes[0]]:
			v.Message = fmt.Sprintf("%s, and all its backends (%s) are on node %s, which is drained", name, w.Service, w.Nodes[0])
			if w.OwnPods {
				v.Message += "; it is asked about their own pods too, so these could not start again"
			}
		default:
			continue
		}
		if w.OwnPods || w.Vital {
			no = append(no, v)
		} else {
			warn = append(warn, v)
		}
	}
	return no, warn
}

func sortedWebhooks(ws []Webhook) []Webhook {
	out := append([]Webhook(nil), ws...)
	sort.Slice(out, func(i, j int) bool {
		return out[i].Configuration+"/"+out[i].Name < out[j].Configuration+"/"+out[j].Name
	})
	return out
}

func removedAPIs(in *Input) (blockers, blockers) {
	var no blockers
	for _, a := range in.RemovedAPIs {
		if !removedBy(a.RemovedIn, in.TargetKubernetes) {
			continue
		}
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		gv := a.Version
		if a.Group != "" {
			gv = a.Group + "/" + a.Version
		}
		no = append(no, model.Blocker{Reason: reasonAPIRemoved, Object: "API/" + gv + "/" + resource,
			Message: fmt.Sprintf("a client requests %s of %s, which Kubernetes %s and later do not serve", resource, gv, a.RemovedIn),
			Fix:     "move the client to a served version (kubectl get --raw /metrics, apiserver_requested_deprecated_apis; the audit log names the client); an API server forgets when it restarts, so accept `removed-apis` once it is done"})
	}
	sort.Slice(no, func(i, j int) bool { return no[i].Object < no[j].Object })
	return no, nil
}

// removedBy reports whether a version does not serve what is removed in a minor.
func removedBy(removed, target string) bool {
	major, minor, ok := minorOf(removed)
	tMajor, tMinor, known := minorOf(target)
	return ok && known && (tMajor > major || tMajor == major && tMinor >= minor)
}

func minorOf(v string) (major, minor int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}

// verifyPreloaded are the kubelet's policies that ask a registry also about
// images that were loaded, not pulled.
var verifyPreloaded = map[string]bool{"AlwaysVerify": true, "NeverVerifyAllowlistedImages": true}

func imagePulls(in *Input) (blockers, blockers) {
	var no, warn blockers
	for _, s := range in.Pulls.AlwaysAdmission {
		no = append(no, model.Blocker{Reason: reasonImagePullAlways, Object: "Pod/kube-system/" + s,
			Message: "API server " + s + " has the admission plugin AlwaysPullImages: every start of a pod asks a registry, also for images that the node holds",
			Fix:     "take AlwaysPullImages out of --enable-admission-plugins; if a registry is always there, accept `image-pulls`"})
	}
	no = append(no, in.answers.no["image-pulls"]...)
	if n := in.Pulls.AlwaysPods; n > 0 {
		warn = append(warn, model.Blocker{Reason: reasonImagePullAlways,
			Message: fmt.Sprintf("%d pods have imagePullPolicy Always and do not start again without a registry: %s", n, strings.Join(in.Pulls.Always, ", ")),
			Fix:     "set imagePullPolicy IfNotPresent and name images by digest, or be sure that their registry is there"})
	}
	for _, r := range in.Pulls.Resolvers {
		warn = append(warn, model.Blocker{Reason: reasonTagResolver, Object: r.Object, Message: r.Message, Fix: r.Fix})
	}
	return no, warn
}

// verification asks after the policy of a node's kubelet.
func verification(_ *moment, n *Node) (no, warn blockers) {
	if !verifyPreloaded[n.PullVerification] {
		return nil, nil
	}
	return blockers{withNode(model.Blocker{Reason: reasonImagePullAlways,
		Message: fmt.Sprintf("the kubelet of node %s has imagePullCredentialsVerificationPolicy %s: it asks a registry, also for images that the node holds", n.Name, n.PullVerification),
		Fix:     "set NeverVerifyPreloadedImages in the kubelet's configuration of node " + n.Name}, n)}, nil
}

package config_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
	"github.com/refit-dev/refit/internal/osimage/imagebuild"
)

var update = flag.Bool("update", false, "write docs/reference/identities.md")

const (
	identitiesPage = "../docs/reference/identities.md"
	builds         = "refit-builds"

	byRBAC = "RBAC"
	byRule = "rule of the kind"
)

// attempt is one thing that a stolen identity tries.
type attempt struct {
	does string
	// by is what refuses it: byRBAC, byRule or the name of an admission policy.
	// Empty: it is allowed.
	by  string
	try func(*site) error
}

// site is a cluster with one started and one prepared update, two nodes, and a
// Secret in every place.
type site struct {
	t                          *testing.T
	cfg                        *rest.Config
	admin                      client.Client
	me                         client.Client // who tries
	started, prepared, hopping *v1alpha1.ClusterUpdate
}

func (s *site) create(o client.Object) error {
	return s.me.Create(context.Background(), o, client.DryRunAll)
}

func (s *site) get(o client.Object, namespace, name string) error {
	return s.me.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, o)
}

// patch changes an object that is there, as the one who tries; the administrator
// reads it, so that a refusal is one of the write.
func (s *site) patch(o client.Object, namespace, name string, change func()) error {
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		return fmt.Errorf("the test cannot read it: %w", err)
	}
	from := o.DeepCopyObject().(client.Object)
	change()
	return s.me.Patch(context.Background(), o, client.MergeFrom(from), client.DryRunAll)
}

// run permits node n1 to run.
func (s *site) run(change func(*v1alpha1.NodeRun)) error {
	r := &v1alpha1.NodeRun{Name: s.started.Name, UID: string(s.started.UID), Bundle: digestA, PlanDigest: digestB, Attempt: 1,
		Steps: []v1alpha1.UpdateStep{{ID: "a", Updater: "kubernetes", Verb: "apply"}}}
	change(r)
	nu := &v1alpha1.NodeUpdate{}
	return s.patch(nu, v1alpha1.NodesNamespace, "n1", func() { nu.Spec.Run = r })
}

// job is what imagebuild makes, and a change to it.
func (s *site) job(namespace string, v imagebuild.Variant, change func(*corev1.PodSpec)) error {
	j := imagebuild.MakeJob(v, imagebuild.JobBuild{Name: "edge", Namespace: namespace, Image: "r.example/buildah@" + digestA, Containerfile: "FROM x\n", Target: "r.example/os:edge",
		PullSecret: "registry", PushSecret: "registry", Secrets: []string{"entitlement"}, Context: map[string][]byte{"a": nil}}).Job
	if change != nil {
		change(&j.Spec.Template.Spec)
	}
	return s.create(j)
}

func attempts() map[string][]attempt {
	return map[string][]attempt{
		"viewer": viewerAttempts(), "technician": technicianAttempts(), "logs": logReaderAttempts(),
		"controller": controllerAttempts(), "node": nodeAttempts(), "operator": operatorAttempts(), "approver": approverAttempts(), "admin": adminAttempts(), "tenant": tenantAttempts(),
	}
}

// order and words of the page.
var identities = []struct{ key, title, who string }{
	{"controller", "Token of the controller", "ServiceAccount refit-system/refit-controller, with the rights of every installation."},
	{"node", "Certificate of a node", "The kubelet's client certificate of node n1, which the agent uses."},
	{"operator", "Operator", "A person with the ClusterRole refit-operator."},
	{"approver", "Approver", "A person with the ClusterRole refit-approver and no other."},
	{"admin", "Administrator of refit", "A person with the ClusterRole refit-admin, who is trusted; what is refused is a slip."},
	{"viewer", "Viewer", "A person with the ClusterRole refit-viewer and no other."},
	{"technician", "Technician", "A person with the ClusterRole refit-status-technician of the status page and no other."},
	{"logs", "Reader of logs", "A person with the Role refit-log-reader in refit-system and no other."},
	{"tenant", "Tenant", "A person with the ClusterRole admin in a namespace."},
}

func controllerAttempts() []attempt {
	privileged := func(p *corev1.PodSpec) {
		yes := true
		p.HostPID, p.Containers[0].SecurityContext.Privileged = true, &yes
		p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		p.Volumes = append(p.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
	}
	return append([]attempt{
		{"make a privileged Job in refit-system with the host's file system", byRBAC, func(s *site) error { return s.job(v1alpha1.SystemNamespace, imagebuild.Root, privileged) }},
		{"make a privileged Job in refit-builds with the host's file system", "refit-controller-jobs", func(s *site) error { return s.job(builds, imagebuild.Root, privileged) }},
		{"make a Job in refit-builds on the host's network", "refit-controller-jobs", func(s *site) error {
			return s.job(builds, imagebuild.Root, func(p *corev1.PodSpec) { p.HostNetwork = true })
		}},
		{"make a Job in refit-builds that mounts a host path", "refit-controller-jobs", func(s *site) error {
			return s.job(builds, imagebuild.Root, func(p *corev1.PodSpec) {
				p.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
			})
		}},
		{"make a Job in refit-builds with a service account", "refit-controller-jobs", func(s *site) error {
			return s.job(builds, imagebuild.Root, func(p *corev1.PodSpec) { p.ServiceAccountName = "builder" })
		}},
		{"make a Job in refit-builds that tolerates every taint", "refit-controller-jobs", func(s *site) error {
			return s.job(builds, imagebuild.Root, func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })
		}},
		{"make a Job in refit-builds on a node of its choice", "refit-controller-jobs", func(s *site) error {
			return s.job(builds, imagebuild.Root, func(p *corev1.PodSpec) { p.NodeName = "n1" })
		}},
		{"make a Job in refit-builds with another program", "refit-controller-jobs", func(s *site) error {
			return s.job(builds, imagebuild.Root, func(p *corev1.PodSpec) { p.Containers[0].Command = []string{"/bin/sh", "-c", "evil"} })
		}},
		{"build with CAP_SYS_ADMIN in refit-builds as it is installed", "refit-controller-jobs", func(s *site) error { return s.job(builds, imagebuild.RootAdmin, nil) }},
		{"build in refit-builds as imagebuild does", "", func(s *site) error { return s.job(builds, imagebuild.FileCapabilities, nil) }},
		{"build in refit-builds in a user namespace", "", func(s *site) error { return s.job(builds, imagebuild.UserNamespaceUnconfined, nil) }},
		{"make a pod", byRBAC, func(s *site) error {
			return s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
		}},
		{"read a Secret of refit-system that is not its key", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, v1alpha1.SystemNamespace, "other") }},
		{"list the Secrets of refit-builds", byRBAC, func(s *site) error {
			return s.me.List(context.Background(), &corev1.SecretList{}, client.InNamespace(builds))
		}},
		{"read a named Secret of refit-builds", "", func(s *site) error { return s.get(&corev1.Secret{}, builds, "registry") }},
		{"read a Secret of another namespace", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, "default", "other") }},
		{"make a Secret that the API server puts a token into", "refit-controller-secrets", func(s *site) error {
			return s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "refit-joins", Annotations: map[string]string{corev1.ServiceAccountNameKey: "refit-controller"}},
				Type: corev1.SecretTypeServiceAccountToken})
		}},
		{"make another Secret in refit-system", "refit-controller-secrets", func(s *site) error {
			return s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "mine"}})
		}},
		{"make its own key", "", func(s *site) error {
			return s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "refit-controller-key"}})
		}},
		{"write a ConfigMap that a NodeConfig reads", "refit-controller-configmaps", func(s *site) error {
			cm := &corev1.ConfigMap{}
			return s.patch(cm, v1alpha1.NodesNamespace, "files", func() { cm.Data = map[string]string{"a": "evil"} })
		}},
		{"write a NodeConfig", byRBAC, func(s *site) error { return s.create(nodeConfig("evil")) }},
		{"let a service account read a NodeUpdate", "refit-controller-grants", func(s *site) error {
			_, binding := controller.NodeRights(&v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}})
			binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}}
			return s.create(binding)
		}},
		{"let a node read all NodeUpdates", "refit-controller-grants", func(s *site) error {
			role, _ := controller.NodeRights(&v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n3", UID: "u"}})
			role.Rules[0].ResourceNames = nil
			return s.create(role)
		}},
		{"let a node read its own NodeUpdate", "", func(s *site) error {
			role, _ := controller.NodeRights(&v1alpha1.NodeUpdate{ObjectMeta: metav1.ObjectMeta{Name: "n3", UID: "u"}})
			return s.create(role)
		}},
		{"restart a node by a drill", "refit-people-drill", func(s *site) error {
			nu := &v1alpha1.NodeUpdate{}
			return s.patch(nu, v1alpha1.NodesNamespace, "n1", func() { nu.Annotations = map[string]string{v1alpha1.AnnotationDrill: "now"} })
		}},
		{"approve a bundle", "refit-people-approve", func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("evil"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"write a TrustPolicy", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.TrustPolicy{ObjectMeta: meta("evil"), Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "k", PublicKey: "-----BEGIN PUBLIC KEY-----\n"}}}})
		}},
		{"make or start a ClusterUpdate", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.ClusterUpdate{ObjectMeta: meta("evil"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestB, Start: v1alpha1.StartImmediate}})
		}},
	}, runAttempts()...)
}

// runAttempts are about permissions to run, of the controller.
func runAttempts() []attempt {
	of := func(u func(*site) *v1alpha1.ClusterUpdate, change func(*v1alpha1.NodeRun)) func(*site) error {
		return func(s *site) error {
			return s.run(func(r *v1alpha1.NodeRun) {
				r.Name, r.UID = u(s).Name, string(u(s).UID)
				change(r)
			})
		}
	}
	started := func(s *site) *v1alpha1.ClusterUpdate { return s.started }
	prepared := func(s *site) *v1alpha1.ClusterUpdate { return s.prepared }
	hopping := func(s *site) *v1alpha1.ClusterUpdate { return s.hopping } // through digestB to digestA
	same := func(*v1alpha1.NodeRun) {}
	return []attempt{
		{"let a node run without the name of an update", byRule, of(started, func(r *v1alpha1.NodeRun) { r.Name = "" })},
		{"let a node run under a name that no update can have", byRule, of(started, func(r *v1alpha1.NodeRun) { r.Name = "../Absent" })},
		{"let a node run for an update that no person started", "refit-gate-before-run", of(prepared, same)},
		{"let a node run for a deleted update of the same name", "refit-gate-before-run", of(started, func(r *v1alpha1.NodeRun) { r.UID = "another" })},
		{"let a node run another plan than the one that was started", "refit-gate-before-run", of(started, func(r *v1alpha1.NodeRun) { r.PlanDigest = digestA })},
		{"let a node run another bundle than the update names", "refit-gate-before-run", of(started, func(r *v1alpha1.NodeRun) { r.Bundle = digestB })},
		{"let a node run a hop that the update does not have", "refit-gate-before-run", of(started, func(r *v1alpha1.NodeRun) { r.UID += "-2" })},
		{"let a node run a hop that has not started", "refit-gate-before-run", of(hopping, func(r *v1alpha1.NodeRun) { r.UID, r.Bundle = r.UID+"-2", digestA })},
		{"let a node run the bundle of another hop", "refit-gate-before-run", of(hopping, func(r *v1alpha1.NodeRun) { r.Bundle = digestA })},
		{"let a node run the hop that has started", "", of(hopping, func(r *v1alpha1.NodeRun) { r.Bundle = digestB })},
		{"let a node run what a person started", "", of(started, same)},
		{"write a static pod without a grant", "refit-tracks-write-static-pods", of(started, func(r *v1alpha1.NodeRun) {
			r.Name = "ImageTrack/proxy"
			r.Steps = []v1alpha1.UpdateStep{{ID: "a", Updater: "static-pod", Verb: "write", Params: map[string]string{"namespace": "default", "pod": "etcd"}}}
		})},
		{"claim that an update has started that no person started", "refit-people-start", func(s *site) error {
			u := &v1alpha1.ClusterUpdate{}
			if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(s.prepared), u); err != nil {
				return err
			}
			now := metav1.Now()
			u.Status.StartedAt, u.Status.PlanDigest = &now, digestB
			return s.me.Status().Update(context.Background(), u, client.DryRunAll)
		}},
	}
}

func nodeAttempts() []attempt {
	status := func(node string) func(*site) error {
		return func(s *site) error {
			nu := &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta(node)}
			return s.me.Status().Patch(context.Background(), nu, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Idle"}}`)), client.DryRunAll)
		}
	}
	list := func(o client.ObjectList, opts ...client.ListOption) func(*site) error {
		return func(s *site) error {
			return s.me.List(context.Background(), o, append(opts, client.InNamespace(v1alpha1.NodesNamespace))...)
		}
	}
	return []attempt{
		{"read its own NodeUpdate", "", func(s *site) error { return s.get(&v1alpha1.NodeUpdate{}, v1alpha1.NodesNamespace, "n1") }},
		{"list NodeUpdates by its own name", "", list(&v1alpha1.NodeUpdateList{}, client.MatchingFields{"metadata.name": "n1"})},
		{"read the NodeUpdate of another node", byRBAC, func(s *site) error { return s.get(&v1alpha1.NodeUpdate{}, v1alpha1.NodesNamespace, "n2") }},
		{"list NodeUpdates by another node's name", byRBAC, list(&v1alpha1.NodeUpdateList{}, client.MatchingFields{"metadata.name": "n2"})},
		{"list all NodeUpdates", byRBAC, list(&v1alpha1.NodeUpdateList{})},
		{"list Contents", byRBAC, list(&v1alpha1.ContentList{})},
		{"read a Content whose hash it has", "", func(s *site) error { return s.get(&v1alpha1.Content{}, v1alpha1.NodesNamespace, "plan-x") }},
		{"write its own status", "", status("n1")},
		{"write the status of another node", "refit-node-writes-own-status", status("n2")},
		{"read the NodeUpdate of another node through its status", byRBAC, func(s *site) error {
			return s.me.SubResource("status").Get(context.Background(), &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta("n2")}, &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta("n2")})
		}},
		{"write its own spec", byRBAC, func(s *site) error {
			nu := &v1alpha1.NodeUpdate{}
			return s.patch(nu, v1alpha1.NodesNamespace, "n1", func() { nu.Spec.Pins = "pins-x" })
		}},
		{"write a Content", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.Content{ObjectMeta: nodeMeta("pins-y"), Type: "pins", Data: "{}"})
		}},
		{"approve a bundle", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("evil"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"read a Secret of refit-system", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, v1alpha1.SystemNamespace, "other") }},
		{"read a Secret of refit-builds", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, builds, "registry") }},
		{"read a ConfigMap of refit-nodes, of which files of NodeConfigs come", "", func(s *site) error { return s.get(&corev1.ConfigMap{}, v1alpha1.NodesNamespace, "files") }},
		{"give itself the rights of another node", byRBAC, func(s *site) error {
			return s.create(&rbacv1.RoleBinding{ObjectMeta: nodeMeta("mine"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "refit:node:n2"},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:node:n1"}}})
		}},
	}
}

func operatorAttempts() []attempt {
	return []attempt{
		{"read which cluster this is", "", func(s *site) error { return s.get(&corev1.Namespace{}, "", metav1.NamespaceSystem) }},
		{"read another namespace", byRBAC, func(s *site) error { return s.get(&corev1.Namespace{}, "", "default") }},
		{"start an update", "", func(s *site) error {
			u := &v1alpha1.ClusterUpdate{}
			return s.patch(u, "", s.prepared.Name, func() { u.Spec.Start = v1alpha1.StartImmediate })
		}},
		{"approve a bundle", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("b"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"approve a bundle that was found", byRBAC, func(s *site) error {
			b := &v1alpha1.Bundle{}
			return s.patch(b, "", "found-one", func() { b.Spec.Digest = digestB })
		}},
		{"write a TrustPolicy", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.TrustPolicy{ObjectMeta: meta("evil"), Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "k", PublicKey: "-----BEGIN PUBLIC KEY-----\n"}}}})
		}},
		{"write a NodeConfig", byRBAC, func(s *site) error { return s.create(nodeConfig("evil")) }},
		{"tell a node what to hold", byRBAC, func(s *site) error {
			nu := &v1alpha1.NodeUpdate{}
			return s.patch(nu, v1alpha1.NodesNamespace, "n1", func() { nu.Spec.Pins = "pins-x" })
		}},
		{"claim that an update has started", byRBAC, func(s *site) error {
			u := s.prepared.DeepCopy()
			now := metav1.Now()
			u.Status.StartedAt = &now
			return s.me.Status().Update(context.Background(), u, client.DryRunAll)
		}},
	}
}

func approverAttempts() []attempt {
	return []attempt{
		{"approve a bundle", "", func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("b"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"start an update", byRBAC, func(s *site) error {
			u := &v1alpha1.ClusterUpdate{}
			return s.patch(u, "", s.prepared.Name, func() { u.Spec.Start = v1alpha1.StartImmediate })
		}},
		{"approve a bundle without the verb approve (a role that may only create Bundles)", "refit-people-approve", func(s *site) error {
			writer := newClient(s.t, apitest.As(s.cfg, "writer"))
			return writer.Create(context.Background(), &v1alpha1.Bundle{ObjectMeta: meta("b"), Spec: v1alpha1.BundleSpec{Digest: digestB}}, client.DryRunAll)
		}},
	}
}

func adminAttempts() []attempt {
	key := "-----BEGIN RSA PRIVATE KEY-----\n"
	return []attempt{
		{"write a NodeConfig", "", func(s *site) error {
			return s.create(nodeConfig("fine", v1alpha1.NodeFile{Path: "/etc/x", Contents: &v1alpha1.FileContents{Inline: ptr("a = b\n")}}))
		}},
		{"write a NodeConfig with a private key in a file", "refit-no-keys-in-node-configs", func(s *site) error {
			return s.create(nodeConfig("slip", v1alpha1.NodeFile{Path: "/etc/x", Contents: &v1alpha1.FileContents{Inline: &key}}))
		}},
		{"write a NodeConfig with a private key in a drop-in", "refit-no-keys-in-node-configs", func(s *site) error {
			return s.create(&v1alpha1.NodeConfig{ObjectMeta: meta("slip"), Spec: v1alpha1.NodeConfigSpec{Units: []v1alpha1.NodeUnit{
				{Name: "x.service", Dropins: []v1alpha1.UnitDropin{{Name: "1.conf", Contents: key}}}}}})
		}},
		{"approve a bundle", "", func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("b"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"tell a node what to hold", byRBAC, func(s *site) error {
			nu := &v1alpha1.NodeUpdate{}
			return s.patch(nu, v1alpha1.NodesNamespace, "n1", func() { nu.Spec.Pins = "pins-x" })
		}},
		{"read a Secret of refit-builds", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, builds, "registry") }},
	}
}

func tenantAttempts() []attempt {
	at := metav1.ObjectMeta{Namespace: "default", Name: "mine"}
	return []attempt{
		{"see what refit does", "", func(s *site) error {
			return s.me.List(context.Background(), &v1alpha1.InPlacePlanList{}, client.InNamespace("default"))
		}},
		{"make an InPlacePlan in its namespace", byRBAC, func(s *site) error { return s.create(&v1alpha1.InPlacePlan{ObjectMeta: at}) }},
		{"make a ClusterUpdate", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.ClusterUpdate{ObjectMeta: meta("evil"), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestB}})
		}},
		{"approve a bundle", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("evil"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"read the desired state of nodes", byRBAC, func(s *site) error {
			return s.me.List(context.Background(), &v1alpha1.NodeUpdateList{}, client.InNamespace(v1alpha1.NodesNamespace))
		}},
		{"make a Job in refit-builds", byRBAC, func(s *site) error { return s.job(builds, imagebuild.Root, nil) }},
		{"make a Job of its own in its namespace", "", func(s *site) error {
			return s.create(&batchv1.Job{ObjectMeta: at, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}})
		}},
	}
}

// Each stolen identity tries what would hurt, against a real API server with what
// an installation applies; the page for people is written from the answers.
func testStolenIdentities(t *testing.T, cfg *rest.Config, admin client.Client) {
	waitForPolicies(t, admin)
	s := newSite(t, cfg, admin)
	users := map[string]client.Client{
		"controller": newClient(t, apitest.As(cfg, apitest.ControllerUser)),
		"node":       newClient(t, apitest.Certificate(t, cfg, "system:node:n1", "system:nodes")),
		"viewer":     newClient(t, apitest.As(cfg, "viewer")),
		"technician": newClient(t, apitest.As(cfg, "technician")), "logs": newClient(t, apitest.As(cfg, "log-reader")),
		"operator": newClient(t, apitest.As(cfg, "operator")), "approver": newClient(t, apitest.As(cfg, "approver")), "admin": newClient(t, apitest.As(cfg, "administrator")), "tenant": newClient(t, apitest.As(cfg, "tenant")),
	}
	var page strings.Builder
	page.WriteString(identitiesHead)
	for _, id := range identities {
		fmt.Fprintf(&page, "\n## %s\n%s\n\n| tries to | answer |\n| --- | --- |\n", id.title, id.who)
		s.me = users[id.key]
		for _, a := range attempts()[id.key] {
			err := settled(a, s)
			if got := refusedBy(err); got != a.by {
				t.Errorf("%s tries to %s: want %q, got %q: %v", id.key, a.does, a.by, got, err)
			}
			answer := "**allowed**"
			if a.by != "" {
				answer = "refused by " + a.by
			}
			fmt.Fprintf(&page, "| %s | %s |\n", a.does, answer)
		}
	}
	if *update {
		if err := os.WriteFile(identitiesPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(identitiesPage)
	if err != nil || string(have) != page.String() {
		t.Errorf("%s is not what the API server answers (%v): go test ./config -run TestAPIServer -update", identitiesPage, err)
	}
}

const identitiesHead = `# Identities: what a stolen one may do

Every line was tried against a real API server (Kubernetes 1.35) with the objects of an installation, as a dry run; ` + "`config/identities_test.go`" + ` writes
this page and fails if an answer changes. The reasons are in docs/design/2026-11-22-tokens.md. Refusals name who refuses: RBAC, a rule of the kind, or a
ValidatingAdmissionPolicy. What agents check themselves comes on top and is not in this table.
`

// settled tries until the answer is the expected one, for a while: the API server
// notices new objects that policies compare with a moment later.
func settled(a attempt, s *site) (err error) {
	for range 50 {
		if err = a.try(s); refusedBy(err) == a.by {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func refusedBy(err error) string {
	if err == nil {
		return ""
	}
	if _, after, ok := strings.Cut(err.Error(), "ValidatingAdmissionPolicy '"); ok {
		policy, _, _ := strings.Cut(after, "'")
		return policy
	}
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot "):
		return byRBAC
	case apierrors.IsInvalid(err):
		return byRule
	}
	return "something else"
}

func newSite(t *testing.T, cfg *rest.Config, admin client.Client) *site {
	t.Helper()
	ctx := context.Background()
	s := &site{t: t, cfg: cfg, admin: admin}
	controllerClient := newClient(t, apitest.As(cfg, apitest.ControllerUser))
	granter := &controller.NodeRightsGranter{Client: controllerClient, Live: controllerClient}
	for _, n := range []string{"n1", "n2"} {
		err := controllerClient.Create(ctx, &v1alpha1.NodeUpdate{ObjectMeta: nodeMeta(n)})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if err := granter.Grant(ctx, time.Now()); err != nil {
		t.Fatalf("grant nodes their NodeUpdate: %v", err)
	}
	if err := admin.Create(ctx, &v1alpha1.Content{ObjectMeta: nodeMeta("plan-x"), Type: "plan", Data: "{}"}); err == nil {
		t.Fatal("an administrator wrote a Content")
	}
	if err := controllerClient.Create(ctx, &v1alpha1.Content{ObjectMeta: nodeMeta("plan-x"), Type: "plan", Data: "{}"}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, namespace := range []string{v1alpha1.SystemNamespace, "default"} {
		mustCreate(t, admin, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}})
	}
	mustCreate(t, admin, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: builds, Name: "registry"}})
	mustCreate(t, admin, &corev1.ConfigMap{ObjectMeta: nodeMeta("files"), Data: map[string]string{"a": "b"}})
	mustCreate(t, admin, &v1alpha1.Bundle{ObjectMeta: meta("found-one")})
	s.started = s.updateOf(controllerClient, "started", v1alpha1.StartImmediate)
	s.prepared = s.updateOf(controllerClient, "prepared", v1alpha1.StartManual)
	s.hopping = s.updateOf(controllerClient, "hopping", v1alpha1.StartImmediate, digestB)
	applyStatusPage(t, admin)
	for role, user := range map[string]string{"refit-viewer": "viewer", "refit-status-technician": "technician", "refit-operator": "operator", "refit-approver": "approver", "refit-admin": "administrator"} {
		mustCreate(t, admin, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("test-" + role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	}
	mustCreate(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "test-logs"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "refit-log-reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "log-reader"}}})
	mustCreate(t, admin, &rbacv1.ClusterRole{ObjectMeta: meta("writes-bundles"), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"bundles"}, Verbs: []string{"create"}}}})
	mustCreate(t, admin, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("test-writer"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "writes-bundles"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "writer"}}})
	// The controllers of Kubernetes do not run here, so refit-viewer is not part of admin.
	for _, role := range []string{"admin", "refit-viewer"} {
		mustCreateRole(t, admin, role)
		mustCreate(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "test-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}}})
	}
	return s
}

// mustCreateRole gives the role admin the rules that aggregation would give it.
func mustCreateRole(t *testing.T, admin client.Client, role string) {
	t.Helper()
	if role != "admin" {
		return
	}
	r := &rbacv1.ClusterRole{}
	if err := admin.Get(context.Background(), client.ObjectKey{Name: "system:aggregate-to-edit"}, r); err != nil {
		t.Fatal(err)
	}
	a := &rbacv1.ClusterRole{}
	if err := admin.Get(context.Background(), client.ObjectKey{Name: role}, a); err != nil {
		t.Fatal(err)
	}
	a.Rules = r.Rules
	if err := admin.Update(context.Background(), a); err != nil {
		t.Fatal(err)
	}
}

// updateOf is an update with a plan, as the controller leaves it.
func (s *site) updateOf(controllerClient client.Client, name string, start v1alpha1.StartMode, hops ...string) *v1alpha1.ClusterUpdate {
	s.t.Helper()
	u := &v1alpha1.ClusterUpdate{ObjectMeta: meta(name), Spec: v1alpha1.ClusterUpdateSpec{Bundle: digestA, Hops: hops, Start: start}}
	mustCreate(s.t, s.admin, u)
	u.Status.PlanDigest = digestB
	if start == v1alpha1.StartImmediate {
		now := metav1.Now()
		u.Status.StartedAt = &now
		if len(hops) > 0 { // the first one has started
			u.Status.Hops = []v1alpha1.HopStatus{{Bundle: hops[0], StartedAt: &now}, {Bundle: digestA}}
		}
	}
	if err := controllerClient.Status().Update(context.Background(), u); err != nil {
		s.t.Fatal(err)
	}
	return u
}

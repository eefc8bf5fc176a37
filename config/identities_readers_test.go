package config_test

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
)

// applyStatusPage installs the roles of the status page, which is off by default.
func applyStatusPage(t *testing.T, admin client.Client) {
	t.Helper()
	objects, err := config.StatusPage()
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// seePage asks what the status page asks before it answers a request for path.
func (s *site) seePage(path string) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}}}
	if err := s.me.Create(context.Background(), review); err != nil {
		return err
	}
	if !review.Status.Allowed {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("user cannot get path "+path))
	}
	return nil
}

func viewerAttempts() []attempt {
	list := func(l client.ObjectList, o ...client.ListOption) func(*site) error {
		return func(s *site) error { return s.me.List(context.Background(), l, o...) }
	}
	return append([]attempt{
		{"see updates", "", list(&v1alpha1.ClusterUpdateList{})},
		{"see bundles", "", list(&v1alpha1.BundleList{})},
		{"see what every node holds and does", "", list(&v1alpha1.NodeUpdateList{}, client.InNamespace(v1alpha1.NodesNamespace))},
		{"see who is trusted", "", list(&v1alpha1.TrustPolicyList{})},
		{"see the administrator's view of the status page", byRBAC, func(s *site) error { return s.seePage("/refit/status") }},
		{"read a Secret of refit-system", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, v1alpha1.SystemNamespace, "other") }},
	}, writesOfReaders()...)
}

func technicianAttempts() []attempt {
	return append([]attempt{
		{"see the technician's view of the status page", "", func(s *site) error { return s.seePage("/refit/technician") }},
		{"see the administrator's view of the status page", byRBAC, func(s *site) error { return s.seePage("/refit/status") }},
		{"see updates", byRBAC, func(s *site) error { return s.me.List(context.Background(), &v1alpha1.ClusterUpdateList{}) }},
		{"see what a node holds and does", byRBAC, func(s *site) error { return s.get(&v1alpha1.NodeUpdate{}, v1alpha1.NodesNamespace, "n1") }},
	}, writesOfReaders()...)
}

// makeToken makes a token of a service account of refit, as a dry run.
func (s *site) makeToken(account string) error {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: account}}
	return s.me.SubResource("token").Create(context.Background(), sa, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"refit-logs"}}}, client.DryRunAll)
}

// reach asks whether the proxy of the API server lets a person through to a Service of refit.
func (s *site) reach(service string) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: v1alpha1.SystemNamespace, Verb: "get", Resource: "services", Subresource: "proxy", Name: service}}}
	if err := s.me.Create(context.Background(), review); err != nil {
		return err
	}
	if !review.Status.Allowed {
		return apierrors.NewForbidden(schema.GroupResource{}, service, errors.New("user cannot reach it"))
	}
	return nil
}

func logReaderAttempts() []attempt {
	return append([]attempt{
		{"make a token for the controller's logs", "", func(s *site) error { return s.makeToken("refit-log-reader") }},
		{"reach the controller's logs and metrics through the API server", "", func(s *site) error { return s.reach("https:refit-controller:metrics") }},
		{"make a token of the controller", byRBAC, func(s *site) error { return s.makeToken("refit-controller") }},
		{"reach another port of the controller", byRBAC, func(s *site) error { return s.reach("https:refit-controller:18745") }},
		{"get the metrics with its own token", byRBAC, func(s *site) error { return s.seePage("/metrics") }},
		{"see updates", byRBAC, func(s *site) error { return s.me.List(context.Background(), &v1alpha1.ClusterUpdateList{}) }},
		{"read a Secret of refit-system", byRBAC, func(s *site) error { return s.get(&corev1.Secret{}, v1alpha1.SystemNamespace, "other") }},
	}, writesOfReaders()...)
}

// writesOfReaders are writes that no role for reading permits.
func writesOfReaders() []attempt {
	return []attempt{
		{"start an update", byRBAC, func(s *site) error {
			u := &v1alpha1.ClusterUpdate{}
			return s.patch(u, "", s.prepared.Name, func() { u.Spec.Start = v1alpha1.StartImmediate })
		}},
		{"pause an update that runs", byRBAC, func(s *site) error {
			u := &v1alpha1.ClusterUpdate{}
			return s.patch(u, "", s.started.Name, func() { u.Spec.Paused = true })
		}},
		{"delete an update", byRBAC, func(s *site) error { return s.me.Delete(context.Background(), s.prepared, client.DryRunAll) }},
		{"approve a bundle", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.Bundle{ObjectMeta: meta("b"), Spec: v1alpha1.BundleSpec{Digest: digestB}})
		}},
		{"write a TrustPolicy", byRBAC, func(s *site) error {
			return s.create(&v1alpha1.TrustPolicy{ObjectMeta: meta("evil"), Spec: v1alpha1.TrustPolicySpec{Keys: []v1alpha1.TrustedKey{{Name: "k", PublicKey: "-----BEGIN PUBLIC KEY-----\n"}}}})
		}},
		{"tell a node what to hold", byRBAC, func(s *site) error {
			nu := &v1alpha1.NodeUpdate{}
			return s.patch(nu, v1alpha1.NodesNamespace, "n1", func() { nu.Spec.Pins = "pins-x" })
		}},
	}
}

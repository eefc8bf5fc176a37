package clusterfacts

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/pipeline/gate"
)

// hook is what validating and mutating webhooks have in common.
type hook struct {
	configuration, name string
	policy              *admissionv1.FailurePolicyType
	service             *admissionv1.ServiceReference
	rules               []admissionv1.RuleWithOperations
	namespaces          *metav1.LabelSelector
}

// Webhooks lists the webhooks that fail closed and have a Service of this cluster, with the
// nodes of their ready backends.
func Webhooks(ctx context.Context, c client.Reader) ([]gate.Webhook, error) {
	hooks, err := listHooks(ctx, c)
	if err != nil {
		return nil, err
	}
	backends := map[string][]string{}
	spaces := map[string]labels.Set{}
	var out []gate.Webhook
	for _, h := range hooks {
		if h.policy != nil && *h.policy == admissionv1.Ignore || h.service == nil {
			continue
		}
		key := h.service.Namespace + "/" + h.service.Name
		if _, seen := backends[key]; !seen {
			if backends[key], err = backendNodes(ctx, c, h.service.Namespace, h.service.Name); err != nil {
				return nil, err
			}
		}
		if _, seen := spaces[h.service.Namespace]; !seen {
			if spaces[h.service.Namespace], err = namespaceLabels(ctx, c, h.service.Namespace); err != nil {
				return nil, err
			}
		}
		out = append(out, gate.Webhook{Configuration: h.configuration, Name: h.name, Service: key, Nodes: backends[key],
			Pods:    h.matches("", "pods", admissionv1.Create),
			OwnPods: h.matches("", "pods", admissionv1.Create) && h.selectsNamespace(spaces[h.service.Namespace]), Vital: h.isVital()})
	}
	return out, nil
}

func listHooks(ctx context.Context, c client.Reader) ([]hook, error) {
	var vs admissionv1.ValidatingWebhookConfigurationList
	var ms admissionv1.MutatingWebhookConfigurationList
	for _, l := range []client.ObjectList{&vs, &ms} {
		if err := c.List(ctx, l); err != nil {
			return nil, fmt.Errorf("list admission webhooks: %w", err)
		}
	}
	var out []hook
	for i := range vs.Items {
		for _, w := range vs.Items[i].Webhooks {
			out = append(out, hook{"ValidatingWebhookConfiguration/" + vs.Items[i].Name, w.Name, w.FailurePolicy, w.ClientConfig.Service, w.Rules, w.NamespaceSelector})
		}
	}
	for i := range ms.Items {
		for _, w := range ms.Items[i].Webhooks {
			out = append(out, hook{"MutatingWebhookConfiguration/" + ms.Items[i].Name, w.Name, w.FailurePolicy, w.ClientConfig.Service, w.Rules, w.NamespaceSelector})
		}
	}
	return out, nil
}

// matches reports whether a webhook is called for an operation on a resource.
func (h hook) matches(group, resource string, op admissionv1.OperationType) bool {
	for _, r := range h.rules {
		ops := slices.Contains(r.Operations, op) || slices.Contains(r.Operations, admissionv1.OperationAll)
		if ops && covers(r.APIGroups, group) && coversResource(r.Resources, resource) {
			return true
		}
	}
	return false
}

func covers(list []string, want string) bool {
	return slices.Contains(list, "*") || slices.Contains(list, want)
}

// coversResource matches the forms *, */*, nodes, nodes/*, */eviction.
func coversResource(list []string, want string) bool {
	name, sub, isSub := strings.Cut(want, "/")
	for _, r := range list {
		rName, rSub, rIsSub := strings.Cut(r, "/")
		switch {
		case r == "*/*", r == want:
			return true
		case r == "*" && !isSub:
			return true
		case rIsSub && isSub && (rName == "*" || rName == name) && (rSub == "*" || rSub == sub):
			return true
		}
	}
	return false
}

// selectsNamespace reports whether the webhook is called for objects of a namespace.
func (h hook) selectsNamespace(space labels.Set) bool {
	if h.namespaces == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(h.namespaces)
	return err != nil || s.Matches(space)
}

// isVital reports whether the webhook is called for objects that an update writes.
func (h hook) isVital() bool {
	return h.matches("", "nodes", admissionv1.Update) || h.matches("", "nodes/status", admissionv1.Update) ||
		h.matches("", "pods/eviction", admissionv1.Create) || h.matches("coordination.k8s.io", "leases", admissionv1.Update) ||
		h.matches(v1alpha1.GroupVersion.Group, "nodeupdates", admissionv1.Update) || h.matches(v1alpha1.GroupVersion.Group, "clusterupdates/status", admissionv1.Update)
}

// backendNodes returns the nodes of a Service's ready endpoints, sorted.
func backendNodes(ctx context.Context, c client.Reader, namespace, service string) ([]string, error) {
	var l discoveryv1.EndpointSliceList
	if err := c.List(ctx, &l, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, fmt.Errorf("list the endpoints of service %s/%s: %w", namespace, service, err)
	}
	seen := map[string]bool{}
	for i := range l.Items {
		for _, e := range l.Items[i].Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			name := "outside the cluster"
			if e.NodeName != nil {
				name = *e.NodeName
			}
			seen[name] = true
		}
	}
	out := make([]string, 0, len(seen))
	for n := range seen {
		out = append(out, n)
	}
	sort.Strings(out)
	return out, nil
}

func namespaceLabels(ctx context.Context, c client.Reader, name string) (labels.Set, error) {
	var n corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: name}, &n); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return n.Labels, nil
}

package clusterapi

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
)

// Names in Cluster API.
const (
	group            = "cluster.x-k8s.io"
	servedVersion    = "v1beta2"
	kindMachine      = "Machine"
	kindSet          = "MachineSet"
	kindDeployment   = "MachineDeployment"
	kindControlPlane = "KubeadmControlPlane"
	kindCluster      = "Cluster"

	labelCluster      = group + "/cluster-name"
	labelDeployment   = group + "/deployment-name"
	labelSet          = group + "/set-name"
	labelControlPlane = group + "/control-plane-name"
	labelIsControl    = group + "/control-plane"

	annotationInProgress      = "in-place-updates.internal." + group + "/update-in-progress"
	annotationPendingHooks    = "runtime." + group + "/pending-hooks"
	annotationSkipRemediation = group + "/skip-remediation"

	hookUpdateMachine = "UpdateMachine"
)

func gvk(kind string) schema.GroupVersionKind {
	g := group
	if kind == kindControlPlane {
		g = "controlplane." + group
	}
	return schema.GroupVersionKind{Group: g, Version: servedVersion, Kind: kind}
}

// pool is the object that owns the machines of a request.
type pool struct {
	v1alpha1.InPlacePool
	Namespace, Cluster string
	// UID and Annotations are the object's; UID is empty if it does not exist.
	UID         string
	Annotations map[string]string
}

func (p *pool) String() string { return p.Kind + "/" + p.Name }

// planName returns the name of the pool's InPlacePlan.
func (p *pool) planName() string { return strings.ToLower(p.Kind) + "." + p.Name }

// poolOf returns the pool that an object of a request, or a Machine, belongs to.
func poolOf(o *unstructured.Unstructured) pool {
	labels := o.GetLabels()
	p := pool{Namespace: o.GetNamespace(), Cluster: labels[labelCluster]}
	if p.Cluster == "" {
		p.Cluster, _, _ = unstructured.NestedString(o.Object, "spec", "clusterName")
	}
	switch {
	case labels[labelControlPlane] != "":
		p.Kind, p.Name = kindControlPlane, labels[labelControlPlane]
	case labels[labelDeployment] != "":
		p.Kind, p.Name = kindDeployment, labels[labelDeployment]
	case o.GetKind() == kindSet:
		p.Kind, p.Name = kindSet, o.GetName()
	default:
		p.Kind, p.Name = kindSet, labels[labelSet]
	}
	return p
}

// lookUpPool adds the pool's UID, and its annotations over those of its Cluster.
func (s *Server) lookUpPool(ctx context.Context, p *pool) error {
	p.Annotations = map[string]string{}
	for _, at := range []struct{ kind, name string }{{kindCluster, p.Cluster}, {p.Kind, p.Name}} {
		if at.name == "" {
			continue
		}
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(gvk(at.kind))
		err := s.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: at.name}, o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, key := range []string{v1alpha1.AnnotationFallback, v1alpha1.AnnotationNewMachinesOnly, v1alpha1.AnnotationKubeconfig} {
			if v, ok := o.Annotations[key]; ok {
				p.Annotations[key] = v
			}
		}
		if at.kind == p.Kind {
			p.UID = string(o.UID)
		}
	}
	return nil
}

// Settings of an ExtensionConfig, for pools without annotations of their own.
const (
	settingFallback        = "fallback"
	settingNewMachinesOnly = "newMachinesOnly"
)

// fallback returns a pool's fallback. Any value except Replace preserves the machines.
func (p *pool) fallback(settings map[string]string) v1alpha1.Fallback {
	v, ok := p.Annotations[v1alpha1.AnnotationFallback]
	if !ok {
		v = settings[settingFallback]
	}
	if strings.EqualFold(v, string(v1alpha1.FallbackReplace)) {
		return v1alpha1.FallbackReplace
	}
	return v1alpha1.FallbackPreserve
}

// newMachinesOnly lists the fields that have no effect on running machines.
func (p *pool) newMachinesOnly(settings map[string]string) []string {
	v, ok := p.Annotations[v1alpha1.AnnotationNewMachinesOnly]
	if !ok {
		v = settings[settingNewMachinesOnly]
	}
	var out []string
	for path := range strings.SplitSeq(v, ",") {
		if path = strings.TrimSpace(path); path != "" {
			out = append(out, path)
		}
	}
	return out
}

// machine is a Cluster API Machine.
type machine struct {
	*unstructured.Unstructured
}

func (m machine) version() string {
	v, _, _ := unstructured.NestedString(m.Object, "spec", "version")
	return v
}

func (m machine) node() string {
	n, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name")
	return n
}

func (m machine) controlPlane() bool {
	_, ok := m.GetLabels()[labelIsControl]
	return ok
}

// inUpdate reports whether Cluster API has marked the Machine for an in-place update and waits
// for the hook.
func (m machine) inUpdate() bool {
	a := m.GetAnnotations()
	if _, ok := a[annotationInProgress]; !ok {
		return false
	}
	for h := range strings.SplitSeq(a[annotationPendingHooks], ",") {
		if strings.TrimSpace(h) == hookUpdateMachine {
			return true
		}
	}
	return false
}

func (m machine) key() string { return m.GetNamespace() + "/" + m.GetName() }

// readMachine reads a Machine without a cache.
func (s *Server) readMachine(ctx context.Context, namespace, name string) (machine, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk(kindMachine))
	return machine{o}, s.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
}

// kubeconfig reads the Secret with a workload cluster's kubeconfig.
func (s *Server) kubeconfig(ctx context.Context, p *pool) (*corev1.Secret, error) {
	var secret corev1.Secret
	return &secret, s.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.kubeconfigSecret()}, &secret)
}

func (p *pool) kubeconfigSecret() string {
	if name := p.Annotations[v1alpha1.AnnotationKubeconfig]; name != "" {
		return name
	}
	return p.Cluster + "-kubeconfig" // Cluster API's default name
}

package installcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/config"
	"github.com/refit-dev/refit/internal/cli/console"
)

// older names the settings for API servers before 1.36. Without the feature gate the API
// server stores the policy and ignores it.
const older = "it is part of Kubernetes 1.36, and of 1.34 and 1.35 with --feature-gates=MutatingAdmissionPolicy=true and --runtime-config=admissionregistration.k8s.io/v1beta1=true. Until then refit tags lint --cluster --offline lists what to change"

var (
	errNoMutation = errors.New("this API server has no MutatingAdmissionPolicy, so refit cannot set imagePullPolicy IfNotPresent on new pods: " + older)
	errNoEffect   = errors.New("this API server stores a MutatingAdmissionPolicy but ignores it, so refit removed it: " + older)
)

// takesEffect is how long an API server may take to act on a new policy.
const takesEffect = 30 * time.Second

// setIfNotPresent installs or removes the admission policy that starts new pods from
// images on the node. It is installed when the API server applies it.
func setIfNotPresent(ctx context.Context, c client.Client, on bool, patience time.Duration) error {
	version, err := config.MutationVersion(c.RESTMapper())
	switch {
	case err != nil:
		return err
	case version == "" && !on:
		return nil // it was never installed
	case version == "":
		return console.WithExit(console.ExitBlocked, errNoMutation)
	}
	objects, err := config.IfNotPresent(version)
	if err != nil {
		return fmt.Errorf("internal: manifests: %w", err)
	}
	if !on {
		return removeField(ctx, c, objects)
	}
	acts, err := setField(ctx, c, objects, patience)
	if err != nil || acts {
		return err
	}
	if err := removeField(ctx, c, objects); err != nil {
		return err
	}
	return console.WithExit(console.ExitBlocked, errNoEffect)
}

// setField installs them, and reports whether the API server applies them.
func setField(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, patience time.Duration) (bool, error) {
	for _, o := range objects {
		if err := applyObject(ctx, c, o); err != nil {
			return false, err
		}
	}
	return actsWithin(ctx, c, patience)
}

func removeField(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := c.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// actsWithin tries a pod with policy Always in dry runs until the API server changes it.
func actsWithin(ctx context.Context, c client.Client, patience time.Duration) (bool, error) {
	for end := time.Now().Add(patience); ; {
		p := samplePod()
		if err := c.Create(ctx, p, client.DryRunAll); err != nil {
			return false, fmt.Errorf("the policy IfNotPresent for new pods is installed, but cannot be verified, because the API server refuses the trial pod (dry run): %w", err)
		}
		if p.Spec.Containers[0].ImagePullPolicy == corev1.PullIfNotPresent {
			return true, nil
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// samplePod is a pod that the strictest rules of a namespace allow.
func samplePod() *corev1.Pod {
	yes, no := true, false
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, GenerateName: "refit-tries-"}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: &no,
		SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "try", Image: "refit.invalid/try@sha256:" + strings.Repeat("0", 64), ImagePullPolicy: corev1.PullAlways,
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
}

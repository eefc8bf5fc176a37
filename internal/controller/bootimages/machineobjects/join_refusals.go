package machineobjects

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/internal/convert"
)

// Refusal of a machine: by the server that machines fetch their configuration
// from, or by the machine's own check.
type Refusal struct {
	// Machine as namespace/name if it is known, From its address.
	Machine, From string
	At            time.Time
	Message       string
}

// Refusals that the records of tokens hold. Where no machine joins through refit
// there are none, and no right to read them.
func Refusals(ctx context.Context, c client.Client) ([]Refusal, error) {
	var l corev1.SecretList
	err := c.List(ctx, &l, client.InNamespace(convert.JoinNamespace), client.HasLabels{convert.LabelJoinPool})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list the records of tokens: %w", err)
	}
	var out []Refusal
	for i := range l.Items {
		an := l.Items[i].Annotations
		at, err := time.Parse(time.RFC3339, an[convert.AnnotationRefusedAt])
		if an[convert.AnnotationRefused] == "" || err != nil {
			continue
		}
		out = append(out, Refusal{Machine: an[convert.AnnotationMachine], From: an[convert.AnnotationRefusedFrom], At: at, Message: an[convert.AnnotationRefused]})
	}
	return out, nil
}

// Refused says why a machine was refused, empty if it was not. Addresses are used
// again: only a refusal since the machine was made is its own.
func (m *Machine) Refused(all []Refusal) string {
	if m.Object == nil || m.Joined {
		return ""
	}
	name, made := m.Object.GetNamespace()+"/"+m.Object.GetName(), m.Object.GetCreationTimestamp().Time
	message, at := "", time.Time{}
	for _, r := range all {
		same := r.Machine == name || r.Machine == "" && r.From != "" && slices.Contains(m.Addresses, r.From)
		if same && !r.At.Before(made.Truncate(time.Second)) && !r.At.Before(at) {
			message, at = r.Message, r.At
		}
	}
	return message
}

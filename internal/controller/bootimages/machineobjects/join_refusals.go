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

// Refusal is a machine that could not join: the join server or the machine's own check refused
// it.
type Refusal struct {
	// Machine is namespace/name if known, From the address.
	Machine, From string
	At            time.Time
	Message       string
}

// Refusals reads the refusals from the Secrets of join tokens. A cluster in which no machine
// joins through refit has none, and refit may not list them.
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

// RefusalMessage returns why a machine was refused, empty if it was not. Addresses are reused,
// so only a refusal since the machine's creation counts.
func (m *Machine) RefusalMessage(all []Refusal) string {
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

package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// component is who reports.
const component = "refit-agent"

// Event tells of this node what whoever looks at it should know. A kubelet's
// identity may do that.
func (c *Client) Event(ctx context.Context, reason, message string) error {
	r, err := c.client()
	if err != nil {
		return err
	}
	now := metav1.NewTime(time.Now())
	body, err := json.Marshal(corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: c.node + ".", Namespace: metav1.NamespaceDefault},
		// A kubelet's events name the node in place of its UID too: kubectl describe finds both.
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.node, UID: types.UID(c.node)},
		Reason:         reason, Message: message, Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: component, Host: c.node}, ReportingController: component, ReportingInstance: c.node,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	})
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := r.Post().AbsPath("/api/v1/namespaces/default/events").Body(body).Do(ctx).Error(); err != nil {
		return fmt.Errorf("event %s: %w", reason, err)
	}
	return nil
}

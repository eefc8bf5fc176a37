package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// component is the reporter of events.
const component = "refit-agent"

// EmitEvent records an event about this node. A kubelet's identity may do that.
func (c *Client) EmitEvent(ctx context.Context, reason, message string) error {
	r, err := c.client()
	if err != nil {
		return err
	}
	now := metav1.NewTime(time.Now())
	// An object without the Go type: with one type of core/v1, a program links them all.
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"generateName": c.node + ".", "namespace": metav1.NamespaceDefault},
		// A kubelet's events name the node in place of its UID too: kubectl describe finds both.
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Node", "name": c.node, "uid": c.node},
		"reason":         reason, "message": message, "type": "Normal",
		"source": map[string]any{"component": component, "host": c.node}, "reportingComponent": component, "reportingInstance": c.node,
		"firstTimestamp": now, "lastTimestamp": now, "count": 1,
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

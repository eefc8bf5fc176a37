package containerd

import (
	"context"
	"fmt"
)

// OwnPins are the names of the records that carry our pin.
func (c *Client) OwnPins(ctx context.Context) ([]string, error) {
	all, err := c.api.images.list(ctx, fmt.Sprintf("labels.%q==%q", ownLabel, ownValue))
	if err != nil {
		return nil, fmt.Errorf("list of pinned images: %w", err)
	}
	names := make([]string, 0, len(all))
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names, nil
}

package kube

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// Eviction says how much room the kubelet wants left before it evicts pods.
type Eviction struct {
	// NodeFS and ImageFS are thresholds such as "10%" or "1Gi", empty for none.
	NodeFS, ImageFS string
	// NodeFiles and ImageFiles are the same for inodes.
	NodeFiles, ImageFiles string
	// Collect is the room below which it collects images that are not used and
	// not pinned, empty for never.
	Collect string
}

// defaults of the kubelet when its configuration has no evictionHard, and no
// imageGCHighThresholdPercent.
var evictionDefaults = Eviction{NodeFS: "10%", ImageFS: "15%", Collect: "15%", NodeFiles: "5%", ImageFiles: "5%"}

// ReadEviction reads the kubelet's configuration. Without one, or without
// evictionHard in it, the kubelet's defaults hold; with evictionHard, a signal
// that is not in it has no threshold.
func ReadEviction(path string) Eviction {
	b, err := os.ReadFile(path)
	if err != nil {
		return evictionDefaults
	}
	var c struct {
		EvictionHard map[string]string `json:"evictionHard"`
		HighPercent  *int              `json:"imageGCHighThresholdPercent"`
	}
	out := evictionDefaults
	if yaml.Unmarshal(b, &c) != nil {
		return out
	}
	if c.HighPercent != nil {
		out.Collect = ""
		if *c.HighPercent < 100 { // 100 switches it off
			out.Collect = strconv.Itoa(100-*c.HighPercent) + "%"
		}
	}
	if len(c.EvictionHard) > 0 {
		out.NodeFS, out.ImageFS = c.EvictionHard["nodefs.available"], c.EvictionHard["imagefs.available"]
		out.NodeFiles, out.ImageFiles = c.EvictionHard["nodefs.inodesFree"], c.EvictionHard["imagefs.inodesFree"]
	}
	return out
}

// Bytes is a threshold for a file system of total bytes.
func Bytes(threshold string, total int64) (int64, error) {
	if threshold == "" {
		return 0, nil
	}
	if p, ok := strings.CutSuffix(threshold, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil {
			return 0, fmt.Errorf("eviction threshold %q: %w", threshold, err)
		}
		return int64(f / 100 * float64(total)), nil
	}
	q, err := resource.ParseQuantity(threshold)
	if err != nil {
		return 0, fmt.Errorf("eviction threshold %q: %w", threshold, err)
	}
	return q.Value(), nil
}

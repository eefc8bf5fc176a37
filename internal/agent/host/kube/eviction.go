package kube

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/distribution"
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

// NodeEviction returns a function that reads the limits of the kubelet of the node with a root
// directory, at the places of its distribution. A node of no known one has those of kubeadm. The
// distribution is detected once, the configuration is read each time.
func NodeEviction(root string) func() Eviction {
	d, _ := Detect(root)
	row, found := distribution.ByName(d.Distribution)
	at := d.Place(distribution.WhatKubeletConfig)
	if !found {
		row, _ = distribution.ByName(distribution.Kubeadm)
		at = row.Places.KubeletConfig
	}
	p := Paths{Root: root}
	return func() Eviction { return ReadEviction(row.Eviction, p.join(at), p.join(row.KubeletDropins)) }
}

// ReadEviction reads the kubelet's configuration from a file and its drop-ins, or from a
// directory of drop-ins alone. set are the limits that a distribution sets before. Without any the
// kubelet's defaults hold; with evictionHard, a signal that is not in it has no threshold.
func ReadEviction(set map[string]string, at, dropins string) Eviction {
	limits := map[string]string{}
	maps.Copy(limits, set)
	out := evictionDefaults
	for _, file := range configFiles(at, dropins) {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var c struct {
			EvictionHard map[string]string `json:"evictionHard"`
			HighPercent  *int              `json:"imageGCHighThresholdPercent"`
		}
		if yaml.Unmarshal(b, &c) != nil {
			continue
		}
		maps.Copy(limits, c.EvictionHard) // the kubelet merges drop-ins by signal, too
		if c.HighPercent != nil {
			out.Collect = ""
			if *c.HighPercent < 100 { // 100 switches it off
				out.Collect = strconv.Itoa(100-*c.HighPercent) + "%"
			}
		}
	}
	if len(limits) > 0 {
		out.NodeFS, out.ImageFS = limits["nodefs.available"], limits["imagefs.available"]
		out.NodeFiles, out.ImageFiles = limits["nodefs.inodesFree"], limits["imagefs.inodesFree"]
	}
	return out
}

// configFiles returns the files of the kubelet's configuration in its order: drop-ins by name.
func configFiles(at, dropins string) (files []string) {
	if st, err := os.Stat(at); err == nil && st.IsDir() {
		dropins = at
	} else {
		files = append(files, at)
	}
	entries, _ := os.ReadDir(dropins) // without it there are none
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".conf" {
			files = append(files, filepath.Join(dropins, e.Name()))
		}
	}
	return files
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

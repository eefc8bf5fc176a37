package bundle

import "sort"

// Changes of one name between two bundles.
const (
	ChangeAdded   = "added"
	ChangeRemoved = "removed"
	ChangeChanged = "changed"
	ChangeSame    = "same"
)

// Change is what happened to one image or payload.
type Change struct {
	// Kind is image or payload; Name with the platform for payloads.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Change is added, removed, changed or same.
	Change string `json:"change"`
	// From and To are digests, empty where there is none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Difference is what leads from one bundle to another.
type Difference struct {
	Changes []Change `json:"changes"`
	// Bytes of blobs that both have, only the first and only the second.
	SharedBytes  int64 `json:"sharedBytes"`
	RemovedBytes int64 `json:"removedBytes"`
	AddedBytes   int64 `json:"addedBytes"`
}

// Diff compares two bundles by what is in them, not by how they are packed.
func Diff(a, b *Metadata) Difference {
	var d Difference
	images := func(m *Metadata) map[string]string {
		out := map[string]string{}
		for _, i := range m.Images {
			out[i.Name] = i.Digest
		}
		return out
	}
	payloads := func(m *Metadata) map[string]string {
		out := map[string]string{}
		for _, p := range m.Payloads {
			name := p.Name
			if p.Platform != "" {
				name += " (" + p.Platform + ")"
			}
			out[name] = p.Digest
		}
		return out
	}
	d.Changes = append(changes("image", images(a), images(b)), changes("payload", payloads(a), payloads(b))...)
	sizes := map[string]int64{}
	for _, blob := range a.Blobs {
		sizes[blob.Digest] = blob.Size
		d.RemovedBytes += blob.Size
	}
	for _, blob := range b.Blobs {
		if _, ok := sizes[blob.Digest]; ok {
			d.SharedBytes += blob.Size
			d.RemovedBytes -= blob.Size
			continue
		}
		d.AddedBytes += blob.Size
	}
	return d
}

func changes(kind string, a, b map[string]string) []Change {
	out := []Change{}
	for name, from := range a {
		c := Change{Kind: kind, Name: name, Change: ChangeChanged, From: from, To: b[name]}
		switch c.To {
		case "":
			c.Change = ChangeRemoved
		case from:
			c.Change = ChangeSame
		}
		out = append(out, c)
	}
	for name, to := range b {
		if _, ok := a[name]; !ok {
			out = append(out, Change{Kind: kind, Name: name, Change: ChangeAdded, To: to})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

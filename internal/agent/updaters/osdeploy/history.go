package osdeploy

import (
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

// maxHistory is how many boots the record keeps, and maxReported how many of them a status has:
// every node of a large cluster reports them.
const (
	maxHistory  = 32
	maxReported = 6
)

// historyEntry is one change of what a machine runs.
type historyEntry struct {
	At time.Time `json:"at"`
	// Image as repository@digest, or the digest alone where no registry knows a name.
	Image string `json:"image"`
	// Result is empty for an image with which the node was well.
	Result string `json:"result,omitempty"`
}

// addHistory appends an entry, unless it repeats the last one: an interrupted step is observed again.
func (g *recordData) addHistory(at time.Time, image, result string) {
	if image == "" {
		return
	}
	if n := len(g.History); n > 0 && g.History[n-1].Image == image && g.History[n-1].Result == result {
		return
	}
	g.History = append(g.History, historyEntry{at.UTC().Truncate(time.Second), image, result})
	if n := len(g.History) - maxHistory; n > 0 {
		g.History = g.History[n:]
	}
}

// addReturn appends what a node returned to: the image that refit had booted by then, by the name in
// the history, or the stock OS.
func (g *recordData) addReturn(at time.Time, b *previousBoot) {
	image := imageName(b.Image, b.Digest)
	for _, e := range g.History {
		if _, digest, _ := strings.Cut(e.Image, "@"); b.RequestedDigest != "" && digest == b.RequestedDigest {
			image = e.Image
		}
	}
	if image == "" {
		image = g.Stock
	}
	g.addHistory(at, image, model.OSReturned)
}

// recordStock records what the machine ran before refit booted the first image on it. Later it looks
// like what refit booted.
func (r record) recordStock(d *osdriver.Deployment) error {
	return r.update(func(g *recordData) {
		if g.Stock == "" && g.RequestedDigest == "" {
			g.Stock = stockName(d)
		}
	})
}

// stockName is the image of a deployment, or model.ValueNone and why a pool cannot boot it.
func stockName(d *osdriver.Deployment) string {
	name := imageName(d.Image, d.Digest)
	switch {
	case name == "":
		name = model.ValueNone + ": " + describeStock(d)
	case !strings.Contains(name, "@"):
		name = model.ValueNone + ": " + name + " is from " + d.Image + ", which is no name of a registry"
	}
	return text.Truncate(name, maxDetail)
}

func describeStock(d *osdriver.Deployment) string {
	switch {
	case d.ID == "" || d.ID == "none":
		return "without an image"
	case d.Version == "":
		return deploymentName(d) + " is from no image"
	}
	return deploymentName(d) + " is from no image, version " + d.Version
}

// imageName is repository@digest. It is the digest alone if the host knows the image by a path.
func imageName(image, digest string) string {
	if digest == "" || image == "" || strings.HasPrefix(image, "/") {
		return digest
	}
	repository, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository = repository[:i]
	}
	return repository + "@" + digest
}

// addHistoryFields adds what the record has to a node's fields.
func (g recordData) addHistoryFields(out map[string]string) {
	if g.Stock != "" {
		out[model.FieldOSStock] = g.Stock
	}
	if len(g.History) > 0 {
		out[model.FieldOSHistory] = g.historyValue()
	}
}

// historyValue is the value of the field with the last entries, the newest last.
func (g recordData) historyValue() string {
	var out []string
	for _, e := range g.History[max(0, len(g.History)-maxReported):] {
		line := e.At.Format(time.RFC3339) + " " + e.Image
		if e.Result != "" {
			line += " " + e.Result
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}
